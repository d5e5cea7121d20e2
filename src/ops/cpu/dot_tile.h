// The inner loop of every product whose both operands run along K in memory: linear, and queries against
// keys. Included only by *_cpu.cpp files (see simd.h).
//
// One output is one vector accumulator: lane i takes elements i, i + L, i + 2L, ... in order (pairs of
// neighbours when both operands are bf16), and the lanes are added by the tree of sums4. That order depends
// on K and the formats alone: tile shape, neighbours and threads never enter, so the bits of an output are
// the same in every call.
#pragma once

#include <cstdint>

#include "ops/cpu/simd.h"

namespace quire::QUIRE_ISA {

// How A meets B along K: `step` elements a vector, loaded from A and B, accumulated.
template <typename A, typename B>
struct Dot {  // widen both to f32
  static constexpr int kStep = kLanes;
  using Value = Vf;
  static Vf load_a(const A* p) { return load(p); }
  static Vf load_a(const A* p, int n) { return load(p, n); }
  static Vf load_b(const B* p) { return load(p); }
  static Vf load_b(const B* p, int n) { return load(p, n); }
  static Vf accumulate(Vf a, Vf b, Vf acc) { return fma(a, b, acc); }
};
template <>
struct Dot<bf16, bf16> {
  static constexpr int kStep = 2 * kLanes;
  using Value = Vpairs;
  static Vpairs load_a(const bf16* p) { return load_pairs(p); }
  static Vpairs load_a(const bf16* p, int n) { return load_pairs(p, n); }
  static Vpairs load_b(const bf16* p) { return load_pairs(p); }
  static Vpairs load_b(const bf16* p, int n) { return load_pairs(p, n); }
  static Vf accumulate(Vpairs a, Vpairs b, Vf acc) { return dot_pairs(a, b, acc); }
};

// Rows of A in one tile: as many as the registers hold beside 4 rows of B.
constexpr int kTileRows = kVectorRegisters == 32 ? 6 : 2;

// emit(i, sums): for the R rows of A at `a` (apart by `a_stride`) the sums with the 4 rows of B at b[0..3].
template <int R, typename A, typename B, typename Emit>
inline void dot_tile(const A* a, std::int64_t a_stride, const B* const (&b)[4], std::int64_t K, Emit emit) {
  using D = Dot<A, B>;
  Vf acc[R][4];
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < 4; ++j) acc[i][j] = zero();
  }
  const auto step = [&](auto load_a, auto load_b) __attribute__((always_inline)) {
    typename D::Value vb[4];
    for (int j = 0; j < 4; ++j) vb[j] = load_b(b[j]);
    for (int i = 0; i < R; ++i) {
      const typename D::Value va = load_a(a + i * a_stride);
      for (int j = 0; j < 4; ++j) acc[i][j] = D::accumulate(va, vb[j], acc[i][j]);
    }
  };
  std::int64_t k = 0;
  for (; k + D::kStep <= K; k += D::kStep) {
    step([k](const A* p) { return D::load_a(p + k); }, [k](const B* p) { return D::load_b(p + k); });
  }
  if (k < K) {
    const int n = static_cast<int>(K - k);
    step([k, n](const A* p) { return D::load_a(p + k, n); },
         [k, n](const B* p) { return D::load_b(p + k, n); });
  }
  for (int i = 0; i < R; ++i) emit(i, sums4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]));
}

// All products of `rows` rows of A with `outs` rows of B: emit(i, j, sums, n) hands over outputs (i, j ..
// j+n-1), n <= 4.
template <typename A, typename B, typename Emit>
inline void dot_block(const A* a, std::int64_t a_stride, std::int64_t rows, const B* b, std::int64_t b_stride,
                      std::int64_t outs, std::int64_t K, Emit emit) {
  for (std::int64_t i = 0; i < rows; i += kTileRows) {
    const auto count = static_cast<int>(rows - i < kTileRows ? rows - i : kTileRows);
    for (std::int64_t j = 0; j < outs; j += 4) {
      const int n = outs - j < 4 ? static_cast<int>(outs - j) : 4;
      const B* bj[4];
      for (int l = 0; l < 4; ++l) bj[l] = b + (j + (l < n ? l : 0)) * b_stride;
      const auto out = [&](int r, __m128 sums) { emit(i + r, j, sums, n); };
      const A* ai = a + i * a_stride;
      if (count == kTileRows) {
        dot_tile<kTileRows>(ai, a_stride, bj, K, out);
      } else {
        for (int r = 0; r < count; ++r) {
          dot_tile<1>(ai + r * a_stride, a_stride, bj, K, [&](int, __m128 sums) { out(r, sums); });
        }
      }
    }
  }
}

}  // namespace quire::QUIRE_ISA
