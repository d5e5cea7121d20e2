// Softmax attention for f32 activations, text and vision; this path is for comparing with a reference.
//   out[t] = sum_j exp(s_j - m) v_j / sum_j exp(s_j - m), s = q k^T E^-1/2
// Shapes: q, out [T, H E]; k, v [keys, G E], or in pages of such rows.
//
// Bytes: K and V once for each row and head, from L2: that is the wall. FLOP: 4 E keys a row and head.
//
// Plan: one block a row and head. Tiles of 128 keys in index order: a warp computes a score with its lanes
// over E; the block takes the running maximum and sum; a thread sums its columns of V, keys in order.
//
// Precision: all f32. A row's order of summation depends on its own number of keys alone.
#include "ops/attention/attention.h"
#include "ops/attention/attention_tiles.cuh"
#include "ops/cuda/entries.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128, kWarps = kThreads / 32;
constexpr int kTile = kThreads;  // a thread a key

__device__ float block_max(float x) {
  __shared__ float largest[kWarps];
  x = warp_max(x);
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = x;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) x = fmaxf(x, largest[w]);
  __syncthreads();  // `largest` may be written again
  return x;
}

// The keys that a row sees: all, or those of its request up to itself.
struct AllKeys {
  int count;

  __device__ AllKeys seen_by(std::int64_t) const { return *this; }
  __device__ std::int64_t row(int j) const { return j; }
};
struct SeenKeys {
  const std::int32_t* pages;
  int page_size, first, count;

  __device__ std::int64_t row(int j) const {
    return std::int64_t{pages[(first + j) / page_size]} * page_size + (first + j) % page_size;
  }
};
struct RequestKeys {
  PagedKeys<float> kv;
  RequestArrays requests;
  bool causal;
  int sliding_window;

  __device__ SeenKeys seen_by(std::int64_t t) const {
    for (int r = 0; r < requests.count; ++r) {
      if (t < requests.first_row[r] || t >= requests.first_row[r + 1]) continue;
      const int start = requests.start[r], index = start + static_cast<int>(t) - requests.first_row[r];
      const int end = causal ? index + 1 : start + requests.first_row[r + 1] - requests.first_row[r];
      const int first = first_key_seen(sliding_window, start, index);
      return {kv.pages(requests.slot[r]), kv.page_size, first, end - first};
    }
    return {nullptr, kv.page_size, 0, 0};
  }
};

template <typename Keys>
struct PlainAttention {
  Matrix<float> q, k, v, out;
  Keys keys;
  std::int64_t group;
  int head_dim;
};

template <typename Keys>
__global__ __launch_bounds__(kThreads) void plain_attention_kernel(const PlainAttention<Keys> a, float scale) {
  __shared__ float query[kMostHeadDim], weights[kTile];
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t t = blockIdx.x, h = blockIdx.y;
  const int E = a.head_dim, thread = threadIdx.x;
  const std::int64_t column = h / a.group * E;
  const auto seen = a.keys.seen_by(t);
  if (seen.count == 0) return;  // nobody's row
  for (int e = thread; e < E; e += kThreads) query[e] = a.q.row(t)[h * E + e];
  __syncthreads();

  float m = kMinusInfinity, sum = 0;
  float acc[kMostHeadDim / kThreads] = {};
  for (int first = 0; first < seen.count; first += kTile) {
    const int count = min(kTile, seen.count - first);
    for (int j = thread / 32; j < count; j += kWarps) {
      const float* k = a.k.row(seen.row(first + j)) + column;
      float dot = 0;
      for (int e = thread % 32; e < E; e += 32) dot = __fmaf_rn(query[e], k[e], dot);
      dot = warp_sum(dot);
      if (thread % 32 == 0) weights[j] = __fmul_rn(dot, scale);
    }
    __syncthreads();
    const float score = thread < count ? weights[thread] : kMinusInfinity;
    const float larger = fmaxf(m, block_max(score));
    const float weight = expf(__fsub_rn(score, larger)), factor = expf(__fsub_rn(m, larger));
    m = larger;
    sum = __fmaf_rn(sum, factor, block_sum<kThreads>(weight));
    weights[thread] = weight;  // block_max and block_sum lie between the last read of the scores and this
    __syncthreads();
#pragma unroll
    for (int c = 0; c < kMostHeadDim / kThreads; ++c) {
      const int e = c * kThreads + thread;
      if (e >= E) break;
      acc[c] = __fmul_rn(acc[c], factor);
      for (int j = 0; j < count; ++j) acc[c] = __fmaf_rn(weights[j], a.v.row(seen.row(first + j))[column + e], acc[c]);
    }
    __syncthreads();  // the weights may be written again
  }
#pragma unroll
  for (int c = 0; c < kMostHeadDim / kThreads; ++c) {
    const int e = c * kThreads + thread;
    if (e < E) a.out.row(t)[h * E + e] = quotient(acc[c], sum);
  }
}

template <typename Keys>
void launch_plain(Stream& s, const char* op, const PlainAttention<Keys>& a, std::int64_t rows, std::int64_t heads) {
  const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(heads));
  launch(s, op, {.blocks = grid, .threads = kThreads}, plain_attention_kernel<Keys>, a,
         1.0f / sqrtf(static_cast<float>(a.head_dim)));
}

}  // namespace

void plain_attention(Stream& s, const Attention& a) {
  launch_plain(s, "attention",
               PlainAttention<RequestKeys>{.q = matrix<float>(a.q),
                                           .k = matrix<float>(a.kv.k),
                                           .v = matrix<float>(a.kv.v),
                                           .out = matrix<float>(a.out),
                                           .keys = {paged_keys<float>(a.kv), request_arrays(a.requests), a.causal,
                                                    a.sliding_window},
                                           .group = a.q.cols / a.kv.k.cols,
                                           .head_dim = a.head_dim},
               a.q.rows, a.q.cols / a.head_dim);
  if (a.q_gate.data) attention_gate(s, a.out, a.q_gate, a.head_dim, a.out);
}

void plain_attention(Stream& s, const VisionAttention& a) {
  const Matrix<float> qkv = matrix<float>(a.qkv);
  const std::int64_t D = a.out.cols;
  const Matrix<float> k{qkv.data + D, qkv.stride}, v{qkv.data + 2 * D, qkv.stride};
  launch_plain(s, "vision_attention",
               PlainAttention<AllKeys>{.q = qkv,
                                       .k = k,
                                       .v = v,
                                       .out = matrix<float>(a.out),
                                       .keys = {static_cast<int>(a.qkv.rows)},
                                       .group = 1,
                                       .head_dim = static_cast<int>(D / a.heads)},
               a.qkv.rows, a.heads);
}

}  // namespace quire::cuda
