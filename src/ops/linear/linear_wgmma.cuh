// The kernel of `linear` and `project` for many bf16 rows on Hopper: wgmma, whose operands come straight from shared
// memory. Its bits are those of linear_mma.cuh, since m64nNk16 gives what m16n8k16 gives: wgmma_test.cu.
//
// Tokens are the M operand, so that a lane has neighbouring outputs of a token. A tile: 128 tokens by kN weight rows;
// each of two warpgroups sums 64 tokens. A warp of a third lets the copy engine bring steps of 64 columns into a ring.
// (That blocks of a cluster share weight rows, each bringing a part for all, was faster by more than 1 % in two of ten
// products, and slower in three: H200, 2026-11-30.)
//
// The two halves of the weight rows of a tile may be of two factors, so that factors end where they like with little
// waste. Gated (`project_swiglu`): one half is of the gate, one of the other weight, for the same outputs, so that a
// lane has both sums of an output.
//
// Maxima (of `project`): four lanes of a warp have a token's outputs of half a tile, so whole groups of kMaximaColumns
// where a half is a multiple of that and the sum is not split; with maxima there are no other plans.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/linear/linear_copy.cuh"

namespace quire::cuda {

// --- the plan --------------------------------------------------------------------------------------------------------

constexpr int kTileTokens = 128, kSummers = 256, kWgmmaThreads = kSummers + 128;

// How a product is spread over blocks, by speed alone. A cluster has `split` blocks with kSegments / split segments
// each. Cluster c has the tiles c, c + clusters, ... (one, where the sum is split); neighbours have the same weight
// rows.
struct WgmmaPlan {
  int rows = 0;  // kN
  int split = 1;
  int weight_tiles = 0, token_tiles = 0;
  int clusters = 0;
  int depth = 0;          // steps in shared memory
  std::int64_t work = 0;  // of the busiest multiprocessor
};

struct WgmmaChoice {
  WgmmaPlan plan;
  void (*launch)(Stream&, Product&, const WgmmaPlan&);
};
// Every plan there is for a product (linear_cuda.cu).
std::vector<WgmmaChoice> wgmma_choices(Product& a);

// What a block has to do.
struct WgmmaWork {
  int part;                     // which segments
  int first, end;               // tiles; the next is plan.clusters further
  int token_tiles;
  int column, steps, segments;  // of a tile: where it begins, its steps and segments

  __device__ WgmmaWork(const Product& a, const WgmmaPlan& plan)
      : part(static_cast<int>(blockIdx.x) % plan.split),
        first(static_cast<int>(blockIdx.x) / plan.split),
        end(plan.weight_tiles * plan.token_tiles),
        token_tiles(plan.token_tiles),
        column(part * (kSegments / plan.split) * a.segment) {
    const int columns = min(a.K - column, kSegments / plan.split * a.segment);
    steps = blocks_of(columns, kBoxColumns);
    segments = blocks_of(columns, a.segment);
  }
  __device__ int weight_tile(int tile) const { return tile / token_tiles; }
  __device__ int token(int tile) const { return tile % token_tiles * kTileTokens; }
};

// Half of the weight rows of a tile: of which factor, from which row on.
struct WeightRows {
  int factor, first;
};
template <int kN, bool kGated>
__device__ inline WeightRows rows_of(const Product& a, int tile, int half) {
  if constexpr (kGated) return {half, tile * (kN / 2)};
  const int i = 2 * tile + half, factor = a.factor_of(i);
  return {factor, (i - a.factors[factor].first_tile) * (kN / 2)};
}

// --- shared memory ---------------------------------------------------------------------------------------------------

// Where a warp that sums turns outputs: kBoxes times 8 tokens by 128 bytes.
constexpr int kStageBoxBytes = 8 * kBoxRowBytes;
template <int kBoxes>
struct Stage {
  unsigned address;
};

// Barriers, then the ring of steps: tokens, then weights. Then a stage for each warp that sums.
template <int kN>
struct WgmmaRing {
  static constexpr int kTokenBytes = kTileTokens * kBoxRowBytes, kStepBytes = kTokenBytes + kN * kBoxRowBytes;
  static constexpr int kStageBoxes = kN == 160 ? 1 : 2;  // as steps leave room for
  static constexpr int kStageBytes = kStageBoxes * kStageBoxBytes;
  static constexpr int kStages = kSummers / 32 * kStageBytes;
  static constexpr int kDepth = (227 * 1024 - kHeaderBytes - kStages) / kStepBytes;
  static constexpr int kBytes = kHeaderBytes + kDepth * kStepBytes + kStages;
  static_assert(kDepth * kStepBytes >= 2 * kTileTokens * kN * 4, "holds the sums of two segments");

