// The kernel of `linear` and `project` for bf16: a pipeline through shared memory, for any number of tokens.
#pragma once

#include "ops/linear/linear_mma.cuh"

namespace quire::cuda {

// A warp has a tile of 16 kM weight rows by 8 kN tokens; kDown warps share its weight rows, so that a block has
// 8 kN kDown tokens. How many tiles stand beside each other in a block is up to the launch, kMostAcross at most.
template <int kM_, int kN_, int kDown_, int kMostAcross_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kDown = kDown_, kMostAcross = kMostAcross_;
  static constexpr int kRows = 16 * kM, kTokens = 8 * kN * kDown;
  static constexpr int kMostThreads = 32 * kMostAcross * kDown;
};

// How a product is spread over blocks, by speed alone. blockIdx.y counts token tiles, blockIdx.x blocks, or, where the
// sum is split, clusters of kSegments blocks with a segment each. A block or cluster has the next `laps` times `across`
// tiles of weight rows.
struct Plan {
  int across = 1, laps = 1;
  int depth = 2;    // steps in shared memory
  int trigger = 0;  // steps before the last at which the next kernel may start

  template <typename Tile>
  __host__ __device__ int stage() const {  // uint4s of a step
    return (across * Tile::kRows + Tile::kTokens) * (kStep / 8);
  }
};

// Where in its work a block fetches next.
struct Cursor {
  int lap, k, slot;

  __device__ void advance(int begin, int end, int depth) {
    slot = slot + 1 == depth ? 0 : slot + 1;
    k += kStep;
    if (k < end) return;
    k = begin;
    ++lap;
  }
};

// A step in shared memory: weights, then tokens, each as rows of the first 32 columns and rows of the others.
template <typename Tile>
struct Stage {
  uint4* weights;
  uint4* tokens;
  int weight_half;

  __device__ Stage(uint4* shared, const Plan& plan, int slot)
      : weights(shared + slot * plan.stage<Tile>()), weight_half(plan.across * Tile::kRows * 4) {
    tokens = weights + 2 * weight_half;
  }
};

// The kDown warps of a tile share the fetching of its weights: a warp has whole steps of its rows, or one half.
template <typename Tile, bool kAligned>
struct WeightFetcher {
  static constexpr int kHalves = Tile::kDown == 1 ? 2 : 1;
  static constexpr int kEights = 4 * Tile::kM / (Tile::kDown * kHalves);  // of rows
  static_assert(kEights >= 1 && kEights * kHalves * Tile::kDown == 4 * Tile::kM);

  const bfloat* rows[kEights];  // nullptr past the end
  int first_eight, first_half;
  std::uint64_t policy;

  __device__ WeightFetcher(int down, bool once) : policy(fetch_policy(once)) {
    first_half = kHalves == 2 ? 0 : down % 2;
    first_eight = kHalves == 2 ? 0 : down / 2 * kEights;
  }
  __device__ void open(const Product& a, int tile) {
    const Factor& f = a.factor_of(tile);
    const int row0 = (tile - f.first_tile) * Tile::kRows + 8 * first_eight + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < kEights; ++i) {
      const int row = row0 + 8 * i;
      rows[i] = row < f.N ? f.w + std::int64_t{row} * a.K : nullptr;
    }
  }
  __device__ void operator()(const Stage<Tile>& to, int along, int k, int K) const {
    const int lane = threadIdx.x % 32;
    uint4* slot = to.weights + along * Tile::kRows * 4 + first_eight * 32 + place_of(lane / 4, lane % 4);
#pragma unroll
    for (int h = 0; h < kHalves; ++h)
#pragma unroll
      for (int i = 0; i < kEights; ++i) {
        const int half = first_half + h;
        if (rows[i])
          fetch<kAligned>(slot + half * to.weight_half + i * 32, rows[i], k + 32 * half + 8 * (threadIdx.x % 4), K,
                          policy);
      }
  }
};

