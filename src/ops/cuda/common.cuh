// What the kernels share: elements in either format, reductions in one fixed order.
//
// Every f32 operation outside matrix instructions that can be contracted is written as an intrinsic (__fmaf_rn, __fmul_rn,
// __fadd_rn), so that two instances of a template give the same bits.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

#include "ops/ops.h"

namespace quire::cuda {

using bfloat = __nv_bfloat16;

// Kernels started by launch() run beside the tail of the one before them. Every thread waits for that one to be complete
// before it reads what it wrote, or writes anything; then it lets the next kernel start. In this order: a kernel that
// runs knows that all but the one just before it are complete, and may read weights, caches and cursors that were
// written earlier than that before it waits.
__device__ inline void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void let_successor_start() { asm volatile("griddepcontrol.launch_dependents;"); }

__device__ inline float to_f32(float x) { return x; }
__device__ inline float to_f32(bfloat x) { return __bfloat162float(x); }

template <typename T>
__device__ inline T from_f32(float x);
template <>
__device__ inline float from_f32<float>(float x) { return x; }
// As one of two values: the instruction that rounds one alone may run at a quarter of the rate.
template <>
__device__ inline bfloat from_f32<bfloat>(float x) { return __low2bfloat16(__floats2bfloat162_rn(x, 0.0f)); }

// Two neighbouring elements.
__device__ inline float2 pair_of(const float*, float a, float b) { return {a, b}; }
__device__ inline __nv_bfloat162 pair_of(const bfloat*, float a, float b) { return __floats2bfloat162_rn(a, b); }

// The round of the contracts in ops.h.
template <typename T>
__device__ inline float round_to(float x) { return to_f32(from_f32<T>(x)); }

// By the fast instructions, a few units of f32 off: where the exponential overflows, or leaves a denormal of the
// quotient, 0.
__device__ inline float sigmoid(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fmul_rn(x, -1.4426950408889634f)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fadd_rn(1.0f, y)));
  return y;
}
__device__ inline float silu(float x) { return __fmul_rn(x, sigmoid(x)); }
// What attention_gate makes of one value.
template <typename T>
__device__ inline T gate_value(T x, T gate) {
  return from_f32<T>(__fmul_rn(to_f32(x), round_to<T>(sigmoid(to_f32(gate)))));
}
template <typename T>
__device__ inline float swiglu_of(float gate, float up) { return __fmul_rn(round_to<T>(silu(gate)), up); }

// The sum over a warp, the same bits in every lane: lane i adds lane i ^ 16, then i ^ 8, ...
__device__ inline float warp_sum(float x) {
  for (int offset = 16; offset > 0; offset >>= 1) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}
__device__ inline float warp_max(float x) {
  for (int offset = 16; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

// The sum over a block of kThreads, the same bits in every thread: warps first, then their sums in one warp.
template <int kThreads>
__device__ inline float block_sum(float x) {
  constexpr int kWarps = kThreads / 32;
  __shared__ float sums[kWarps];
  x = warp_sum(x);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < kWarps ? sums[threadIdx.x % 32] : 0.0f;
  x = warp_sum(x);
  __syncthreads();  // sums may be written again
  return x;
}

// A row of Rows in a kernel: base pointer and stride, passed by value.
template <typename T>
struct Matrix {
  T* data;
  std::int64_t stride;
  __device__ T* row(std::int64_t i) const { return data + i * stride; }
};

template <typename T>
Matrix<T> matrix(const Rows& x) { return {static_cast<T*>(x.data), x.stride}; }

// Eight neighbouring elements as they stand in memory, at an address that is aligned to 16 bytes.
template <typename T>
struct Packed {
  unsigned word[2 * sizeof(T)];

  // Zeros where they are not `present`: without a branch, so that several loads are on their way at once.
  __device__ static Packed load(const T* p, bool present) {
    Packed e;
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(T) / 2); ++i) {
      uint4 four = make_uint4(0, 0, 0, 0);
      if (present) four = reinterpret_cast<const uint4*>(p)[i];
      e.word[4 * i] = four.x, e.word[4 * i + 1] = four.y, e.word[4 * i + 2] = four.z, e.word[4 * i + 3] = four.w;
    }
    return e;
  }
  // To global memory; in assembler, since the compiler takes an assignment apart where the words come from conditions.
  __device__ void store(T* p) const {
#pragma unroll
    for (int i = 0; i < 2 * static_cast<int>(sizeof(T)); i += 4) {
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(p) + 4 * i), "r"(word[i]),
                   "r"(word[i + 1]), "r"(word[i + 2]), "r"(word[i + 3])
                   : "memory");
    }
  }
};

// Eight neighbouring elements of a row: one or two 16-byte accesses where `aligned` (see vectors_of), else one by one.
// Elements from `count` on are 0, and not written. Rows are in global memory.
template <typename T>
struct Eight {
  float v[8];

  __device__ static Eight of(const Packed<T>& packed) {
    Eight e;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (sizeof(T) == 2) {
        const unsigned pair = packed.word[i / 2];
        e.v[i] = __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
      } else {
        e.v[i] = __uint_as_float(packed.word[i]);
      }
    }
    return e;
  }
  // Rounded, two at a time: one instruction for a pair.
  __device__ Packed<T> packed() const {
    Packed<T> e;
#pragma unroll
    for (int i = 0; i < 8; i += sizeof(T) == 2 ? 2 : 1) {
      if constexpr (sizeof(T) == 2) {
        const __nv_bfloat162 pair = __floats2bfloat162_rn(v[i], v[i + 1]);
        e.word[i / 2] = reinterpret_cast<const unsigned&>(pair);
      } else {
        e.word[i] = __float_as_uint(v[i]);
      }
    }
    return e;
  }
  __device__ Eight rounded() const { return of(packed()); }

  __device__ static Eight load(const T* p, std::int64_t count, bool aligned) {
    Eight e;
    if (aligned && count >= 8) {
      alignas(16) T raw[8];
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(raw) / 16); ++i) {
        reinterpret_cast<uint4*>(raw)[i] = reinterpret_cast<const uint4*>(p)[i];
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) e.v[i] = to_f32(raw[i]);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) e.v[i] = i < count ? to_f32(p[i]) : 0.0f;
    }
    return e;
  }
  __device__ void store(T* p, std::int64_t count, bool aligned) const {
    if (aligned && count >= 8) {
      packed().store(p);
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i < count) p[i] = from_f32<T>(v[i]);
      }
    }
  }
};

// Whether every eighth element of every row is aligned to 16 bytes.
inline bool vectors_of(const Rows& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.stride * size_of(x.format) % 16 == 0;
}

// Calls body with a value of the element type.
template <typename Body>
void with_type(Format format, Body body) {
  if (format == Format::bf16) {
    body(bfloat{});
  } else {
    body(float{});
  }
}

}  // namespace quire::cuda
