#include <algorithm>
#include <vector>

#include "core/error.h"
#include "ops/block_conv/block_conv.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/norm/norm.h"

namespace quire {

void check_block_conv(const Rows& x, const BlockConv& conv, const Rows& y) {
  const std::int64_t D = x.cols, base = std::ssize(conv.base);
  QUIRE_CHECK(D > 0 && base > 0 && base % D == 0,
              "block_conv: {} weights for {} channels, expected a positive multiple", base, D);
  const std::int64_t W = base / D, groups = conv.chosen.cols / W;
  QUIRE_CHECK(
      groups > 0 && conv.chosen.cols == W * groups && D % groups == 0,
      "block_conv: {} chosen weights for {} taps and {} channels, expected as many for each tap, and a "
      "divisor of the channels",
      conv.chosen.cols, W, D);
  check_rows("block_conv", "x", x, x.rows, D, x.format);
  check_rows("block_conv", "y", y, x.rows, D, x.format);
  check_rows("block_conv", "chosen", conv.chosen, x.rows, W * groups, x.format);
  QUIRE_CHECK(x.data != y.data || x.rows == 0, "block_conv: y is x");
  QUIRE_CHECK(conv.requests.count >= 0 && conv.requests.first_row,
              "block_conv: {} requests without first rows", conv.requests.count);
}

void check_add_conv_rms_norm(const Rows& x, const Rows& r, const BlockConv& conv, std::span<const float> w,
                             const Rows& y) {
  check_block_conv(r, conv, y);
  check_add_rms_norm(x, r, x, w, y);
  QUIRE_CHECK(r.data != x.data || x.rows == 0, "add_conv_rms_norm: r is x");
}

void reference::block_conv(Stream&, Rows x, const BlockConv& conv, Rows y) {
  check_block_conv(x, conv, y);
  const std::int64_t D = x.cols, W = std::ssize(conv.base) / D, groups = conv.chosen.cols / W;
  for (std::int32_t r = 0; r < conv.requests.count; ++r) {
    const std::int64_t first = conv.requests.first_row[r];
    for (std::int64_t t = first; t < conv.requests.first_row[r + 1]; ++t)
      for (std::int64_t c = 0; c < D; ++c) {
        const std::int64_t group = c / (D / groups);
        double sum = 0;
        for (std::int64_t tap = 0; tap < W && tap <= t - first; ++tap) {
          const double weight = double{conv.base[tap * D + c]} + load(conv.chosen, t, tap * groups + group);
          sum += weight * load(x, t - tap, c);
        }
        store(y, t, c, sum);
      }
  }
}

void reference::add_conv_rms_norm(Stream& s, Rows x, Rows r, const BlockConv& conv, std::span<const float> w,
                                  float eps, Rows y) {
  check_add_conv_rms_norm(x, r, conv, w, y);
  std::vector<std::byte> memory(static_cast<std::size_t>(r.rows * r.cols * size_of(r.format)));
  const Rows mixed{
      .data = memory.data(), .format = r.format, .rows = r.rows, .cols = r.cols, .stride = r.cols};
  block_conv(s, r, conv, mixed);
  add_rms_norm(s, x, mixed, x, w, eps, y);
}

}  // namespace quire