// All threads share the fetching of the tokens. Those past the end keep what is there: they are not stored.
template <typename Tile, bool kAligned>
__device__ inline void fetch_tokens(const Product& a, const Stage<Tile>& to, int token0, int k, std::uint64_t policy) {
  const int unit = threadIdx.x % 8, stride = blockDim.x / 8, count = min(a.T - token0, Tile::kTokens);
  const bfloat* row = a.x + (token0 + threadIdx.x / 8) * a.x_stride;
  uint4* rows = to.tokens + unit / 4 * (Tile::kTokens * 4);
  for (int t = threadIdx.x / 8; t < count; t += stride, row += stride * a.x_stride)
    fetch<kAligned>(rows + place_of(t, unit % 4), row, k + 8 * unit, a.K, policy);
}

template <typename Tile>
__device__ inline void sum_step(const Stage<Tile>& from, int along, int down, float (&sums)[Tile::kM][Tile::kN][4]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4* w = from.weights + half * from.weight_half;
    const uint4* x = from.tokens + half * (Tile::kTokens * 4);
    Fragment tokens[Tile::kN];
#pragma unroll
    for (int n = 0; n < Tile::kN; ++n) tokens[n] = load_tokens(x, (down * Tile::kN + n) * 8);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int m = 0; m < Tile::kM; ++m) {
        const Fragment weights = load_weights(w, along * Tile::kRows + 16 * m, i);
#pragma unroll
        for (int n = 0; n < Tile::kN; ++n)
          multiply_add(sums[m][n], weights, tokens[n].r[2 * i], tokens[n].r[2 * i + 1]);
      }
  }
}

// Adds the sums of a segment to the totals, and starts the next.
template <int kM, int kN>
__device__ inline void end_segment(float (&totals)[kM][kN][4], float (&sums)[kM][kN][4]) {
#pragma unroll
  for (int i = 0; i < kM * kN * 4; ++i) {
    float& sum = sums[i / 4 / kN][i / 4 % kN][i % 4];
    add_segment(totals[i / 4 / kN][i / 4 % kN][i % 4], sum);
    sum = 0;
  }
}

template <int kM, int kN>
__device__ inline void store_totals(const Product& a, int tile, int token, float (&totals)[kM][kN][4]) {
  const Factor& f = a.factor_of(tile);
  const int row = (tile - f.first_tile) * (16 * kM);
#pragma unroll
  for (int i = 0; i < kM * kN; ++i) {
    float(&t)[4] = totals[i / kN][i % kN];
    for_sums(threadIdx.x % 32, row + 16 * (i / kN), token + 8 * (i % kN), t, [&](int r, int c, float sum) {
      if (c < a.T) f.store(r, c, sum);
    });
    t[0] = t[1] = t[2] = t[3] = 0;
  }
}

// Blocks of a cluster have a segment each. Every one leaves its sums in its shared memory and adds up, in order, what
// all have of its share of the outputs.
template <typename Tile>
__device__ inline void add_across_cluster(const Product& a, int rank, int tile0, int token0,
                                          const float (&sums)[Tile::kM][Tile::kN][4], float4* shared) {
  constexpr int kFragments = Tile::kM * Tile::kN;  // 16 x 8 tiles of a warp
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  __syncthreads();  // the last step has been read
#pragma unroll
  for (int i = 0; i < kFragments; ++i) {
    const float(&s)[4] = sums[i / Tile::kN][i % Tile::kN];
    shared[(warp * kFragments + i) * 32 + lane] = {s[0], s[1], s[2], s[3]};
  }
  meet_cluster();
  for (int f = warp * kSegments + rank; f < warps * kFragments; f += warps * kSegments) {
    const int owner = f / kFragments, i = f % kFragments, tile = tile0 + owner / Tile::kDown;
    const int token = token0 + (owner % Tile::kDown * Tile::kN + i % Tile::kN) * 8;
    float total[4] = {};
#pragma unroll
    for (int segment = 0; segment < kSegments; ++segment) {
      const float4 s = load_from(shared + f * 32 + lane, segment);
      add_segment(total[0], s.x), add_segment(total[1], s.y), add_segment(total[2], s.z), add_segment(total[3], s.w);
    }
    const Factor& factor = a.factor_of(tile);
    for_sums(lane, (tile - factor.first_tile) * Tile::kRows + 16 * (i / Tile::kN), token, total,
             [&](int row, int column, float sum) {
               if (column < a.T) factor.store(row, column, sum);
             });
  }
  leave_cluster();  // nobody ends while its sums are read
}

