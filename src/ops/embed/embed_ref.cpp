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

void reference::embed(Stream&, std::span<const std::int32_t> ids, const Weight& table, Rows y) {
  check_embed(ids, table, y);
  for (std::int64_t t = 0; t < y.rows; ++t)
    for (std::int64_t c = 0; c < y.cols; ++c) store(y, t, c, load(table, ids[t], c));
}

}  // namespace quire
