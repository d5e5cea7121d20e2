// Causal attention over a cache, and the output gate.
//   out[t, h] = sum_{j <= start+t} w_j v_j / sum_j w_j, w_j = exp(s_j - m), s_j = q k_j E^-1/2
// Shapes: q, out [T, H E]; k, v [start + T.., G E]; head h reads h / (H/G); E <= 256; bf16 (f32:
// attention_f32_cuda.cu).
//
// Bytes: K and V once, 4 E G (start + T): the wall of a decode step. FLOP: 4 E H keys a row: the wall of a
// prompt.
//
// Plan: a row is (token, head of the group), so that a group shares its keys. A block takes 16 or 64 rows and
// tiles of 64 keys; its four columns of warps share the keys of Q K^T and then the columns of P V. Every
// kSplit keys are one partial result (m, sum, P V); few rows: a block for each, merged by a second kernel;
// many rows: a block runs through all of them and merges as it goes. Both merge in index order by the same
// arithmetic.
//
// Precision: products bf16 x bf16 summed in f32 by mma.m16n8k16, softmax f32; weights are rounded to bf16
// relative to the largest score so far within a split, their sum is not; one round at the end.
//
// Invariance: tiles and splits lie at absolute key indices, and each row takes the same instructions whatever
// the number of rows. A tile that is masked for a row leaves it as it is: factor exp(0) = 1, weights 0
// (values of later tokens have to be finite), and a split without keys is not merged. The sign of a zero sum
// is dropped at the end.
#include "ops/attention/attention.h"
#include "ops/attention/attention_tiles.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kTile = 64;          // keys
constexpr int kSplit = 2 * kTile;  // keys of a partial result
constexpr int kColumnWarps = 4;    // of a block: kTile / 4 keys, then kE / 4 columns of V each
constexpr int kWarpKeys = kTile / kColumnWarps;
constexpr int kWeightStride = kTile + 8;  // of P in shared memory
constexpr int kFewRows = 32;              // up to here blocks of 16 rows, above of 64
constexpr int kEnoughBlocks = 128;        // from here on the splits of a row need no blocks of their own

// Partial results of rows 0 .. rows-1 of key head g and split s at index (g * splits + s) * rows.
struct Partials {
  float* out = nullptr;     // [..][kE]: weighted sums of V
  float4* sums = nullptr;   // [..]: of the weights, one for each column of warps
  float* maxima = nullptr;  // [..]
};

struct TextAttention {
  Matrix<bfloat> q, k, v, out;
  int head_dim;  // E
  int group;     // H / G
  int rows;      // T * group
  int start;
  int keys;  // start + T
  int splits;
  float scale;
  bool vectors;       // as in load_tile
  Partials partials;  // without memory: blocks merge themselves

  __device__ std::int64_t index(int g, int split, int row) const {
    return (static_cast<std::int64_t>(g) * splits + split) * rows + row;
  }
  __device__ int position(int row) const { return start + row / group; }
};

// Where a thread stands. Of each 16 x 8 accumulator it holds two columns of each of two rows.
template <int kRowTiles>
struct Place {
  int column_warp, warp_row, lane;
  __device__ int row(int tile, int half) const { return warp_row + tile * 16 + half * 8 + lane / 4; }
  __device__ int column(int n) const { return n * 8 + lane % 4 * 2; }
};

// A warp's share of a partial or merged result: kE / 4 columns.
template <int kE, int kRowTiles>
struct Sums {
  float out[kRowTiles][kE / 32][4];
  float max[kRowTiles][2];
  float weights[kRowTiles][2];  // of the warp's keys

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) max[i][half] = kMinusInfinity, weights[i][half] = 0;
#pragma unroll
      for (int n = 0; n < kE / 32; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) out[i][n][c] = 0;
      }
    }
  }
};

// Merging a partial result: the sums so far times `old`, the new ones times `added`.
struct MergeFactors {
  float max, old, added;
  __device__ float operator()(float sum, float next) const {
    return __fmaf_rn(next, added, __fmul_rn(sum, old));
  }
};
__device__ inline MergeFactors merge_factors(float max, float next) {
  const float larger = fmaxf(max, next);
  return {larger, expf(__fsub_rn(max, larger)), expf(__fsub_rn(next, larger))};
}

