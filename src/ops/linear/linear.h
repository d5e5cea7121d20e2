// Matrix product: shape check and reference of Ops::linear (contract in ops/ops.h).
#pragma once

#include "ops/ops.h"

namespace quire {

// x [T, in] in bf16 or f32, w [out, in], bias [out] or empty, y [T, out] in the format of x or in f32.
void check_linear(const Rows& x, const Weight& w, std::span<const float> bias, const Rows& y);

namespace reference {

void linear(Stream&, Rows x, const Weight& w, std::span<const float> bias, Rows y);

}  // namespace reference
}  // namespace quire
