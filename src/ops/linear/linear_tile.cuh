// The kernel of `linear` and `project` for bf16 rows at multiples of 16 bytes: one warp of a block lets the copy engine
// bring steps of 64 columns into a ring in shared memory, the others sum.
#pragma once

#include "ops/linear/linear_copy.cuh"
#include "ops/linear/linear_mma.cuh"

namespace quire::cuda {

// A warp sums 16 kM weight rows by 8 kN tokens; kDown warps share its weight rows, so that a block has 8 kN kDown
// tokens. How many such rows stand beside each other in a tile is up to the launch, kMostAcross at most; so is the size
// of the ring, kRing KiB at most.
template <int kM_, int kN_, int kDown_, int kMostAcross_, int kRing_>
struct Shape {
  static constexpr int kM = kM_, kN = kN_, kDown = kDown_, kMostAcross = kMostAcross_, kRing = kRing_;
  static constexpr int kRows = 16 * kM, kTokens = 8 * kN * kDown;
  static constexpr int kMostThreads = 32 * (kMostAcross * kDown + 1);
  static_assert(kMostAcross * kRows <= 256 && kTokens <= 256, "a box has at most 256 rows");
};

// How a product is spread over blocks, by speed alone. A tile is `across` times Shape::kRows weight rows of one factor.
// blockIdx.y counts tiles of tokens, blockIdx.x blocks, or, where the sum is split, clusters of kSegments blocks with a
// segment each. A block or cluster has the next `laps` tiles.
struct Plan {
  int across = 1, laps = 1, tiles = 0;
  int rounds = 0;   // of segments, for the busiest multiprocessor
  int work = 0;     // what it reads: rows, times rounds
  int depth = 1;    // steps in shared memory
  int trigger = 0;  // steps before the last at which the next kernel may start
};

// What a block has to do.
template <typename Shape, bool kSplit>
struct Work {
  static constexpr int kBlocks = kSplit ? kSegments : 1;
  int rank, tile0, laps, token0, begin, end, steps;

  __device__ Work(const Product& a, const Plan& plan)
      : rank(blockIdx.x % kBlocks),
        tile0(blockIdx.x / kBlocks * plan.laps),
        laps(min(plan.laps, plan.tiles - tile0)),
        token0(blockIdx.y * Shape::kTokens),
        begin(kSplit ? rank * a.segment : 0),
        end(kSplit ? min(a.K, begin + a.segment) : a.K),
        steps(blocks_of(end - begin, kBoxColumns)) {}  // of a lap
};

// --- shared memory ---------------------------------------------------------------------------------------------------

// Barriers, then the ring of steps: the weights of a tile, then the tokens.
constexpr int kMostDepth = 32;
static_assert(2 * kMostDepth * 8 <= kHeaderBytes);

template <typename Shape>
struct Ring {
  unsigned header, stages;  // addresses
  int tokens, bytes;        // where tokens begin in a step; of a step

  static constexpr int bytes_of(int across) { return (across * Shape::kRows + Shape::kTokens) * kBoxRowBytes; }

  __device__ Ring(const uint4* shared, int across)
      : header(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
        stages(header + kHeaderBytes),
        tokens(across * Shape::kRows * kBoxRowBytes),
        bytes(tokens + Shape::kTokens * kBoxRowBytes) {}
  __device__ unsigned step(int slot) const { return stages + slot * bytes; }
  // Of a slot: its step has come; its step has been read.
  __device__ unsigned full(int slot) const { return header + slot * 8; }
  __device__ unsigned empty(int slot) const { return header + (kMostDepth + slot) * 8; }

  __device__ void start(int depth, int warps) const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < depth; ++i) init_barrier(full(i), 1), init_barrier(empty(i), warps);
      publish_barriers();
    }
    __syncthreads();
  }
};

// --- copying ---------------------------------------------------------------------------------------------------------

