// gdn_prefill on tensor cores: bf16 activations, heads of 128 x 128. gdn_cuda.cu has the equations of a chunk of C = 64
// tokens, and every other case. Keys and queries go into the products as they are, exact in bf16; the factors f_k, f_q
// that normalise them go to what comes out. With A, P, b as there and T = (I + A)^-1, values as rows:
//   R = beta v - (beta e^b f_k) S k,       X = R + R (T - I)^T,
//   O = (e^b f_q) S q + X P^T,             S <- e^(b_last) S + (e^(b_last - b) f_k X) k^T
// Shapes: qkv [T, 2 Hk 128 + Hv 128] and out [T, Hv 128] bf16; g, beta [T, Hv] and S [Hv, 128, 128] f32, in fragments.
// FLOP a chunk and head: 2 C (3 * 128 * 128 + 128 * C) = 7.3 M, times 3 (6 where both sides are split) for the parts.
// The wall is the chain of chunks, 504 MMAs of one warp each: 2 us.
// Plan: invert_kernel, a block a chunk and head: Gram matrices by MMA, T by substitution in f32, P; both as fragments.
// chain_kernel, a warp 16 values of a head: accumulators are operand A of the next product, so that R, X and S need no
// exchange; a second warp computes the output a chunk behind it, and warps of their own copy a chunk ahead of it.
//
// Precision: f32. An f32 operand is the sum of three bf16, exactly; of a product of two such, what is below 2^-24 is
// left out. A sum has one order: MMA over steps of 16 ascending, small parts first (multiply_lower: of each step).
#include <algorithm>

#include "ops/cuda/entries.h"
#include "ops/cuda/mma.cuh"
#include "ops/gdn/gdn_cuda.cuh"

namespace quire::cuda {
namespace {

constexpr int kChunk = 64;
constexpr int kTiles = kChunk / 16, kSteps = kGdnDim / 16;
constexpr int kStride = kGdnDim + 8;  // of rows in shared memory: fragments without bank conflicts
constexpr int kChunksAtOnce = 16;     // a group's scratch stays in L2: 16 MB at 32 heads
constexpr int kParts = 3;             // bf16 that make up an f32

using Prompt = Delta<bfloat>;

// Two values as sums of bf16, the largest first; nothing is lost.
__device__ inline void split(float x, float y, std::uint32_t (&parts)[kParts]) {
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    parts[i] = pack(x, y);
    x = __fsub_rn(x, low_of(parts[i])), y = __fsub_rn(y, high_of(parts[i]));
  }
}

// 16 x 16 as two accumulators, and as operand A in parts.
using Tile = float[2][4];
struct Fragment {
  std::uint32_t part[kParts][4];

  __device__ void set(const Tile& x) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t parts[kParts];
      split(x[i / 2][i % 2 * 2], x[i / 2][i % 2 * 2 + 1], parts);
#pragma unroll
      for (int p = 0; p < kParts; ++p) part[p][i] = parts[p];
    }
  }
};
__device__ inline void multiply_tile(Tile& c, const std::uint32_t (&a)[4], const std::uint32_t (&b)[4]) {
  multiply(c[0], a, b[0], b[1]);
  multiply(c[1], a, b[2], b[3]);
}

// A lower triangular matrix of tokens i by tokens j in tiles of 16 x 16, each in parts, the largest first; a part is
// operand B with i as columns, as the lanes hold it.
struct Lower {
  uint4 fragment[kTiles * (kTiles + 1) / 2][kParts][32];

  __device__ static constexpr int tile(int i, int j) { return i * (i + 1) / 2 + j; }
  // Rows i and i + 8 of i = 16 tile + lane / 4, columns 2 (lane % 4), and the next, and those 8 further on.
  __device__ void set(int tile_index, float2 upper_left, float2 upper_right, float2 lower_left, float2 lower_right) {
    std::uint32_t x[4][kParts];
    split(upper_left.x, upper_left.y, x[0]), split(upper_right.x, upper_right.y, x[1]);
    split(lower_left.x, lower_left.y, x[2]), split(lower_right.x, lower_right.y, x[3]);
#pragma unroll
    for (int p = 0; p < kParts; ++p) fragment[tile_index][p][threadIdx.x % 32] = {x[0][p], x[1][p], x[2][p], x[3][p]};
  }
};

