// step_begin and commit: cursors and the rows of a step. No arithmetic to speak of; what counts is that each is one
// launch for all layers and caches.
// Plan: step_begin is one block, since new pages must be in the block table before any row looks there. Sixteen threads
// are a request, each a row of its window: all of them read its cursors, the first moves them. Rows of nobody go to the
// threads in turn. In commit a request is a block, since it may have a row of outputs to copy; what counts is found and
// noted by its first warp, a lane a row.
#include <algorithm>

#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/step/step.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128, kMostThreads = 1024, kDraftThreads = 1024;

__device__ void write_row(const StepBegin& a, std::int64_t t, std::int32_t slot, std::int32_t token, std::int32_t index,
                          std::int32_t position, std::int32_t kv_row) {
  a.ids[t] = token;
  a.row_slot[t] = slot;
  a.index[t] = index;
  a.next[t] = index + 1;
  a.kv_row[t] = kv_row;
  for (int axis = 0; axis < 3; ++axis) a.position[axis * a.rows + t] = position;
}

// A request, and where its sequence stood before this step.
struct Begun {
  std::int32_t slot = 0, first = 0, end = 0;
  std::int32_t length = 0, generated = 0, accepted = 0, delta = 0, token = 0, draft = 0;
};

// `row`: of the window, whose draft it is.
__device__ Begun read_request(const StepBegin& a, std::int32_t r, std::int32_t row) {
  Begun b;
  if (r >= a.requests.count) return b;
  b.slot = a.requests.slot[r], b.first = a.requests.first_row[r], b.end = a.requests.first_row[r + 1];
  const Cursors& c = a.cursors;
  b.length = c.length[b.slot], b.generated = c.generated[b.slot], b.accepted = c.accepted[b.slot];
  b.delta = c.delta[b.slot], b.token = c.token[b.slot];
  if (row > 0 && row < b.end - b.first) b.draft = a.drafts[b.slot * (kMostWindow - 1) + row - 1];
  return b;
}

__device__ void begin_row(const StepBegin& a, std::int32_t r, std::int32_t row, const Begun& b) {
  const bool used = b.first < b.end;
  const std::int32_t length = b.length + b.accepted, generated = b.generated + b.accepted;
  if (row == 0) {
    a.start[r] = used ? max(length + a.ahead, 0) : 0;
    a.generated[r] = used ? generated : 0;
    a.previous[r] = used ? b.generated : 0;
  }
  if (row == 0 && used) {
    a.cursors.accepted[b.slot] = 0;
    a.cursors.previous[b.slot] = b.generated;
    a.cursors.generated[b.slot] = generated;
    a.cursors.length[b.slot] = length;
  }
  if (row >= b.end - b.first) return;
  const std::int32_t index = length + a.ahead + row, page = index / a.kv.page_size;
  const std::int32_t held =
      index >= 0 && page < a.kv.pages_per_slot ? a.kv.block_table[b.slot * a.kv.pages_per_slot + page] : -1;
  write_row(a, b.first + row, b.slot, row == 0 ? b.token : b.draft, index, index + b.delta,
            held < 0 ? -1 : held * a.kv.page_size + index % a.kv.page_size);
}

// All loads that need no page come before the barrier.
__global__ void __launch_bounds__(kMostThreads) step_begin_kernel(StepBegin a) {
  static_assert(32 % kMostWindow == 0);
  wait_for_predecessor();
  let_successor_start();
  const auto me = static_cast<std::int32_t>(threadIdx.x), threads = static_cast<std::int32_t>(blockDim.x);
  const std::int32_t row = me % kMostWindow;
  const unsigned together = ((1u << kMostWindow) - 1) << (me % 32 - row);  // the threads of a request
  const NewPages& n = a.new_pages;
  const std::int32_t used = a.requests.first_row[a.requests.count], new_pages = n.count ? *n.count : 0;
  std::int32_t r = me / kMostWindow;
  Begun request = read_request(a, r, row);
#pragma unroll 1
  for (std::int32_t i = me; i < new_pages; i += threads) n.block_table[n.place[i]] = n.page[i];
  __syncthreads();  // the pages are there, and everybody has read their number and the cursors
  if (n.count && me == 0) *n.count = 0;
  while (r < a.requests.count) {
    begin_row(a, r, row, request);
    r += threads / kMostWindow;
    request = read_request(a, r, row);
    __syncwarp(together);  // before the first moves the cursors
  }
  for (std::int64_t t = used + me; t < a.rows; t += threads) write_row(a, t, 0, 0, 0, 0, -1);
}