template <int kE, int kRowTiles>
__device__ inline void merge(Sums<kE, kRowTiles>& all, const Sums<kE, kRowTiles>& next) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (next.max[i][half] == kMinusInfinity) continue;
      const MergeFactors factors = merge_factors(all.max[i][half], next.max[i][half]);
      all.max[i][half] = factors.max;
      all.weights[i][half] = factors(all.weights[i][half], next.weights[i][half]);
#pragma unroll
      for (int n = 0; n < kE / 32; ++n) {
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; ++c) {
          all.out[i][n][c] = factors(all.out[i][n][c], next.out[i][n][c]);
        }
      }
    }
  }
}

template <int kE, int kRowWarps, int kRowTiles>
struct TextBlock {
  static constexpr int kRows = 16 * kRowWarps * kRowTiles;
  static constexpr int kThreads = 32 * kColumnWarps * kRowWarps;
  static constexpr int kStride = kE + 8;
  using Sums = cuda::Sums<kE, kRowTiles>;

  // Shared memory. K and V twice: one tile is copied while the other is used.
  bfloat q[kRows * kStride];
  bfloat k[2][kTile * kStride];
  bfloat v[2][kTile * kStride];
  bfloat p[kRows * kWeightStride];
  float rows[kColumnWarps][kRows];  // maxima, at the end sums of weights

  __device__ void load_keys(const TextAttention& a, int g, int tile, int buffer) {
    const int column = g * a.head_dim;
    const auto load = [&](bfloat* to, const Matrix<bfloat>& from) {
      load_tile<kE, kTile, kThreads>(to, a.head_dim, a.vectors, from.data, [&](int i) -> const bfloat* {
        const int key = tile * kTile + i;
        return key < a.keys ? from.row(key) + column : nullptr;
      });
    };
    load(k[buffer], a.k);
    load(v[buffer], a.v);
  }

  // Scores of the warp's rows and keys, scaled, -infinity where the key is later than the row.
  __device__ void score(float (&s)[kRowTiles][2][4], const Place<kRowTiles>& at,
                        const int (&last_key)[kRowTiles][2], float scale, int tile, int buffer) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int c = 0; c < 8; ++c) s[i][c / 4][c % 4] = 0;
    }
    const bfloat* keys = k[buffer] + at.column_warp * kWarpKeys * kStride;
#pragma unroll 4
    for (int e = 0; e < kE; e += 16) {
      std::uint32_t b[4];
      load_b(b, keys + e, kStride);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        std::uint32_t x[4];
        load_a(x, q + (at.warp_row + i * 16) * kStride + e, kStride);
        multiply(s[i][0], x, b[0], b[1]);
        multiply(s[i][1], x, b[2], b[3]);
      }
    }
    const int first = tile * kTile + at.column_warp * kWarpKeys;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int c = 0; c < 8; ++c) {
        const int key = first + at.column(c / 4) + c % 2;
        float& x = s[i][c / 4][c % 4];
        x = key <= last_key[i][c % 4 / 2] ? __fmul_rn(x, scale) : kMinusInfinity;
      }
    }
  }

  // Scores -> rounded weights in `p`; sums follow to the new maximum. Between two barriers of its own.
  __device__ void softmax(Sums& sums, float (&s)[kRowTiles][2][4], const Place<kRowTiles>& at) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float* const a = s[i][0] + 2 * half;
        const float* const b = s[i][1] + 2 * half;
        const float largest = row_max(fmaxf(fmaxf(a[0], a[1]), fmaxf(b[0], b[1])));
        if (at.lane % 4 == 0) rows[at.column_warp][at.row(i, half)] = largest;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = at.row(i, half);
        float max = sums.max[i][half];
#pragma unroll
        for (int w = 0; w < kColumnWarps; ++w) max = fmaxf(max, rows[w][row]);
        const float base = reference_score(max);
        const float factor = expf(__fsub_rn(sums.max[i][half], base));
        sums.max[i][half] = max;
        float weights[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) weights[c] = expf(__fsub_rn(s[i][c / 2][2 * half + c % 2], base));
        const float sum =
            row_sum(__fadd_rn(__fadd_rn(weights[0], weights[1]), __fadd_rn(weights[2], weights[3])));
        sums.weights[i][half] = __fmaf_rn(sums.weights[i][half], factor, sum);
        bfloat* const to = p + row * kWeightStride + at.column_warp * kWarpKeys;
        *reinterpret_cast<std::uint32_t*>(to + at.column(0)) = pack(weights[0], weights[1]);
        *reinterpret_cast<std::uint32_t*>(to + at.column(1)) = pack(weights[2], weights[3]);