  unsigned header;  // address

  __device__ explicit WgmmaRing(const uint4* shared)
      : header(static_cast<unsigned>(__cvta_generic_to_shared(shared))) {}
  __device__ unsigned tokens(int slot) const { return header + kHeaderBytes + slot * kStepBytes; }
  __device__ unsigned weights(int slot) const { return tokens(slot) + kTokenBytes; }
  // Of this warp.
  __device__ Stage<kStageBoxes> stage() const { return {tokens(kDepth) + threadIdx.x / 32 * kStageBytes}; }
  // Of a slot: its step has come; its step has been read.
  __device__ unsigned full(int slot) const { return header + slot * 8; }
  __device__ unsigned empty(int slot) const { return header + (kDepth + slot) * 8; }

  __device__ void start() const {
    if (threadIdx.x == 0) {
      for (int i = 0; i < kDepth; ++i) init_barrier(full(i), 1), init_barrier(empty(i), kSummers / 32);
      publish_barriers();
    }
    __syncthreads();
  }
};

// --- copying ---------------------------------------------------------------------------------------------------------

// Lets the copy engine fill the ring. Weights depend on nobody: the first steps of them are on their way while the
// kernel before still runs.
template <int kN, bool kGated>
__device__ inline void copy_operands(const Product& a, const Maps& maps, const WgmmaPlan& plan, const WgmmaWork& work,
                                     const WgmmaRing<kN>& ring) {
  const bool starts = elect_lane();
  WeightRows rows[2] = {};
  int token = 0;
  const auto open = [&](int tile) {
#pragma unroll
    for (int half = 0; half < 2; ++half) rows[half] = rows_of<kN, kGated>(a, work.weight_tile(tile), half);
    token = work.token(tile);
  };
  const auto copy_weights = [&](int slot, int step) {
    if (!starts) return;
    arrive_for_bytes(ring.full(slot), ring.kStepBytes);
#pragma unroll
    for (int half = 0; half < 2; ++half)
      copy_box(ring.weights(slot) + half * (kN / 2) * kBoxRowBytes, &maps.weights[rows[half].factor],
               work.column + step * kBoxColumns, rows[half].first, ring.full(slot));
  };
  const auto copy_tokens = [&](int slot, int step) {
    if (starts) copy_box(ring.tokens(slot), &maps.tokens, work.column + step * kBoxColumns, token, ring.full(slot));
  };

  if (starts) {
#pragma unroll 1
    for (int i = 0; i < a.count; ++i) fetch_map(&maps.weights[i]);
    fetch_map(&maps.tokens);
  }
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
  __syncwarp();
}

// --- summing ---------------------------------------------------------------------------------------------------------

// A warpgroup that sums 64 tokens by kN weight rows.
template <int kN>
struct GroupSummer {
  static constexpr int kSums = kN / 2;

  const WgmmaRing<kN>& ring;
  const WgmmaPlan& plan;
  const WgmmaWork& work;
  unsigned token_rows;  // where the tokens of this warpgroup begin in a step
  Turn turn;
  bool leads;  // the other warpgroup waits for its first step
  float sums[kSums] = {}, totals[kSums];

