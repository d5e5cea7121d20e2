// Shape checks that every backend runs at the entry of an operation. A failure is a bug of the caller inside
// Quire: ErrorCode::internal, with the operation, the operand, what it is and what was expected.
// The checks of one operation are declared in <op>/<op>.h and called by all its versions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/ops.h"

namespace quire {

// `r` is [rows, cols] in `format`, its stride is at least cols, it has memory unless it is empty, and it has
// no scales, which bf16 and f32 do not use.
void check_rows(const char* op, const char* name, const Rows& r, std::int64_t rows, std::int64_t cols,
                Format format);

// `w` has memory, a non-empty shape and no scales.
void check_weight(const char* op, const char* name, const Weight& w);

// A span of `size` elements has the expected number.
void check_size(const char* op, const char* name, std::size_t size, std::int64_t expected);

}  // namespace quire