#pragma unroll
        for (int n = 0; n < kE / 32; ++n) {
#pragma unroll
          for (int c = 2 * half; c < 2 * half + 2; ++c)
            sums.out[i][n][c] = __fmul_rn(sums.out[i][n][c], factor);
        }
      }
    }
    __syncthreads();
  }

  // sums += P V, the warp's columns of V.
  __device__ void weighted_sum(Sums& sums, const Place<kRowTiles>& at, int buffer) const {
#pragma unroll
    for (int j = 0; j < kTile; j += 16) {
      std::uint32_t x[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i)
        load_a(x[i], p + (at.warp_row + i * 16) * kWeightStride + j, kWeightStride);
#pragma unroll
      for (int n = 0; n < kE / 32; n += 2) {
        std::uint32_t b[4];
        load_b_transposed(b, v[buffer] + j * kStride + at.column_warp * (kE / kColumnWarps) + n * 8, kStride);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          multiply(sums.out[i][n], x[i], b[0], b[1]);
          multiply(sums.out[i][n + 1], x[i], b[2], b[3]);
        }
      }
    }
  }

  __device__ void store_partial(const TextAttention& a, const Sums& sums, const Place<kRowTiles>& at, int g,
                                int split, int first_row) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = first_row + at.row(i, half);
        if (row >= a.rows) continue;
        const std::int64_t index = a.index(g, split, row);
        if (at.lane % 4 == 0) {
          reinterpret_cast<float*>(a.partials.sums + index)[at.column_warp] = sums.weights[i][half];
          if (at.column_warp == 0) a.partials.maxima[index] = sums.max[i][half];
        }
        float* const out = a.partials.out + index * kE + at.column_warp * (kE / kColumnWarps);
#pragma unroll
        for (int n = 0; n < kE / 32; ++n) {
          *reinterpret_cast<float2*>(out + at.column(n)) =
              make_float2(sums.out[i][n][2 * half], sums.out[i][n][2 * half + 1]);
        }
      }
    }
  }

  // Every thread of the block calls it, after a barrier behind the last use of `rows`.
  __device__ void store_out(const TextAttention& a, const Sums& sums, const Place<kRowTiles>& at, int g,
                            int first_row) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (at.lane % 4 == 0) rows[at.column_warp][at.row(i, half)] = sums.weights[i][half];
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int local = at.row(i, half), row = first_row + local;
        if (row >= a.rows) continue;
        float weights = rows[0][local];
#pragma unroll
        for (int w = 1; w < kColumnWarps; ++w) weights = __fadd_rn(weights, rows[w][local]);
        bfloat* const out = a.out.row(row / a.group) + (g * a.group + row % a.group) * a.head_dim;
#pragma unroll
        for (int n = 0; n < kE / 32; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            const int e = at.column_warp * (kE / kColumnWarps) + at.column(n) + c;
            if (e < a.head_dim) out[e] = from_f32<bfloat>(quotient(sums.out[i][n][2 * half + c], weights));
          }
        }
      }
    }
  }
};

