// Matrix products: shape checks and references of Ops::linear, project and project_swiglu (contracts in
// ops/ops.h).
#pragma once

#include "ops/ops.h"

namespace quire {

// x [T, in] in bf16 or f32, w [out, in], bias [out] or empty, y [T, out] in the format of x or in f32.
void check_linear(const Rows& x, const Weight& w, std::span<const float> bias, const Rows& y);
// As check_linear for each of at most kMostProjections parts, without bias; a part with maxima has y in f32.
void check_project(const Rows& x, std::span<const Projection> parts);
// As check_linear for both weights; `spare` and y are alike, and in the format of x.
void check_project_swiglu(const Rows& x, const Weight& gate, const Weight& up, const Rows& spare,
                          const Rows& y);

namespace reference {

void linear(Stream&, Rows x, const Weight& w, std::span<const float> bias, Rows y);
void project(Stream&, Rows x, std::span<const Projection> parts);
void project_swiglu(Stream&, Rows x, const Weight& gate, const Weight& up, Rows spare, Rows y);

}  // namespace reference
}  // namespace quire
