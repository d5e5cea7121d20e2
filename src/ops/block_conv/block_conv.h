// A convolution along the rows of each request, with weights that every row chooses for groups of channels:
// shape checks and references of Ops::block_conv and Ops::add_conv_rms_norm. For row i of a request and
// channel c, in group g = c / (D / groups):
//
//   y[i, c] = sum_{t = 0}^{min(i, W - 1)} (base[t, c] + chosen[i, t * groups + g]) x[i - t, c]
//
// Tap 0 meets the row itself, tap t the row t before it; before a request's first row there is nothing. Sums
// are f32, from tap 0 on, rounded once. The equation is that of DFlash2's drafters (MODEL.md), where a
// request's rows are a block.
#pragma once

#include "ops/ops.h"

namespace quire {

// x and y [T, D]; base [W, D], W >= 1; chosen [T, W * groups] with D a multiple of groups; one format.
void check_block_conv(const Rows& x, const BlockConv& conv, const Rows& y);
// As check_block_conv from r, and as check_add_rms_norm; r is not x.
void check_add_conv_rms_norm(const Rows& x, const Rows& r, const BlockConv& conv, std::span<const float> w,
                             const Rows& y);

namespace reference {

void block_conv(Stream&, Rows x, const BlockConv& conv, Rows y);
void add_conv_rms_norm(Stream&, Rows x, Rows r, const BlockConv& conv, std::span<const float> w, float eps,
                       Rows y);

}  // namespace reference
}  // namespace quire
