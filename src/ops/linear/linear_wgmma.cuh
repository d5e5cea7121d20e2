// The kernel of `linear` and `project` for many bf16 rows on Hopper: wgmma, whose operands come straight from shared
// memory. Its bits are those of linear_mma.cuh, since m64nNk16 gives what m16n8k16 gives: wgmma_test.cu.
//
// Tokens are the M operand, so that a lane has neighbouring outputs of a token. A tile: 128 tokens by kN weight rows;
// each of two warpgroups sums 64 tokens. A warp of a third lets the copy engine bring steps of 64 columns into a ring.
#pragma once

#include <limits>

#include "ops/linear/linear_copy.cuh"

namespace quire::cuda {

// --- the plan --------------------------------------------------------------------------------------------------------

constexpr int kTileTokens = 128, kSummers = 256, kWgmmaThreads = kSummers + 128;

// How a product is spread over blocks, by speed alone. A cluster has `share` blocks with a tile of tokens each, which
// get the same weight rows, read once for all of them; and that `split` times, with kSegments / split segments each.
// Cluster c has the tiles c, c + clusters, ... (one, where the sum is split); neighbours have the same weight rows.
struct WgmmaPlan {
  int split = 1, share = 1;
  int tiles = 0;   // of weight rows
  int groups = 0;  // of `share` tiles of tokens
  int clusters = 0;
  int depth = 0;  // steps in shared memory
  std::int64_t work = std::numeric_limits<std::int64_t>::max();  // of the busiest multiprocessor

  __host__ __device__ int cluster_blocks() const { return split * share; }
};

// What a block has to do.
struct WgmmaWork {
  int part, place;  // which segments, which tile of tokens of the cluster
  int first, end;   // tiles; the next is plan.clusters further
  int groups, share;
  int column, steps, segments;  // of a tile: where it begins, its steps and segments

  __device__ WgmmaWork(const Product& a, const WgmmaPlan& plan)
      : part(static_cast<int>(blockIdx.x) % plan.cluster_blocks() / plan.share),
        place(static_cast<int>(blockIdx.x) % plan.share),
        first(static_cast<int>(blockIdx.x) / plan.cluster_blocks()),
        end(plan.tiles * plan.groups),
        groups(plan.groups),
        share(plan.share),
        column(part * (kSegments / plan.split) * a.segment) {
    const int columns = min(a.K - column, kSegments / plan.split * a.segment);
    steps = blocks_of(columns, kBoxColumns);
    segments = blocks_of(columns, a.segment);
  }
  __device__ int weight_tile(int tile) const { return tile / groups; }
  __device__ int token(int tile) const { return (tile % groups * share + place) * kTileTokens; }
};

// --- shared memory ---------------------------------------------------------------------------------------------------

// Barriers, then the ring of steps: tokens, then weights.
template <int kN>
struct WgmmaRing {
  static constexpr int kTokenBytes = kTileTokens * kBoxRowBytes, kStepBytes = kTokenBytes + kN * kBoxRowBytes;
  static constexpr int kDepth = (227 * 1024 - kHeaderBytes) / kStepBytes;
  static_assert(kDepth * kStepBytes >= 2 * kTileTokens * kN * 4, "holds the sums of two segments");

  unsigned header;  // address

  __device__ explicit WgmmaRing(const uint4* shared)
      : header(static_cast<unsigned>(__cvta_generic_to_shared(shared))) {}
  __device__ unsigned tokens(int slot) const { return header + kHeaderBytes + slot * kStepBytes; }
  __device__ unsigned weights(int slot) const { return tokens(slot) + kTokenBytes; }
  // Of a slot: its step has come; its step has been read, in all blocks that get the same weights.
  __device__ unsigned full(int slot) const { return header + slot * 8; }
  __device__ unsigned empty(int slot) const { return header + (kDepth + slot) * 8; }

  // The barriers of all sharers are ready when this returns.
  __device__ void start(int share) const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kDepth; ++i) init_barrier(full(i), 1), init_barrier(empty(i), share * kSummers / 32);
      publish_barriers();
    }
    __syncthreads();
    if (share > 1) meet_cluster();
  }
};

// --- copying ---------------------------------------------------------------------------------------------------------

