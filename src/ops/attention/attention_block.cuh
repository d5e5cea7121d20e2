// What prefill and window share: a block of query rows against tiles of keys in pages.
//
// A row is (token of the request, head of the group), so that a group shares its keys. A block has 4 columns of warps:
// they share the keys of Q K^T and then the columns of P V. A row takes the same instructions whatever the number of
// rows of the block: its bits depend on its own tiles alone. A tile that is masked for a row leaves it as it is: factor
// exp(0) = 1, weights 0 (values of later tokens have to be finite). The sign of a zero sum is dropped at the end.
#pragma once

#include "ops/attention/attention_tiles.cuh"

namespace quire::cuda {

constexpr int kTile = 64;        // keys; a page is a multiple of it
constexpr int kColumnWarps = 4;  // of a block: kTile / 4 keys, then kE / 4 columns of V each
constexpr int kWarpKeys = kTile / kColumnWarps;
constexpr int kWeightStride = kTile + 8;  // of P in shared memory

struct TextAttention {
  Matrix<bfloat> q, out;
  PagedKeys<bfloat> kv;
  RequestArrays requests;
  int head_dim;   // E
  int key_heads;  // G
  int group;      // H / G
  float scale;
  bool vectors;  // as in load_tile

  // Row `row` (token, head of the group) of the request whose first token has row `token` of x.
  __device__ bfloat* query_head(const Matrix<bfloat>& x, int token, int g, int row) const {
    return x.row(token + row / group) + (g * group + row % group) * head_dim;
  }
};

inline TextAttention text_attention(const Attention& a) {
  const int E = a.head_dim;
  return {.q = matrix<bfloat>(a.q),
          .out = matrix<bfloat>(a.out),
          .kv = paged_keys<bfloat>(a.kv),
          .requests = request_arrays(a.requests),
          .head_dim = E,
          .key_heads = static_cast<int>(a.kv.k.cols / E),
          .group = static_cast<int>(a.q.cols / a.kv.k.cols),
          .scale = 1.0f / sqrtf(static_cast<float>(E)),
          .vectors = takes_vectors(a.q, E) && takes_vectors(a.kv.k, E) && takes_vectors(a.kv.v, E)};
}

// Where a thread stands. Of each 16 x 8 accumulator it holds two columns of each of two rows.
struct Place {
  int column_warp, warp_row, lane;
  __device__ int row(int tile, int half) const { return warp_row + tile * 16 + half * 8 + lane / 4; }
  __device__ int column(int n) const { return n * 8 + lane % 4 * 2; }
};
template <int kRowTiles>
__device__ inline Place place() {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  return {warp % kColumnWarps, warp / kColumnWarps * 16 * kRowTiles, static_cast<int>(threadIdx.x) % 32};
}

// A warp's share of a result: kE / 4 columns.
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

template <int kE, int kRowWarps, int kRowTiles, int kStages, int kQueries>
struct AttentionBlock {
  static constexpr int kRows = 16 * kRowWarps * kRowTiles;
  static constexpr int kThreads = 32 * kColumnWarps * kRowWarps;
  static constexpr int kStride = kE + 8;
  using Sums = cuda::Sums<kE, kRowTiles>;

  // Shared memory: some tiles are copied while one is used.
  bfloat q[kQueries][kRows * kStride];
  bfloat k[kStages][kTile * kStride];
  bfloat v[kStages][kTile * kStride];
  bfloat p[kRows * kWeightStride];
  float rows[kColumnWarps][kRows];  // maxima, at the end sums of weights
  int last_key[kQueries][kRows];    // that a row sees