// One chunk of one head in scratch: what the warps of the state and those of the output read, and what they multiply a
// token's products by.
struct ForState {
  Lower solve;        // T - I
  float old[kChunk];  // beta e^b f_k
  float beta[kChunk];
  float to_end[kChunk];  // e^(b_last - b) f_k
  float decay[4];        // e^(b_last), and padding
};
struct ForOutput {
  Lower scores;        // P
  float read[kChunk];  // e^b f_q
};
struct Prepared {
  ForState state;
  ForOutput output;
};

// kCols columns of n rows, then zeros up to 64, to shared memory, by kThreads threads; in the background where 16 bytes
// can be copied.
template <int kThreads, int kCols>
__device__ void copy_rows(int thread, bfloat (*to)[kCols + 8], const bfloat* from, std::int64_t stride, int n,
                          bool vectors) {
  constexpr int kPieces = kCols / 8, kRows = kThreads / kPieces;
  const int first = thread / kPieces, at = thread % kPieces * 8;
  const bfloat* x = from + first * stride + at;
#pragma unroll 4
  for (int row = first; row < kChunk; row += kRows, x += kRows * stride) {
    if (row >= n) {
      *reinterpret_cast<uint4*>(&to[row][at]) = uint4{};
    } else if (vectors) {
      copy_async<16>(&to[row][at], x);
    }
  }
  if (vectors) return;
#pragma unroll 1
  for (int i = thread; i < n * kCols; i += kThreads) to[i / kCols][i % kCols] = from[i / kCols * stride + i % kCols];
}

// --- a chunk alone ---------------------------------------------------------------------------------------

constexpr int kInvertThreads = 128;

struct InvertSpace {
  static constexpr int kAStride = kChunk + 4, kXStride = kChunk + 1;
  alignas(16) bfloat k[kChunk][kStride];
  alignas(16) bfloat q[kChunk][kStride];
  alignas(16) float a[kChunk][kAStride];  // A^T
  float x[kChunk][kXStride];              // T^T
  float b[kChunk], beta[kChunk], k_factor[kChunk], q_factor[kChunk];
};

// b, the running sum of g, by one warp; a lane has two tokens. Tokens from n on do not decay or write.
__device__ void load_gates(const Prompt& a, int h, int begin, int n, InvertSpace& c) {
  const int lane = static_cast<int>(threadIdx.x) % 32, i = 2 * lane;
  const float g0 = i < n ? a.g[a.gate(begin + i, h)] : 0.0f;
  const float g1 = i + 1 < n ? a.g[a.gate(begin + i + 1, h)] : 0.0f;
  float through = __fadd_rn(g0, g1);
  for (int offset = 1; offset < 32; offset *= 2) {
    const float before = __shfl_up_sync(~0u, through, offset);
    if (lane >= offset) through = __fadd_rn(before, through);
  }
  const float before = __shfl_up_sync(~0u, through, 1);
  c.b[i] = lane == 0 ? g0 : __fadd_rn(before, g0);
  c.b[i + 1] = through;
  c.beta[i] = i < n ? a.beta[a.gate(begin + i, h)] : 0.0f;
  c.beta[i + 1] = i + 1 < n ? a.beta[a.gate(begin + i + 1, h)] : 0.0f;
}

// scale / sqrt(sum of squares + 1e-6).
__device__ float norm_factor(const bfloat* row, float scale) {
  float squares = 0;
#pragma unroll 4
  for (int piece = 0; piece < kGdnDim / 8; ++piece) {
    const uint4 x = *reinterpret_cast<const uint4*>(row + 8 * piece);
    const std::uint32_t pairs[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      squares = __fmaf_rn(low_of(pairs[i]), low_of(pairs[i]), squares);
      squares = __fmaf_rn(high_of(pairs[i]), high_of(pairs[i]), squares);
    }
  }
  return __fdiv_rn(scale, __fsqrt_rn(__fadd_rn(squares, 1e-6f)));
}