// Lets the copy engine fill the ring: the tokens of this block, and its part of the weight rows, for all that share
// them. Weights depend on nobody: the first steps of them are on their way while the kernel before still runs.
template <int kN>
__device__ inline void copy_operands(const Product& a, const Maps& maps, const WgmmaPlan& plan, const WgmmaWork& work,
                                     const WgmmaRing<kN>& ring) {
  const bool starts = elect_lane();
  const int rows = kN / plan.share;
  const unsigned short sharers = ((1 << plan.share) - 1) << (work.part * plan.share);
  const CUtensorMap* map = nullptr;
  int row = 0, token = 0;
  const auto open = [&](int tile) {
    const int t = work.weight_tile(tile), f = a.factor_of(t);
    map = &maps.weights[f];
    row = (t - a.factors[f].first_tile) * kN + work.place * rows;
    token = work.token(tile);
  };
  const auto copy_weights = [&](int slot, int step) {
    if (!starts) return;
    const unsigned to = ring.weights(slot) + work.place * rows * kBoxRowBytes;
    const int column = work.column + step * kBoxColumns;
    arrive_for_bytes(ring.full(slot), ring.kStepBytes);
    if (plan.share == 1) {
      copy_box(to, map, column, row, ring.full(slot));
    } else {
      copy_box_to_all(to, map, column, row, ring.full(slot), sharers);
    }
  };
  const auto copy_tokens = [&](int slot, int step) {
    if (starts) copy_box(ring.tokens(slot), &maps.tokens, work.column + step * kBoxColumns, token, ring.full(slot));
  };

  const int early = min(plan.depth, work.steps);
  open(work.first);
  for (int step = 0; step < early; ++step) copy_weights(step, step);
  wait_for_predecessor();
  for (int step = 0; step < early; ++step) copy_tokens(step, step);

  Turn turn;
  int copied = 0;
  for (int tile = work.first; tile < work.end; tile += plan.clusters) {
    if (tile != work.first) open(tile);
    if (tile + plan.clusters >= work.end) let_successor_start();
    for (int step = 0; step < work.steps; ++step, ++copied) {
      if (copied >= early) {
        // A slot that has not been filled yet counts as read in the phase before the first.
        wait_for(ring.empty(turn.slot), turn.parity ^ 1);
        copy_weights(turn.slot, step);
        copy_tokens(turn.slot, step);
      }
      turn.next(plan.depth);
    }
  }
  for (int i = 0; i < plan.depth; ++i) {  // nobody ends before all sharers have arrived at its barriers
    wait_for(ring.empty(turn.slot), turn.parity ^ 1);
    turn.next(plan.depth);
  }
  __syncwarp();
}

// --- summing ---------------------------------------------------------------------------------------------------------

// A warpgroup that sums 64 tokens by kN weight rows.
template <int kN>
struct GroupSummer {
  static constexpr int kSums = kN / 2;

  const WgmmaRing<kN>& ring;
  int depth, share, first_sharer;
  unsigned token_rows;  // where the tokens of this warpgroup begin in a step
  Turn turn;
  float sums[kSums], totals[kSums];

  __device__ GroupSummer(const WgmmaPlan& plan, const WgmmaWork& work, const WgmmaRing<kN>& from)
      : ring(from),
        depth(plan.depth),
        share(plan.share),
        first_sharer(work.part * plan.share),
        token_rows(threadIdx.x / 128 * 64 * kBoxRowBytes) {}

  // A slot may be filled again, as far as this warp is concerned.
  __device__ void release(int slot) const {
    if (static_cast<int>(threadIdx.x % 32) < share) arrive_at(ring.empty(slot), first_sharer + threadIdx.x % 32);
  }
  // Sums a segment. While a step is multiplied the next is started.
  __device__ void sum_segment(int steps) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] = 0;
    hold(sums);
    int before = 0;
    for (int step = 0; step < steps; ++step) {
      wait_for(ring.full(turn.slot), turn.parity);
      const std::uint64_t tokens = operand_at(ring.tokens(turn.slot) + token_rows),
                          weights = operand_at(ring.weights(turn.slot));
      open_products();
#pragma unroll
      for (int k = 0; k < kBoxColumns / 16; ++k) multiply_add<kN>(sums, tokens + 2 * k, weights + 2 * k);
      commit_products();
      if (step > 0) {
        wait_for_products_but<1>();
        release(before);
      }
      before = turn.slot;
      turn.next(depth);
    }
    wait_for_products_but<0>();
    hold(sums);
    release(before);
  }
  // Sums a tile: totals, and, of a part that is not the first, the second segment on its own in sums.
  __device__ void sum_tile(const Product& a, const WgmmaWork& work) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) totals[i] = 0;
    const int segment = a.segment / kBoxColumns;
    for (int s = 0; s < work.segments; ++s) {
      sum_segment(min(segment, work.steps - s * segment));
      if (s > 0 && work.part > 0) continue;
#pragma unroll
      for (int i = 0; i < kSums; ++i) add_segment(totals[i], sums[i]);
    }
  }
};

