#include <fmt/format.h>

#include "ops/bench.h"

namespace quire {
namespace {

// The convolution of a published drafter, on a block of 16.
const bool kRegistered = [] {
  for (std::int64_t D : {1024, 2560})
    register_for_tables(
        "block_conv", fmt::format("D={}", D), [=](benchmark::State& state, const Ops& ops, Stream& stream) {
          constexpr std::int64_t T = 16, W = 2, kGroup = 16;
          Random random(1);
          const Matrix x = random_matrix(random, Format::bf16, T, D, 1, 0);
          const Matrix chosen = random_matrix(random, Format::bf16, T, W * D / kGroup, 1, 0);
          const std::vector<float> base = normals(random, W * D);
          const Matrix y(Format::bf16, T, D, 0);
          const std::int32_t first_row[] = {0, T};
          const BlockConv conv{
              .base = base, .chosen = chosen, .requests = {.count = 1, .longest = T, .first_row = first_row}};
          const double elements = static_cast<double>(T * D);
          measure(state, {3.0 * W * elements, 4 * elements + 4.0 * W * static_cast<double>(D)},
                  [&](std::int64_t) { ops.block_conv(stream, x, conv, y); });
        });
  return true;
}();

}  // namespace
}  // namespace quire
