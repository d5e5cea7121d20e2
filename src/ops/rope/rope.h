// Rotary embeddings: shape checks and references of Ops::qk_norm_rope and vision_rope.
#pragma once

#include "ops/ops.h"

namespace quire {

// Shapes as in QkNormRope, one format; cos and sin [T, R/2] with the same R <= E.
void check_qk_norm_rope(const QkNormRope& a);
// qkv [N, 3D], D = heads * E with E even; cos and sin [N, E/2].
void check_vision_rope(const Rows& qkv, int heads, std::span<const float> cos, std::span<const float> sin);

namespace reference {

void qk_norm_rope(Stream&, const QkNormRope& a);
void vision_rope(Stream&, Rows qkv, int heads, std::span<const float> cos, std::span<const float> sin);

}  // namespace reference
}  // namespace quire
