// Channels are the lanes, a group at a time: the weight that a row chooses is one number for all of them.
#include "ops/block_conv/block_conv.h"
#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"

namespace quire::QUIRE_ISA {
namespace {

// The first row of the request that row t belongs to; rows of nobody are a request of their own.
std::int64_t first_row_of(const Requests& requests, std::int64_t t) {
  std::int64_t first = 0;
  for (std::int32_t r = 0; r <= requests.count && requests.first_row[r] <= t; ++r)
    first = requests.first_row[r];
  return first;
}

}  // namespace

void block_conv(Stream& s, Rows x, const BlockConv& conv, Rows y) {
  check_block_conv(x, conv, y);
  const std::int64_t D = x.cols, W = static_cast<std::int64_t>(conv.base.size()) / D;
  const std::int64_t groups = conv.chosen.cols / W, width = D / groups;
  with_type(x.format, [&](auto type) {
    using T = decltype(type);
    for_rows(s, x.rows, 2 * W * D, [&](std::int64_t t) {
      const std::int64_t taps = std::min(W, t - first_row_of(conv.requests, t) + 1);
      const T* chosen = row<T>(conv.chosen, t);
      for (std::int64_t g = 0; g < groups; ++g) {
        for_lanes(width, [&](std::int64_t j, int n) {
          const std::int64_t c = g * width + j;
          Vf acc = zero();
          for (std::int64_t tap = 0; tap < taps; ++tap) {
            const Vf weight = QUIRE_ISA::add(load_lanes(conv.base.data() + tap * D + c, n),
                                             set1(to_float(chosen[tap * groups + g])));
            acc = fma(weight, load_lanes(row<T>(x, t - tap) + c, n), acc);
          }
          store_lanes(row<T>(y, t) + c, acc, n);
        });
      }
    });
  });
}

void add_conv_rms_norm(Stream& s, Rows x, Rows r, const BlockConv& conv, std::span<const float> w, float eps,
                       Rows y) {
  check_add_conv_rms_norm(x, r, conv, w, y);
  const auto bytes = static_cast<std::size_t>(r.rows * r.cols * size_of(r.format));
  const Rows mixed{
      .data = s.scratch_bytes(bytes), .format = r.format, .rows = r.rows, .cols = r.cols, .stride = r.cols};
  block_conv(s, r, conv, mixed);
  add_rms_norm(s, x, mixed, x, w, eps, y);
}

}  // namespace quire::QUIRE_ISA
