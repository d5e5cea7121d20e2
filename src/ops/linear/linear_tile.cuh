// The kernel of `linear` and `project` for bf16 rows at multiples of 16 bytes: one warp of a block lets the copy engine
// bring steps of 64 columns into a ring in shared memory, the others sum.
#pragma once

#include "ops/linear/linear_copy.cuh"
#include "ops/linear/linear_mma.cuh"

namespace quire::cuda {

// A warp has a tile of 16 kM weight rows by 8 kN tokens; kDown warps share its weight rows, so that a block has
// 8 kN kDown tokens. How many tiles stand beside each other in a block is up to the launch, kMostAcross at most.
template <int kM_, int kN_, int kDown_, int kMostAcross_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kDown = kDown_, kMostAcross = kMostAcross_;
  static constexpr int kRows = 16 * kM, kTokens = 8 * kN * kDown;
  static constexpr int kMostThreads = 32 * (kMostAcross * kDown + 1);
};

// How a product is spread over blocks, by speed alone. blockIdx.y counts token tiles, blockIdx.x blocks, or, where the
// sum is split, clusters of kSegments blocks with a segment each. A block or cluster has the next `laps` times `across`
// tiles of weight rows.
struct Plan {
  int across = 1, laps = 1;
  int depth = 1;    // steps in shared memory
  int trigger = 0;  // steps before the last at which the next kernel may start
};

// What a block has to do.
template <typename Tile, bool kSplit>
struct Work {
  static constexpr int kBlocks = kSplit ? kSegments : 1;
  int rank, tile0, token0, begin, end, steps;

  __device__ Work(const Product& a, const Plan& plan)
      : rank(blockIdx.x % kBlocks),
        tile0(blockIdx.x / kBlocks * (plan.across * plan.laps)),
        token0(blockIdx.y * Tile::kTokens),
        begin(kSplit ? rank * a.segment : 0),
        end(kSplit ? min(a.K, begin + a.segment) : a.K),
        steps(blocks_of(end - begin, kBoxColumns)) {}  // of a lap
};

// --- shared memory ---------------------------------------------------------------------------------------------------

// Barriers, then the ring of steps: weights of `across` tiles, then tokens.
constexpr int kMostDepth = 32, kHeaderBytes = 1024;

template <typename Tile>
struct Ring {
  unsigned header, stages;  // addresses
  int tokens, bytes;        // where tokens begin in a step; of a step

  static constexpr int bytes_of(int across) { return (across * Tile::kRows + Tile::kTokens) * kBoxRowBytes; }

  __device__ Ring(const uint4* shared, int across)
      : header(static_cast<unsigned>(__cvta_generic_to_shared(shared))),
        stages(header + kHeaderBytes),
        tokens(across * Tile::kRows * kBoxRowBytes),
        bytes(tokens + Tile::kTokens * kBoxRowBytes) {}
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

// Lane i of the copying warp brings the weights of tile i, the last lane the tokens.
template <typename Tile, bool kSplit>
struct Copier {
  const Product& a;
  const Maps& maps;
  const Plan& plan;
  const Work<Tile, kSplit>& work;
  const Ring<Tile>& ring;
  int lane = threadIdx.x % 32;
  const CUtensorMap* map = &maps.tokens;
  int row = work.token0;

  __device__ void open(int lap) {
    if (lane >= plan.across) return;
    const int tile = work.tile0 + lap * plan.across + lane, f = a.factor_of(tile);
    map = &maps.weights[f];
    row = (tile - a.factors[f].first_tile) * Tile::kRows;
  }
  __device__ void copy_weights(int slot, int step) const {
    if (lane == 0) arrive_for_bytes(ring.full(slot), ring.bytes);
    if (lane < plan.across) {
      copy_box(ring.step(slot) + lane * (Tile::kRows * kBoxRowBytes), map, work.begin + step * kBoxColumns, row,
               ring.full(slot));
    }
  }
  __device__ void copy_tokens(int slot, int step) const {
    if (lane == 31) {
      copy_box(ring.step(slot) + ring.tokens, map, work.begin + step * kBoxColumns, row, ring.full(slot));
    }
  }

