#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/position_embedding/position_embedding.h"

namespace quire {
namespace {

// Where patch `i` of `n` falls on a table side of G entries: between `low` and `high`, `frac` of the way.
struct Tap {
  std::int64_t low, high;
  double frac;
};

Tap tap(int i, int n, std::int64_t G) {
  const double at = static_cast<double>(i) * static_cast<double>(G - 1) / std::max(n - 1, 1);
  const auto low = static_cast<std::int64_t>(at);
  return {low, std::min(low + 1, G - 1), at - static_cast<double>(low)};
}

}  // namespace

void check_add_position_embedding(const Rows& x, const Weight& table, int grid_height, int grid_width,
                                  int merge) {
  check_weight("add_position_embedding", "table", table);
  check_rows("add_position_embedding", "x", x, std::int64_t{grid_height} * grid_width, table.in, x.format);
  QUIRE_CHECK(
      merge > 0 && grid_height >= 0 && grid_width >= 0 && grid_height % merge == 0 && grid_width % merge == 0,
      "add_position_embedding: a grid of {} x {} patches in blocks of {} x {}", grid_height, grid_width,
      merge, merge);
  const std::int64_t G = std::llround(std::sqrt(static_cast<double>(table.out)));
  QUIRE_CHECK(G * G == table.out, "add_position_embedding: a table of {} rows is no square", table.out);
}

void reference::add_position_embedding(Stream&, Rows x, const Weight& table, int grid_height, int grid_width,
                                       int merge) {
  check_add_position_embedding(x, table, grid_height, grid_width, merge);
  const std::int64_t G = std::llround(std::sqrt(static_cast<double>(table.out)));
  std::int64_t p = 0;
  for (int block_r = 0; block_r < grid_height; block_r += merge)
    for (int block_c = 0; block_c < grid_width; block_c += merge)
      for (int r = block_r; r < block_r + merge; ++r)
        for (int c = block_c; c < block_c + merge; ++c, ++p) {
          const Tap y = tap(r, grid_height, G), z = tap(c, grid_width, G);
          for (std::int64_t d = 0; d < x.cols; ++d) {
            const double top = load(table, y.low * G + z.low, d) * (1 - z.frac) +
                               load(table, y.low * G + z.high, d) * z.frac;
            const double bottom = load(table, y.high * G + z.low, d) * (1 - z.frac) +
                                  load(table, y.high * G + z.high, d) * z.frac;
            store(x, p, d, load(x, p, d) + top * (1 - y.frac) + bottom * y.frac);
          }
        }
}

}  // namespace quire
