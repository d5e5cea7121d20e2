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

// One of the weights that meet x, and where its product goes.
struct Factor {
  const bfloat* w;    // [N, K]
  void* y;            // [T, N]
  const float* bias;  // [N] or nullptr
  std::int64_t y_stride;
  int N;
  int first_tile;  // of its rows, among the tiles of all factors
  bool bf16;       // y; else f32

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
  // Four rows of one token, in one piece where that is possible.
  __device__ void store(int row, std::int64_t token, const float4& sums) const {
    const std::int64_t at = token * y_stride + row;
    const int bytes = bf16 ? 8 : 16;
    char* to = static_cast<char*>(y) + at * (bytes / 4);
    if (bias || row + 4 > N || reinterpret_cast<std::uintptr_t>(to) % bytes != 0) {
      store(row, token, sums.x), store(row + 1, token, sums.y);
      store(row + 2, token, sums.z), store(row + 3, token, sums.w);
    } else if (bf16) {
      const __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(sums.x, sums.y), __floats2bfloat162_rn(sums.z, sums.w)};
      *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(pairs);
    } else {
      *reinterpret_cast<float4*>(to) = sums;
    }
  }
  // Eight rows of one token.
  __device__ void store(int row, std::int64_t token, const float (&sums)[8]) const {
    const std::int64_t at = token * y_stride + row;
    float v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = bias && row + i < N ? __fadd_rn(sums[i], bias[row + i]) : sums[i];
    if (bf16) {
      bfloat* to = static_cast<bfloat*>(y) + at;
      if (row + 8 <= N && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
        const __nv_bfloat162 pairs[4] = {__floats2bfloat162_rn(v[0], v[1]), __floats2bfloat162_rn(v[2], v[3]),
                                         __floats2bfloat162_rn(v[4], v[5]), __floats2bfloat162_rn(v[6], v[7])};
        *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(pairs);
        return;
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (row + i < N) to[i] = from_f32<bfloat>(v[i]);
    } else {
      float* to = static_cast<float*>(y) + at;
      if (row + 8 <= N && reinterpret_cast<std::uintptr_t>(to) % 16 == 0) {
        reinterpret_cast<float4*>(to)[0] = {v[0], v[1], v[2], v[3]};
        reinterpret_cast<float4*>(to)[1] = {v[4], v[5], v[6], v[7]};
        return;
      }
#pragma unroll
      for (int i = 0; i < 8; ++i)
        if (row + i < N) to[i] = v[i];
    }
  }
};

struct Product {
  Factor factors[kMostProjections];
  int count;        // of factors
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