  // Weights depend on nobody: the first steps of them are on their way while the kernel before still runs.
  __device__ void run() {
    const int all = work.steps * plan.laps, first = min(plan.depth, work.steps), trigger = all - plan.trigger;
    open(0);
    for (int step = 0; step < first; ++step) copy_weights(step, step);
    if (trigger <= first) let_successor_start();
    wait_for_predecessor();
    for (int step = 0; step < first; ++step) copy_tokens(step, step);

    int slot = first % plan.depth, step = first % work.steps, lap = first / work.steps;
    unsigned parity = 0;  // of the barriers that say that a slot has been read
    if (step == 0) open(lap);
    for (int i = first; i < all; ++i) {
      if (i >= plan.depth) wait_for(ring.empty(slot), parity);
      copy_weights(slot, step);
      copy_tokens(slot, step);
      if (i == trigger) let_successor_start();
      if (++slot == plan.depth) {
        slot = 0;
        if (i >= plan.depth) parity ^= 1;
      }
      if (++step == work.steps) step = 0, open(++lap);
    }
    __syncwarp();
  }
};

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
               high = odd ? float2{b, sums[3]} : float2{sums[2], b};
  token += lane % 4 * 2 + odd;
  if (token >= tokens) return;
  f.store(row + four * 4, token,
          four < 2 ? float4{low.x, low.y, high.x, high.y} : float4{high.x, high.y, low.x, low.y});
}

template <typename Tile>
struct Summer {
  static constexpr int kM = Tile::kM, kN = Tile::kN;
  float sums[kM][kN][4] = {};
  // Where a lane finds its rows of the operands in a step, and the piece of a row with its first columns.
  unsigned weights, weight_piece, tokens, token_piece;

  __device__ Summer(const Ring<Tile>& ring, int along, int down) {
    const int lane = threadIdx.x % 32, row = row_of(lane % 16), token = lane % 8;
    weights = (along * Tile::kRows + row) * kBoxRowBytes;
    weight_piece = place_of(row, lane / 16);
    tokens = ring.tokens + (down * 8 * kN + token) * kBoxRowBytes;
    token_piece = place_of(token, lane / 8);
  }

  __device__ void add_step(unsigned step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Fragment x[kN];
#pragma unroll
      for (int n = 0; n < kN; ++n)
        x[n] = load_fragment(step + tokens + n * 8 * kBoxRowBytes + (token_piece ^ half * 4 * kPieceBytes));
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int m = 0; m < kM; ++m) {
          const Fragment w =
              load_fragment(step + weights + m * 16 * kBoxRowBytes + (weight_piece ^ (half * 4 + i * 2) * kPieceBytes));
#pragma unroll
          for (int n = 0; n < kN; ++n) multiply_add(sums[m][n], w, x[n].r[2 * i], x[n].r[2 * i + 1]);
        }
    }
  }
};

// Sums lap by lap what comes through the ring, adds up the segments and stores.
template <typename Tile>
__device__ inline void sum_whole(const Product& a, const Plan& plan, const Work<Tile, false>& work,
                                 const Ring<Tile>& ring, int along, int down) {
  constexpr int kM = Tile::kM, kN = Tile::kN;
  Summer<Tile> summer(ring, along, down);
  float totals[kM][kN][4] = {};
  const int segment = a.segment / kBoxColumns;
  int slot = 0;
  unsigned parity = 0;
  for (int lap = 0; lap < plan.laps; ++lap) {
    for (int step = 0, left = segment; step < work.steps; ++step) {
      wait_for(ring.full(slot), parity);
      summer.add_step(ring.step(slot));
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(ring.empty(slot));
      if (++slot == plan.depth) slot = 0, parity ^= 1;
      if (--left > 0 && step + 1 < work.steps) continue;
      end_segment(totals, summer.sums);
      left = segment;
    }
    const int tile = work.tile0 + lap * plan.across + along;
    const Factor& f = a.factors[a.factor_of(tile)];
#pragma unroll
    for (int i = 0; i < kM * kN; ++i) {
      float(&t)[4] = totals[i / kN][i % kN];
      store_sums(f, (tile - f.first_tile) * Tile::kRows + 16 * (i / kN), work.token0 + (down * kN + i % kN) * 8, a.T,
                 t);
      t[0] = t[1] = t[2] = t[3] = 0;
    }
  }
}