// kSplit: a block of a cluster has one segment, else all.
template <typename Tile, bool kSplit, bool kAligned>
__global__ void __launch_bounds__(Tile::kMostThreads)
    product_kernel(const __grid_constant__ Product a, const __grid_constant__ Plan plan) {
  extern __shared__ uint4 shared[];
  const int warp = threadIdx.x / 32, along = warp / Tile::kDown, down = warp % Tile::kDown;
  constexpr int kBlocks = kSplit ? kSegments : 1;
  const int rank = blockIdx.x % kBlocks, tile0 = blockIdx.x / kBlocks * (plan.across * plan.laps);
  const int token0 = blockIdx.y * Tile::kTokens;
  const int begin = kSplit ? rank * a.segment : 0, end = kSplit ? min(a.K, begin + a.segment) : a.K;

  // Weights depend on nobody: the first steps of them are fetched while the kernel before still runs.
  const std::uint64_t keep = fetch_policy(false);
  WeightFetcher<Tile, kAligned> fetch_weights(down, gridDim.y == 1);
  const auto fetch_weight_step = [&](const Cursor& at) {
    if (at.lap == plan.laps) return;
    if (at.k == begin) fetch_weights.open(a, tile0 + at.lap * plan.across + along);
    fetch_weights(Stage<Tile>(shared, plan, at.slot), along, at.k, a.K);
  };
  const auto fetch_token_step = [&](const Cursor& at) {
    if (at.lap < plan.laps) fetch_tokens<Tile, kAligned>(a, Stage<Tile>(shared, plan, at.slot), token0, at.k, keep);
    commit_fetches();
  };
  const int steps = blocks_of(end - begin, kStep) * plan.laps, trigger = steps - plan.trigger;
  Cursor next = {0, begin, 0};
  for (int i = 0; i < plan.depth - 1; ++i, next.advance(begin, end, plan.depth)) fetch_weight_step(next);
  if (trigger <= 0) let_successor_start();
  wait_for_predecessor();
  Cursor at = {0, begin, 0};
  for (int i = 0; i < plan.depth - 1; ++i, at.advance(begin, end, plan.depth)) fetch_token_step(at);

  float sums[Tile::kM][Tile::kN][4] = {};
  [[maybe_unused]] float totals[Tile::kM][Tile::kN][4] = {};
  [[maybe_unused]] int left = a.segment;  // columns of the segment
  at = {0, begin, 0};
  for (int step = 0; step < steps; ++step) {
    wait_for_fetches(plan.depth - 2);
    __syncthreads();          // the step is there for all; all have read the one before
    fetch_weight_step(next);  // into the place of the step before
    fetch_token_step(next);
    next.advance(begin, end, plan.depth);
    if (step == trigger) let_successor_start();
    sum_step<Tile>(Stage<Tile>(shared, plan, at.slot), along, down, sums);

    const int tile = tile0 + at.lap * plan.across + along;
    at.advance(begin, end, plan.depth);
    if constexpr (!kSplit) {
      left -= kStep;
      if (left > 0 && at.k > begin) continue;
      end_segment(totals, sums);
      left = a.segment;
      if (at.k == begin) store_totals(a, tile, token0 + down * (8 * Tile::kN), totals);
    }
  }
  if constexpr (kSplit) {
    add_across_cluster<Tile>(a, rank, tile0, token0, sums, reinterpret_cast<float4*>(shared));
  }
}

}  // namespace quire::cuda