// Grid: row blocks, key heads, splits (or 1).
template <int kE, int kRowWarps, int kRowTiles>
__global__ __launch_bounds__(32 * kColumnWarps * kRowWarps,
                             1) void text_attention_kernel(const TextAttention a) {
  using Block = TextBlock<kE, kRowWarps, kRowTiles>;
  extern __shared__ __align__(16) unsigned char shared[];
  Block& block = *reinterpret_cast<Block*>(shared);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const Place<kRowTiles> at{warp % kColumnWarps, warp / kColumnWarps * 16 * kRowTiles,
                            static_cast<int>(threadIdx.x) % 32};
  const int g = blockIdx.y;
  const int first_row =
      static_cast<int>(gridDim.x - 1 - blockIdx.x) * Block::kRows;  // those with most keys first
  const int last_row = min(a.rows, first_row + Block::kRows) - 1;

  const bool partial = a.partials.out != nullptr;
  const int split = partial ? blockIdx.z : 0;
  const int last_key = a.position(last_row);
  if (split * kSplit > last_key) return;
  const int first_tile = split * (kSplit / kTile);
  const int last_tile = (partial ? min(last_key, split * kSplit + kSplit - 1) : last_key) / kTile;

  load_tile<kE, Block::kRows, Block::kThreads>(
      block.q, a.head_dim, a.vectors, a.q.data, [&](int i) -> const bfloat* {
        const int row = first_row + i;
        if (row >= a.rows) return nullptr;
        return a.q.row(row / a.group) + (g * a.group + row % a.group) * a.head_dim;
      });
  block.load_keys(a, g, first_tile, 0);

  int last_keys[kRowTiles][2];
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + at.row(i, half);
      last_keys[i][half] = row < a.rows ? a.position(row) : -1;
    }
  }

  typename Block::Sums all, sums;
  all.clear();
  sums.clear();
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    const int buffer = (tile - first_tile) % 2;
    wait_for_copies();
    __syncthreads();  // this tile is here, and nobody reads the other any more
    if (tile < last_tile) block.load_keys(a, g, tile + 1, buffer ^ 1);
    float s[kRowTiles][2][4];
    block.score(s, at, last_keys, a.scale, tile, buffer);
    block.softmax(sums, s, at);
    block.weighted_sum(sums, at, buffer);
    if (!partial && (tile % (kSplit / kTile) == kSplit / kTile - 1 || tile == last_tile)) {
      merge(all, sums);
      __syncwarp();
      sums.clear();
    }
  }
  if (partial) {
    block.store_partial(a, sums, at, g, split, first_row);
  } else {
    block.store_out(a, all, at, g, first_row);
  }
}

// Grid: rows, key heads; a thread a column, kE of them.
__global__ void merge_kernel(const TextAttention a) {
  constexpr int kAhead = 8;  // splits loaded at a time
  const int row = blockIdx.x, g = blockIdx.y, kE = blockDim.x, e = threadIdx.x;
  const int splits = a.position(row) / kSplit + 1;
  float max = kMinusInfinity, out = 0;
  float4 sums = make_float4(0, 0, 0, 0);
  for (int first = 0; first < splits; first += kAhead) {
    float next_max[kAhead], next_out[kAhead];
    float4 next_sums[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const std::int64_t index = a.index(g, min(first + i, splits - 1), row);
      next_max[i] = first + i < splits ? a.partials.maxima[index] : kMinusInfinity;
      next_sums[i] = a.partials.sums[index];
      next_out[i] = a.partials.out[index * kE + e];
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (next_max[i] == kMinusInfinity) continue;
      const MergeFactors factors = merge_factors(max, next_max[i]);
      max = factors.max;
      sums.x = factors(sums.x, next_sums[i].x);
      sums.y = factors(sums.y, next_sums[i].y);
      sums.z = factors(sums.z, next_sums[i].z);
      sums.w = factors(sums.w, next_sums[i].w);
      out = factors(out, next_out[i]);
    }
  }
  if (e >= a.head_dim) return;
  const float weights = __fadd_rn(__fadd_rn(__fadd_rn(sums.x, sums.y), sums.z), sums.w);
  a.out.row(row / a.group)[(g * a.group + row % a.group) * a.head_dim + e] =
      from_f32<bfloat>(quotient(out, weights));
}

// Room for the partial results of all rows in the scratch memory; none when it is too small. The bits are the
// same, so that only speed depends on it.
template <int kE>
Partials partials_in(const Stream& s, const TextAttention& a, std::int64_t key_heads) {
  const std::int64_t n = key_heads * a.splits * a.rows;
  if (n * (kE * 4 + 16 + 4) > static_cast<std::int64_t>(s.cuda_scratch_bytes)) return {};
  float* const out = static_cast<float*>(s.cuda_scratch);
  return {out, reinterpret_cast<float4*>(out + n * kE), out + n * (kE + 4)};
}

