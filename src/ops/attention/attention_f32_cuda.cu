// Softmax attention for f32 activations, text and vision; this path is for comparing with a reference.
//   out[t] = sum_j exp(s_j - m) v_j / sum_j exp(s_j - m), s = q k^T E^-1/2
// Shapes: q, out [T, H E]; k, v [keys, G E].
//
// Bytes: K and V once for each row and head, from L2: that is the wall. FLOP: 4 E keys a row and head.
//
// Plan: one block a row and head. Tiles of 128 keys in index order: a warp computes a score with its lanes
// over E; the block takes the running maximum and sum; a thread sums its columns of V, keys in order.
//
// Precision: all f32. A row's order of summation depends on its own number of keys alone.
#include "ops/attention/attention_tiles.cuh"
#include "ops/cuda/launch.h"

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

__global__ __launch_bounds__(kThreads) void plain_attention_kernel(const PlainAttention a, float scale) {
  __shared__ float query[kMostHeadDim], weights[kTile];
  const std::int64_t t = blockIdx.x, h = blockIdx.y;
  const int E = a.head_dim, thread = threadIdx.x;
  const std::int64_t keys = a.keys + t * a.more_keys, column = h / a.group * E;
  for (int e = thread; e < E; e += kThreads) query[e] = a.q.row(t)[h * E + e];
  __syncthreads();

  float m = kMinusInfinity, sum = 0;
  float acc[kMostHeadDim / kThreads] = {};
  for (std::int64_t first = 0; first < keys; first += kTile) {
    const int count = static_cast<int>(min(std::int64_t{kTile}, keys - first));
    for (int j = thread / 32; j < count; j += kWarps) {
      const float* k = a.k.row(first + j) + column;
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
      for (int j = 0; j < count; ++j) acc[c] = __fmaf_rn(weights[j], a.v.row(first + j)[column + e], acc[c]);
    }
    __syncthreads();  // the weights may be written again
  }
#pragma unroll
  for (int c = 0; c < kMostHeadDim / kThreads; ++c) {
    const int e = c * kThreads + thread;
    if (e < E) a.out.row(t)[h * E + e] = quotient(acc[c], sum);
  }
}

}  // namespace

void plain_attention(Stream& s, const PlainAttention& a) {
  const dim3 grid(static_cast<unsigned>(a.rows), static_cast<unsigned>(a.heads));
  plain_attention_kernel<<<grid, kThreads, 0, handle(s)>>>(a, 1.0f / sqrtf(static_cast<float>(a.head_dim)));
  check_launch("attention");
}

}  // namespace quire::cuda