// Lets the copy engine fill the ring. Weights depend on nobody: the first steps of them are on their way while the
// kernel before still runs.
template <typename Shape, bool kSplit>
__device__ inline void copy_operands(const Product& a, const Maps& maps, const Plan& plan,
                                     const Work<Shape, kSplit>& work, const Ring<Shape>& ring) {
  const bool starts = elect_lane();
  const CUtensorMap* map = nullptr;
  int row = 0;
  const auto open = [&](int lap) {
    const int tile = work.tile0 + lap, f = a.factor_of(tile);
    map = &maps.weights[f];
    row = (tile - a.factors[f].first_tile) * (plan.across * Shape::kRows);
  };
  const auto copy_weights = [&](int slot, int step) {
    if (!starts) return;
    arrive_for_bytes(ring.full(slot), ring.bytes);
    copy_box(ring.step(slot), map, work.begin + step * kBoxColumns, row, ring.full(slot));
  };
  const auto copy_tokens = [&](int slot, int step) {
    if (!starts) return;
    copy_box(ring.step(slot) + ring.tokens, &maps.tokens, work.begin + step * kBoxColumns, work.token0,
             ring.full(slot));
  };

  const int all = work.steps * work.laps, first = min(plan.depth, work.steps), trigger = all - plan.trigger;
  open(0);
  for (int step = 0; step < first; ++step) copy_weights(step, step);
  wait_for_predecessor();
  if (trigger <= first) let_successor_start();
  for (int step = 0; step < first; ++step) copy_tokens(step, step);

  int slot = first == plan.depth ? 0 : first, step = first, lap = 0;
  unsigned parity = 0;  // of the barriers that say that a slot has been read
  for (int i = first; i < all; ++i) {
    if (step == work.steps) step = 0, open(++lap);
    if (i >= plan.depth) wait_for(ring.empty(slot), parity);
    copy_weights(slot, step);
    copy_tokens(slot, step);
    if (i == trigger) let_successor_start();
    ++step;
    if (++slot == plan.depth) {
      slot = 0;
      if (i >= plan.depth) parity ^= 1;
    }
  }
  __syncwarp();
}

// --- summing ---------------------------------------------------------------------------------------------------------

// Which row of a product stands in row m of an operand of 16: such that two lanes have four rows in a row of two
// tokens, and that rows 0 .. 7 and 8 .. 15 lie in different banks.
__device__ inline int row_of(int m) {
  const int four = m % 8 / 2;
  return four * 4 + (m / 8 ^ four / 2) * 2 + m % 2;
}

// Stores the sums of 16 rows from `row` on by 8 tokens from `token` on. All lanes come here.
__device__ inline void store_sums(const Factor& f, int row, int token, int tokens, const float (&sums)[4]) {
  const int lane = threadIdx.x % 32, four = lane / 8;
  const bool odd = lane & 4;  // has the second token of the pair
  const float a = __shfl_xor_sync(~0u, odd ? sums[0] : sums[1], 4),
              b = __shfl_xor_sync(~0u, odd ? sums[2] : sums[3], 4);
  const float2 low = odd ? float2{a, sums[1]} : float2{sums[0], a},
               high = odd ? float2{b, sums[3]} : float2{sums[2], b},
               first = four < 2 ? low : high, second = four < 2 ? high : low;
  const float rows[4] = {first.x, first.y, second.x, second.y};
  token += lane % 4 * 2 + odd;
  if (token < tokens) f.store(row + four * 4, token, rows);
}

// A warp that sums. The operands of the next 32 columns are on their way from shared memory while those at hand are
// multiplied.
template <typename Shape>
struct Summer {
  static constexpr int kM = Shape::kM, kN = Shape::kN;
  struct Operands {
    Fragment w[2][kM], x[kN];
  };

  const Ring<Shape>& ring;
  int depth;
  // Where a lane finds its rows of the operands in a step, and the piece of a row with its first columns.
  unsigned weights, weight_piece, tokens, token_piece;
  int slot = 0;
  unsigned parity = 0;
  float sums[kM][kN][4] = {};
  Operands first, second;  // halves of a step

  __device__ Summer(const Ring<Shape>& from, int steps_in_ring, int along, int down)
      : ring(from), depth(steps_in_ring) {
    const int lane = threadIdx.x % 32, row = row_of(lane % 16), token = lane % 8;
    weights = (along * Shape::kRows + row) * kBoxRowBytes;
    weight_piece = place_of(row, lane / 16);
    tokens = ring.tokens + (down * 8 * kN + token) * kBoxRowBytes;
    token_piece = place_of(token, lane / 8);
  }

  __device__ void load(Operands& to, int half) const {
    const unsigned step = ring.step(slot);
#pragma unroll
    for (int n = 0; n < kN; ++n)
      to.x[n] = load_fragment(step + tokens + n * 8 * kBoxRowBytes + (token_piece ^ half * 4 * kPieceBytes));
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int m = 0; m < kM; ++m)
        to.w[i][m] =
            load_fragment(step + weights + m * 16 * kBoxRowBytes + (weight_piece ^ (half * 4 + i * 2) * kPieceBytes));
  }
  __device__ void multiply(const Operands& by) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n) multiply_add(sums[m][n], by.w[i][m], by.x[n].r[2 * i], by.x[n].r[2 * i + 1]);
  }
  // Before the first step.
  __device__ void open() {
    wait_for(ring.full(slot), parity);
    load(first, 0);
  }
  // Adds a step. `more`: another one will come.
  __device__ void add(bool more) {
    load(second, 1);
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(ring.empty(slot));
    if (++slot == depth) slot = 0, parity ^= 1;
    multiply(first);
    if (more) open();
    multiply(second);
  }
};

