// Causal depthwise convolution: shape check and reference of Ops::conv1d_silu.
#pragma once

#include "ops/ops.h"

namespace quire {

// x and y [T, C], state [W-1, C], one format; w [C, W] with W >= 1.
void check_conv1d_silu(const Rows& x, std::span<const float> w, const Rows& state, const Rows& y);

namespace reference {

void conv1d_silu(Stream&, Rows x, std::span<const float> w, Rows state, Rows y);

}  // namespace reference
}  // namespace quire
