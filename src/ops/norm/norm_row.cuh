// A row of activations in the registers of its block, for kernels that need the whole row before its first result.
#pragma once

#include <string>
#include <type_traits>

#include "ops/cuda/common.cuh"
#include "ops/cuda/launch.h"

namespace quire::cuda {

constexpr int kRowThreads = 512;  // at most

// How a block holds a row: kEights times eight columns a thread. Of whole rows every eight is there or not, and aligned
// in each operand: no thread looks at single columns.
template <int kEightsOf, bool kWholeOf>
struct RowShape {
  static constexpr int kEights = kEightsOf;
  static constexpr bool kWhole = kWholeOf;
};

// Thread i has eight columns from 8 (i + kRowThreads k) on, for k < kEights. Those beyond the row are 0 when loaded.
template <typename T, typename Shape>
struct RowOf {
  Eight<T> part[Shape::kEights];
  int cols;

  __device__ static int column(int k) { return 8 * (static_cast<int>(threadIdx.x) + kRowThreads * k); }

  __device__ void load(const T* row, int columns, bool aligned) {
    cols = columns;
#pragma unroll
    for (int k = 0; k < Shape::kEights; ++k) {
      const T* at = row + column(k);
      part[k] = Shape::kWhole ? Eight<T>::of(Packed<T>::load(at, column(k) < cols))
                              : Eight<T>::load(at, cols - column(k), aligned);
    }
  }
  __device__ void store(T* row, bool aligned) const {
#pragma unroll
    for (int k = 0; k < Shape::kEights; ++k) {
      if constexpr (Shape::kWhole) {
        if (column(k) < cols) part[k].packed().store(row + column(k));
      } else {
        part[k].store(row + column(k), cols - column(k), aligned);
      }
    }
  }
  __device__ void round() {
#pragma unroll
    for (int k = 0; k < Shape::kEights; ++k) part[k] = part[k].rounded();
  }
  // value(element, k, i) takes the place of every element, of those beyond the row, too.
  template <typename Value>
  __device__ void each(Value value) {
#pragma unroll
    for (int k = 0; k < Shape::kEights; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) part[k].v[i] = value(part[k].v[i], k, i);
    }
  }
  // The sum of f(element), where f(0) is 0; the same bits in every thread: elements of a thread in order, warps by
  // warp_sum, then their sums in one warp. A warp more adds 0: bits do not depend on how many have no columns. Sums of
  // one kernel have a kUse each: nobody waits until all have read the one before.
  template <int kUse, typename F>
  __device__ float sum(F f) const {
    __shared__ float sums[kRowThreads / 32];
    float total = 0;
#pragma unroll
    for (int k = 0; k < Shape::kEights; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) total = __fadd_rn(total, f(part[k].v[i]));
    }
    total = warp_sum(total);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = total;
    __syncthreads();
    return warp_sum(threadIdx.x % 32 < blockDim.x / 32 ? sums[threadIdx.x % 32] : 0.0f);
  }
};

// 1 / sqrt(sum / n + eps)
__device__ inline float inverse_root(float sum, int n, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(n)), eps)));
}

// row = row / sqrt(mean(row^2) + eps) * (1 + weight), not rounded.
template <typename T, typename Shape>
__device__ void rms_normalise(RowOf<T, Shape>& row, const RowOf<float, Shape>& weight, float eps) {
  const float scale = inverse_root(row.template sum<0>([](float v) { return __fmul_rn(v, v); }), row.cols, eps);
  row.each([&](float value, int k, int i) {
    return __fmul_rn(__fmul_rn(value, scale), __fadd_rn(1.0f, weight.part[k].v[i]));
  });
}

inline bool aligned_to_vectors(std::span<const float> w) {
  return reinterpret_cast<std::uintptr_t>(w.data()) % 16 == 0;
}

// Calls body with the RowShape for rows of `cols` columns, and with the threads of a block. `aligned`: every operand is.
template <typename Body>
void with_row_shape(std::int64_t cols, bool aligned, Body body) {
  constexpr std::int64_t kBlock = 8 * kRowThreads;
  const unsigned threads = cols > kBlock ? kRowThreads : cols > 256 ? 32 * blocks(cols, 256) : 32;
  if (cols <= kBlock && aligned && cols % 8 == 0) {
    body(RowShape<1, true>(), threads);
  } else if (cols <= kBlock) {
    body(RowShape<1, false>(), threads);
  } else if (cols <= 2 * kBlock) {
    body(RowShape<2, false>(), threads);
  } else if (cols <= 4 * kBlock) {
    body(RowShape<4, false>(), threads);
  } else if (cols <= 16 * kBlock) {
    body(RowShape<16, false>(), threads);
  } else {
    throw Error(ErrorCode::unsupported, "norm: rows of " + std::to_string(cols) + " columns; at most 65536 on CUDA");
  }
}

}  // namespace quire::cuda
