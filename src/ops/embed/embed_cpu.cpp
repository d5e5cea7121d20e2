#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"
#include "ops/embed/embed.h"

namespace quire::QUIRE_ISA {

void embed(Stream& s, std::span<const std::int32_t> ids, const Weight& table, Rows y) {
  check_embed(ids, table, y);
  with_type(y.format, [&](auto t) {
    using T = decltype(t);
    with_type(table.format, [&](auto u) {
      using U = decltype(u);
      for_rows(s, y.rows, y.cols, [&](std::int64_t i) {
        const U* from = static_cast<const U*>(table.data) + ids[static_cast<std::size_t>(i)] * table.in;
        T* to = row<T>(y, i);
        for_lanes(y.cols, [&](std::int64_t j, int n) { store_lanes(to + j, load_lanes(from + j, n), n); });
      });
    });
  });
}

}  // namespace quire::QUIRE_ISA
