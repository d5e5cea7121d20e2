// Attention of every patch to every patch.
//   out[i, h] = sum_j w_j v_j / sum_j w_j, w_j = exp(s_j - m), s_j = q_i k_j E^-1/2
// Shapes: qkv [N, 3 D] = q | k | v, head-major; out [N, D]; E = D / heads <= 128; bf16 (f32:
// attention_f32_cuda.cu).
//
// FLOP: 4 D N^2, the wall, with N^2 exponentials a head beside it. Bytes: K and V once for each block of
// rows, from L2.
//
// Plan: a block takes 128 rows of one head (64 where E > 80), a warp 32 (16) of them. Tiles of 64 keys are
// copied while the one before is used; scores, running maximum and weights stay in registers, the
// accumulators of Q K^T being the operand of P V.
//
// Precision: products bf16 x bf16 summed in f32 by mma.m16n8k16, softmax f32; weights are rounded to bf16
// relative to the largest score so far, their sum is not; one round at the end.
//
// Invariance: a row sees tiles of keys at fixed indices in order, by the same instructions wherever it
// stands.
#include "ops/attention/attention.h"
#include "ops/attention/attention_tiles.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kTile = 64;  // keys
constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kMostVisionHeadDim = 128;

struct VisionCall {
  Matrix<bfloat> qkv, out;
  int patches;   // N
  int width;     // D
  int head_dim;  // E
  float scale;
  bool vectors;  // as in load_tile
};

template <int kE, int kRowTiles>
struct VisionBlock {
  static constexpr int kRows = 16 * kWarps * kRowTiles;
  static constexpr int kStride = kE + 8;

  // Shared memory. K and V twice: one tile is copied while the other is used.
  bfloat q[kRows * kStride];
  bfloat k[2][kTile * kStride];
  bfloat v[2][kTile * kStride];

  // kCount patches from `first` on, at `column` of qkv.
  template <int kCount>
  static __device__ void load(const VisionCall& a, bfloat* to, int first, int column) {
    load_tile<kE, kCount, kThreads>(to, a.head_dim, a.vectors, a.qkv.data, [&](int i) -> const bfloat* {
      return first + i < a.patches ? a.qkv.row(first + i) + column : nullptr;
    });
  }
  __device__ void load_keys(const VisionCall& a, int head, int tile, int buffer) {
    load<kTile>(a, k[buffer], tile * kTile, a.width + head * a.head_dim);
    load<kTile>(a, v[buffer], tile * kTile, 2 * a.width + head * a.head_dim);
  }
};

// What a warp knows of its rows. A thread's share: rows lane / 4 and lane / 4 + 8 of each 16.
template <int kE, int kRowTiles>
struct VisionRows {
  float out[kRowTiles][kE / 8][4];
  float max[kRowTiles][2];
  float weights[kRowTiles][2];  // the sum over this thread's columns

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) max[i][half] = kMinusInfinity, weights[i][half] = 0;
#pragma unroll
      for (int n = 0; n < kE / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) out[i][n][c] = 0;
      }
    }
  }
};

template <int kRowTiles>
using Scores = float[kRowTiles][kTile / 8][4];

template <int kE, int kRowTiles>
__device__ inline void score(Scores<kRowTiles>& s, const bfloat* q, const bfloat* k) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
      for (int c = 0; c < 4; ++c) s[i][n][c] = 0;
    }
  }
#pragma unroll 1
  for (int e = 0; e < kE; e += 16) {
    std::uint32_t a[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) load_a(a[i], q + i * 16 * (kE + 8) + e, kE + 8);
#pragma unroll
    for (int n = 0; n < kTile / 8; n += 2) {
      std::uint32_t b[4];
      load_b(b, k + n * 8 * (kE + 8) + e, kE + 8);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        multiply(s[i][n], a[i], b[0], b[1]);
        multiply(s[i][n + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// Products -> weights, not yet rounded; `rows` follow to the new maximum. Keys from `count` on do not exist.
template <int kE, int kRowTiles>
__device__ inline void softmax(VisionRows<kE, kRowTiles>& rows, Scores<kRowTiles>& s, float scale,
                               int count) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = kMinusInfinity;
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& x = s[i][n][2 * half + c];
          x = n * 8 + column + c < count ? __fmul_rn(x, scale) : kMinusInfinity;
          largest = fmaxf(largest, x);
        }
      }
      const float max = fmaxf(rows.max[i][half], row_max(largest));
      const float base = reference_score(max), factor = expf(__fsub_rn(rows.max[i][half], base));
      rows.max[i][half] = max;
      float sum = __fmul_rn(rows.weights[i][half], factor);
#pragma unroll
      for (int n = 0; n < kTile / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float& x = s[i][n][2 * half + c];
          x = expf(__fsub_rn(x, base));
          sum = __fadd_rn(sum, x);
        }
      }
      rows.weights[i][half] = sum;
#pragma unroll
      for (int n = 0; n < kE / 8; ++n) {
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; ++c)
          rows.out[i][n][c] = __fmul_rn(rows.out[i][n][c], factor);
      }
    }
  }
}

