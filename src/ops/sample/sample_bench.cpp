#include <fmt/format.h>

#include "ops/bench.h"

namespace quire {
namespace {

struct Case {
  const char* name;
  SamplingSettings settings;
};
const Case kCases[] = {
    {"greedy", {}},
    {"temperature", {.temperature = 0.8f}},
    {"top_k+top_p", {.temperature = 0.8f, .top_k = 20, .top_p = 0.95f}},
};

const bool kRegistered = [] {
  for (const Case& c : kCases)
    for (std::int64_t V : {4096, 248320})
      for (std::int64_t T : {1, 16})
        register_for_tables("sample", fmt::format("{}/V={}/T={}", c.name, V, T),
                            [=](benchmark::State& state, const Ops& ops, Stream& stream) {
                              Random random(1);
                              const Matrix logits = random_matrix(random, Format::f32, T, V, 3, 0);
                              const std::vector<std::int32_t> zeros(static_cast<std::size_t>(T));
                              std::vector<Sampled> out(static_cast<std::size_t>(T));
                              const auto elements = static_cast<double>(T * V);
                              measure(state, {12 * elements, 4 * elements}, [&](std::int64_t) {
                                ops.sample(stream, {.logits = logits,
                                                    .settings = &c.settings,
                                                    .slot = zeros.data(),
                                                    .position = zeros.data(),
                                                    .out = out});
                              });
                            });
  return true;
}();

}  // namespace
}  // namespace quire