template <int kE, int kRowWarps, int kRowTiles>
void launch_text(Stream& s, TextAttention a, unsigned key_heads) {
  using Block = TextBlock<kE, kRowWarps, kRowTiles>;
  const auto kernel = text_attention_kernel<kE, kRowWarps, kRowTiles>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Block)),
        "attention");
  const unsigned row_blocks = blocks(a.rows, Block::kRows);
  if (a.splits > 1 && row_blocks * key_heads < kEnoughBlocks) a.partials = partials_in<kE>(s, a, key_heads);
  const bool partial = a.partials.out != nullptr;
  const dim3 grid(row_blocks, key_heads, partial ? static_cast<unsigned>(a.splits) : 1);
  kernel<<<grid, Block::kThreads, sizeof(Block), handle(s)>>>(a);
  check_launch("attention");
  if (!partial) return;
  merge_kernel<<<dim3(static_cast<unsigned>(a.rows), key_heads), kE, 0, handle(s)>>>(a);
  check_launch("attention");
}

template <int kE>
void launch_text(Stream& s, const TextAttention& a, unsigned key_heads) {
  if (a.rows <= kFewRows) {
    launch_text<kE, 1, 1>(s, a, key_heads);
  } else {
    launch_text<kE, 2, 2>(s, a, key_heads);
  }
}

void attention_bf16(Stream& s, const Attention& a, std::int64_t group, std::int64_t key_heads) {
  const int E = a.head_dim;
  const std::int64_t keys = a.start + a.q.rows;
  const TextAttention call{
      .q = matrix<bfloat>(a.q),
      .k = matrix<bfloat>(a.kv.k),
      .v = matrix<bfloat>(a.kv.v),
      .out = matrix<bfloat>(a.out),
      .head_dim = E,
      .group = static_cast<int>(group),
      .rows = static_cast<int>(a.q.rows * group),
      .start = static_cast<int>(a.start),
      .keys = static_cast<int>(keys),
      .splits = static_cast<int>(blocks(keys, kSplit)),
      .scale = 1.0f / sqrtf(static_cast<float>(E)),
      .vectors = takes_vectors(a.q, E) && takes_vectors(a.kv.k, E) && takes_vectors(a.kv.v, E),
      .partials = {}};
  if (E <= 64) {
    launch_text<64>(s, call, static_cast<unsigned>(key_heads));
  } else if (E <= 128) {
    launch_text<128>(s, call, static_cast<unsigned>(key_heads));
  } else {
    launch_text<256>(s, call, static_cast<unsigned>(key_heads));
  }
}

// One thread an element. Bytes: x, gate and y once; the wall is memory.
template <typename T>
__global__ void attention_gate_kernel(Matrix<T> x, Matrix<T> q_gate, Matrix<T> y, std::int64_t rows, int cols,
                                      int head_dim) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= rows * cols) return;
  const std::int64_t t = i / cols;
  const int c = static_cast<int>(i % cols), head = c / head_dim;
  const float gate = to_f32(q_gate.row(t)[c + (head + 1) * head_dim]);
  y.row(t)[c] = from_f32<T>(__fmul_rn(to_f32(x.row(t)[c]), round_to<T>(sigmoid(gate))));
}

}  // namespace

void attention(Stream& s, const Attention& a) {
  check_attention(a);
  if (a.q.rows == 0) return;
  if (a.head_dim > kMostHeadDim) {
    throw Error(ErrorCode::unsupported, "attention: heads of " + std::to_string(a.head_dim) +
                                            " on CUDA, at most " + std::to_string(kMostHeadDim));
  }
  const std::int64_t key_heads = a.kv.k.cols / a.head_dim, heads = a.q.cols / a.head_dim,
                     group = heads / key_heads;
  if (a.q.format == Format::bf16) return attention_bf16(s, a, group, key_heads);
  plain_attention(s, {.q = matrix<float>(a.q),
                      .k = matrix<float>(a.kv.k),
                      .v = matrix<float>(a.kv.v),
                      .out = matrix<float>(a.out),
                      .rows = a.q.rows,
                      .heads = heads,
                      .group = group,
                      .head_dim = a.head_dim,
                      .keys = a.start + 1,
                      .more_keys = 1});
}

void attention_gate(Stream& s, Rows x, Rows q_gate, int head_dim, Rows y) {
  check_attention_gate(x, q_gate, head_dim, y);
  if (x.rows == 0 || x.cols == 0) return;
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    constexpr int kThreads = 256;
    attention_gate_kernel<T><<<blocks(x.rows * x.cols, kThreads), kThreads, 0, handle(s)>>>(
        matrix<T>(x), matrix<T>(q_gate), matrix<T>(y), x.rows, static_cast<int>(x.cols), head_dim);
    check_launch("attention_gate");
  });
}

}  // namespace quire::cuda
