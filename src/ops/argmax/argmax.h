// Greedy choice: shape check and reference of Ops::argmax.
#pragma once

#include "ops/ops.h"

namespace quire {

// logits [T, V] in f32, V >= 1; out [T].
void check_argmax(const Rows& logits, std::span<Sampled> out);

namespace reference {

// A NaN never wins against a number; a row of NaN gives token 0.
void argmax(Stream&, Rows logits, std::span<Sampled> out);

}  // namespace reference
}  // namespace quire
