// Rows of the embedding table: shape check and reference of Ops::embed.
#pragma once

#include "ops/ops.h"

namespace quire {

// ids [T], each in [0, table.out); y [T, table.in].
void check_embed(std::span<const std::int32_t> ids, const Weight& table, const Rows& y);

namespace reference {

void embed(Stream&, std::span<const std::int32_t> ids, const Weight& table, Rows y);

}  // namespace reference
}  // namespace quire