// rows.out += P V, P rounded to bf16 here.
template <int kE, int kRowTiles>
__device__ inline void weighted_sum(VisionRows<kE, kRowTiles>& rows, const Scores<kRowTiles>& p,
                                    const bfloat* v) {
#pragma unroll
  for (int j = 0; j < kTile / 16; ++j) {
    std::uint32_t a[kRowTiles][4];
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
      const float* const left = p[i][2 * j];
      const float* const right = p[i][2 * j + 1];
      a[i][0] = pack(left[0], left[1]);
      a[i][1] = pack(left[2], left[3]);
      a[i][2] = pack(right[0], right[1]);
      a[i][3] = pack(right[2], right[3]);
    }
#pragma unroll
    for (int n = 0; n < kE / 8; n += 2) {
      std::uint32_t b[4];
      load_b_transposed(b, v + j * 16 * (kE + 8) + n * 8, kE + 8);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        multiply(rows.out[i][n], a[i], b[0], b[1]);
        multiply(rows.out[i][n + 1], a[i], b[2], b[3]);
      }
    }
  }
}

// Grid: row blocks, heads.
template <int kE, int kRowTiles>
__global__ __launch_bounds__(kThreads) void vision_attention_kernel(const VisionCall a) {
  using Block = VisionBlock<kE, kRowTiles>;
  extern __shared__ __align__(16) unsigned char shared[];
  Block& block = *reinterpret_cast<Block*>(shared);
  wait_for_predecessor();
  let_successor_start();
  const int head = blockIdx.y, first_row = blockIdx.x * Block::kRows;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int warp_row = warp * 16 * kRowTiles;

  Block::template load<Block::kRows>(a, block.q, first_row, head * a.head_dim);
  block.load_keys(a, head, 0, 0);
  VisionRows<kE, kRowTiles> rows;
  rows.clear();
  const int tiles = (a.patches + kTile - 1) / kTile;
  for (int tile = 0; tile < tiles; ++tile) {
    const int buffer = tile % 2;
    wait_for_copies();
    __syncthreads();  // this tile is here, and nobody reads the other any more
    if (tile + 1 < tiles) block.load_keys(a, head, tile + 1, buffer ^ 1);
    Scores<kRowTiles> s;
    score<kE, kRowTiles>(s, block.q + warp_row * Block::kStride, block.k[buffer]);
    softmax<kE, kRowTiles>(rows, s, a.scale, a.patches - tile * kTile);
    weighted_sum<kE, kRowTiles>(rows, s, block.v[buffer]);
  }

#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float weights = row_sum(rows.weights[i][half]);
      const int row = first_row + warp_row + i * 16 + half * 8 + lane / 4;
      if (row >= a.patches) continue;
      bfloat* const out = a.out.row(row) + head * a.head_dim;
#pragma unroll
      for (int n = 0; n < kE / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int e = n * 8 + lane % 4 * 2 + c;
          if (e < a.head_dim) out[e] = from_f32<bfloat>(quotient(rows.out[i][n][2 * half + c], weights));
        }
      }
    }
  }
}

template <int kE, int kRowTiles>
void launch_vision(Stream& s, const VisionCall& a, int heads) {
  using Block = VisionBlock<kE, kRowTiles>;
  const dim3 grid(blocks(a.patches, Block::kRows), static_cast<unsigned>(heads));
  launch(s, "vision_attention", {.blocks = grid, .threads = kThreads, .shared = sizeof(Block)},
         vision_attention_kernel<kE, kRowTiles>, a);
}

void vision_attention_bf16(Stream& s, const VisionAttention& a, std::int64_t head_dim) {
  const VisionCall call{.qkv = matrix<bfloat>(a.qkv),
                        .out = matrix<bfloat>(a.out),
                        .patches = static_cast<int>(a.qkv.rows),
                        .width = static_cast<int>(a.out.cols),
                        .head_dim = static_cast<int>(head_dim),
                        .scale = 1.0f / sqrtf(static_cast<float>(head_dim)),
                        .vectors = takes_vectors(a.qkv, head_dim)};
  if (head_dim <= 64) {
    launch_vision<64, 2>(s, call, a.heads);
  } else if (head_dim <= 80) {
    launch_vision<80, 2>(s, call, a.heads);
  } else {
    launch_vision<128, 1>(s, call, a.heads);
  }
}

}  // namespace

void vision_attention(Stream& s, const VisionAttention& a) {
  check_vision_attention(a);
  if (a.qkv.rows == 0) return;
  const std::int64_t E = a.out.cols / a.heads;
  check_head_dim("vision_attention", E, kMostVisionHeadDim);
  if (a.qkv.format == Format::f32) return plain_attention(s, a);
  vision_attention_bf16(s, a, E);
}

}  // namespace quire::cuda
