// What the vectorised versions of gdn_prefill and gdn_window share. Included only by *_cpu.cpp files.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/cpu/rows.h"

namespace quire::QUIRE_ISA {

// Columns of value head h in qkv.
struct HeadColumns {
  std::int64_t q, k, v;
  HeadColumns(const GdnShape& s, std::int64_t h) {
    q = h / (s.value_heads / s.key_heads) * s.key_dim;
    k = s.key_cols() + q;
    v = 2 * s.key_cols() + h * s.value_dim;
  }
};

// y = x / sqrt(sum x^2 + 1e-6) * scale, from the model's format to f32.
template <typename A>
void l2_normalise(const A* x, std::int64_t dim, float scale, float* y) {
  Vf squares = zero();
  for_lanes(dim, [&](std::int64_t j, int n) {
    const Vf v = load_lanes(x + j, n);
    squares = fma(v, v, squares);
  });
  const Vf factor = set1(scale / std::sqrt(sum(squares) + 1e-6f));
  for_lanes(dim, [&](std::int64_t j, int n) { store_lanes(y + j, mul(load_lanes(x + j, n), factor), n); });
}

// C[i][j] = add C[i][j] + sum_k A[i][k] B[k][j]: B's rows are the lanes, k in order. A(i, k) is a function,
// so that a scaled or transposed operand needs no copy. Row i sums k < depth(i).
template <int R, typename GetA, typename Depth>
void multiply_rows(std::int64_t i0, GetA get_a, Depth depth, const float* b, std::int64_t cols, float* c) {
  for_lanes(cols, [&](std::int64_t j, int n) {
    Vf acc[R];
    for (int r = 0; r < R; ++r) acc[r] = load_lanes(c + (i0 + r) * cols + j, n);
    std::int64_t longest = 0;
    for (int r = 0; r < R; ++r) longest = std::max(longest, depth(i0 + r));
    for (std::int64_t k = 0; k < longest; ++k) {
      const Vf vb = load_lanes(b + k * cols + j, n);
      for (int r = 0; r < R; ++r) {
        if (k < depth(i0 + r)) acc[r] = fma(set1(get_a(i0 + r, k)), vb, acc[r]);
      }
    }
    for (int r = 0; r < R; ++r) store_lanes(c + (i0 + r) * cols + j, acc[r], n);
  });
}

template <typename GetA, typename Depth>
void multiply_add(std::int64_t rows, GetA get_a, Depth depth, const float* b, std::int64_t cols, float* c) {
  constexpr int kR = 8;
  std::int64_t i = 0;
  for (; i + kR <= rows; i += kR) multiply_rows<kR>(i, get_a, depth, b, cols, c);
  for (; i < rows; ++i) multiply_rows<1>(i, get_a, depth, b, cols, c);
}

}  // namespace quire::QUIRE_ISA
