// Learned positions of patches: shape check and reference of Ops::add_position_embedding.
#pragma once

#include "ops/ops.h"

namespace quire {

// x [grid_height * grid_width, D], both sides multiples of merge; table [G*G, D].
void check_add_position_embedding(const Rows& x, const Weight& table, int grid_height, int grid_width,
                                  int merge);

namespace reference {

void add_position_embedding(Stream&, Rows x, const Weight& table, int grid_height, int grid_width, int merge);

}  // namespace reference
}  // namespace quire
