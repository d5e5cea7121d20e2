// Operations on one element at a time: shape checks and references of Ops::add, convert, swiglu and gelu.
#pragma once

#include "ops/ops.h"

namespace quire {

// x and y [T, C], one format.
void check_add(const Rows& x, const Rows& y);
// x and y [T, C], each in either format.
void check_convert(const Rows& x, const Rows& y);
// gate, up and y [T, C], one format.
void check_swiglu(const Rows& gate, const Rows& up, const Rows& y);
// x of any shape.
void check_gelu(const Rows& x);

namespace reference {

void add(Stream&, Rows x, Rows y);
void convert(Stream&, Rows x, Rows y);
void swiglu(Stream&, Rows gate, Rows up, Rows y);
void gelu(Stream&, Rows x, Gelu kind);

}  // namespace reference
}  // namespace quire
