// Softmax attention: shape checks and references of Ops::attention_prefill and attention_window (one
// contract, one reference), attention_gate and vision_attention.
#pragma once

#include "ops/ops.h"

namespace quire {

// Shapes as in Attention, one format; H a multiple of G; pages of a multiple of 64 rows.
void check_attention(const Attention& a);
// Where the arrays of the requests are in host memory: rows in order, every key that is seen in a page of the
// pools.
void check_attention_requests(const Attention& a);
// The first key that the row of sequence index `index` sees in a step whose rows begin at index `start`.
template <typename Int>
constexpr Int first_key_seen(std::int32_t sliding_window, Int start, Int index) {
  if (sliding_window == 0 || index < sliding_window) return 0;
  const Int first = index - sliding_window + 1;
  return first < start ? first : start;
}
// x and y [T, H E], q_gate [T, H 2E], one format.
void check_attention_gate(const Rows& x, const Rows& q_gate, int head_dim, const Rows& y);
// Shapes as in VisionAttention, one format; D a multiple of heads.
void check_vision_attention(const VisionAttention& a);

namespace reference {

void attention(Stream&, const Attention& a);
void attention_gate(Stream&, Rows x, Rows q_gate, int head_dim, Rows y);
void vision_attention(Stream&, const VisionAttention& a);

}  // namespace reference
}  // namespace quire
