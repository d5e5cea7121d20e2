#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/embed/embed.h"

namespace quire {

void check_embed(std::span<const std::int32_t> ids, const Weight& table, const Rows& y) {
  check_weight("embed", "table", table);
  check_rows("embed", "y", y, static_cast<std::int64_t>(ids.size()), table.in, y.format);
  for (std::size_t t = 0; t < ids.size(); ++t)
    QUIRE_CHECK(ids[t] >= 0 && ids[t] < table.out, "embed: ids[{}] is {}, the table has {} rows", t, ids[t],
                table.out);
}

void check_scatter_rows(const Rows& from, std::span<const std::int32_t> rows, const Rows& x) {
  check_rows("scatter_rows", "x", x, x.rows, x.cols, x.format);
  check_rows("scatter_rows", "from", from, static_cast<std::int64_t>(rows.size()),
             rows.empty() ? from.cols : x.cols, rows.empty() ? from.format : x.format);
  for (std::size_t i = 0; i < rows.size(); ++i)
    QUIRE_CHECK(rows[i] >= 0 && rows[i] < x.rows, "scatter_rows: rows[{}] is {}, x has {} rows", i, rows[i],
                x.rows);
}

void reference::embed(Stream&, std::span<const std::int32_t> ids, const Weight& table, Rows y) {
  check_embed(ids, table, y);
  for (std::int64_t t = 0; t < y.rows; ++t)
    for (std::int64_t c = 0; c < y.cols; ++c) store(y, t, c, load(table, ids[t], c));
}

void reference::scatter_rows(Stream&, Rows from, std::span<const std::int32_t> rows, Rows x) {
  check_scatter_rows(from, rows, x);
  for (std::int64_t i = 0; i < from.rows; ++i)
    for (std::int64_t c = 0; c < x.cols; ++c) store(x, rows[i], c, load(from, i, c));
}

}  // namespace quire
