// A row of activations in the registers of its block, for kernels that need the whole row before its first result.
#pragma once

#include <string>
#include <type_traits>

#include "ops/cuda/common.cuh"
#include "ops/cuda/launch.h"

namespace quire::cuda {

constexpr int kRowThreads = 512;

// A row in the registers of a block: thread i has eight columns from 8 (i + kRowThreads k) on, for k < kEights.
template <typename T, int kEights>
struct RowOf {
  Eight<T> part[kEights];
  std::int64_t cols;

  __device__ static std::int64_t column(int k) { return 8 * (threadIdx.x + std::int64_t{kRowThreads} * k); }

  __device__ void load(const T* row, std::int64_t columns, bool aligned) {
    cols = columns;
#pragma unroll
    for (int k = 0; k < kEights; ++k) part[k] = Eight<T>::load(row + column(k), cols - column(k), aligned);
  }
  __device__ void store(T* row, bool aligned) const {
#pragma unroll
    for (int k = 0; k < kEights; ++k) part[k].store(row + column(k), cols - column(k), aligned);
  }
  // value(element, column) takes the place of every element.
  template <typename Value>
  __device__ void each(Value value) {
#pragma unroll
    for (int k = 0; k < kEights; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (column(k) + i < cols) part[k].v[i] = value(part[k].v[i], k, i);
      }
    }
  }
  // The sum of f(element).
  template <typename F>
  __device__ float sum(F f) const {
    float total = 0;
#pragma unroll
    for (int k = 0; k < kEights; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (column(k) + i < cols) total = __fadd_rn(total, f(part[k].v[i]));
      }
    }
    return block_sum<kRowThreads>(total);
  }
};

// 1 / sqrt(sum / n + eps)
__device__ inline float inverse_root(float sum, std::int64_t n, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(n)), eps)));
}

// row = row / sqrt(mean(row^2) + eps) * (1 + weight), not rounded.
template <typename T, int kEights>
__device__ void rms_normalise(RowOf<T, kEights>& row, const RowOf<float, kEights>& weight, float eps) {
  const float scale = inverse_root(row.sum([](float v) { return __fmul_rn(v, v); }), row.cols, eps);
  row.each([&](float value, int k, int i) {
    return __fmul_rn(__fmul_rn(value, scale), __fadd_rn(1.0f, weight.part[k].v[i]));
  });
}

// Calls body with the number of eights that a thread has of a row.
template <typename Body>
void with_eights(std::int64_t cols, Body body) {
  constexpr std::int64_t kBlock = 8 * kRowThreads;
  if (cols <= kBlock) {
    body(std::integral_constant<int, 1>());
  } else if (cols <= 2 * kBlock) {
    body(std::integral_constant<int, 2>());
  } else if (cols <= 4 * kBlock) {
    body(std::integral_constant<int, 4>());
  } else if (cols <= 16 * kBlock) {
    body(std::integral_constant<int, 16>());
  } else {
    throw Error(ErrorCode::unsupported, "norm: rows of " + std::to_string(cols) + " columns; at most 65536 on CUDA");
  }
}

}  // namespace quire::cuda