  __device__ GroupSummer(const WgmmaRing<kN>& from, const WgmmaPlan& by, const WgmmaWork& of)
      : ring(from), plan(by), work(of), token_rows(threadIdx.x / 128 * 64 * kBoxRowBytes), leads(threadIdx.x < 128) {}

  // The second warpgroup begins a step behind the first, and stays there: while one stores, the other multiplies. The
  // tensor cores lose nothing, for one warpgroup alone can keep them busy.
  __device__ void follow() const {
    if (!leads) asm volatile("bar.sync 2, %0;" ::"n"(kSummers) : "memory");
  }
  // A slot may be filled again, as far as this warp is concerned.
  __device__ void release(int slot) {
    if (threadIdx.x % 32 == 0) arrive(ring.empty(slot));
    if (leads) asm volatile("bar.arrive 2, %0;" ::"n"(kSummers) : "memory");
    leads = false;
  }
  // Sums a segment. While a step is multiplied the next is started.
  __device__ void sum_segment(int steps) {
    hold(sums);
    int before = 0;
    for (int step = 0; step < steps; ++step) {
      wait_for(ring.full(turn.slot), turn.parity);
      const std::uint64_t tokens = operand_at(ring.tokens(turn.slot) + token_rows),
                          weights = operand_at(ring.weights(turn.slot));
      open_products();
#pragma unroll
      for (int k = 0; k < kBoxColumns / 16; ++k) {
        multiply_add<kN>(sums, tokens + 2 * k, weights + 2 * k, k > 0 || step > 0);
      }
      commit_products();
      if (step > 0) {
        wait_for_products_but<1>();
        release(before);
      }
      before = turn.slot;
      turn.next(plan.depth);
    }
    wait_for_products_but<0>();
    hold(sums);
    release(before);
  }
  // Sums a tile: totals, and, of a part that is not the first, the second segment on its own in sums.
  __device__ void sum_tile(const Product& a) {
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

// --- storing ---------------------------------------------------------------------------------------------------------

// Four lanes have eight outputs of a token, a pair each. Through its stage a warp turns them so that a lane has 16
// bytes of a token, and eight lanes a line of memory. A row of the stage is a token; as in a box, pieces of a row trade
// places, so that a stage is written and read without conflicts of banks.

// The outputs of eight tokens by 8 kEights rows, as bf16.
template <int kEights>
__device__ inline void write_stage(unsigned stage, const __nv_bfloat162 (&pairs)[kEights]) {
  const int lane = threadIdx.x % 32;
  const auto bits = [&](int i) { return reinterpret_cast<const unsigned&>(pairs[i]); };
  static_assert(kEights == 2 || kEights % 4 == 0);
  const unsigned row = stage + lane % 8 * kBoxRowBytes;  // matrix i of an instruction goes where lanes 8 i .. say
  if constexpr (kEights == 2) {
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row + place_of(lane, lane / 8 % 2)),
                 "r"(bits(0)), "r"(bits(1))
                 : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kEights; i += 4)
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                       row + place_of(lane, i + lane / 8)),
                   "r"(bits(i)), "r"(bits(i + 1)), "r"(bits(i + 2)), "r"(bits(i + 3))
                   : "memory");
  }
}
// The same as f32: a pair is half of a piece.
template <int kEights>
__device__ inline void write_stage(unsigned stage, const float2 (&pairs)[kEights]) {
  const int row = static_cast<int>(threadIdx.x) % 32 / 4, q = threadIdx.x % 4;
#pragma unroll
  for (int i = 0; i < kEights; ++i)
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(stage + row * kBoxRowBytes +
                                                          place_of(2 * row, 2 * i + q / 2) + q % 2 * 8),
                 "f"(pairs[i].x), "f"(pairs[i].y)
                 : "memory");
}
template <typename T>
__device__ inline uint4 read_stage(unsigned stage, int row, int piece) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(stage + row * kBoxRowBytes + place_of(sizeof(T) == 4 ? 2 * row : row, piece))
               : "memory");
  return v;
}