// x_i . k_j for the 16 rows from 16 m on and the tiles up to the diagonal's.
__device__ void gram(const bfloat (*x)[kStride], const bfloat (*k)[kStride], int m, Tile (&sums)[kTiles]) {
#pragma unroll 2
  for (int step = 0; step < kSteps; ++step) {
    std::uint32_t rows[4];
    load_a(rows, &x[16 * m][16 * step], kStride);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (n > m) break;
      std::uint32_t columns[4];
      load_b(columns, &k[16 * n][16 * step], kStride);
      multiply_tile(sums[n], rows, columns);
    }
  }
}

// x_ij becomes f_i e^(b_i - b_j) f_j x_ij for j <= i, else 0; f_i of rows, beta_i f_i for k k^T.
__device__ void decay(const InvertSpace& c, int m, bool keys, Tile (&x)[kTiles]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int i = 16 * m + 8 * half + lane / 4;
    const float b = c.b[i], by = keys ? __fmul_rn(c.beta[i], c.k_factor[i]) : c.q_factor[i];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (n > m) break;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int j = 16 * n + e / 2 * 8 + lane % 4 * 2 + e % 2;
        float& v = x[n][e / 2][2 * half + e % 2];
        v = j <= i ? __fmul_rn(by, __fmul_rn(expf(__fsub_rn(b, c.b[j])), __fmul_rn(c.k_factor[j], v))) : 0.0f;
      }
    }
  }
}

// A, transposed, from 16 of its rows; on the diagonal and above there may be anything.
__device__ void store_a(InvertSpace& c, int m, const Tile (&a)[kTiles]) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    if (n > m) break;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      c.a[16 * n + e / 4 * 8 + lane % 4 * 2 + e % 2][16 * m + e / 2 % 2 * 8 + lane / 4] = a[n][e / 4][e % 4];
    }
  }
}

// 16 rows of P.
__device__ void store_scores(int m, const Tile (&x)[kTiles], Lower& to) {
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    if (n > m) break;
    const Tile& t = x[n];
    to.set(Lower::tile(m, n), {t[0][0], t[0][1]}, {t[1][0], t[1][1]}, {t[0][2], t[0][3]}, {t[1][2], t[1][3]});
  }
}

// T - I from its columns in shared memory.
__device__ void store_solved(const InvertSpace& c, Lower& to) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int tile = static_cast<int>(threadIdx.x) / 32; tile < Lower::tile(kTiles, 0); tile += kInvertThreads / 32) {
    const int m = tile < 1 ? 0 : tile < 3 ? 1 : tile < 6 ? 2 : 3, n = tile - Lower::tile(m, 0);
    float2 pair[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int i = 16 * m + e / 2 * 8 + lane / 4, j = 16 * n + e % 2 * 8 + lane % 4 * 2;
      pair[e] = {j < i ? c.x[j][i] : 0.0f, j + 1 < i ? c.x[j + 1][i] : 0.0f};
    }
    to.set(tile, pair[0], pair[1], pair[2], pair[3]);
  }
}

// Column c of T by forward substitution, 16 rows at a time in registers. A thread's own; rows before the warp's first
// column are zeros that nobody reads.
__device__ void solve_column(InvertSpace& s, int c) {
  const int first = c / 32 * 32;
  for (int i0 = first; i0 < kChunk; i0 += 16) {
    float y[16];
#pragma unroll
    for (int r = 0; r < 16; ++r) y[r] = i0 + r == c ? 1.0f : 0.0f;
    // What token j, whose value is known, takes from those from `from` on.
    const auto take = [&](int j, float known, int from) {
#pragma unroll
      for (int r = 0; r < 16; r += 4) {
        if (r + 3 < from) continue;
        const float4 v = *reinterpret_cast<const float4*>(&s.a[j][i0 + r]);
        const float four[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if (r + e >= from) y[r + e] = __fmaf_rn(-four[e], known, y[r + e]);
        }
      }
    };
#pragma unroll 4
    for (int j = first; j < i0; ++j) take(j, s.x[c][j], 0);
#pragma unroll
    for (int j = 0; j < 15; ++j) take(i0 + j, y[j], j + 1);
#pragma unroll
    for (int r = 0; r < 16; ++r) s.x[c][i0 + r] = y[r];
  }
}