// Stores what a warp has of 16 tokens from `token` on by 16 rows from `row` on. Four lanes have four times eight rows
// of a token; they trade until each has one of them.
__device__ inline void store_sums(const Factor& f, int row, int token, int tokens, const float (&sums)[8]) {
  const int lane = threadIdx.x % 32;
  const bool odd = lane & 1, high = lane & 2;  // has the second eight rows, the second token
  float fours[8], eight[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float mine = odd ? sums[4 + i] : sums[i], other = __shfl_xor_sync(~0u, odd ? sums[i] : sums[4 + i], 1);
    fours[i / 2 * 4 + i % 2] = odd ? other : mine;
    fours[i / 2 * 4 + 2 + i % 2] = odd ? mine : other;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float mine = high ? fours[4 + i] : fours[i], other = __shfl_xor_sync(~0u, high ? fours[i] : fours[4 + i], 2);
    eight[i] = high ? other : mine;
    eight[4 + i] = high ? mine : other;
  }
  token += lane / 4 + (high ? 8 : 0);
  if (token < tokens) f.store(row + (odd ? 8 : 0), token, eight);
}

// A block of a cluster adds up, in order, what all parts have of its share of the outputs. In `sums` a thread has
// kN / 8 pieces of four, and as many of the second segment of a part that is not the first.
template <int kN>
__device__ inline void add_parts(const Product& a, const WgmmaPlan& plan, const WgmmaWork& work, const Factor& f,
                                 int row, int token, const float4* sums) {
  const int segments = kSegments / plan.split;
  for (int i = work.part; i < kN / 16; i += plan.split) {
    float total[8] = {};
    for (int part = 0; part < plan.split; ++part) {
      for (int s = 0; s < (part == 0 ? 1 : segments); ++s) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float4* from = sums + (s * (kN / 8) + 2 * i + half) * kSummers + threadIdx.x;
          const float4 v = load_from(from, part * plan.share + work.place);
          add_segment(total[4 * half], v.x), add_segment(total[4 * half + 1], v.y);
          add_segment(total[4 * half + 2], v.z), add_segment(total[4 * half + 3], v.w);
        }
      }
    }
    store_sums(f, row + 16 * i, token, a.T, total);
  }
}

// Leaves the sums of a tile in shared memory, where the ring was.
template <int kN>
__device__ inline void leave_sums(const GroupSummer<kN>& summer, const WgmmaPlan& plan, const WgmmaWork& work,
                                  float4* sums) {
  wait_for_warps(kSummers);  // the ring has been read
  const auto leave = [&](int piece, const float* s) {
    sums[piece * kSummers + threadIdx.x] = {s[0], s[1], s[2], s[3]};
  };
#pragma unroll
  for (int i = 0; i < kN / 8; ++i) leave(i, summer.totals + 4 * i);
  if (work.part == 0 || plan.split == kSegments) return;
#pragma unroll
  for (int i = 0; i < kN / 8; ++i) leave(kN / 8 + i, summer.sums + 4 * i);
}

// --- the kernel ------------------------------------------------------------------------------------------------------

template <int kN>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_kernel(const __grid_constant__ Product a, const __grid_constant__ Maps maps,
                 const __grid_constant__ WgmmaPlan plan) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint4 shared[];
  const WgmmaWork work(a, plan);
  const WgmmaRing<kN> ring(shared);
  ring.start(plan.share);
  if (threadIdx.x >= kSummers) {
    leave_registers<40>();
    if (threadIdx.x < kSummers + 32) copy_operands(a, maps, plan, work, ring);
    if (plan.split > 1) meet_cluster(), leave_cluster();
  } else {
    take_registers<232>();
    wait_for_predecessor();  // before anything is written
    GroupSummer<kN> summer(plan, work, ring);
    for (int tile = work.first; tile < work.end; tile += plan.clusters) {
      const int t = work.weight_tile(tile);
      const Factor& f = a.factors[a.factor_of(t)];
      const int row = (t - f.first_tile) * kN, token = work.token(tile) + static_cast<int>(threadIdx.x) / 32 * 16;
      summer.sum_tile(a, work);
      if (plan.split > 1) {
        float4* sums = reinterpret_cast<float4*>(shared + kHeaderBytes / 16);
        leave_sums(summer, plan, work, sums);
        meet_cluster();
        add_parts<kN>(a, plan, work, f, row, token, sums);
        leave_cluster();  // nobody ends while its sums are read
        continue;
      }
#pragma unroll
      for (int i = 0; i < kN / 16; ++i) {
        const float(&t8)[8] = *reinterpret_cast<const float(*)[8]>(summer.totals + 8 * i);
        store_sums(f, row + 16 * i, token, a.T, t8);
      }
    }
  }
#endif
}

}  // namespace quire::cuda
