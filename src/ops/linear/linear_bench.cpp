#include <fmt/format.h>

#include "ops/bench.h"

namespace quire {
namespace {

struct Layer {
  const char* name;
  std::int64_t in, out;
};
constexpr Layer kLayers[] = {
    {"mini gdn in_proj_qkv", 256, 512}, {"mini mlp gate", 256, 768},    {"mini mlp down", 768, 256},
    {"mini lm_head", 256, 4096},        {"mini vision fc1", 256, 1024}, {"0.8B gdn in_proj_qkv", 1024, 6144},
    {"0.8B mlp gate", 1024, 3584},      {"0.8B mlp down", 3584, 1024},
};

// In a decode step a weight was last read one step ago, when its turn comes: at best it is in the last-level
// cache. So the calls go round copies that no core's own cache holds.
constexpr double kRotatedBytes = 32e6;

void run(benchmark::State& state, const Ops& ops, Stream& stream, Format a, std::int64_t T, Layer layer) {
  Random random(1);
  const double weight_bytes = 2.0 * static_cast<double>(layer.in * layer.out);
  std::vector<Matrix> weights;
  do {
    weights.push_back(random_matrix(random, Format::bf16, layer.out, layer.in, 0.02f, 0));
  } while (static_cast<double>(weights.size()) * weight_bytes < kRotatedBytes);
  const Matrix x = random_matrix(random, a, T, layer.in, 1, 0);
  Matrix y(a, T, layer.out, 0);
  const auto elements = static_cast<double>(T * (layer.in + layer.out));
  measure(state, {2.0 * static_cast<double>(T * layer.in * layer.out), weight_bytes + size_of(a) * elements},
          [&](std::int64_t i) { ops.linear(stream, x, weights[i % std::ssize(weights)].weight(), {}, y); });
}

const bool kRegistered = [] {
  for (const Layer& layer : kLayers)
    for (std::int64_t T : {1, 16, 512})
      for (Format a : {Format::bf16, Format::f32})
        register_for_tables("linear",
                            fmt::format("{} {}x{}/T={}/{}", layer.name, layer.out, layer.in, T,
                                        a == Format::bf16 ? "bf16" : "f32"),
                            [=](benchmark::State& state, const Ops& ops, Stream& stream) {
                              run(state, ops, stream, a, T, layer);
                            });
  return true;
}();

}  // namespace
}  // namespace quire
