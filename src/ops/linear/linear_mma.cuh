// The tensor core product of `linear` and `project`: operands, and the order of summation, which no choice of
// kernel, grid or number of rows changes.
//
// K is cut into kSegments segments of equal length, a multiple of 128 columns (the last may be shorter, or there may
// be fewer). Within a segment columns are taken in order, 16 to an instruction, all on one accumulator that starts from
// 0; then the segments are added to 0 in index order, in f32. All of it is a function of K alone: which block or warp
// sums a segment, how many tokens or weight rows there are and where a token or row stands are of no consequence. (That
// a row or column of an MMA does not depend on its place or neighbours is a property of the hardware, and is tested.)
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
};

struct Product {
  Factor factors[kMostProjections];
  int count;        // of factors
  const bfloat* x;  // [T, K]
  std::int64_t x_stride;
  int T, K, segment;

  __device__ const Factor& factor_of(int tile) const {
    int i = count - 1;
    while (i > 0 && tile < factors[i].first_tile) --i;
    return factors[i];
  }
};

// --- fetching --------------------------------------------------------------------------------------------------------

// Eight columns to an address in shared memory, zeros for those that are not among the first `exist`. kAligned: they
// stand at a multiple of 16 bytes, and all exist or none; the data is there after wait_for_fetches.
template <bool kAligned>
__device__ inline void fetch(unsigned to, const bfloat* from, int exist) {
  if constexpr (kAligned) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(exist > 0 ? 16 : 0)
                 : "memory");
  } else {
    const auto pair = [&](int i) {
      const unsigned low = i < exist ? __bfloat16_as_ushort(from[i]) : 0u;
      return low | (i + 1 < exist ? unsigned{__bfloat16_as_ushort(from[i + 1])} << 16 : 0u);
    };
    *static_cast<uint4*>(__cvta_shared_to_generic(to)) = {pair(0), pair(2), pair(4), pair(6)};
  }
}
// So many columns, a multiple of 8, at a multiple of 16 bytes.
__device__ inline void prefetch(const bfloat* row, int columns) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(row), "r"(2 * columns) : "memory");
}
__device__ inline void commit_fetches() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until at most kPending of the latest groups are under way.
template <int kPending>
__device__ inline void wait_for_fetches() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// How many steps there may be in shared memory.
constexpr int kDepths[] = {16, 12, 10, 8, 6, 5, 4, 3, 2};
// Until the oldest of `depth` - 1 groups is there: the instruction takes constants.
__device__ inline void wait_for_oldest(int depth) {
  if (depth >= 8) {
    if (depth >= 12) {
      depth == 12 ? wait_for_fetches<10>() : wait_for_fetches<14>();
    } else {
      depth == 8 ? wait_for_fetches<6>() : wait_for_fetches<8>();
    }
  } else if (depth >= 5) {
    depth == 5 ? wait_for_fetches<3>() : wait_for_fetches<4>();
  } else if (depth >= 3) {
    depth == 3 ? wait_for_fetches<1>() : wait_for_fetches<2>();
  } else {
    wait_for_fetches<0>();
  }
}

// --- summing ---------------------------------------------------------------------------------------------------------

// Operands stand in shared memory as rows of 32 columns, 64 bytes, in pieces of 16. So that eight rows at one piece lie
// in different banks, piece p of row r stands at place p ^ (r / 2 % 4).
constexpr int kRowBytes = 64;
__device__ inline unsigned place_of(int row, int piece) {
  return row * kRowBytes + (piece ^ (row / 2 % 4)) * 16;
}

// Four 8 x 8 matrices; lane i has the address of row i % 8 of matrix i / 8.
struct Fragment {
  unsigned r[4];
};
__device__ inline Fragment load_fragment(unsigned address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(address)
               : "memory");
  return f;
}
// Where a lane finds the first 16 columns of 16 operand rows from `row` on, a first operand; the next 16 are at that
// address ^ kNextColumns.
__device__ inline unsigned weight_place(int lane, int row) {
  return place_of(row + lane % 16, lane / 16);
}
constexpr unsigned kNextColumns = 32;
// The same for 8 tokens and all 32 columns, the second operands of two instructions.
__device__ inline unsigned token_place(int lane, int row) {
  return place_of(row + lane % 8, lane / 8);
}

__device__ inline void multiply_add(float (&sums)[4], const Fragment& w, unsigned x0, unsigned x1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(w.r[0]), "r"(w.r[1]), "r"(w.r[2]), "r"(w.r[3]), "r"(x0), "r"(x1));
}

__device__ inline void add_segment(float& total, float sum) {
  total = __fadd_rn(total, sum);
}

// Which row of a product stands in row m of its 16: rows 2h, 2h+1, 8+2h, 8+2h+1 of an operand are four in a row, so
// that two lanes hold four rows of two tokens.
__device__ inline int row_of(int m) {
  return m % 8 / 2 * 4 + m / 8 * 2 + m % 2;
}

// Stores the sums of 16 rows from `row` on by 8 tokens from `token` on. All lanes come here.
__device__ inline void store_sums(const Factor& f, int row, int token, int tokens, const float (&sums)[4]) {
  const int lane = threadIdx.x % 32;
  const bool odd = lane & 4;  // has the second token of the pair
  const float low = __shfl_xor_sync(~0u, odd ? sums[0] : sums[1], 4),
              high = __shfl_xor_sync(~0u, odd ? sums[2] : sums[3], 4);
  row += lane / 8 * 4;
  token += lane % 4 * 2 + odd;
  if (token < tokens)
    f.store(row, token, odd ? float4{low, sums[1], high, sums[3]} : float4{sums[0], low, sums[2], high});
}

// --- clusters --------------------------------------------------------------------------------------------------------

// All blocks of the cluster have come here, and see what the others wrote before.
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same, without seeing anything.
__device__ inline void leave_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// What stands at `p`, an address of this block's shared memory, in block `rank` of the cluster.
__device__ inline float4 load_from(const float4* p, int rank) {
  unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(p));
  float4 v;
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(address), "r"(rank)
      : "memory");
  return v;
}

}  // namespace quire::cuda
