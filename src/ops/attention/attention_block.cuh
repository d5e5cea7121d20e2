// What prefill and window share: a block of query rows against tiles of keys in pages.
//
// A row is (token of the request, head of the group), so that a group shares its keys. A block has 4 columns of warps:
// they share the kKeys keys of a step for Q K^T and then the columns of P V. A row takes the same instructions whatever
// the number of rows of the block: its bits depend on its own keys alone. A step that is masked for a row leaves it as it
// is: factor exp(0) = 1, weights 0 (values of later tokens have to be finite). The sign of a zero sum is dropped at the
// end.
#pragma once

#include "ops/attention/attention_tiles.cuh"

namespace quire::cuda {

constexpr int kPageUnit = 64;  // rows: a page is a multiple
constexpr int kColumnWarps = 4;

// Scores are scaled by log2(e): exp(s - m) is a power of two, by one instruction (2 ulp; exact at 0 and -infinity).
constexpr float kLog2E = 1.44269504f;
__device__ inline float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

struct TextAttention {
  Matrix<bfloat> q, out, q_gate;
  PagedKeys<bfloat> kv;
  RequestArrays requests;
  int head_dim;   // E
  int key_heads;  // G
  int group;      // H / G
  float scale;
  bool vectors;  // as in load_tile
  bool causal;
  int sliding_window;

  // Row `row` (token, head of the group) of the request whose first token has row `token` of x.
  __device__ bfloat* query_head(const Matrix<bfloat>& x, int token, int g, int row) const {
    return x.row(token + row / group) + (g * group + row % group) * head_dim;
  }
  // Those of a query head, beside its queries, where there are any.
  __device__ const bfloat* gates(int token, int head) const { return q_gate.row(token) + (2 * head + 1) * head_dim; }
};

inline TextAttention text_attention(const Attention& a) {
  const int E = a.head_dim;
  return {.q = matrix<bfloat>(a.q),
          .out = matrix<bfloat>(a.out),
          .q_gate = matrix<bfloat>(a.q_gate),
          .kv = paged_keys<bfloat>(a.kv),
          .requests = request_arrays(a.requests),
          .head_dim = E,
          .key_heads = static_cast<int>(a.kv.k.cols / E),
          .group = static_cast<int>(a.q.cols / a.kv.k.cols),
          .scale = kLog2E / sqrtf(static_cast<float>(E)),
          .vectors = takes_vectors(a.q, E) && takes_vectors(a.kv.k, E) && takes_vectors(a.kv.v, E),
          .causal = a.causal,
          .sliding_window = a.sliding_window};
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

// A warp's share of a result.
template <int kColumns, int kRowTiles>
struct Sums {
  float out[kRowTiles][kColumns / 8][4];
  float max[kRowTiles][2];
  float weights[kRowTiles][2];  // of a quarter of the keys

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) max[i][half] = kMinusInfinity, weights[i][half] = 0;
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) out[i][n][c] = 0;
      }
    }
  }
};

template <int kE, int kRowWarps, int kRowTiles, int kKeys, int kTiles, int kQueries>
struct AttentionBlock {
  static constexpr int kRows = 16 * kRowWarps * kRowTiles;
  static constexpr int kThreads = 32 * kColumnWarps * kRowWarps;
  static constexpr int kWarpKeys = kKeys / kColumnWarps;
  static constexpr int kStride = kE + 8;           // of tiles in shared memory
  static constexpr int kWeightStride = kKeys + 8;  // of P
  using Sums = cuda::Sums<kE / kColumnWarps, kRowTiles>;
  using Scores = float[kRowTiles][kWarpKeys / 8][4];

  // Shared memory.
  bfloat q[kQueries][kRows * kStride];
  bfloat tiles[kTiles][kPageUnit * kStride];  // of keys or values
  bfloat p[kRows * kWeightStride];
  float rows[kColumnWarps][kRows];  // maxima, at the end sums of weights
  int first_key[kQueries][kRows];   // that a row sees, and how many more
  unsigned more_keys[kQueries][kRows];

  // Rows first_row .. of the request whose first token has row `token` and sequence index `start`; from row `count` of
  // it on zeros, which see no key. kNow: as in load_tile.
  template <bool kNow = false>
  __device__ void load_queries(const TextAttention& a, int token, int start, int count, int g, int first_row,
                               int buffer) {
    for (int i = threadIdx.x; i < kRows; i += kThreads) {
      const int index = start + (first_row + i) / a.group, last = a.causal ? index : start + count / a.group - 1;
      const int first = first_key_seen(a.sliding_window, start, index);
      const bool exists = first_row + i < count;
      first_key[buffer][i] = exists ? first : 1 << 30;
      more_keys[buffer][i] = exists ? last - first : 0;
    }
    load_tile<kE, kRows, kThreads, kNow>(q[buffer], a.head_dim, a.vectors, a.q.data, [&](int i) -> const bfloat* {
      return first_row + i < count ? a.query_head(a.q, token, g, first_row + i) : nullptr;
    });
  }
  // Keys or values first .. first + kPageUnit - 1, which lie in `page`; zeros from key `keys` on.
  __device__ void load_keys(const TextAttention& a, const Matrix<bfloat>& from, int page, int g, int first, int keys,
                            int to) {
    load_rows<kE, kPageUnit, kThreads>(tiles[to], from.row(a.kv.row(page, first)) + g * a.head_dim,
                                       static_cast<int>(from.stride), keys - first, a.head_dim, a.vectors);
  }

