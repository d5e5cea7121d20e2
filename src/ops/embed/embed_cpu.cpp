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

void scatter_rows(Stream& s, Rows from, std::span<const std::int32_t> rows, Rows x) {
  check_scatter_rows(from, rows, x);
  const auto bytes = static_cast<std::size_t>(x.cols * size_of(x.format));
  for_rows(s, from.rows, x.cols, [&](std::int64_t i) {
    const std::int64_t to = rows[static_cast<std::size_t>(i)];
    std::memcpy(static_cast<std::byte*>(x.data) + to * x.stride * size_of(x.format),
                static_cast<const std::byte*>(from.data) + i * from.stride * size_of(from.format), bytes);
  });
}

}  // namespace quire::QUIRE_ISA
