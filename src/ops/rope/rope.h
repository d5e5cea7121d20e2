// Rotary embeddings: shape checks and references of Ops::rotary, qk_norm_rope, join_kv and vision_rope.
#pragma once

#include "ops/ops.h"

namespace quire {

// cos and sin [T, R/2] with R even.
void check_rotary(const Rotary& a);
// Which of the three positions frequency i turns by.
constexpr int rotary_stream(int i, int section_h, int section_w) {
  if (i % 3 == 1 && i < 3 * section_h) return 1;
  if (i % 3 == 2 && i < 3 * section_w) return 2;
  return 0;
}
// Shapes as in QkNormRope, one format; cos and sin [T, R/2] with the same R <= E.
void check_qk_norm_rope(const QkNormRope& a);
// Where kv_row is in host memory: every row -1 or one of the pools'.
void check_kv_rows(const QkNormRope& a);
// One of the layers, as a call of qk_norm_rope without queries.
QkNormRope keys_alone(const JoinKv& a, const JoinKv::Layer& layer);
// As check_qk_norm_rope for each of at most kMostJoined layers of one shape.
void check_join_kv(const JoinKv& a);
// qkv [N, 3D], D = heads * E with E even; cos and sin [N, E/2].
void check_vision_rope(const Rows& qkv, int heads, std::span<const float> cos, std::span<const float> sin);

namespace reference {

void rotary(Stream&, const Rotary& a);
void qk_norm_rope(Stream&, const QkNormRope& a);
void join_kv(Stream&, const JoinKv& a);
void vision_rope(Stream&, Rows qkv, int heads, std::span<const float> cos, std::span<const float> sin);

}  // namespace reference
}  // namespace quire