__global__ void __launch_bounds__(kInvertThreads)
    invert_kernel(Prompt a, int first_token, bool vectors, Prepared* scratch) {
  extern __shared__ __align__(16) unsigned char shared[];
  wait_for_predecessor();
  let_successor_start();
  InvertSpace& c = *reinterpret_cast<InvertSpace*>(shared);
  const int tid = static_cast<int>(threadIdx.x), warp = tid / 32;
  const int h = static_cast<int>(blockIdx.x), begin = first_token + static_cast<int>(blockIdx.y) * kChunk;
  const int n = min(kChunk, a.tokens - begin);
  Prepared& to = scratch[std::int64_t{blockIdx.y} * a.value_heads + h];

  copy_rows<kInvertThreads, kGdnDim>(tid, c.k, a.k(begin, h), a.qkv.stride, n, vectors);
  copy_rows<kInvertThreads, kGdnDim>(tid, c.q, a.q(begin, h), a.qkv.stride, n, vectors);
  if (warp == 0) load_gates(a, h, begin, n, c);
  wait_for_copies();
  __syncthreads();
  if (tid < kChunk) {
    c.k_factor[tid] = norm_factor(c.k[tid], 1.0f);
  } else {
    c.q_factor[tid - kChunk] = norm_factor(c.q[tid - kChunk], a.q_scale);
  }
  __syncthreads();

  // Two warps have k k^T and A, two q k^T and P; each 16 rows with few columns and 16 with many.
  const bool keys = warp < 2;
#pragma unroll 1
  for (int i = 0; i < 2; ++i) {
    const int m = i == 0 ? warp % 2 : kTiles - 1 - warp % 2;
    Tile sums[kTiles] = {};
    gram(keys ? c.k : c.q, c.k, m, sums);
    decay(c, m, keys, sums);
    if (keys) {
      store_a(c, m, sums);
    } else {
      store_scores(m, sums, to.output.scores);
    }
  }
  __syncthreads();
  if (tid < kChunk) {
    solve_column(c, tid);
  } else {
    const int i = tid - kChunk;
    const float so_far = expf(c.b[i]), last = c.b[kChunk - 1];
    to.output.read[i] = __fmul_rn(so_far, c.q_factor[i]);
    to.state.old[i] = __fmul_rn(__fmul_rn(c.beta[i], so_far), c.k_factor[i]);
    to.state.beta[i] = c.beta[i];
    to.state.to_end[i] = __fmul_rn(expf(__fsub_rn(last, c.b[i])), c.k_factor[i]);
    if (i < 4) to.state.decay[i] = expf(last);
  }
  __syncthreads();
  store_solved(c, to.state.solve);
}

// --- the chain of chunks ---------------------------------------------------------------------------------

// Two warps carry the state of 16 values each, one chunk at a time; two others, a chunk behind, compute the output from
// what those hand over; four copy what all will need next.
constexpr int kPair = 2, kTeam = 32 * kPair, kValues = 16 * kPair;
constexpr int kCopyThreads = 128, kChainThreads = 2 * kTeam + kCopyThreads;

struct StateStage {
  alignas(16) bfloat k[kChunk][kStride];
  alignas(16) bfloat v[kChunk][kValues + 8];
  alignas(16) ForState prepared;
};
struct OutputStage {
  alignas(16) bfloat q[kChunk][kStride];
  alignas(16) ForOutput prepared;
};
// Tile after tile, as 16 rows of a state lie in memory.
using StateTiles = float4[kPair][kSteps][2][32];
using TokenTiles = float4[kPair][kTiles][2][32];
struct ChainSpace {
  StateStage kv[2];
  OutputStage q[2];
  StateTiles state[3];  // before chunk c: [c % 3]; c + 1 is written while the output reads c - 1
  TokenTiles x[2];      // of chunk c: [c % 2]
};

