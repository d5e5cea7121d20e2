// The inner loop of every product whose both operands run along K in memory: linear, and queries against
// keys. Included only by *_cpu.cpp files (see simd.h).
//
// A is f32 (an activation widened once), B is as stored and widened: on the CPUs this was measured on, a bf16
// dot product instruction does half the work per cycle of two f32 multiply-adds.
//
// One output is one vector accumulator: lane i takes elements i, i + L, i + 2L, ... in order, and the lanes
// are added by the tree of sums4. That order depends on K alone: tile shape, neighbours and threads never
// enter, so the bits of an output are the same in every call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ops/cpu/rows.h"

namespace quire::QUIRE_ISA {

// Rows of A in one tile: as many as the registers hold beside 4 rows of B.
constexpr int kTileRows = kVectorRegisters == 32 ? 6 : 3;

// Rows that are wanted soon: row j is fetched while row j of B is worked on. Left to what the processor
// fetches on its own, a core got half of its share of the memory's bandwidth (512 x 256, one row of A, 2
// cores of a Zen 5: 7.7 us, then 3.9).
template <typename B>
struct Next {
  const B* rows = nullptr;
  std::int64_t count = 0;
};

template <typename B>
inline void prefetch(const B* row, std::int64_t n) {
  for (std::int64_t k = 0; k < n; k += 64 / static_cast<std::int64_t>(sizeof(B)))
    _mm_prefetch(reinterpret_cast<const char*>(row + k), _MM_HINT_T0);
}

// emit(i, sums): for the R rows of A at `a` (apart by `a_stride`) the sums with the 4 rows of B at b[0..3].
template <int R, typename B, typename Emit>
[[gnu::always_inline]] inline void dot_tile(const float* a, std::int64_t a_stride, const B* const (&b)[4],
                                            std::int64_t K, Emit emit) {
  Vf acc[R][4];
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < 4; ++j) acc[i][j] = zero();
  }
  const auto step = [&](std::int64_t k, int n) __attribute__((always_inline)) {
    Vf vb[4];
    for (int j = 0; j < 4; ++j) vb[j] = n == kLanes ? load(b[j] + k) : load(b[j] + k, n);
    for (int i = 0; i < R; ++i) {
      const float* p = a + i * a_stride + k;
      const Vf va = n == kLanes ? load(p) : load(p, n);
      for (int j = 0; j < 4; ++j) acc[i][j] = fma(va, vb[j], acc[i][j]);
    }
  };
  std::int64_t k = 0;
  for (; k + kLanes <= K; k += kLanes) step(k, kLanes);
  if (k < K) step(k, static_cast<int>(K - k));
#pragma GCC unroll 3
  for (int i = 0; i + 1 < R; i += 2) {
    const Sums sums = sums4(acc[i], acc[i + 1]);
    emit(i, sums.a);
    emit(i + 1, sums.b);
  }
  if (R % 2) emit(R - 1, sums4(acc[R - 1][0], acc[R - 1][1], acc[R - 1][2], acc[R - 1][3]));
}

// body(R) with R the number of rows, at most kMost, as a constant.
template <int kMost, typename Body>
inline void with_rows(std::int64_t rows, Body body) {
  if constexpr (kMost > 1)
    if (rows < kMost) return with_rows<kMost - 1>(rows, body);
  body(std::integral_constant<int, kMost>());
}

template <typename B, typename Emit>
inline void dot_tiles(const float* a, std::int64_t a_stride, std::int64_t rows, const B* b,
                      std::int64_t b_stride, std::int64_t outs, std::int64_t K, const Next<B>& next,
                      Emit emit) {
  for (std::int64_t i = 0; i < rows; i += kTileRows) {
    for (std::int64_t j = 0; j < outs; j += 4) {
      const int n = static_cast<int>(std::min<std::int64_t>(outs - j, 4));
      const B* bj[4];
      for (int l = 0; l < 4; ++l) bj[l] = b + (j + (l < n ? l : 0)) * b_stride;
      for (std::int64_t l = j; i == 0 && l < std::min(j + 4, next.count); ++l)
        prefetch(next.rows + l * b_stride, K);
      with_rows<kTileRows>(rows - i, [&](auto R) {
        dot_tile<R()>(a + i * a_stride, a_stride, bj, K,
                      [&](int r, __m128 sums) { emit(i + r, j, sums, n); });
      });
    }
  }
}

// All products of `rows` rows of A with `outs` rows of B: emit(i, j, sums, n) hands over outputs (i, j ..
// j+n-1), n <= 4. Where many tiles meet the same rows of B, these are widened once for all of them, as many
// as the first-level cache holds; where few do, each widens them again, and nothing waits for the copy.
template <typename B, typename Emit>
inline void dot_block(const float* a, std::int64_t a_stride, std::int64_t rows, const B* b,
                      std::int64_t b_stride, std::int64_t outs, std::int64_t K, const Next<B>& next,
                      Emit emit) {
  constexpr std::int64_t kWidened = 8192;  // elements
  constexpr int kFewRows = kVectorRegisters == 32 ? 3 * kTileRows : kTileRows;
  const std::int64_t group = kWidened / K / 4 * 4;
  if (std::is_same_v<B, float> || rows <= kFewRows || group == 0)
    return dot_tiles(a, a_stride, rows, b, b_stride, outs, K, next, emit);
  alignas(64) float wide[kWidened];
  for (std::int64_t first = 0; first < outs; first += group) {
    const std::int64_t count = std::min(group, outs - first);
    for (std::int64_t j = 0; j < count; ++j) {
      if (first + j < next.count) prefetch(next.rows + (first + j) * b_stride, K);
      widen_row(b + (first + j) * b_stride, K, wide + j * K);
    }
    dot_tiles(a, a_stride, rows, wide, K, count, K, Next<float>(),
              [&](std::int64_t i, std::int64_t j, __m128 sums, int n) { emit(i, first + j, sums, n); });
  }
}

}  // namespace quire::QUIRE_ISA
