// The tensor core product of `linear` and `project`: operands, and the order of summation, which no choice of kernel,
// grid or number of rows changes.
//
// K is cut into kSegments segments of equal length, a multiple of 128 columns (the last may be shorter, or there may be
// fewer). Within a segment columns are taken in order, 16 to an instruction, all on one accumulator that starts from 0;
// then the segments are added to 0 in index order, in f32. All of it is a function of K alone: which block or warp sums
// a segment, how many tokens or weight rows there are and where a token or row stands are of no consequence. (That a
// row or column of an MMA does not depend on its place or neighbours, nor on which instruction computes it, mma.sync or
// wgmma, is a property of the hardware, and is tested.)
#pragma once

#include <type_traits>

#include "ops/cuda/common.cuh"
#include "ops/cuda/launch.h"

namespace quire::cuda {

constexpr int kSegments = 4;

__host__ __device__ inline int blocks_of(int n, int per_block) {
  return (n + per_block - 1) / per_block;
}
// Columns of a segment.
inline int segment_columns(int K) {
  return blocks_of(blocks_of(K, kSegments), 128) * 128;
}

// The first `count` of the values, in pieces of up to 16 bytes where that is possible.
template <typename T, int kValues>
__device__ inline void store_values(T* to, const float (&v)[kValues], int count) {
  using Piece = std::conditional_t<kValues * sizeof(T) == 8, uint2, uint4>;
  if (count >= kValues && reinterpret_cast<std::uintptr_t>(to) % sizeof(Piece) == 0) {
    alignas(Piece) decltype(pair_of(to, 0, 0)) pairs[kValues / 2];
#pragma unroll
    for (int i = 0; i < kValues / 2; ++i) pairs[i] = pair_of(to, v[2 * i], v[2 * i + 1]);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(pairs) / sizeof(Piece)); ++i)
      reinterpret_cast<Piece*>(to)[i] = reinterpret_cast<const Piece*>(pairs)[i];
  } else {
#pragma unroll
    for (int i = 0; i < kValues; ++i)
      if (i < count) to[i] = from_f32<T>(v[i]);
  }
}

// One of the weights that meet x, and where its product goes.
struct Factor {
  const bfloat* w;    // [N, K]
  void* y;            // [T, N]
  const float* bias;  // [N] or nullptr
  std::int64_t y_stride;
  int N;
  int first_tile;  // of its rows, among the tiles of all factors (halves of tiles: linear_wgmma.cuh)
  bool bf16;       // y; else f32
  // As in Projection, or nullptr. Found by wgmma_kernel as it stores; by no other.
  float* maxima = nullptr;
  std::int64_t maxima_stride = 0;

  __device__ void store(int row, std::int64_t token, float sum) const {
    if (row >= N) return;
    if (bias) sum = __fadd_rn(sum, bias[row]);
    const std::int64_t at = token * y_stride + row;
    if (bf16) {
      static_cast<bfloat*>(y)[at] = from_f32<bfloat>(sum);
    } else {
      static_cast<float*>(y)[at] = sum;
    }
  }
  // Several rows of one token.
  template <int kRows>
  __device__ void store(int row, std::int64_t token, const float (&sums)[kRows]) const {
    float v[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) v[i] = bias && row + i < N ? __fadd_rn(sums[i], bias[row + i]) : sums[i];
    const std::int64_t at = token * y_stride + row;
    if (bf16) {
      store_values(static_cast<bfloat*>(y) + at, v, N - row);
    } else {
      store_values(static_cast<float*>(y) + at, v, N - row);
    }
  }
};

struct Product {
  Factor factors[kMostProjections];
  int count;        // of factors
  bool gated;       // the output of the first is swiglu of it and the second, which has none
  const bfloat* x;  // [T, K]
  std::int64_t x_stride;
  int T, K, segment;

  __device__ int factor_of(int tile) const {
    int i = count - 1;
    while (i > 0 && tile < factors[i].first_tile) --i;
    return i;
  }
};

// The operand of an instruction: 16 rows by 16 columns, or 8 rows by 32 columns for two instructions.
struct Fragment {
  unsigned r[4];
};

__device__ inline void multiply_add(float (&sums)[4], const Fragment& w, unsigned x0, unsigned x1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(w.r[0]), "r"(w.r[1]), "r"(w.r[2]), "r"(w.r[3]), "r"(x0), "r"(x1));
}

__device__ inline void add_segment(float& total, float sum) {
  total = __fadd_rn(total, sum);
}

// Adds the sums of a segment to the totals, and starts the next.
template <int kM, int kN>
__device__ inline void end_segment(float (&totals)[kM][kN][4], float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int i = 0; i < kM * kN * 4; ++i) {
    float& sum = sums[i / 4 / kN][i / 4 % kN][i % 4];
    add_segment(totals[i / 4 / kN][i / 4 % kN][i % 4], sum);
    sum = 0;
  }
}

}  // namespace quire::cuda