  // The fragment of row tile i, columns 16 e.
  __device__ void read_query(std::uint32_t (&x)[4], const Place& at, int queries, int i, int e) const {
    load_a(x, q[queries] + (at.warp_row + i * 16) * kStride + e * 16, kStride);
  }

  // Where the kKeys keys or values of a step lie.
  using Tiles = int[kKeys / kPageUnit];

  // Scores of the warp's rows and keys from key `begin` on, scaled, -infinity where the row does not see the key.
  // query(x, i, e) gives a fragment as read_query does.
  template <int kUnroll, typename Query>
  __device__ void score(Scores& s, const Place& at, float scale, int begin, const Tiles& keys, int queries,
                        Query query) const {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int n = 0; n < kWarpKeys / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 4; ++c) s[i][n][c] = 0;
      }
    }
    const int warp_key = at.column_warp * kWarpKeys, half = warp_key / kPageUnit;
    const int tile = half == 0 ? keys[0] : keys[kKeys / kPageUnit - 1];
    const bfloat* const from = tiles[tile] + warp_key % kPageUnit * kStride;
#pragma unroll kUnroll
    for (int e = 0; e < kE / 16; ++e) {
      std::uint32_t b[kWarpKeys / 16][4];
#pragma unroll
      for (int n = 0; n < kWarpKeys / 16; ++n) load_b(b[n], from + n * 16 * kStride + e * 16, kStride);
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) {
        std::uint32_t x[4];
        query(x, i, e);
#pragma unroll
        for (int n = 0; n < kWarpKeys / 16; ++n) {
          multiply(s[i][2 * n], x, b[n][0], b[n][1]);
          multiply(s[i][2 * n + 1], x, b[n][2], b[n][3]);
        }
      }
    }
    const int first = begin + warp_key;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int seen = first_key[queries][at.row(i, r)] - first;
        const unsigned more = more_keys[queries][at.row(i, r)];
#pragma unroll
        for (int n = 0; n < kWarpKeys / 8; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            float& x = s[i][n][2 * r + c];
            x = static_cast<unsigned>(at.column(n) + c - seen) <= more ? __fmul_rn(x, scale) : kMinusInfinity;
          }
        }
      }
    }
  }

  // Scores -> rounded weights in `p`, which the block may read after its next barrier. kFresh: the sums begin here;
  // otherwise they follow to the new maximum. With a barrier of its own.
  template <bool kFresh>
  __device__ void softmax(Sums& sums, Scores& s, const Place& at) {
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = kMinusInfinity;
#pragma unroll
        for (int n = 0; n < kWarpKeys / 8; ++n) {
          largest = fmaxf(largest, fmaxf(s[i][n][2 * half], s[i][n][2 * half + 1]));
        }
        largest = row_max(largest);
        if (at.lane % 4 == 0) rows[at.column_warp][at.row(i, half)] = largest;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = at.row(i, half);
        float max = kFresh ? kMinusInfinity : sums.max[i][half];
#pragma unroll
        for (int w = 0; w < kColumnWarps; ++w) max = fmaxf(max, rows[w][row]);
        const float base = reference_score(max);
        bfloat* const to = p + row * kWeightStride + at.column_warp * kWarpKeys;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < kWarpKeys / 8; ++n) {
          const float first = power_of_two(__fsub_rn(s[i][n][2 * half], base));
          const float second = power_of_two(__fsub_rn(s[i][n][2 * half + 1], base));
          sum = __fadd_rn(sum, __fadd_rn(first, second));
          *reinterpret_cast<std::uint32_t*>(to + at.column(n)) = pack(first, second);
        }
        sum = row_sum(sum);
        if constexpr (kFresh) {
          sums.weights[i][half] = sum;
        } else {
          const float factor = power_of_two(__fsub_rn(sums.max[i][half], base));
          sums.weights[i][half] = __fmaf_rn(sums.weights[i][half], factor, sum);
#pragma unroll
          for (int n = 0; n < kE / 32; ++n) {
#pragma unroll
            for (int c = 2 * half; c < 2 * half + 2; ++c) sums.out[i][n][c] = __fmul_rn(sums.out[i][n][c], factor);
          }
        }
        sums.max[i][half] = max;
      }
    }
  }

  // sums += P V, the warp's columns of V.
  __device__ void weighted_sum(Sums& sums, const Place& at, const Tiles& values) const {
#pragma unroll
    for (int j = 0; j < kKeys; j += 16) {
      const bfloat* const from =
          tiles[values[j / kPageUnit]] + j % kPageUnit * kStride + at.column_warp * (kE / kColumnWarps);
      std::uint32_t x[kRowTiles][4];
#pragma unroll
      for (int i = 0; i < kRowTiles; ++i) load_a(x[i], p + (at.warp_row + i * 16) * kWeightStride + j, kWeightStride);
#pragma unroll
      for (int n = 0; n < kE / 32; n += 2) {
        std::uint32_t b[4];
        load_b_transposed(b, from + n * 8, kStride);
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
