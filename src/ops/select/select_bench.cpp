#include <fmt/format.h>

#include "ops/bench.h"

namespace quire {
namespace {

// The selector of a published drafter, on blocks of 16.
const bool kRegistered = [] {
  for (std::int64_t V : {4096, 248320})
    register_for_tables("select_drafts", fmt::format("V={}", V),
                        [=](benchmark::State& state, const Ops& ops, Stream& stream) {
                          constexpr std::int64_t T = 16, R = 256;
                          constexpr int K = 16;
                          Random random(1);
                          const Matrix logits = random_matrix(random, Format::f32, T, V, 3, 0);
                          const Matrix projected = random_matrix(random, Format::f32, T, R, 1, 0);
                          const Matrix codes = random_matrix(random, Format::bf16, V, R, 0.1f, 0);
                          const std::int32_t first_row[] = {0, T};
                          std::vector<std::int32_t> ids(T);
                          const Work work{.flop = 4.0 * T * K * R,
                                          .bytes = 4.0 * T * static_cast<double>(V) + 2.0 * T * K * R};
                          measure(state, work, [&](std::int64_t) {
                            ops.select_drafts(stream,
                                              {.logits = logits,
                                               .projected = projected,
                                               .predecessor = codes.weight(),
                                               .successor = codes.weight(),
                                               .candidates = K,
                                               .requests = {.count = 1, .longest = T, .first_row = first_row},
                                               .ids = ids.data()});
                          });
                        });
  return true;
}();

}  // namespace
}  // namespace quire
