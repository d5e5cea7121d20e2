// A vector of f32 for the instruction set this file is compiled for: 16 lanes on AVX-512, 8 on AVX2.
// Included only by *_cpu.cpp files, which are compiled once for each instruction set with QUIRE_ISA set to
// its name; everything lives in that namespace, so that no AVX-512 function can end up in the AVX2 table.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>

#include <immintrin.h>

#include "core/dtype.h"

namespace quire::QUIRE_ISA {

#if defined(__AVX512BF16__)

constexpr int kLanes = 16;
constexpr int kVectorRegisters = 32;
using Vf = __m512;

inline Vf zero() {
  return _mm512_setzero_ps();
}
inline Vf set1(float x) {
  return _mm512_set1_ps(x);
}
inline Vf add(Vf a, Vf b) {
  return _mm512_add_ps(a, b);
}
inline Vf sub(Vf a, Vf b) {
  return _mm512_sub_ps(a, b);
}
inline Vf mul(Vf a, Vf b) {
  return _mm512_mul_ps(a, b);
}
inline Vf div(Vf a, Vf b) {
  return _mm512_div_ps(a, b);
}
inline Vf fma(Vf a, Vf b, Vf c) {
  return _mm512_fmadd_ps(a, b, c);
}  // a b + c
inline Vf fnma(Vf a, Vf b, Vf c) {
  return _mm512_fnmadd_ps(a, b, c);
}  // c - a b
// As the hardware does it: when one is NaN the result is b.
inline Vf max(Vf a, Vf b) {
  return _mm512_max_ps(a, b);
}
inline Vf min(Vf a, Vf b) {
  return _mm512_min_ps(a, b);
}
inline Vf round_to_int(Vf x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vf negative_or(Vf x, Vf if_negative, Vf otherwise) {  // by the sign of x
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_LT_OQ), otherwise, if_negative);
}
inline Vf abs(Vf x) {
  return _mm512_abs_ps(x);
}
// x 2^n for whole n in [-126, 127]
inline Vf scale_by_power_of_two(Vf x, Vf n) {
  return _mm512_scalef_ps(x, n);
}

inline __mmask16 first(int n) {
  return static_cast<__mmask16>((1u << n) - 1u);
}
inline Vf load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline Vf load(const float* p, int n) {
  return _mm512_maskz_loadu_ps(first(n), p);
}
inline Vf masked(Vf x, int n) {
  return _mm512_maskz_mov_ps(first(n), x);
}  // 0 from lane n on
inline Vf widen(__m256i x) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
inline Vf load(const bf16* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Vf load(const bf16* p, int n) {
  return widen(_mm256_maskz_loadu_epi16(first(n), p));
}
inline void store(float* p, Vf x) {
  _mm512_storeu_ps(p, x);
}
inline void store(float* p, Vf x, int n) {
  _mm512_mask_storeu_ps(p, first(n), x);
}
inline __m256i narrow(Vf x) {  // to nearest, ties to even
  return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
}
inline void store(bf16* p, Vf x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x));
}
inline void store(bf16* p, Vf x, int n) {
  _mm256_mask_storeu_epi16(p, first(n), narrow(x));
}
inline Vf round_to_bf16(Vf x) {
  return widen(narrow(x));
}

inline std::int64_t narrow4(__m128 x) {
  return _mm_cvtsi128_si64(reinterpret_cast<__m128i>(_mm_cvtneps_pbh(x)));
}

inline __m256 halves(Vf x) {
  return _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
}

#else

constexpr int kLanes = 8;
constexpr int kVectorRegisters = 16;
using Vf = __m256;

