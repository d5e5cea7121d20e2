#include <cmath>

#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"
#include "ops/position_embedding/position_embedding.h"

namespace quire::QUIRE_ISA {
namespace {

// Where one side of the grid meets the table: two neighbouring rows and the weight of the second.
struct Tap {
  std::int64_t low, high;
  float weight;
};

Tap tap(std::int64_t i, std::int64_t count, std::int64_t table_side) {
  const float at = static_cast<float>(i) * (static_cast<float>(table_side - 1) /
                                            static_cast<float>(std::max<std::int64_t>(count - 1, 1)));
  const auto low = std::min(static_cast<std::int64_t>(at), table_side - 1);
  return {low, std::min(low + 1, table_side - 1), at - static_cast<float>(low)};
}

}  // namespace

void add_position_embedding(Stream& s, Rows x, const Weight& table, int grid_height, int grid_width,
                            int merge) {
  check_add_position_embedding(x, table, grid_height, grid_width, merge);
  const auto side = static_cast<std::int64_t>(std::lround(std::sqrt(static_cast<double>(table.out))));
  const std::int64_t block = merge * merge, blocks_across = grid_width / merge;
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    with_type(table.format, [&](auto u) {
      using U = decltype(u);
      for_rows(s, x.rows, 8 * x.cols, [&](std::int64_t p) {
        const std::int64_t b = p / block, inside = p % block;
        const Tap y = tap(b / blocks_across * merge + inside / merge, grid_height, side);
        const Tap z = tap(b % blocks_across * merge + inside % merge, grid_width, side);
        const auto entry = [&](std::int64_t r, std::int64_t c) {
          return static_cast<const U*>(table.data) + (r * side + c) * table.in;
        };
        const U *top_left = entry(y.low, z.low), *top_right = entry(y.low, z.high);
        const U *bottom_left = entry(y.high, z.low), *bottom_right = entry(y.high, z.high);
        T* out = row<T>(x, p);
        const auto mix = [](Vf a, Vf v, float weight) {
          return fma(v, set1(weight), mul(a, set1(1.0f - weight)));
        };
        for_lanes(x.cols, [&](std::int64_t j, int n) {
          const Vf top = mix(load_lanes(top_left + j, n), load_lanes(top_right + j, n), z.weight);
          const Vf bottom = mix(load_lanes(bottom_left + j, n), load_lanes(bottom_right + j, n), z.weight);
          store_lanes(out + j, QUIRE_ISA::add(load_lanes(out + j, n), mix(top, bottom, y.weight)), n);
        });
      });
    });
  });
}

}  // namespace quire::QUIRE_ISA
