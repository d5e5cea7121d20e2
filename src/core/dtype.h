// Element types of stored tensors and the conversions between them, bit exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace quire {

enum class DType { f32, bf16, f16, i64, i32, u8 };

constexpr int size_of(DType t) {
  switch (t) {
    case DType::i64:
      return 8;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}
std::string_view to_string(DType t);

// The upper half of an IEEE float32.
struct bf16 {
  std::uint16_t bits = 0;
};

constexpr float to_float(bf16 x) {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
}
constexpr float to_float(float x) { return x; }

// Round to nearest, ties to even; every NaN becomes a quiet NaN.
constexpr bf16 to_bf16(float x) {
  const std::uint32_t u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((u >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

// IEEE binary16, subnormals, infinities and NaN included.
constexpr float f16_to_float(std::uint16_t h) {
  const std::uint32_t sign = std::uint32_t{h & 0x8000u} << 16, exponent = (h >> 10) & 31u,
                      mantissa = h & 1023u;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero or subnormal
  return sign ? -magnitude : magnitude;
}

}  // namespace quire
