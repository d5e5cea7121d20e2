// What the tensor core kernels of `linear` share, and with it the order of summation that makes their bits
// equal.
//
// K is cut into parts (part_columns). Within a part, columns are taken in steps of 32, two instructions a
// step, all on one accumulator that starts from 0; then the parts are added to 0 in index order, in f32. All
// of it is a function of K alone: which block or warp sums a part, how many tokens or weight rows there are
// and where a token or row stands are of no consequence. (That a row or column of an MMA does not depend on
// its place or neighbours is a property of the hardware, and is tested.)
//
// The columns of a step are permuted, for weights and tokens alike: lane q of a quad holds columns 8q ..
// 8q+7, 16 bytes of a row. The first instruction takes the first two pairs of every lane, the second the
// others.
#pragma once

#include "ops/cuda/common.cuh"
#include "ops/cuda/launch.h"

namespace quire::cuda {

constexpr int kStep = 32;       // columns
constexpr int kMostParts = 16;  // one warp each in a window

// The columns of a part, a multiple of kStep; the last part may be shorter.
inline int part_columns(std::int64_t K) {
  constexpr std::int64_t kLeast = 128;
  const std::int64_t part = (K + kMostParts - 1) / kMostParts;
  return static_cast<int>((part < kLeast ? kLeast : part) + kStep - 1) / kStep * kStep;
}

__host__ __device__ inline int blocks_of(int n, int per_block) {
  return (n + per_block - 1) / per_block;
}

struct Product {
  const bfloat* w;  // [N, K]
  const bfloat* x;  // [T, K]
  std::int64_t x_stride;
  std::int64_t N, T;
  int K, part;
};

// Where finished sums go.
struct Output {
  void* y;
  bool bf16;
  std::int64_t y_stride;
  const float* bias;  // or nullptr
  std::int64_t N, T;

  __device__ void store(std::int64_t row, std::int64_t token, float sum) const {
    if (row >= N || token >= T) return;
    if (bias) sum = __fadd_rn(sum, bias[row]);
    const std::int64_t at = token * y_stride + row;
    if (bf16) {
      static_cast<bfloat*>(y)[at] = from_f32<bfloat>(sum);
    } else {
      static_cast<float*>(y)[at] = sum;
    }
  }
};

// --- fetching --------------------------------------------------------------------------------------------

// A row of an operand; rows past the end are zeros (`data` is then any row, and is not read).
struct Source {
  const bfloat* data;
  bool exists;
};
__device__ inline Source weight_row(const Product& a, std::int64_t row) {
  return {a.w + (row < a.N ? row : 0) * a.K, row < a.N};
}
__device__ inline Source token_row(const Product& a, std::int64_t token) {
  return {a.x + (token < a.T ? token : 0) * a.x_stride, token < a.T};
}

// Columns k .. k+7 of a row into shared memory, zeros past K. kAligned: rows start at multiples of 16 bytes
// and K is a multiple of 8; the data is there after wait_for_fetches.
template <bool kAligned>
__device__ inline void fetch(uint4* to, const Source& from, int k, int K) {
  if constexpr (kAligned) {
    const bool exists = from.exists && k < K;
    const bfloat* source = exists ? from.data + k : from.data;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(
                     static_cast<unsigned>(__cvta_generic_to_shared(to))),
                 "l"(source), "r"(exists ? 16 : 0)
                 : "memory");
  } else {
    const auto element = [&](int i) -> unsigned {
      return from.exists && k + i < K ? __bfloat16_as_ushort(from.data[k + i]) : 0u;
    };
    *to = {element(0) | element(1) << 16, element(2) | element(3) << 16, element(4) | element(5) << 16,
           element(6) | element(7) << 16};
  }
}
__device__ inline void commit_fetches() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ inline void wait_for_fetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// --- summing ---------------------------------------------------------------------------------------------

__device__ inline void mma(float (&c)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                           unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A step: 16 weight rows (row g of a quad in `upper`, g + 8 in `lower`) by 8 tokens.
__device__ inline void multiply_add(float (&sums)[4], const uint4& upper, const uint4& lower,
                                    const uint4& x) {
  mma(sums, upper.x, lower.x, upper.y, lower.y, x.x, x.y);
  mma(sums, upper.z, lower.z, upper.w, lower.w, x.z, x.w);
}

__device__ inline void add_part(float& total, float part) {
  total = __fadd_rn(total, part);
}

// store(row, token, sum) for the sums that a lane has of a 16 x 8 tile at (row, token).
template <typename Store>
__device__ inline void for_sums(int lane, std::int64_t row, std::int64_t token, const float (&sums)[4],
                                Store store) {
  row += lane / 4;
  token += 2 * (lane % 4);
  store(row, token, sums[0]);
  store(row, token + 1, sums[1]);
  store(row + 8, token, sums[2]);
  store(row + 8, token + 1, sums[3]);
}

}  // namespace quire::cuda