// Sums lap by lap what comes through the ring, adds up the segments and stores.
template <typename Shape>
__device__ inline void sum_whole(const Product& a, const Plan& plan, const Work<Shape, false>& work,
                                 const Ring<Shape>& ring, int along, int down) {
  constexpr int kM = Shape::kM, kN = Shape::kN;
  Summer<Shape> summer(ring, plan.depth, along, down);
  float totals[kM][kN][4] = {};
  const int segment = a.segment / kBoxColumns;
  summer.open();
  for (int lap = 0; lap < work.laps; ++lap) {
    for (int step = 0, left = segment; step < work.steps; ++step) {
      summer.add(step + 1 < work.steps || lap + 1 < work.laps);
      if (--left > 0 && step + 1 < work.steps) continue;
      end_segment(totals, summer.sums);
      left = segment;
    }
    const int tile = work.tile0 + lap;
    const Factor& f = a.factors[a.factor_of(tile)];
    const int row = ((tile - f.first_tile) * plan.across + along) * Shape::kRows;
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) {
      float(&t)[4] = totals[i / kN][i % kN];
      store_sums(f, row + 16 * (i / kN), work.token0 + (down * kN + i % kN) * 8, a.T, t);
      t[0] = t[1] = t[2] = t[3] = 0;
    }
  }
}

// Sums the one segment of a block and leaves the sums in shared memory.
template <typename Shape>
__device__ inline void sum_segment(const Plan& plan, const Work<Shape, true>& work, const Ring<Shape>& ring, int warp,
                                   float4* out) {
  Summer<Shape> summer(ring, plan.depth, warp / Shape::kDown, warp % Shape::kDown);
  summer.open();
  for (int step = 0; step < work.steps; ++step) summer.add(step + 1 < work.steps);
  wait_for_warps(plan.across * Shape::kDown * 32);  // the ring has been read
#pragma unroll
  for (int i = 0; i < Shape::kM * Shape::kN; ++i) {
    const float(&s)[4] = summer.sums[i / Shape::kN][i % Shape::kN];
    out[(warp * Shape::kM * Shape::kN + i) * 32 + threadIdx.x % 32] = {s[0], s[1], s[2], s[3]};
  }
}

// A block of a cluster adds up, in order, what all have of its share of the outputs.
template <typename Shape>
__device__ inline void add_segments(const Product& a, const Plan& plan, const Work<Shape, true>& work, int warp,
                                    const float4* sums) {
  constexpr int kN = Shape::kN, kFragments = Shape::kM * kN;
  const int warps = plan.across * Shape::kDown, lane = threadIdx.x % 32;
  const Factor& f = a.factors[a.factor_of(work.tile0)];
  const int row0 = (work.tile0 - f.first_tile) * (plan.across * Shape::kRows);
  for (int i = warp * kSegments + work.rank; i < warps * kFragments; i += (warps + 1) * kSegments) {
    const int owner = i / kFragments, m = i % kFragments / kN, n = i % kN;
    float total[4] = {};
#pragma unroll
    for (int segment = 0; segment < kSegments; ++segment) {
      const float4 s = load_from(sums + i * 32 + lane, segment);
      add_segment(total[0], s.x), add_segment(total[1], s.y), add_segment(total[2], s.z), add_segment(total[3], s.w);
    }
    store_sums(f, row0 + owner / Shape::kDown * Shape::kRows + 16 * m,
               work.token0 + (owner % Shape::kDown * kN + n) * 8, a.T, total);
  }
}

// --- the kernel ------------------------------------------------------------------------------------------------------

// kSplit: a block of a cluster has one segment, else all.
template <typename Shape, bool kSplit>
__global__ void __launch_bounds__(Shape::kMostThreads)
    product_kernel(const __grid_constant__ Product a, const __grid_constant__ Maps maps,
                   const __grid_constant__ Plan plan) {
  extern __shared__ __align__(1024) uint4 shared[];
  const int warp = threadIdx.x / 32, warps = plan.across * Shape::kDown;
  const Work<Shape, kSplit> work(a, plan);
  const Ring<Shape> ring(shared, plan.across);
  ring.start(plan.depth, warps);
  if (warp == warps) {
    copy_operands(a, maps, plan, work, ring);
  } else {
    wait_for_predecessor();  // before anything is written
    if constexpr (kSplit) {
      sum_segment(plan, work, ring, warp, reinterpret_cast<float4*>(shared + kHeaderBytes / 16));
    } else {
      sum_whole(a, plan, work, ring, warp / Shape::kDown, warp % Shape::kDown);
    }
  }
  if constexpr (kSplit) {
    meet_cluster();
    add_segments(a, plan, work, warp, reinterpret_cast<const float4*>(shared + kHeaderBytes / 16));
    leave_cluster();  // nobody ends while its sums are read
  }
}

}  // namespace quire::cuda
