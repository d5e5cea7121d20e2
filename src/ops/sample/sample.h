// Drawing a token for each row: shape check and reference of Ops::sample. The rule, in f32 unless stated; a
// step that its setting turns off is left out.
//
// - l: the logits of the row. logprob = (l[token] - max l) - log sum exp(l - max l).
// - p: l after penalties: l / r if l > 0, else l * r, for what was seen; then - presence, then
//   - frequency * count, for what is in the output. A NaN is never drawn.
// - Temperature 0, or no finite maximum: the token with the largest p, of equal ones the lowest id; 0 when
//   there is nothing but NaN and -inf.
// - ratio: e^((p - max p) * min(1 / temperature, 1e30)) by the polynomial in sample_ref.cpp; 0 when below
//   2^-40.
// - weight: floor(2^40 ratio), 64 bits. Tokens of weight 0 are never drawn.
// - rank: the larger ratio first, of equal ones the lower id.
// - top_k keeps the first k.
// - min_p keeps ratio >= min_p.
// - top_p keeps a token when the weights of the tokens before it add up to less than top_p of all that are
//   kept, a product in double; the first always.
// - draw: the lowest id at which the sum of the kept weights, in order of id, exceeds
//   floor(u * their total / 2^64), u of 64 random bits (draw.h).
//
// Weights are integers so that their sums are exact: they need no order, and every table draws the same
// token.
#pragma once

#include "ops/ops.h"

namespace quire {

inline constexpr std::int64_t kLargestVocabulary = std::int64_t{1} << 22;  // the sum of weights fits 63 bits

// logits [T, V] in f32, 1 <= V <= kLargestVocabulary; out [T]; settings, slot and position unless T is 0.
void check_sample(const Sample&);

namespace reference {

void sample(Stream&, const Sample&);

}  // namespace reference
}  // namespace quire
