// The kernel of `linear` and `project` for bf16: a pipeline through shared memory, for any number of tokens.
#pragma once

#include "ops/linear/linear_mma.cuh"

namespace quire::cuda {

// A warp has a tile of 16 kM weight rows by 8 kN tokens; kDown warps share its weight rows, so that a block has
// 8 kN kDown tokens. How many tiles stand beside each other in a block is up to the launch, kMostAcross at most. A step
// is kPanels times 32 columns.
template <int kM_, int kN_, int kDown_, int kMostAcross_, int kPanels_ = 2>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kDown = kDown_, kMostAcross = kMostAcross_, kPanels = kPanels_;
  static constexpr int kRows = 16 * kM, kTokens = 8 * kN * kDown, kStep = 32 * kPanels;
  static constexpr int kMostThreads = 32 * kMostAcross * kDown;
};

// How a product is spread over blocks, by speed alone. blockIdx.y counts token tiles, blockIdx.x blocks, or, where the
// sum is split, clusters of kSegments blocks with a segment each. A block or cluster has the next `laps` times `across`
// tiles of weight rows.
struct Plan {
  int across = 1, laps = 1;
  int depth = 2;    // steps in shared memory, one of kDepths
  int trigger = 0;  // steps before the last at which the next kernel may start
  int ahead = 0;    // further steps of weights that are called into the second-level cache at the start
};

// A step in shared memory, bytes: panels of 32 columns of the weight rows, then those of the tokens.
template <typename Tile>
struct Stage {
  int weight_panel, tokens, bytes;
  static constexpr int kTokenPanel = Tile::kTokens * kRowBytes;

  __host__ __device__ explicit Stage(int across)
      : weight_panel(across * Tile::kRows * kRowBytes),
        tokens(Tile::kPanels * weight_panel),
        bytes(tokens + Tile::kPanels * kTokenPanel) {}
};

// Where in its work a block is: lap, column, address of the step in shared memory.
struct Cursor {
  int lap, k;
  unsigned at;
};

// What a thread fetches. The kDown warps of a tile share its weights: each has some panels of all its rows, or one of
// some. All threads share the tokens.
template <typename Tile, bool kAligned>
struct Fetcher {
  static constexpr int kPanels = Tile::kPanels > Tile::kDown ? Tile::kPanels / Tile::kDown : 1;  // of this thread
  static constexpr int kApart = Tile::kPanels / kPanels;                                         // warps by panels
  static constexpr int kEights = 2 * Tile::kM * kApart / Tile::kDown;                            // of rows
  static_assert(kEights >= 1 && kEights * kPanels * Tile::kDown == 2 * Tile::kM * Tile::kPanels);
  static constexpr int kPieces = 4 * Tile::kPanels;  // of a token

  const bfloat* rows[kEights];  // of weights; where there are none, the last one that there is
  const bfloat* token;
  unsigned weight_to, token_to;  // in a step
  int first_eight, first_column, token_row, tokens;

  __device__ Fetcher(const Product& a, const Stage<Tile>& stage, int along, int down, int token0) {
    const int lane = threadIdx.x % 32, panel = down % kApart * kPanels, piece = threadIdx.x % kPieces;
    first_eight = down / kApart * kEights;
    first_column = panel * 32 + lane % 4 * 8;
    weight_to = panel * stage.weight_panel + place_of(along * Tile::kRows + 8 * first_eight + lane / 4, lane % 4);
    token_row = threadIdx.x / kPieces;
    tokens = min(a.T - token0, Tile::kTokens);
    token = a.x + (token0 + token_row) * a.x_stride + piece * 8;
    token_to = stage.tokens + piece / 4 * stage.kTokenPanel;
  }
  __device__ void open(const Product& a, int tile) {
    const Factor& f = a.factor_of(tile);
    const int row0 = (tile - f.first_tile) * Tile::kRows, g = threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < kEights; ++i) {
      const int eight = first_eight + i, row = row0 + eight / 2 * 16 + row_of(eight % 2 * 8 + g);
      rows[i] = f.w + std::int64_t{min(row, f.N - 1)} * a.K + first_column;
    }
  }
  __device__ void fetch_weights(const Stage<Tile>& stage, const Cursor& c, int K) const {
#pragma unroll
    for (int i = 0; i < kEights; ++i)
#pragma unroll
      for (int p = 0; p < kPanels; ++p)
        fetch<kAligned>(c.at + weight_to + p * stage.weight_panel + i * 8 * kRowBytes, rows[i] + c.k + 32 * p,
                        K - c.k - 32 * p - first_column);
  }
  // Tokens past the end keep what is there: they are not stored.
  __device__ void fetch_tokens(const Cursor& c, std::int64_t x_stride, int K) const {
    const bfloat* from = token + c.k;
    const int stride = blockDim.x / kPieces, column = threadIdx.x % kPieces * 8;
    for (int t = token_row; t < tokens; t += stride, from += stride * x_stride)
      fetch<kAligned>(c.at + token_to + place_of(t, threadIdx.x % 4), from, K - c.k - column);
  }
  // Calls columns into the second-level cache, which has room for more than shared memory.
  __device__ void call([[maybe_unused]] int k, [[maybe_unused]] int columns) const {
    if constexpr (kAligned) {
      if (columns <= 0 || first_column > 0) return;
#pragma unroll
      for (int i = 0; i < kEights; ++i) prefetch(rows[i] + k, columns);
    }
  }
};