// Sums the one segment of a block and leaves the sums in shared memory.
template <typename Tile>
__device__ inline void sum_segment(const Plan& plan, const Work<Tile, true>& work, const Ring<Tile>& ring, int warp,
                                   float4* out) {
  Summer<Tile> summer(ring, warp / Tile::kDown, warp % Tile::kDown);
  int slot = 0;
  unsigned parity = 0;
  for (int step = 0; step < work.steps; ++step) {
    wait_for(ring.full(slot), parity);
    summer.add_step(ring.step(slot));
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(ring.empty(slot));
    if (++slot == plan.depth) slot = 0, parity ^= 1;
  }
  const int warps = plan.across * Tile::kDown;
  wait_for_warps(warps * 32);  // the ring has been read
#pragma unroll
  for (int i = 0; i < Tile::kM * Tile::kN; ++i) {
    const float(&s)[4] = summer.sums[i / Tile::kN][i % Tile::kN];
    out[(warp * Tile::kM * Tile::kN + i) * 32 + threadIdx.x % 32] = {s[0], s[1], s[2], s[3]};
  }
}

// A block of a cluster adds up, in order, what all have of its share of the outputs.
template <typename Tile>
__device__ inline void add_segments(const Product& a, const Plan& plan, const Work<Tile, true>& work, int warp,
                                    const float4* sums) {
  constexpr int kN = Tile::kN, kFragments = Tile::kM * kN;
  const int warps = plan.across * Tile::kDown, lane = threadIdx.x % 32;
  for (int i = warp * kSegments + work.rank; i < warps * kFragments; i += (warps + 1) * kSegments) {
    const int owner = i / kFragments, m = i % kFragments / kN, n = i % kN, tile = work.tile0 + owner / Tile::kDown;
    float total[4] = {};
#pragma unroll
    for (int segment = 0; segment < kSegments; ++segment) {
      const float4 s = load_from(sums + i * 32 + lane, segment);
      add_segment(total[0], s.x), add_segment(total[1], s.y), add_segment(total[2], s.z), add_segment(total[3], s.w);
    }
    const Factor& f = a.factors[a.factor_of(tile)];
    store_sums(f, (tile - f.first_tile) * Tile::kRows + 16 * m, work.token0 + (owner % Tile::kDown * kN + n) * 8, a.T,
               total);
  }
}

// --- the kernel ------------------------------------------------------------------------------------------------------

// kSplit: a block of a cluster has one segment, else all.
template <typename Tile, bool kSplit>
__global__ void __launch_bounds__(Tile::kMostThreads)
    product_kernel(const __grid_constant__ Product a, const __grid_constant__ Maps maps,
                   const __grid_constant__ Plan plan) {
  extern __shared__ __align__(1024) uint4 shared[];
  const int warp = threadIdx.x / 32, warps = plan.across * Tile::kDown;
  const Work<Tile, kSplit> work(a, plan);
  const Ring<Tile> ring(shared, plan.across);
  ring.start(plan.depth, warps);
  if (warp == warps) {
    Copier<Tile, kSplit>{a, maps, plan, work, ring}.run();
  } else {
    wait_for_predecessor();  // before anything is written
    if constexpr (kSplit) {
      sum_segment(plan, work, ring, warp, reinterpret_cast<float4*>(shared + kHeaderBytes / 16));
    } else {
      sum_whole(a, plan, work, ring, warp / Tile::kDown, warp % Tile::kDown);
    }
  }
  if constexpr (kSplit) {
    meet_cluster();
    add_segments(a, plan, work, warp, reinterpret_cast<const float4*>(shared + kHeaderBytes / 16));
    leave_cluster();  // nobody ends while its sums are read
  }
}

}  // namespace quire::cuda
