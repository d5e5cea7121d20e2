// Rows put in place: shape checks and references of Ops::embed and scatter_rows.
#pragma once

#include "ops/ops.h"

namespace quire {

// ids [T], each in [0, table.out); y [T, table.in].
void check_embed(std::span<const std::int32_t> ids, const Weight& table, const Rows& y);
// from [n, C], one row for each index in [0, T); x [T, C], one format.
void check_scatter_rows(const Rows& from, std::span<const std::int32_t> rows, const Rows& x);

namespace reference {

void embed(Stream&, std::span<const std::int32_t> ids, const Weight& table, Rows y);
void scatter_rows(Stream&, Rows from, std::span<const std::int32_t> rows, Rows x);

}  // namespace reference
}  // namespace quire
