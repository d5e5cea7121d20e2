// Matrix products: shape checks and references of Ops::linear and Ops::project (contracts in ops/ops.h).
#pragma once

#include "ops/ops.h"

namespace quire {

// x [T, in] in bf16 or f32, w [out, in], bias [out] or empty, y [T, out] in the format of x or in f32.
void check_linear(const Rows& x, const Weight& w, std::span<const float> bias, const Rows& y);
// As check_linear for each of at most kMostProjections parts, without bias.
void check_project(const Rows& x, std::span<const Projection> parts);

namespace reference {

void linear(Stream&, Rows x, const Weight& w, std::span<const float> bias, Rows y);
void project(Stream&, Rows x, std::span<const Projection> parts);

}  // namespace reference
}  // namespace quire