// A block is a row. Every thread keeps the best of its logits; among equals the lowest id wins. Rows are few, so a block
// has all threads there are, and each of them several loads under way.
__global__ void __launch_bounds__(kDraftThreads) place_drafts_kernel(PlaceDrafts a) {
  constexpr int kLoads = 8;
  wait_for_predecessor();
  let_successor_start();
  const auto t = static_cast<std::int32_t>(blockIdx.x);
  std::int32_t place = t;  // in ids
  bool drafted = false;
  if (a.row > 0) {
    place = a.requests.first_row[t] + a.row;
    drafted = place < a.requests.first_row[t + 1];
  }
  for (std::int32_t r = 0; a.row == 0 && r < a.requests.count; ++r)
    drafted |= t > a.requests.first_row[r] && t < a.requests.first_row[r + 1];
  if (!drafted) return;
  const float* const logits = static_cast<const float*>(a.logits.data) + t * a.logits.stride;
  const int me = static_cast<int>(threadIdx.x), vocabulary = static_cast<int>(a.logits.cols);
  const float lowest = __int_as_float(0xff800000);
  float best = lowest;
  int id = 0;
  for (int first = me; first < vocabulary; first += kLoads * kDraftThreads) {
    float x[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int v = first + i * kDraftThreads;
      x[i] = v < vocabulary ? logits[v] : lowest;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (x[i] > best) best = x[i], id = first + i * kDraftThreads;
    }
  }
  __shared__ float bests[kDraftThreads];
  __shared__ int ids[kDraftThreads];
  bests[me] = best, ids[me] = id;
  for (int half = kDraftThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (me >= half) continue;
    const float other = bests[me + half];
    const int other_id = ids[me + half];
    if (other > bests[me] || (other == bests[me] && other_id < ids[me])) bests[me] = other, ids[me] = other_id;
  }
  if (me == 0) a.ids[place] = ids[0];
}

// By a warp: a lane is a row, and has the token that was drawn after it. Returns the last row that counts; -1: a place
// that nobody takes.
__device__ std::int32_t commit_request(const Commit& a, std::int32_t slot, std::int32_t first, std::int32_t end) {
  static_assert(kMostWindow <= 32);
  const auto r = static_cast<std::int32_t>(blockIdx.x), lane = static_cast<std::int32_t>(threadIdx.x);
  if (first == end) {
    if (a.counts && lane == 0) a.counts[r] = 0;
    return -1;
  }
  const std::int32_t rows = a.prompt ? 1 : end - first, generated = a.cursors.generated[slot];
  const std::int32_t token = lane < rows ? a.sampled.data()[first + lane].token : 0;
  const bool agrees = lane + 1 < rows && a.ids[first + lane + 1] == token;
  std::int32_t count = __ffs(~__ballot_sync(~0u, agrees));  // up to the first row after which it does not agree
  if (a.assumed > 0 && !a.prompt) count = min(a.assumed, rows);
  if (lane < count) {
    if (lane == count - 1) {
      a.cursors.token[slot] = token;
      a.cursors.accepted[slot] = a.prompt ? 0 : count;
      if (a.counts) a.counts[r] = count;
    }
    // Where the history is shorter than the window, the last tokens stay.
    if (a.history.tokens && lane >= count - a.history.capacity) {
      const std::int32_t place = generated + lane + (a.prompt ? 0 : 1);
      a.history.tokens[slot * a.history.capacity + place % a.history.capacity] = token;
    }
    // The first of the lanes that have a token counts it for all of them.
    if (a.seen) {
      const unsigned same = __match_any_sync(~0u >> (32 - count), token);
      std::uint16_t& seen = a.seen[slot * a.vocabulary + token];
      if (lane == __ffs(same) - 1) seen += min(__popc(same), kInPrompt - 1 - (seen & ~kInPrompt));
    }
  }
  return first + count - 1;
}

__global__ void commit_kernel(Commit a) {
  const auto r = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t slot = a.requests.slot[r], first = a.requests.first_row[r], end = a.requests.first_row[r + 1];
  wait_for_predecessor();
  let_successor_start();
  __shared__ std::int32_t last;
  if (threadIdx.x < 32) {
    const std::int32_t row = commit_request(a, slot, first, end);
    if (threadIdx.x == 0) last = row;
  }
  if (!a.last.data) return;
  __syncthreads();
  if (last < 0) return;
  // A row as it is, in units of bf16.
  const std::int64_t units = a.last.format == Format::f32 ? 2 : 1;
  const auto* from = static_cast<const std::uint16_t*>(a.outputs.data) + last * a.outputs.stride * units;
  auto* to = static_cast<std::uint16_t*>(a.last.data) + slot * a.last.stride * units;
  for (std::int64_t i = threadIdx.x; i < a.last.cols * units; i += kThreads) to[i] = from[i];
}

}  // namespace

void step_begin(Stream& s, const StepBegin& a) {
  check_step_begin(a);
  const std::int32_t threads = std::clamp(a.requests.count * kMostWindow, kThreads, kMostThreads);
  launch(s, "step_begin", {.threads = static_cast<unsigned>(threads), .alone = true}, step_begin_kernel, a);
}

void place_drafts(Stream& s, const PlaceDrafts& a) {
  check_place_drafts(a);
  if (a.logits.rows == 0) return;
  launch(s, "place_drafts", {.blocks = static_cast<unsigned>(a.logits.rows), .threads = kDraftThreads},
         place_drafts_kernel, a);
}

void commit(Stream& s, const Commit& a) {
  check_commit(a);
  if (a.requests.count == 0) return;
  launch(s, "commit", {.blocks = static_cast<unsigned>(a.requests.count), .threads = kThreads}, commit_kernel, a);
}

}  // namespace quire::cuda
