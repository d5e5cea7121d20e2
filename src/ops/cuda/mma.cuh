// Matrix instructions and what feeds them: mma.m16n8k16 on bf16 with f32 accumulators, ldmatrix, copies to shared memory
// in the background.
//
// Lane l holds, of an accumulator, row l / 4 columns 2 (l % 4) and the next in [0] and [1], the same of row l / 4 + 8 in
// [2] and [3]. A column of the result does not depend on the other columns, on its place or on the tile's; a row
// likewise: mma_test.cu.
#pragma once

#include <cstdint>

#include "ops/cuda/common.cuh"

namespace quire::cuda {

__device__ inline std::uint32_t shared_address(const void* p) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(p));
}

// kBytes (4, 8 or 16, and so aligned) to shared memory in the background.
template <int kBytes>
__device__ inline void copy_async(void* to, const void* from) {
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)), "l"(from), "n"(kBytes) : "memory");
  }
}
// Ends a group of copies.
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until all groups of this thread but the last kGroups are there; others see them after a barrier.
template <int kGroups>
__device__ inline void wait_for_copies_but() { asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory"); }
// Until all are.
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// 16 bytes that are read once. Volatile: it stays where it is written, before a wait for instance.
__device__ inline float4 load_once(const float* p) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p));
  return v;
}

// 16 x 16 of A at `tile` (row-major).
__device__ inline void load_a(std::uint32_t (&a)[4], const bfloat* tile, int stride) {
  const int lane = threadIdx.x % 32;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(shared_address(tile + lane % 16 * stride + lane / 16 * 8))
               : "memory");
}
// The same, stored [column][row].
__device__ inline void load_a_transposed(std::uint32_t (&a)[4], const bfloat* tile, int stride) {
  const int lane = threadIdx.x % 32;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3])
               : "r"(shared_address(tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8))
               : "memory");
}
// B for 16 columns (two accumulators: b[0..1], b[2..3]) and 16 of depth, at `tile` stored [column][depth].
__device__ inline void load_b(std::uint32_t (&b)[4], const bfloat* tile, int stride) {
  const int lane = threadIdx.x % 32;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(shared_address(tile + (lane / 16 * 8 + lane % 8) * stride + lane / 8 % 2 * 8))
               : "memory");
}
// The same, stored [depth][column].
__device__ inline void load_b_transposed(std::uint32_t (&b)[4], const bfloat* tile, int stride) {
  const int lane = threadIdx.x % 32;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3])
               : "r"(shared_address(tile + lane % 16 * stride + lane / 16 * 8))
               : "memory");
}
// c += A B
__device__ inline void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 8 x 8 of bf16, lane l holding row l / 4, columns 2 (l % 4) and the next, turned.
__device__ inline std::uint32_t transposed(std::uint32_t x) {
  std::uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
}

// Two values rounded to bf16, the first in the low half.
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t x;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x) : "f"(high), "f"(low));
  return x;
}
__device__ inline float low_of(std::uint32_t x) { return __uint_as_float(x << 16); }
__device__ inline float high_of(std::uint32_t x) { return __uint_as_float(x & 0xffff0000u); }

// Two values as bf16 sums: hi + lo, 16 bits of mantissa.
__device__ inline void split(float low, float high, std::uint32_t& hi, std::uint32_t& lo) {
  hi = pack(low, high);
  lo = pack(__fsub_rn(low, low_of(hi)), __fsub_rn(high, high_of(hi)));
}

}  // namespace quire::cuda