// The first `count` values of a piece.
template <typename T>
__device__ inline void store_piece(T* to, const uint4& piece, int count) {
  constexpr int kValues = kPieceBytes / sizeof(T);
  if (count >= kValues && reinterpret_cast<std::uintptr_t>(to) % kPieceBytes == 0) {
    *reinterpret_cast<uint4*>(to) = piece;
  } else {
#pragma unroll
    for (int i = 0; i < kValues; ++i)
      if (i < count) to[i] = reinterpret_cast<const T*>(&piece)[i];
  }
}

// Stores what a warp has of 16 tokens from `token` on by 8 kEights rows from `row` on, from eight `kFirst` on.
template <typename T, int kEights, int kFirst = 0, int kBoxes>
__device__ inline void store_as(const Factor& f, int row, int token, int tokens, const float (&sums)[4 * kEights],
                                Stage<kBoxes> stage) {
  constexpr int kValues = kPieceBytes / static_cast<int>(sizeof(T)), kInStage = kBoxRowBytes / 128 * kValues;
  constexpr int kNow = std::min(kInStage, kEights - kFirst), kPieces = kNow * 8 / kValues;  // of a token
  constexpr int kReads = std::max(1, kPieces / 4);                                          // of a lane
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; half += kBoxes) {
    __syncwarp();  // the stage has been read
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
      decltype(pair_of(static_cast<T*>(nullptr), 0, 0)) pairs[kNow];
#pragma unroll
      for (int i = 0; i < kNow; ++i) {
        const int j = 4 * (kFirst + i) + 2 * (half + box);
        pairs[i] = pair_of(static_cast<T*>(nullptr), sums[j], sums[j + 1]);
      }
      write_stage(stage.address + box * kStageBoxBytes, pairs);
    }
    __syncwarp();
    uint4 pieces[kBoxes][kReads];
#pragma unroll
    for (int i = 0; i < kBoxes * kReads; ++i) {
      const int at = i % kReads * 32 + lane;  // where a box has fewer than 32 pieces, half of the lanes read nothing
      if (at < 8 * kPieces)
        pieces[i / kReads][i % kReads] =
            read_stage<T>(stage.address + i / kReads * kStageBoxBytes, at / kPieces, at % kPieces);
    }