template <typename T>
__device__ void copy_whole(int thread, const T& from, T& to) {
#pragma unroll 4
  for (int i = thread; i < static_cast<int>(sizeof(T) / 16); i += kCopyThreads) {
    copy_async<16>(reinterpret_cast<uint4*>(&to) + i, reinterpret_cast<const uint4*>(&from) + i);
  }
}

__device__ inline void load_tile(const float4 (*from)[32], Tile& t) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float4 v = from[i][threadIdx.x % 32];
    t[0][2 * i] = v.x, t[0][2 * i + 1] = v.y, t[1][2 * i] = v.z, t[1][2 * i + 1] = v.w;
  }
}
__device__ inline void store_tile(float4 (*to)[32], const Tile& t) {
#pragma unroll
  for (int i = 0; i < 2; ++i) to[i][threadIdx.x % 32] = {t[0][2 * i], t[0][2 * i + 1], t[1][2 * i], t[1][2 * i + 1]};
}

// Element i of accumulator `half` multiplies column 8 half + 2 (lane % 4) + i % 2.
__device__ inline float2 of_columns(const float* factors, int tile, int half) {
  return *reinterpret_cast<const float2*>(factors + 16 * tile + 8 * half + static_cast<int>(threadIdx.x) % 4 * 2);
}
__device__ inline void scale_columns(Tile& x, const float* factors, int tile) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 by = of_columns(factors, tile, half);
    x[half][0] = __fmul_rn(x[half][0], by.x), x[half][1] = __fmul_rn(x[half][1], by.y);
    x[half][2] = __fmul_rn(x[half][2], by.x), x[half][3] = __fmul_rn(x[half][3], by.y);
  }
}

// y_i += sum over j <= i of x_j m_ij, lower triangular. Products below 2^-24 are left out.
__device__ inline void multiply_lower(Tile (&y)[kTiles], const Fragment (&x)[kTiles], const Lower& m) {
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    std::uint32_t b[kTiles][kParts][4];
#pragma unroll
    for (int i = j; i < kTiles; ++i) {
#pragma unroll
      for (int p = 0; p < kParts; ++p) {
        const uint4 v = m.fragment[Lower::tile(i, j)][p][threadIdx.x % 32];
        b[i][p][0] = v.x, b[i][p][1] = v.y, b[i][p][2] = v.z, b[i][p][3] = v.w;
      }
    }
#pragma unroll
    for (int small = kParts - 1; small >= 0; --small) {
#pragma unroll
      for (int p = 0; p <= small; ++p) {
#pragma unroll
        for (int i = j; i < kTiles; ++i) multiply_tile(y[i], x[j].part[small - p], b[i][p]);
      }
    }
  }
}

// y += S x for all tokens. Loops are unrolled no further than they must: instructions come from a cache, too.
__device__ inline void multiply_state(Tile (&y)[kTiles], const float4 (*s)[2][32], const bfloat (*x)[kStride]) {
#pragma unroll 2
  for (int step = 0; step < kSteps; ++step) {
    Tile t;
    Fragment f;
    load_tile(s[step], t);
    f.set(t);
    std::uint32_t b[kTiles][4];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) load_b(b[n], &x[16 * n][16 * step], kStride);
#pragma unroll
    for (int p = kParts - 1; p >= 0; --p) {
#pragma unroll
      for (int n = 0; n < kTiles; ++n) multiply_tile(y[n], f.part[p], b[n]);
    }
  }
}

// to = decay S + x k. The sum is taken apart, since an MMA truncates what it adds to; 64 keys at a time.
__device__ inline void update(const float4 (*s)[2][32], float4 (*to)[2][32], float decay, const Fragment (&x)[kTiles],
                              const bfloat (*k)[kStride]) {
  constexpr int kAtOnce = 4;
#pragma unroll 1
  for (int step = 0; step < kSteps; step += kAtOnce) {
    Tile sum[kAtOnce] = {};
#pragma unroll
    for (int j = 0; j < kTiles; ++j) {
      std::uint32_t b[kAtOnce][4];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) load_b_transposed(b[i], &k[16 * j][16 * (step + i)], kStride);
#pragma unroll
      for (int p = kParts - 1; p >= 0; --p) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) multiply_tile(sum[i], x[j].part[p], b[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      Tile t;
      load_tile(s[step + i], t);
#pragma unroll
      for (int e = 0; e < 8; ++e) t[e / 4][e % 4] = __fmaf_rn(decay, t[e / 4][e % 4], sum[i][e / 4][e % 4]);
      store_tile(to[step + i], t);
    }
  }
}

