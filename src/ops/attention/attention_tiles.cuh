// What the attention kernels share: pages and requests, bf16 tiles in shared memory, their matrix fragments.
//
// A tile is [rows][kE + 8] of bf16 with kE a multiple of 16, zero beyond the head's E columns: rows are 16
// bytes more than a multiple of 32, so that the eight rows of one 8 x 8 fragment lie in different banks.
#pragma once

#include <cstdint>
#include <string>

#include "ops/cuda/common.cuh"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma.cuh"

namespace quire::cuda {

constexpr float kMinusInfinity = -__builtin_huge_valf();

constexpr int kMostHeadDim = 256;
// f32 activations (attention_f32_cuda.cu): written for comparing, not for speed.
void plain_attention(Stream& s, const Attention& a);
void plain_attention(Stream& s, const VisionAttention& a);

inline void check_head_dim(const char* op, std::int64_t head_dim, int most = kMostHeadDim) {
  if (head_dim <= most) return;
  throw Error(ErrorCode::unsupported, std::string(op) + ": heads of " + std::to_string(head_dim) +
                                          " on CUDA, at most " + std::to_string(most));
}

// KvPages in a kernel.
template <typename T>
struct PagedKeys {
  Matrix<T> k, v;
  const std::int32_t* block_table;
  int pages_per_slot, page_size;

  __device__ const std::int32_t* pages(int slot) const { return block_table + std::int64_t{slot} * pages_per_slot; }
  // Of key j, which lies in that page.
  __device__ std::int64_t row(int page, int j) const { return std::int64_t{page} * page_size + j % page_size; }
};
template <typename T>
PagedKeys<T> paged_keys(const KvPages& kv) {
  return {matrix<T>(kv.k), matrix<T>(kv.v), kv.block_table, kv.pages_per_slot, kv.page_size};
}

// Requests in a kernel.
struct RequestArrays {
  const std::int32_t *first_row, *start, *slot;
  int count;
};
inline RequestArrays request_arrays(const Requests& r) { return {r.first_row, r.start, r.slot, r.count}; }

// 16 bytes to shared memory in the background; zeros, and `from` is not read, unless they exist.
__device__ inline void copy_16(std::uint32_t to, const bfloat* from, bool exists) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exists ? 16 : 0) : "memory");
}
__device__ inline void copy_16(bfloat* to, const bfloat* from, bool exists) {
  copy_16(shared_address(to), from, exists);
}

// Whether heads of `x` can be copied 16 bytes at a time.
inline bool takes_vectors(const Rows& x, std::int64_t head_dim) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.stride % 8 == 0 && head_dim % 8 == 0;
}

// tile[i] = the `columns` elements at row(i), zeros where row(i) is null. `vectors`: every row starts at a
// multiple of 16 bytes and `columns` is a multiple of 8; the copies are then complete after wait_for_copies
// and a barrier, with kNow after the barrier alone.
template <int kE, int kRows, int kThreads, bool kNow = false, typename Row>
__device__ inline void load_tile(bfloat* tile, int columns, bool vectors, const bfloat* any, Row row) {
  constexpr int kPieces = kE / 8;
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int r = i / kPieces, c = i % kPieces * 8;
    const bfloat* from = row(r);
    bfloat* to = tile + r * (kE + 8) + c;
    if (vectors && kNow) {
      const bool exists = from != nullptr && c < columns;
      *reinterpret_cast<uint4*>(to) = exists ? *reinterpret_cast<const uint4*>(from + c) : uint4{};
    } else if (vectors) {
      const bool exists = from != nullptr && c < columns;
      copy_16(to, exists ? from + c : any, exists);
    } else {
      for (int j = 0; j < 8; ++j) {
        to[j] = from != nullptr && c + j < columns ? from[c + j] : __ushort_as_bfloat16(0);
      }
    }
  }
}

// The same for `count` rows that lie `stride` apart, zeros behind them: a few instructions a copy.
template <int kE, int kRows, int kThreads>
__device__ inline void load_rows(bfloat* tile, const bfloat* from, int stride, int count, int columns,
                                 bool vectors) {
  constexpr int kPieces = kE / 8, kStep = kThreads / kPieces;
  static_assert(kThreads % kPieces == 0 && kRows % kStep == 0);
  const int c = static_cast<int>(threadIdx.x) % kPieces * 8, r = static_cast<int>(threadIdx.x) / kPieces;
  const int last = c < columns ? count - r : 0;  // of this thread's rows
  bfloat* const to = tile + r * (kE + 8) + c;
  from += std::int64_t{r} * stride + c;
  if (vectors) {
#pragma unroll
    for (int i = 0; i < kRows; i += kStep, from += kStep * stride) copy_16(to + i * (kE + 8), from, i < last);
  } else {
    for (int i = 0; i < kRows; i += kStep, from += kStep * stride) {
      for (int j = 0; j < 8; ++j) {
        to[i * (kE + 8) + j] = i < last && c + j < columns ? from[j] : __ushort_as_bfloat16(0);
      }
    }
  }
}

// Over the four lanes that hold one row of an accumulator; the same bits in each.
__device__ inline float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ inline float row_sum(float x) {
  x = __fadd_rn(x, __shfl_xor_sync(~0u, x, 1));
  return __fadd_rn(x, __shfl_xor_sync(~0u, x, 2));
}

// What exp(s - m) is taken relative to: 0 for a row that has seen no key yet, whose weights are then 0.
__device__ inline float reference_score(float m) {
  return m == kMinusInfinity ? 0.0f : m;
}

// A quotient as it is stored. -0 becomes 0: a tile whose keys are all masked for a row adds zeros to its
// sums, which changes nothing but the sign of a zero.
__device__ inline float quotient(float sum, float weights) {
  return __fadd_rn(__fdiv_rn(sum, weights), 0.0f);
}

}  // namespace quire::cuda