#pragma unroll
    for (int i = 0; i < kBoxes * kReads; ++i) {
      const int at = i % kReads * 32 + lane, to = row + 8 * kFirst + at % kPieces * kValues,
                t = token + 8 * (half + i / kReads) + at / kPieces;
      if (at < 8 * kPieces && t < tokens)
        store_piece(static_cast<T*>(f.y) + t * f.y_stride + to, pieces[i / kReads][i % kReads], f.N - to);
    }
  }
  if constexpr (kFirst + kNow < kEights) store_as<T, kEights, kFirst + kNow>(f, row, token, tokens, sums, stage);
}
// Stores the largest of every kMaximaColumns of the same outputs; `row` is a multiple of that. Of a token's groups each
// of the four lanes goes on with one, so that they store neighbours.
template <int kEights>
__device__ inline void store_maxima(const Factor& f, int row, int token, int tokens, const float (&sums)[4 * kEights]) {
  constexpr int kInGroup = kMaximaColumns / 8, kGroups = kEights / kInGroup;
  static_assert(kGroups <= 4);
  const int q = threadIdx.x % 4;
  const auto trade = [](float keep, float give, int lanes) {
    return fmaxf(keep, __shfl_xor_sync(~0u, give, lanes));
  };
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};  // of groups; fmaxf leaves out what is no number
#pragma unroll
    for (int i = 0; i < kEights; ++i) {
      float& most = largest[i / kInGroup];
      most = fmaxf(fmaxf(most, sums[4 * i + 2 * half]), sums[4 * i + 2 * half + 1]);
    }
    const bool upper = q & 2, odd = q & 1;
    const float even_one = trade(upper ? largest[2] : largest[0], upper ? largest[0] : largest[2], 2),
                odd_one = trade(upper ? largest[3] : largest[1], upper ? largest[1] : largest[3], 2),
                own = trade(odd ? odd_one : even_one, odd ? even_one : odd_one, 1);
    const int t = token + 8 * half + static_cast<int>(threadIdx.x) % 32 / 4;
    if (q < kGroups && t < tokens && row + q * kMaximaColumns < f.N)
      f.maxima[t * f.maxima_stride + row / kMaximaColumns + q] = own;
  }
}
// Stores the same with the bias, and their maxima where they are asked for.
template <int kEights, int kBoxes>
__device__ inline void store_sums(const Factor& f, int row, int token, int tokens, float (&sums)[4 * kEights],
                                  Stage<kBoxes> stage) {
  if (f.bias) {
#pragma unroll
    for (int i = 0; i < 4 * kEights; ++i) {
      const int at = row + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
      if (at < f.N) sums[i] = __fadd_rn(sums[i], f.bias[at]);
    }
  }
  if constexpr (kEights * 8 % kMaximaColumns == 0) {
    if (f.maxima) {
      if (row + 8 * kEights > f.N) {  // what is beyond is not stored
#pragma unroll
        for (int i = 0; i < 4 * kEights; ++i) {
          if (row + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2 >= f.N) sums[i] = -INFINITY;
        }
      }
      store_maxima<kEights>(f, row, token, tokens, sums);
    }
  }
  if (f.bf16) {
    store_as<bfloat, kEights>(f, row, token, tokens, sums, stage);
  } else {
    store_as<float, kEights>(f, row, token, tokens, sums, stage);
  }
}

__device__ inline float2 rounded(float a, float b) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
  const auto bits = reinterpret_cast<const unsigned&>(pair);
  return {__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000)};
}
// The same, of gate and up: what is stored is what `swiglu` gives for the two products.
template <int kEights, int kBoxes>
__device__ inline void store_gated(const Factor& f, int row, int token, int tokens, const float (&gate)[4 * kEights],
                                   const float (&up)[4 * kEights], Stage<kBoxes> stage) {
  float y[4 * kEights];
#pragma unroll
  for (int i = 0; i < 4 * kEights; i += 2) {
    const float2 g = rounded(gate[i], gate[i + 1]), u = rounded(up[i], up[i + 1]), s = rounded(silu(g.x), silu(g.y));
    y[i] = __fmul_rn(s.x, u.x), y[i + 1] = __fmul_rn(s.y, u.y);
  }
  store_as<bfloat, kEights>(f, row, token, tokens, y, stage);
}

// What all parts have of 16 weight rows of a tile, for a thread: eight sums of each term, in order.
template <int kSplit>
struct Terms {
  static constexpr int kTerms = kSplit == 2 ? 3 : kSegments;
  static_assert(kSplit == 2 || kSplit == kSegments);
  float4 v[kTerms][2];

  // Asks for those of the i-th 16 rows. In `sums` a thread has kN / 8 pieces of four, and as many of the second segment
  // of a part that is not the first.
  template <int kN>
  __device__ void load(int i, const float4* sums) {
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
      const int part = kSplit == 2 ? (k + 1) / 2 : k, second = kSplit == 2 && k == 2 ? kN / 8 : 0;
#pragma unroll
      for (int half = 0; half < 2; ++half)
        v[k][half] = load_from(sums + (second + 2 * i + half) * kSummers + threadIdx.x, part);
    }
  }
  __device__ void add_up(float (&total)[8]) const {
#pragma unroll
    for (int j = 0; j < 8; ++j) total[j] = 0;
#pragma unroll
    for (int k = 0; k < kTerms; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        add_segment(total[4 * half], v[k][half].x), add_segment(total[4 * half + 1], v[k][half].y);
        add_segment(total[4 * half + 2], v[k][half].z), add_segment(total[4 * half + 3], v[k][half].w);
      }
    }
  }
};

