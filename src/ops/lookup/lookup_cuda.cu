// lookup_drafts: what followed the latest tokens when they last stood in the sequence (lookup.h has the rule).
// history [slots, capacity] int32 -> drafts [slots, kMostWindow - 1], matched [R] int32.
// Bytes: 4 n a request, n <= capacity tokens. Wall: latency; 4,096 tokens are 16 KiB.
// Plan: a block is a request, its threads share the distances; the best (longest match, then least distance) is the
// largest of one integer each, reduced in shared memory.
// Precision: integers.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/lookup/lookup.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 512;

// Longer matches are larger, of equal ones the least distance.
__device__ std::int64_t rank_of(std::int32_t matched, std::int32_t distance, std::int32_t capacity) {
  return (std::int64_t{matched} << 32) + (capacity - distance);
}

__global__ void lookup_drafts_kernel(LookupDrafts a) {
  wait_for_predecessor();
  let_successor_start();
  const auto r = static_cast<std::int32_t>(blockIdx.x), thread = static_cast<std::int32_t>(threadIdx.x);
  const std::int32_t slot = a.requests.slot[r], capacity = a.history.capacity;
  if (a.requests.first_row[r] == a.requests.first_row[r + 1]) {
    if (thread == 0) a.matched[r] = 0;
    return;
  }
  const std::int32_t n = a.cursors.generated[slot] + a.cursors.accepted[slot] + 1, held = min(n, capacity);
  const std::int32_t* const tokens = a.history.tokens + std::int64_t{slot} * capacity;
  const auto back = [&](std::int32_t i) { return tokens[(n - i) % capacity]; };  // token n - i

  std::int64_t best = rank_of(0, 1, capacity);
  for (std::int32_t p = 1 + thread; p < held; p += kThreads) {
    std::int32_t m = 0;
    while (m < kLongestMatch && p + m + 1 <= held && back(p + m + 1) == back(m + 1)) ++m;
    if (m >= kShortestMatch) best = max(best, rank_of(m, p, capacity));
  }
  __shared__ std::int64_t bests[kThreads];
  bests[thread] = best;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (thread < half) bests[thread] = max(bests[thread], bests[thread + half]);
  }
  __syncthreads();
  const auto distance = capacity - static_cast<std::int32_t>(bests[0] & 0xffffffff);
  if (thread == 0) a.matched[r] = static_cast<std::int32_t>(bests[0] >> 32);
  if (thread < kMostWindow - 1) a.drafts[slot * (kMostWindow - 1) + thread] = back(distance - thread % distance);
}

}  // namespace

void lookup_drafts(Stream& s, const LookupDrafts& a) {
  check_lookup_drafts(a);
  if (a.requests.count == 0) return;
  launch(s, "lookup_drafts", {.blocks = static_cast<unsigned>(a.requests.count), .threads = kThreads},
         lookup_drafts_kernel, a);
}

}  // namespace quire::cuda