  // Rows first_row .. of the request whose first token has row `token` and sequence index `start`; from row `count` of
  // it on zeros, which see no key. kNow: as in load_tile.
  template <bool kNow = false>
  __device__ void load_queries(const TextAttention& a, int token, int start, int count, int g, int first_row,
                               int buffer) {
    for (int i = threadIdx.x; i < kRows; i += kThreads) {
      last_key[buffer][i] = first_row + i < count ? start + (first_row + i) / a.group : -1;
    }
    load_tile<kE, kRows, kThreads, kNow>(q[buffer], a.head_dim, a.vectors, a.q.data, [&](int i) -> const bfloat* {
      return first_row + i < count ? a.query_head(a.q, token, g, first_row + i) : nullptr;
    });
  }
  // Keys of one tile, zeros from key `keys` on; `page` is the tile's.
  __device__ void load_keys(const TextAttention& a, int page, int g, int tile, int keys, int stage) {
    const std::int64_t first_row = a.kv.row(page, tile * kTile);
    const int column = g * a.head_dim, count = keys - tile * kTile;
    const auto load = [&](bfloat* to, const Matrix<bfloat>& from) {
      const bfloat* const first = from.row(first_row) + column;
      load_tile<kE, kTile, kThreads>(to, a.head_dim, a.vectors, from.data, [&](int i) -> const bfloat* {
        return i < count ? first + i * from.stride : nullptr;
      });
    };
    load(k[stage], a.kv.k);
    load(v[stage], a.kv.v);
  }

  // Fragments of A of the warp's rows.
  using Queries = std::uint32_t[kRowTiles][kE / 16][4];
  __device__ void read_queries(Queries& x, const bfloat* tile, const Place& at) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int e = 0; e < kE / 16; ++e) load_a(x[i][e], tile + (at.warp_row + i * 16) * kStride + e * 16, kStride);
    }
  }

  // Scores of the warp's rows and keys, scaled, -infinity where the key is later than the row. query(x, i, e) gives the
  // fragment of row tile i, columns 16 e.
  template <int kUnroll, typename Query>
  __device__ void score(float (&s)[kRowTiles][2][4], const Place& at, float scale, int tile, int buffer, int stage,
                        Query query) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int c = 0; c < 8; ++c) s[i][c / 4][c % 4] = 0;
    }
    const bfloat* const keys = k[stage] + at.column_warp * kWarpKeys * kStride;
#pragma unroll kUnroll
    for (int e = 0; e < kE / 16; ++e) {
      std::uint32_t b[4];
      load_b(b, keys + e * 16, kStride);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        std::uint32_t x[4];
        query(x, i, e);
        multiply(s[i][0], x, b[0], b[1]);
        multiply(s[i][1], x, b[2], b[3]);
      }
    }
    const int first = tile * kTile + at.column_warp * kWarpKeys;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int last = last_key[buffer][at.row(i, half)] - first;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          float& x = s[i][c / 2][2 * half + c % 2];
          x = at.column(c / 2) + c % 2 <= last ? __fmul_rn(x, scale) : kMinusInfinity;
        }
      }
    }
  }

  // Scores -> rounded weights in `p`; sums follow to the new maximum. Between two barriers of its own.
  __device__ void softmax(Sums& sums, float (&s)[kRowTiles][2][4], const Place& at) {
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
        const float sum = row_sum(__fadd_rn(__fadd_rn(weights[0], weights[1]), __fadd_rn(weights[2], weights[3])));
        sums.weights[i][half] = __fmaf_rn(sums.weights[i][half], factor, sum);
        bfloat* const to = p + row * kWeightStride + at.column_warp * kWarpKeys;
        *reinterpret_cast<std::uint32_t*>(to + at.column(0)) = pack(weights[0], weights[1]);
        *reinterpret_cast<std::uint32_t*>(to + at.column(1)) = pack(weights[2], weights[3]);
#pragma unroll
        for (int n = 0; n < kE / 32; ++n) {
#pragma unroll
          for (int c = 2 * half; c < 2 * half + 2; ++c) sums.out[i][n][c] = __fmul_rn(sums.out[i][n][c], factor);
        }
      }
    }
    __syncthreads();
  }

  // sums += P V, the warp's columns of V.
  __device__ void weighted_sum(Sums& sums, const Place& at, int stage) const {
#pragma unroll
    for (int j = 0; j < kTile; j += 16) {
      std::uint32_t x[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) load_a(x[i], p + (at.warp_row + i * 16) * kWeightStride + j, kWeightStride);
#pragma unroll
      for (int n = 0; n < kE / 32; n += 2) {
        std::uint32_t b[4];
        load_b_transposed(b, v[stage] + j * kStride + at.column_warp * (kE / kColumnWarps) + n * 8, kStride);
#pragma unroll
        for (int i = 0; i < kRowTiles; ++i) {
          multiply(sums.out[i][n], x[i], b[0], b[1]);
          multiply(sums.out[i][n + 1], x[i], b[2], b[3]);
        }
      }
    }
  }
};

}  // namespace quire::cuda