inline Vf zero() {
  return _mm256_setzero_ps();
}
inline Vf set1(float x) {
  return _mm256_set1_ps(x);
}
inline Vf add(Vf a, Vf b) {
  return _mm256_add_ps(a, b);
}
inline Vf sub(Vf a, Vf b) {
  return _mm256_sub_ps(a, b);
}
inline Vf mul(Vf a, Vf b) {
  return _mm256_mul_ps(a, b);
}
inline Vf div(Vf a, Vf b) {
  return _mm256_div_ps(a, b);
}
inline Vf fma(Vf a, Vf b, Vf c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Vf fnma(Vf a, Vf b, Vf c) {
  return _mm256_fnmadd_ps(a, b, c);
}
inline Vf max(Vf a, Vf b) {
  return _mm256_max_ps(a, b);
}
inline Vf min(Vf a, Vf b) {
  return _mm256_min_ps(a, b);
}
inline Vf round_to_int(Vf x) {
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
inline Vf negative_or(Vf x, Vf if_negative, Vf otherwise) {
  return _mm256_blendv_ps(otherwise, if_negative, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_LT_OQ));
}
inline Vf abs(Vf x) {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
inline Vf scale_by_power_of_two(Vf x, Vf n) {
  const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

inline __m256i first(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline Vf load(const float* p) {
  return _mm256_loadu_ps(p);
}
inline Vf load(const float* p, int n) {
  return _mm256_maskload_ps(p, first(n));
}
inline Vf masked(Vf x, int n) {
  return _mm256_and_ps(x, _mm256_castsi256_ps(first(n)));
}
inline Vf widen(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
inline Vf load(const bf16* p) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline Vf load(const bf16* p, int n) {
  bf16 whole[kLanes] = {};
  std::memcpy(whole, p, static_cast<std::size_t>(n) * sizeof(bf16));
  return load(whole);
}
inline void store(float* p, Vf x) {
  _mm256_storeu_ps(p, x);
}
inline void store(float* p, Vf x, int n) {
  _mm256_maskstore_ps(p, first(n), x);
}
inline __m128i narrow(Vf x) {  // to nearest, ties to even; a NaN stays one
  const __m256i u = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
  __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  const __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  r = _mm256_blendv_epi8(r, _mm256_or_si256(u, _mm256_set1_epi32(0x400000)), _mm256_castps_si256(nan));
  r = _mm256_srli_epi32(r, 16);
  r = _mm256_permute4x64_epi64(_mm256_packus_epi32(r, r), 0x08);
  return _mm256_castsi256_si128(r);
}
inline void store(bf16* p, Vf x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x));
}
inline void store(bf16* p, Vf x, int n) {
  bf16 whole[kLanes];
  store(whole, x);
  std::memcpy(p, whole, static_cast<std::size_t>(n) * sizeof(bf16));
}
inline Vf round_to_bf16(Vf x) {
  return widen(narrow(x));
}

inline std::int64_t narrow4(__m128 x) {
  return _mm_cvtsi128_si64(narrow(_mm256_castps128_ps256(x)));
}

inline __m256 halves(Vf x) {
  return x;
}

#endif

// The sums of the lanes of four vectors. One tree, so that a sum's bits do not depend on which of the four it
// is.
inline __m128 sums4(Vf a, Vf b, Vf c, Vf d) {
  const __m256 ab = _mm256_hadd_ps(halves(a), halves(b));
  const __m256 cd = _mm256_hadd_ps(halves(c), halves(d));
  const __m256 abcd = _mm256_hadd_ps(ab, cd);
  return _mm_add_ps(_mm256_castps256_ps128(abcd), _mm256_extractf128_ps(abcd, 1));
}

// sums4 of a and of b, with the same bits: the trees of both grow side by side in whole registers.
struct Sums {
  __m128 a, b;
};
inline Sums sums4(const Vf (&a)[4], const Vf (&b)[4]) {
#if defined(__AVX512BF16__)
  const auto halves2 = [](Vf x, Vf y) {  // halves(x), halves(y)
    return _mm512_add_ps(_mm512_shuffle_f32x4(x, y, 0x44), _mm512_shuffle_f32x4(x, y, 0xee));
  };
  const auto hadd = [](Vf x, Vf y) {
    return _mm512_add_ps(_mm512_shuffle_ps(x, y, 0x88), _mm512_shuffle_ps(x, y, 0xdd));
  };
  const Vf ab =
      hadd(hadd(halves2(a[0], b[0]), halves2(a[1], b[1])), hadd(halves2(a[2], b[2]), halves2(a[3], b[3])));
  const Vf both = _mm512_add_ps(ab, _mm512_shuffle_f32x4(ab, ab, 0xb1));
  return {_mm512_castps512_ps128(both), _mm512_extractf32x4_ps(both, 2)};
#else
  return {sums4(a[0], a[1], a[2], a[3]), sums4(b[0], b[1], b[2], b[3])};
#endif
}
inline float sum(Vf x) {
  return _mm_cvtss_f32(sums4(x, x, x, x));
}

inline float max_lane(Vf x) {
  alignas(64) float lane[kLanes];
  store(lane, x);
  float m = lane[0];
  for (int i = 1; i < kLanes; ++i) m = lane[i] > m ? lane[i] : m;
  return m;
}

inline __m128 load4(const float* p, int n) {
  if (n == 4) return _mm_loadu_ps(p);
  float four[4] = {};
  std::memcpy(four, p, static_cast<std::size_t>(n) * sizeof(float));
  return _mm_loadu_ps(four);
}
// The first n <= 4 of four sums, rounded when T is bf16.
inline void store4(float* p, __m128 x, int n) {
  if (n == 4) {
    _mm_storeu_ps(p, x);
  } else {
    float four[4];
    _mm_storeu_ps(four, x);
    std::memcpy(p, four, static_cast<std::size_t>(n) * sizeof(float));
  }
}
inline void store4(bf16* p, __m128 x, int n) {
  const std::int64_t four = narrow4(x);
  if (n == 4) {
    std::memcpy(static_cast<void*>(p), &four, 4 * sizeof(bf16));
  } else {
    std::memcpy(static_cast<void*>(p), &four, static_cast<std::size_t>(n) * sizeof(bf16));
  }
}

// The round of the contracts in ops.h: to T.
template <typename T>
Vf round_to(Vf x) {
  if constexpr (sizeof(T) == sizeof(bf16)) {
    return round_to_bf16(x);
  } else {
    return x;
  }
}

// e^x within 2 ulp for x in [-87.3, 88.3]. Cody-Waite reduction, degree-6 polynomial on [-ln2/2, ln2/2]
// (Taylor coefficients nudged to minimax).
inline Vf exp_in_range(Vf x) {
  const Vf n = round_to_int(mul(x, set1(1.44269504f)));
  Vf r = fnma(n, set1(0.693145752f), x);
  r = fnma(n, set1(1.42860677e-6f), r);
  Vf p = set1(1.38888894e-3f);
  p = fma(p, r, set1(8.33333377e-3f));
  p = fma(p, r, set1(4.16666642e-2f));
  p = fma(p, r, set1(1.66666671e-1f));
  p = fma(p, r, set1(0.5f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  return scale_by_power_of_two(p, n);
}

// e^x; 0 below -87.3 (no subnormals), infinity above 88.3.
inline Vf exp(Vf x) {
  const Vf y = exp_in_range(max(set1(-87.33654f), min(set1(88.37626f), x)));
  const Vf or_infinity =
      negative_or(sub(set1(88.37626f), x), set1(std::numeric_limits<float>::infinity()), y);
  return negative_or(sub(x, set1(-87.33654f)), zero(), or_infinity);
}

inline Vf sigmoid(Vf x) {
  return div(set1(1.0f), add(set1(1.0f), exp(sub(zero(), x))));
}
inline Vf silu(Vf x) {
  return mul(x, sigmoid(x));
}

// x / 2 (1 + tanh(u)) = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)
inline Vf gelu_tanh(Vf x) {
  const Vf cube = mul(mul(x, x), x);
  return mul(x, sigmoid(mul(set1(1.595769122f), fma(set1(0.044715f), cube, x))));
}

// x / 2 (1 + erf(x / sqrt 2)), erfc by Abramowitz and Stegun 7.1.26 (absolute error 1.5e-7).
inline Vf gelu_erf(Vf x) {
  const Vf z = mul(abs(x), set1(0.707106781f));
  const Vf t = div(set1(1.0f), fma(set1(0.3275911f), z, set1(1.0f)));
  Vf p = set1(1.061405429f);
  p = fma(p, t, set1(-1.453152027f));
  p = fma(p, t, set1(1.421413741f));
  p = fma(p, t, set1(-0.284496736f));
  p = fma(p, t, set1(0.254829592f));
  const Vf erfc = mul(mul(p, t), exp(mul(sub(zero(), z), z)));  // of |x| / sqrt 2
  return mul(mul(set1(0.5f), x), negative_or(x, erfc, sub(set1(2.0f), erfc)));
}

}  // namespace quire::QUIRE_ISA
