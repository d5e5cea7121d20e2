#include <fmt/format.h>

#include "ops/bench.h"

namespace quire {
namespace {

struct Shape {
  const char* name;
  int Hk, Hv, Ek, Ev;
};
constexpr Shape kShapes[] = {{"mini", 1, 2, 128, 128}, {"0.8B", 16, 16, 128, 128}};

// The recurrence is the least work known: a token decays the state (1 FLOP an element), reads it twice (2 +
// 2) and writes a rank-1 correction (2). The state moves in and out once a call.
void run(benchmark::State& state, const Ops& ops, Stream& stream, bool prefill, Shape s, std::int64_t T) {
  Random random(1);
  const Matrix qkv = random_matrix(random, Format::bf16, T, 2 * s.Hk * s.Ek + s.Hv * s.Ev, 1, 0);
  Matrix out(Format::bf16, T, std::int64_t{s.Hv} * s.Ev, 0);
  std::vector<float> S(static_cast<std::size_t>(s.Hv) * s.Ek * s.Ev, 0.0f), g, beta;
  for (std::int64_t i = 0; i < T * s.Hv; ++i) {
    g.push_back(random.uniform(-0.1, 0));
    beta.push_back(random.uniform(0, 1));
  }
  const GatedDelta call{.qkv = qkv,
                        .key_heads = s.Hk,
                        .value_heads = s.Hv,
                        .key_dim = s.Ek,
                        .value_dim = s.Ev,
                        .g = g,
                        .beta = beta,
                        .state = S,
                        .out = out};
  const auto state_elements = static_cast<double>(S.size());
  const auto row_bytes = static_cast<double>(2 * (qkv.cols() + out.cols()) + 8 * s.Hv);
  measure(
      state,
      {7 * state_elements * static_cast<double>(T), 8 * state_elements + row_bytes * static_cast<double>(T)},
      [&](std::int64_t) { (prefill ? ops.gdn_prefill : ops.gdn_window)(stream, call); });
}

const bool kRegistered = [] {
  for (const Shape& s : kShapes) {
    for (std::int64_t T : {64, 512, 832})
      register_for_tables("gdn_prefill", fmt::format("{}/T={}", s.name, T),
                          [=](benchmark::State& state, const Ops& ops, Stream& stream) {
                            run(state, ops, stream, true, s, T);
                          });
    for (std::int64_t T : {1, 8})
      register_for_tables("gdn_window", fmt::format("{}/T={}", s.name, T),
                          [=](benchmark::State& state, const Ops& ops, Stream& stream) {
                            run(state, ops, stream, false, s, T);
                          });
  }
  return true;
}();

}  // namespace
}  // namespace quire
