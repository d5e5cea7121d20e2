// argmax and its log-probability: one block a row, two passes over the logits (the second from L2).
// Bytes: 4 V a row; the wall is memory, and for one row the latency of a single multiprocessor.
#include <cmath>

#include "ops/argmax/argmax.h"
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;

struct Candidate {
  float value;
  std::int32_t token;
};

// The larger value, of equal ones the lower id. A NaN is never larger.
__device__ Candidate better(Candidate a, Candidate b) {
  return b.value > a.value || (b.value == a.value && b.token < a.token) ? b : a;
}

__device__ Candidate warp_best(Candidate c) {
  for (int offset = 16; offset > 0; offset >>= 1) {
    c = better(c, {__shfl_xor_sync(~0u, c.value, offset), __shfl_xor_sync(~0u, c.token, offset)});
  }
  return c;
}

__global__ void argmax_kernel(Matrix<float> logits, std::int64_t vocabulary, Sampled* out) {
  const float* x = logits.row(blockIdx.x);
  constexpr Candidate kNone{-INFINITY, INT32_MAX};
  Candidate best = kNone;
  for (std::int64_t j = threadIdx.x; j < vocabulary; j += kThreads) {
    best = better(best, {x[j], static_cast<std::int32_t>(j)});
  }
  __shared__ Candidate warps[kWarps];
  best = warp_best(best);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
  __syncthreads();
  best = warp_best(warps[threadIdx.x % 32]);
  const std::int32_t token = best.token == INT32_MAX ? 0 : best.token;  // only NaN

  float sum = 0;
  for (std::int64_t j = threadIdx.x; j < vocabulary; j += kThreads) {
    sum = __fadd_rn(sum, expf(__fsub_rn(x[j], x[token])));
  }
  sum = block_sum<kThreads>(sum);
  if (threadIdx.x == 0) out[blockIdx.x] = {token, -logf(sum)};
}

}  // namespace

void argmax(Stream& s, Rows logits, std::span<Sampled> out) {
  check_argmax(logits, out);
  if (logits.rows == 0) return;
  argmax_kernel<<<blocks(logits.rows, 1), kThreads, 0, handle(s)>>>(matrix<float>(logits), logits.cols, out.data());
  check_launch("argmax");
}

}  // namespace quire::cuda