// A block of a cluster stores its share of the outputs: every kSplit-th 16 rows. While some are stored, the next are on
// their way.
template <int kN, bool kGated, int kSplit, int kBoxes>
__device__ inline void store_parts(const Product& a, const WgmmaWork& work, int tile, int token, const float4* sums,
                                   Stage<kBoxes> stage) {
  constexpr int kInHalf = kN / 32, kAll = (kGated ? 1 : 2) * kInHalf;
  Terms<kSplit> terms, up_terms;
  const auto load = [&](int i) {
    terms.template load<kN>(i, sums);
    if constexpr (kGated) up_terms.template load<kN>(kInHalf + i, sums);
  };
  load(work.part);
#pragma unroll 1
  for (int i = work.part; i < kAll; i += kSplit) {
    const auto [factor, first] = rows_of<kN, kGated>(a, tile, i / kInHalf);
    const int row = first + i % kInHalf * 16;
    float total[8], up[8];
    terms.add_up(total);
    if constexpr (kGated) up_terms.add_up(up);
    if (i + kSplit < kAll) load(i + kSplit);
    if constexpr (kGated) {
      store_gated<2>(a.factors[0], row, token, a.T, total, up, stage);
    } else {
      store_sums<2>(a.factors[factor], row, token, a.T, total, stage);
    }
  }
}

// A block that has all of the sums stores them.
template <int kN, bool kGated, int kBoxes>
__device__ inline void store_whole(const Product& a, int tile, int token, float (&totals)[kN / 2],
                                   Stage<kBoxes> stage) {
  using Half = float[kN / 4];
  Half &one = reinterpret_cast<Half&>(totals), &other = reinterpret_cast<Half&>(totals[kN / 4]);
  const WeightRows rows[2] = {rows_of<kN, kGated>(a, tile, 0), rows_of<kN, kGated>(a, tile, 1)};
  if constexpr (kGated) {
    store_gated<kN / 16>(a.factors[0], rows[0].first, token, a.T, one, other, stage);
  } else {
    store_sums<kN / 16>(a.factors[rows[0].factor], rows[0].first, token, a.T, one, stage);
    store_sums<kN / 16>(a.factors[rows[1].factor], rows[1].first, token, a.T, other, stage);
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

template <int kN, bool kGated>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_kernel(const __grid_constant__ Product a, const __grid_constant__ Maps maps,
                 const __grid_constant__ WgmmaPlan plan) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) uint4 shared[];
  const WgmmaWork work(a, plan);
  const WgmmaRing<kN> ring(shared);
  ring.start();
  if (threadIdx.x >= kSummers) {
    leave_registers<40>();
    if (threadIdx.x < kSummers + 32) copy_operands<kN, kGated>(a, maps, plan, work, ring);
    if (plan.split > 1) meet_cluster(), leave_cluster();
  } else {
    take_registers<232>();
    wait_for_predecessor();  // before anything is written
    GroupSummer<kN> summer(ring, plan, work);
    summer.follow();
    for (int at = work.first; at < work.end; at += plan.clusters) {
      const int tile = work.weight_tile(at), token = work.token(at) + static_cast<int>(threadIdx.x) / 32 * 16;
      summer.sum_tile(a);
      if (plan.split == 1) {
        store_whole<kN, kGated>(a, tile, token, summer.totals, ring.stage());
      } else {
        float4* sums = reinterpret_cast<float4*>(shared + kHeaderBytes / 16);
        leave_sums(summer, plan, work, sums);
        meet_cluster();
        if (plan.split == 2) {
          store_parts<kN, kGated, 2>(a, work, tile, token, sums, ring.stage());
        } else {
          store_parts<kN, kGated, kSegments>(a, work, tile, token, sums, ring.stage());
        }
        leave_cluster();  // nobody ends while its sums are read
      }
    }
  }
#endif
}

}  // namespace quire::cuda
