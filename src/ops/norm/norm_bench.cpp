#include <fmt/format.h>

#include "ops/bench.h"

namespace quire {
namespace {

constexpr float kEps = 1e-6f;

// `streams` rows are read or written for each row of the result, about `flop` operations an element.
template <typename Call>
void register_norm(const char* name, int streams, double flop, Call call) {
  for (std::int64_t D : {256, 1024})
    for (std::int64_t T : {1, 512, 3072})
      register_for_tables(
          name, fmt::format("{}/T={}", D == 256 ? "mini" : "0.8B", T),
          [=](benchmark::State& state, const Ops& ops, Stream& stream) {
            Random random(1);
            const Matrix x = random_matrix(random, Format::bf16, T, D, 1, 0);
            const Matrix r =
                random_matrix(random, Format::bf16, T, D, 1e-6f, 0);  // keeps the sum in place bounded
            Matrix y(Format::bf16, T, D, 0);
            const std::vector<float> w = normals(random, D);
            const auto elements = static_cast<double>(T * D);
            measure(state, {flop * elements, 2 * streams * elements + 4 * static_cast<double>(D)},
                    [&](std::int64_t) { call(ops, stream, x, r, w, y); });
          });
}

const bool kRegistered = [] {
  using Weights = const std::vector<float>&;
  register_norm("rms_norm", 2, 4, [](const Ops& ops, Stream& s, Rows x, Rows, Weights w, Rows y) {
    ops.rms_norm(s, x, w, kEps, y);
  });
  register_norm("add_rms_norm", 4, 5, [](const Ops& ops, Stream& s, Rows x, Rows r, Weights w, Rows y) {
    ops.add_rms_norm(s, x, r, x, w, kEps, y);
  });
  register_norm("gated_rms_norm", 3, 8, [](const Ops& ops, Stream& s, Rows x, Rows r, Weights w, Rows y) {
    ops.gated_rms_norm(s, x, r, std::span(w).first(128), kEps, y);
  });
  register_norm("layer_norm", 2, 7, [](const Ops& ops, Stream& s, Rows x, Rows, Weights w, Rows y) {
    ops.layer_norm(s, x, w, w, kEps, y);
  });
  return true;
}();

}  // namespace
}  // namespace quire