// A chunk's X, and the state after it, for 16 values.
__device__ inline void advance(const StateStage& c, int pair, const StateTiles& s, StateTiles& next, TokenTiles& to) {
  const ForState& p = c.prepared;
  Tile x[kTiles] = {};
  Fragment f[kTiles];
  multiply_state(x, s[pair], c.k);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    std::uint32_t v[4];
    load_a_transposed(v, &c.v[16 * n][16 * pair], kValues + 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 beta = of_columns(p.beta, n, i / 2), old = of_columns(p.old, n, i / 2);
      float* r = &x[n][i / 2][i % 2 * 2];
      r[0] = __fmaf_rn(-old.x, r[0], __fmul_rn(beta.x, low_of(v[i])));
      r[1] = __fmaf_rn(-old.y, r[1], __fmul_rn(beta.y, high_of(v[i])));
    }
    f[n].set(x[n]);
  }
  multiply_lower(x, f, p.solve);
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    store_tile(to[pair][n], x[n]);
    scale_columns(x[n], p.to_end, n);
    f[n].set(x[n]);
  }
  update(s[pair], next[pair], p.decay[0], f, c.k);
}

// o for 16 values, a column a token.
__device__ inline void output(Tile (&o)[kTiles], const OutputStage& c, int pair, const StateTiles& s,
                              const TokenTiles& x) {
  multiply_state(o, s[pair], c.q);
  Fragment f[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    scale_columns(o[n], c.prepared.read, n);
    Tile t;
    load_tile(x[pair][n], t);
    f[n].set(t);
  }
  multiply_lower(o, f, c.prepared.scores);
}

// o, a column a token, to n rows of out, `to` the first value of the first.
__device__ inline void store_out(const Tile (&o)[kTiles], bfloat* to, std::int64_t stride, int n, bool pairs) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < 4 * kTiles; ++i) {
    const int half = i / 2 % 2, rows = i % 2;
    const std::uint32_t x = transposed(pack(o[i / 4][half][2 * rows], o[i / 4][half][2 * rows + 1]));
    const int t = i / 4 * 16 + half * 8 + lane / 4;
    if (t >= n) continue;
    bfloat* at = to + t * stride + rows * 8 + lane % 4 * 2;
    if (pairs) {
      *reinterpret_cast<std::uint32_t*>(at) = x;
    } else {
      at[0] = __ushort_as_bfloat16(static_cast<unsigned short>(x & 0xffffu));
      at[1] = __ushort_as_bfloat16(static_cast<unsigned short>(x >> 16));
    }
  }
}

// What the chain of one block takes from memory, by kCopyThreads threads.
struct Source {
  const Prompt& a;
  const Prepared* scratch;
  int thread, head, first_value, first_token;
  bool vectors;

  __device__ int begin(int chunk) const { return first_token + chunk * kChunk; }
  __device__ int tokens(int chunk) const { return min(kChunk, a.tokens - begin(chunk)); }
  __device__ const Prepared& prepared(int chunk) const { return scratch[std::int64_t{chunk} * a.value_heads + head]; }
  __device__ void copy_kv(int chunk, StateStage& to) const {
    const int t = begin(chunk), n = tokens(chunk);
    copy_rows<kCopyThreads, kGdnDim>(thread, to.k, a.k(t, head), a.qkv.stride, n, vectors);
    copy_rows<kCopyThreads, kValues>(thread, to.v, a.v(t, head) + first_value, a.qkv.stride, n, vectors);
  }
  __device__ void copy(int chunk, OutputStage& to) const {
    copy_rows<kCopyThreads, kGdnDim>(thread, to.q, a.q(begin(chunk), head), a.qkv.stride, tokens(chunk), vectors);
    copy_whole(thread, prepared(chunk).output, to.prepared);
  }
};