template <typename Tile>
__device__ inline void sum_step(unsigned weights, unsigned tokens, const Stage<Tile>& stage,
                                float (&sums)[Tile::kM][Tile::kN][4]) {
#pragma unroll
  for (int panel = 0; panel < Tile::kPanels; ++panel) {
    Fragment x[Tile::kN];
#pragma unroll
    for (int n = 0; n < Tile::kN; ++n) x[n] = load_fragment(tokens + panel * stage.kTokenPanel + n * 8 * kRowBytes);
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int m = 0; m < Tile::kM; ++m) {
        const unsigned at = weights + panel * stage.weight_panel + m * 16 * kRowBytes;
        const Fragment w = load_fragment(i == 0 ? at : at ^ kNextColumns);
#pragma unroll
        for (int n = 0; n < Tile::kN; ++n) multiply_add(sums[m][n], w, x[n].r[2 * i], x[n].r[2 * i + 1]);
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
    store_sums(f, row + 16 * (i / kN), token + 8 * (i % kN), a.T, t);
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
    store_sums(factor, (tile - factor.first_tile) * Tile::kRows + 16 * (i / Tile::kN), token, a.T, total);
  }
  leave_cluster();  // nobody ends while its sums are read
}

// kSplit: a block of a cluster has one segment, else all.
template <typename Tile, bool kSplit, bool kAligned>
__global__ void __launch_bounds__(Tile::kMostThreads)
    product_kernel(const __grid_constant__ Product a, const __grid_constant__ Plan plan) {
  extern __shared__ __align__(kRowBytes) uint4 shared[];
  const Stage<Tile> stage(plan.across);
  const unsigned first = static_cast<unsigned>(__cvta_generic_to_shared(shared)),
                 last = first + plan.depth * stage.bytes;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, along = warp / Tile::kDown, down = warp % Tile::kDown;
  constexpr int kBlocks = kSplit ? kSegments : 1, kStep = Tile::kStep;
  const int rank = blockIdx.x % kBlocks, tile0 = blockIdx.x / kBlocks * (plan.across * plan.laps);
  const int token0 = blockIdx.y * Tile::kTokens;
  const int begin = kSplit ? rank * a.segment : 0, end = kSplit ? min(a.K, begin + a.segment) : a.K;
  const auto advance = [&](Cursor& c) {
    c.at += stage.bytes;
    if (c.at == last) c.at = first;
    c.k += kStep;
    if (c.k < end) return;
    c.k = begin;
    ++c.lap;
  };

  // Weights depend on nobody: the first steps of them are fetched while the kernel before still runs.
  Fetcher<Tile, kAligned> fetcher(a, stage, along, down, token0);
  const auto fetch_weights = [&](const Cursor& c) {
    if (c.lap == plan.laps) return;
    if (c.k == begin) fetcher.open(a, tile0 + c.lap * plan.across + along);
    fetcher.fetch_weights(stage, c, a.K);
  };
  const auto fetch_tokens = [&](const Cursor& c) {
    if (c.lap < plan.laps) fetcher.fetch_tokens(c, a.x_stride, a.K);
    commit_fetches();
  };
  const int steps = blocks_of(end - begin, kStep) * plan.laps, trigger = steps - plan.trigger;
  Cursor next = {0, begin, first};
  for (int i = 0; i < plan.depth - 1; ++i, advance(next)) fetch_weights(next);
  fetcher.call(begin + (plan.depth - 1) * kStep, min(plan.ahead * kStep, end - begin - (plan.depth - 1) * kStep));
  if (trigger <= 0) let_successor_start();
  wait_for_predecessor();
  Cursor current = {0, begin, first};
  for (int i = 0; i < plan.depth - 1; ++i, advance(current)) fetch_tokens(current);

  float sums[Tile::kM][Tile::kN][4] = {};
  [[maybe_unused]] float totals[Tile::kM][Tile::kN][4] = {};
  [[maybe_unused]] int left = a.segment;  // columns of the segment
  const unsigned weight_at = weight_place(lane, along * Tile::kRows);
  const unsigned token_at = stage.tokens + token_place(lane, down * (8 * Tile::kN));
  current = {0, begin, first};
  for (int step = 0; step < steps; ++step) {
    wait_for_oldest(plan.depth);
    __syncthreads();      // the step is there for all; all have read the one before
    fetch_weights(next);  // into the place of the step before
    fetch_tokens(next);
    advance(next);
    if (step == trigger) let_successor_start();
    sum_step<Tile>(current.at + weight_at, current.at + token_at, stage, sums);

    const int tile = tile0 + current.lap * plan.across + along;
    advance(current);
    if constexpr (!kSplit) {
      left -= kStep;
      if (left > 0 && current.k > begin) continue;
      end_segment(totals, sums);
      left = a.segment;
      if (current.k == begin) store_totals(a, tile, token0 + down * (8 * Tile::kN), totals);
    }
  }
  if constexpr (kSplit) {
    add_across_cluster<Tile>(a, rank, tile0, token0, sums, reinterpret_cast<float4*>(shared));
  }
}

}  // namespace quire::cuda
