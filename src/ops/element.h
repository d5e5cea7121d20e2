// Single elements of Rows and Weight, for the references and the tests. Backends that are compiled for a
// special instruction set must not include this file: the linker keeps one copy of an inline function.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "ops/ops.h"

namespace quire {

// The nearest value of the format (ties to even).
inline float round_to(Format format, float x) {
  return format == Format::f32 ? x : to_float(to_bf16(x));
}
// References compute in double between rounding points; a rounding point goes through f32.
inline float round_to(Format format, double x) {
  return round_to(format, static_cast<float>(x));
}

inline float load(const void* data, Format format, std::int64_t index) {
  return format == Format::f32 ? static_cast<const float*>(data)[index]
                               : to_float(static_cast<const bf16*>(data)[index]);
}
inline float load(const Rows& x, std::int64_t row, std::int64_t col) {
  return load(x.data, x.format, row * x.stride + col);
}
inline float load(const Weight& w, std::int64_t out, std::int64_t in) {
  return load(w.data, w.format, out * w.in + in);
}

// Rounds to the format of y.
inline void store(const Rows& y, std::int64_t row, std::int64_t col, float value) {
  const std::int64_t index = row * y.stride + col;
  if (y.format == Format::f32)
    static_cast<float*>(y.data)[index] = value;
  else
    static_cast<bf16*>(y.data)[index] = to_bf16(value);
}
inline void store(const Rows& y, std::int64_t row, std::int64_t col, double value) {
  store(y, row, col, static_cast<float>(value));
}

}  // namespace quire