__global__ void __launch_bounds__(kChainThreads)
    chain_kernel(Prompt a, int first_token, int chunks, bool vectors, bool pairs, const Prepared* scratch) {
  extern __shared__ __align__(16) unsigned char shared[];
  ChainSpace& c = *reinterpret_cast<ChainSpace*>(shared);
  const int team = static_cast<int>(threadIdx.x) / kTeam, pair = static_cast<int>(threadIdx.x) % kTeam / 32;
  const int h = static_cast<int>(blockIdx.x), first_value = static_cast<int>(blockIdx.y) * kValues;
  const int value = first_value + 16 * pair, lane = static_cast<int>(threadIdx.x) % 32;
  const Source source{a, scratch, static_cast<int>(threadIdx.x) - 2 * kTeam, h, first_value, first_token, vectors};

  // All but T and P is older than the kernel before.
  auto* const tiles = reinterpret_cast<float4(*)[2][32]>(a.state + (std::int64_t{h} * kGdnDim + value) * kGdnDim);
  if (team == 0) {
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) c.state[0][pair][i / 2][i % 2][lane] = tiles[i / 2][i % 2][lane];
  } else if (team > 1) {
    source.copy_kv(0, c.kv[0]);
  }
  wait_for_predecessor();
  let_successor_start();
  if (team > 1) copy_whole(source.thread, source.prepared(0).state, c.kv[0].prepared);

#pragma unroll 1
  for (int chunk = 0; chunk <= chunks; ++chunk) {
    wait_for_copies();
    __syncthreads();
    if (team == 0) {
      if (chunk < chunks) advance(c.kv[chunk % 2], pair, c.state[chunk % 3], c.state[(chunk + 1) % 3], c.x[chunk % 2]);
    } else if (team == 1) {
      if (chunk == 0) continue;
      const int done = chunk - 1;
      Tile o[kTiles] = {};
      output(o, c.q[done % 2], pair, c.state[done % 3], c.x[done % 2]);
      store_out(o, a.out.row(source.begin(done)) + std::int64_t{h} * kGdnDim + value, a.out.stride, source.tokens(done),
                pairs);
    } else {
      if (chunk + 1 < chunks) {
        StateStage& to = c.kv[(chunk + 1) % 2];
        source.copy_kv(chunk + 1, to);
        copy_whole(source.thread, source.prepared(chunk + 1).state, to.prepared);
      }
      if (chunk < chunks) source.copy(chunk, c.q[chunk % 2]);
    }
  }
  if (team == 0) {
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) tiles[i / 2][i % 2][lane] = c.state[chunks % 3][pair][i / 2][i % 2][lane];
  }
}

}  // namespace

// Scratch: sizeof(Prepared), 32 KB, for each value head, times 1 to 16 chunks.
void gdn_prefill_tensor(Stream& s, const GdnPrefill& a) {
  const int tokens = static_cast<int>(a.qkv.rows);
  const auto Hv = static_cast<unsigned>(a.shape.value_heads);
  const int at_once = chunks_at_once(s, a, sizeof(Prepared), kChunksAtOnce);
  const Prompt prompt(a);
  const bool vectors = vectors_of(a.qkv);
  const bool pairs = reinterpret_cast<std::uintptr_t>(a.out.data) % 4 == 0 && a.out.stride % 2 == 0;
  auto* scratch = static_cast<Prepared*>(s.cuda_scratch);
  for (int begin = 0; begin < tokens; begin += at_once * kChunk) {
    const int chunks = std::min(at_once, (tokens - begin + kChunk - 1) / kChunk);
    launch(
        s, "gdn_prefill",
        {.blocks = dim3(Hv, static_cast<unsigned>(chunks)), .threads = kInvertThreads, .shared = sizeof(InvertSpace)},
        invert_kernel, prompt, begin, vectors, scratch);
    launch(s, "gdn_prefill",
           {.blocks = dim3(Hv, kGdnDim / kValues), .threads = kChainThreads, .shared = sizeof(ChainSpace)},
           chain_kernel, prompt, begin, chunks, vectors, pairs, static_cast<const Prepared*>(scratch));
  }
}

}  // namespace quire::cuda
