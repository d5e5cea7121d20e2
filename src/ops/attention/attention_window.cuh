// Of attention_window: how it is cut into units of work, the way of a block through them, what a unit leaves; then the
// kernel that sums them by warpgroups. What leaves, groups and row blocks are: attention_window_cuda.cu.
#pragma once

#include "ops/attention/attention_block.cuh"
#include "ops/cuda/wgmma.cuh"

namespace quire::cuda {

// --- units of work ---------------------------------------------------------------------------------------------------

constexpr int kLeafShift = 7, kGroupShift = 9, kWholeShift = 30;  // keys of a piece: 1 << shift
constexpr int kLeaf = 1 << kLeafShift, kGroupLeaves = 1 << (kGroupShift - kLeafShift);
constexpr int kMostRequests = 64;

// Units come in spans: of each request those of its pieces but the last, then of each request those of its last, which
// may have few keys; so blocks that take turns have about the same to do. Unit u of a span that begins with unit f:
// u - f = (piece * row blocks + row block) * key heads + key head.
struct Cut {
  int shift;
  int first_unit[2 * kMostRequests + 1];  // of each span

  static constexpr int words(int requests) { return 2 + 2 * requests; }  // in use
};

// What units leave, at index unit * rows + row of its block.
struct Partials {
  float* out;       // [..][kE]: weighted sums of V
  float4* weights;  // [..]: their sums, one for each quarter of a leaf's keys
  float4* maxima;   // [..]: the same number, for each column of warps or warpgroups its own
  Cut* cut;
  int rows;      // of a unit
  int capacity;  // units
};

struct WindowAttention {
  TextAttention text;
  Partials partials;
  int enough;   // units that fill the machine
  int streams;  // that take units as wholes where that is even; 0: none does
};

// Merging a partial result: the sums so far times `old`, the new ones times `added`.
struct MergeFactors {
  float max, old, added;
  __device__ float operator()(float sum, float next) const { return __fmaf_rn(next, added, __fmul_rn(sum, old)); }
};
__device__ inline MergeFactors merge_factors(float max, float next) {
  const float larger = fmaxf(max, next), base = reference_score(larger);
  return {larger, power_of_two(__fsub_rn(max, base)), power_of_two(__fsub_rn(next, base))};
}

template <int kColumns, int kRowTiles>
__device__ inline void merge(Sums<kColumns, kRowTiles>& all, const Sums<kColumns, kRowTiles>& next) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (next.max[i][half] == kMinusInfinity) continue;
      const MergeFactors factors = merge_factors(all.max[i][half], next.max[i][half]);
      all.max[i][half] = factors.max;
      all.weights[i][half] = factors(all.weights[i][half], next.weights[i][half]);
#pragma unroll
      for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; ++c) {
          all.out[i][n][c] = factors(all.out[i][n][c], next.out[i][n][c]);
        }
      }
    }
  }
}

// Leaves the result of a unit, or, if there is `more` than that, merges it into what the unit left before. Of the rows
// of the block `rows` exist. This thread's sums of weights are those of quarter `quarter`, and it leaves them if
// `leaves`. What was left before is read for both rows of a tile at once: each read waits for L2.
template <int kE, int kColumns, int kRowTiles>
__device__ inline void store_partial(const Partials& to, int unit, int rows, const Sums<kColumns, kRowTiles>& sums,
                                     const Place& at, int quarter, bool leaves, bool more) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
    bool exists[2];
    float *to_max[2], *to_weights[2], *out[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = at.row(i, half);
      exists[half] = row < rows;
      const std::int64_t index = std::int64_t{unit} * to.rows + (exists[half] ? row : 0);
      to_max[half] = reinterpret_cast<float*>(to.maxima + index) + at.column_warp;
      to_weights[half] = reinterpret_cast<float*>(to.weights + index) + quarter;
      out[half] = to.out + index * kE + at.column_warp * kColumns;
    }
    const auto leave = [&](int half, float max, float weights) {
      if (exists[half] && at.lane % 4 == 0) *to_max[half] = max;
      if (exists[half] && leaves) *to_weights[half] = weights;
    };
    const auto pair = [&](int half, int n) {
      return make_float2(sums.out[i][n][2 * half], sums.out[i][n][2 * half + 1]);
    };
    if (more) {
      float max[2], weights[2];
      float2 before[2][kColumns / 8];
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // a row that does not exist: of row 0, or another's
        max[half] = *to_max[half], weights[half] = *to_weights[half];
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) before[half][n] = *reinterpret_cast<float2*>(out[half] + at.column(n));
      }
      __syncwarp();  // four lanes have read what one writes
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float next = sums.max[i][half];
        const MergeFactors factors =
            next == kMinusInfinity ? MergeFactors{max[half], 1, 0} : merge_factors(max[half], next);
        leave(half, factors.max, factors(weights[half], sums.weights[i][half]));
        if (!exists[half]) continue;
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          const float2 sum = before[half][n], added = pair(half, n);
          *reinterpret_cast<float2*>(out[half] + at.column(n)) =
              make_float2(factors(sum.x, added.x), factors(sum.y, added.y));
        }
      }
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        leave(half, sums.max[i][half], sums.weights[i][half]);
        if (!exists[half]) continue;
#pragma unroll
        for (int n = 0; n < kColumns / 8; ++n) {
          *reinterpret_cast<float2*>(out[half] + at.column(n)) = pair(half, n);
        }
      }
    }
    __syncwarp();  // what one lane has written four may read
  }
}

// The requests of the step in shared memory.
struct Plan {
  Cut cut;
  int units;
  int first_row[kMostRequests], rows[kMostRequests], start[kMostRequests], slot[kMostRequests];

  __device__ int keys(int r) const { return start[r] + rows[r]; }
};

__device__ inline int round_up_shift(int n, int shift) { return (n + (1 << shift) - 1) >> shift; }

// By one warp.
template <int kRows>
__device__ inline void make_plan(Plan& plan, const WindowAttention& a) {
  constexpr int kEach = kMostRequests / 32;
  const int lane = static_cast<int>(threadIdx.x), count = a.text.requests.count;
  int keys[kEach], row_units[kEach], leaves = 0, groups = 0, wholes = 0, longest = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int r = i * 32 + lane;
    keys[i] = row_units[i] = 0;
    if (r >= count) continue;
    const int first = __ldcg(a.text.requests.first_row + r), next = __ldcg(a.text.requests.first_row + r + 1);
    const int start = __ldcg(a.text.requests.start + r), slot = __ldcg(a.text.requests.slot + r);
    plan.first_row[r] = first, plan.rows[r] = next - first, plan.start[r] = start, plan.slot[r] = slot;
    if (next == first) continue;
    keys[i] = start + next - first;
    row_units[i] = ((next - first) * a.text.group + kRows - 1) / kRows * a.text.key_heads;
    leaves += row_units[i] * round_up_shift(keys[i], kLeafShift);
    groups += row_units[i] * round_up_shift(keys[i], kGroupShift);
    wholes += row_units[i], longest = max(longest, round_up_shift(keys[i], kLeafShift));
  }
  leaves = __reduce_add_sync(~0u, leaves), groups = __reduce_add_sync(~0u, groups);
  wholes = __reduce_add_sync(~0u, wholes), longest = __reduce_max_sync(~0u, longest);
  // Groups of many rows leave a lot: whole sequences, where no stream then has more than 9/8 of its share of leaves.
  const std::int64_t most = std::int64_t{a.streams} * ((wholes + max(a.streams, 1) - 1) / max(a.streams, 1)) * longest;
  const bool even = most != 0 && 8 * most <= std::int64_t{9} * leaves;
  int shift = kWholeShift;
  if (groups <= a.partials.capacity && !even) shift = kGroupShift;
  if (leaves <= a.partials.capacity && groups < a.enough) shift = kLeafShift;
  int before = 0;
#pragma unroll
  for (int last = 0; last < 2; ++last) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (i * 32 >= count) break;
      const int units = row_units[i] * (last ? 1 : round_up_shift(keys[i], shift) - 1);
      int sum = units;  // of lanes up to this one
#pragma unroll
      for (int offset = 1; offset < 32; offset *= 2) {
        const int below = __shfl_up_sync(~0u, sum, offset);
        if (lane >= offset) sum += below;
      }
      const int r = i * 32 + lane;
      if (r < count) plan.cut.first_unit[last * count + r] = before + sum - units;
      before += __shfl_sync(~0u, sum, 31);
    }
  }
  if (lane == 0) plan.cut.first_unit[2 * count] = plan.units = before, plan.cut.shift = shift;
}

// A leaf on the way through the units first, first + step, ...
template <int kRows>
struct Cursor {
  int unit, step;
  int span = 0, request = 0, g, first_row, leaf, last_leaf;
  int pages[kLeaf / kPageUnit];  // of the leaf
  bool entered;                  // the first of its unit

  __device__ bool valid(const Plan& plan) const { return unit < plan.units; }
  // Of tokens from before the step.
  __device__ bool older(const Plan& plan) const { return (leaf + 1) * kLeaf <= plan.start[request]; }
  __device__ bool ends_group() const { return leaf == last_leaf || (leaf + 1) % kGroupLeaves == 0; }

  __device__ void find_pages(const TextAttention& a, const Plan& plan) {
    const std::int32_t* const table = a.kv.pages(plan.slot[request]);
    const int last_key = plan.keys(request) - 1;
#pragma unroll
    for (int i = 0; i < kLeaf / kPageUnit; ++i) {
      pages[i] = table[min(leaf * kLeaf + i * kPageUnit, last_key) / a.kv.page_size];
    }
  }
  __device__ void enter(const TextAttention& a, const Plan& plan) {
    if (!valid(plan)) return;
    const int count = a.requests.count, shift = plan.cut.shift;
    for (int last = 2 * count - 1; span < last;) {  // whole sequences are all in the second half of the spans
      const int middle = (span + last) / 2;
      if (unit < plan.cut.first_unit[middle + 1]) {
        last = middle;
      } else {
        span = middle + 1;
      }
    }
    request = span < count ? span : span - count;
    const int row_blocks = (plan.rows[request] * a.group + kRows - 1) / kRows, keys = plan.keys(request);
    const int rest = unit - plan.cut.first_unit[span];
    g = rest % a.key_heads;
    first_row = rest / a.key_heads % row_blocks * kRows;
    const int piece = span < count ? rest / a.key_heads / row_blocks : (keys - 1) >> shift, first_key = piece << shift;
    leaf = first_key / kLeaf;
    last_leaf = (min(keys - first_key, 1 << shift) - 1 + first_key) / kLeaf;
    entered = true;
    find_pages(a, plan);
  }
  __device__ void advance(const TextAttention& a, const Plan& plan) {
    entered = false;
    if (leaf == last_leaf) {
      unit += step;
      enter(a, plan);
    } else {
      ++leaf;
      find_pages(a, plan);
    }
  }
};

// For the kernel that merges.
template <int kThreads>
__device__ inline void leave_cut(const WindowAttention& a, const Plan& plan) {
  for (int i = static_cast<int>(threadIdx.x); i < Cut::words(a.text.requests.count); i += kThreads) {
    reinterpret_cast<int*>(a.partials.cut)[i] = reinterpret_cast<const int*>(&plan.cut)[i];
  }
}

// --- by warpgroups ---------------------------------------------------------------------------------------------------

// 64 rows of a unit are the M of wgmma, 128 columns of P V the N. Two warpgroups sum and a third copies. Heads of 256
// take both for a unit, and each of them computes the whole of Q K^T, so that they never wait for each other; of
// smaller heads each sums units of its own. What a sequence has summed before its present group stays on the chip.
constexpr int kWideRows = 64, kWideColumns = 128, kSummers = 256, kWideThreads = kSummers + 128;

// A leaf comes in halves, each to a place of its own: of its keys by columns, so that their products begin with the
// first, of its values by keys.
enum Half { kFirstKeys, kSecondKeys, kFirstValues, kSecondValues, kHalves };

// What the summers have to know about a unit.
struct Unit {
  int index;  // -1: there is none any more
  int leaf, last_leaf;
  int first_row, rows;  // of its row block, of the request
  int start;
  int token, g;  // the request's first row of x; the key head
};

// The keys that a row sees: `first` and so many more.
struct Seen {
  int first;
  unsigned more;

  // A row that does not exist sees all: nobody wants to know.
  __device__ Seen(const TextAttention& a, const Unit& unit, int row) : first(0), more(~0u) {
    row += unit.first_row;
    if (row >= unit.rows) return;
    const int index = unit.start + row / a.group, last = a.causal ? index : unit.start + unit.rows / a.group - 1;
    first = first_key_seen(a.sliding_window, unit.start, index), more = last - first;
  }
  __device__ bool sees(int key) const { return static_cast<unsigned>(key - first) <= more; }
};

// Scores of 64 rows and a leaf, as wgmma has them: of rows lane / 4 and lane / 4 + 8 of a warp's 16 two keys in eight.
using WideScores = float[kLeaf / 2];
using WideWeights = std::uint32_t[kLeaf / 16][4];  // fragments
using WideSums = Sums<kWideColumns, 1>;

// The sums of a sequence before its present group: each thread keeps its own, those of columns in shared memory.
struct Kept {
  float4* out;  // of each eight columns, kSummers apart
  float max[2], weights[2];

  __device__ void keep(const WideSums& sums) {
#pragma unroll
    for (int half = 0; half < 2; ++half) max[half] = sums.max[0][half], weights[half] = sums.weights[0][half];
#pragma unroll
    for (int n = 0; n < kWideColumns / 8; ++n) {
      const float(&x)[4] = sums.out[0][n];
      out[n * kSummers] = make_float4(x[0], x[1], x[2], x[3]);
    }
  }
  // A group -> the sequence up to its end: as store_partial does.
  __device__ void precede(WideSums& sums) const {
    MergeFactors factors[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float next = sums.max[0][half];
      factors[half] = next == kMinusInfinity ? MergeFactors{max[half], 1, 0} : merge_factors(max[half], next);
      sums.max[0][half] = factors[half].max;
      sums.weights[0][half] = factors[half](weights[half], sums.weights[0][half]);
    }
#pragma unroll
    for (int n = 0; n < kWideColumns / 8; ++n) {
      float(&x)[4] = sums.out[0][n];
      const float4 before = out[n * kSummers];
      x[0] = factors[0](before.x, x[0]), x[1] = factors[0](before.y, x[1]);
      x[2] = factors[1](before.z, x[2]), x[3] = factors[1](before.w, x[3]);
    }
  }
};

template <int kCount>
__device__ inline void clear(float (&x)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) x[i] = 0;
  hold(x);
}

// Word j of lane i of four -> word i of lane j.
__device__ inline void transpose_words(std::uint32_t (&x)[4]) {
#pragma unroll
  for (int apart = 1; apart <= 2; apart *= 2) {
    const bool upper = threadIdx.x & apart;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j & apart) continue;
      const std::uint32_t other = __shfl_xor_sync(~0u, upper ? x[j] : x[j + apart], apart);
      if (upper) {
        x[j] = other;
      } else {
        x[j + apart] = other;
      }
    }
  }
}

// x / weights as __fdiv_rn rounds it, where both are `plain`: from a neighbour of it and the rounded reciprocal.
__device__ inline bool plain(float x) { return (fabsf(x) >= 0x1p-60f) & (fabsf(x) <= 0x1p60f); }
__device__ inline float plain_quotient(float x, float weights, float reciprocal) {
  float q = __fmul_rn(x, reciprocal);
#pragma unroll
  for (int i = 0; i < 2; ++i) q = __fmaf_rn(__fmaf_rn(-q, weights, x), reciprocal, q);
  return q;
}

// The rows of a sequence that is summed, as the kernel that merges writes them.
__device__ inline void write_rows(const TextAttention& a, const Unit& unit, const WideSums& sums, const Place& at,
                                  Kept& kept) {
  float weights[2];
  bfloat* out[2];  // null: does not exist
  bool fast = true;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float quarter = sums.weights[0][half];
    weights[half] = __shfl_sync(~0u, quarter, 0, 4);
#pragma unroll
    for (int w = 1; w < 4; ++w) weights[half] = __fadd_rn(weights[half], __shfl_sync(~0u, quarter, w, 4));
    const int row = unit.first_row + at.row(0, half);
    out[half] = row < unit.rows ? a.query_head(a.out, unit.token, unit.g, row) : nullptr;
    fast &= (reinterpret_cast<std::uintptr_t>(out[half]) % sizeof(uint4) == 0) & plain(weights[half]);
  }
#pragma unroll
  for (int n = 0; n < kWideColumns / 8; ++n) {
#pragma unroll
    for (int c = 0; c < 4; ++c) fast &= plain(sums.out[0][n][c]);
  }
  const int first_column = at.column_warp * kWideColumns;
  if (!__all_sync(~0u, fast)) {
    kept.keep(sums);
#pragma unroll 1
    for (int n = 0; n < kWideColumns / 8; ++n) {
      const float4 x = kept.out[n * kSummers];
      const int column = first_column + at.column(n);
      if (column >= a.head_dim) break;  // a multiple of 8
      if (out[0] != nullptr) {
        out[0][column] = from_f32<bfloat>(quotient(x.x, weights[0]));
        out[0][column + 1] = from_f32<bfloat>(quotient(x.y, weights[0]));
      }
      if (out[1] != nullptr) {
        out[1][column] = from_f32<bfloat>(quotient(x.z, weights[1]));
        out[1][column + 1] = from_f32<bfloat>(quotient(x.w, weights[1]));
      }
    }
    return;
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float reciprocal = __frcp_rn(weights[half]);
#pragma unroll
    for (int n = 0; n < kWideColumns / 8; n += 4) {
      std::uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&x)[4] = sums.out[0][n + j];
        words[j] = pack(plain_quotient(x[2 * half], weights[half], reciprocal),
                        plain_quotient(x[2 * half + 1], weights[half], reciprocal));
      }
      transpose_words(words);  // of four eights of columns a lane has one
      const int column = first_column + (n + at.lane % 4) * 8;
      if (out[half] != nullptr && column < a.head_dim) {
        *reinterpret_cast<uint4*>(out[half] + column) = make_uint4(words[0], words[1], words[2], words[3]);
      }
    }
  }
}

template <int kE>
struct WideBlock {
  static constexpr int kStreams = 2 * kWideColumns / kE;  // that take units
  static constexpr int kStreamSummers = kSummers / kStreams, kStreamCopiers = (kWideThreads - kSummers) / kStreams;
  static constexpr unsigned kKeyBox = kLeaf * kBoxRowBytes, kValueBox = kPageUnit * kBoxRowBytes,
                            kQueryBox = kWideRows * kBoxRowBytes;

  struct Operands {
    unsigned char halves[kHalves][kE / 2 / kBoxColumns * kKeyBox];  // or as many bytes of boxes of values
    unsigned char queries[kE / kBoxColumns * kQueryBox];
  };
  struct Barriers {
    std::uint64_t full[kHalves], empty[kHalves];  // a half has come; it has been read
    std::uint64_t queries_full, queries_empty;
  };

  Operands operands[kStreams];  // first, at a multiple of 1024 bytes
  float4 kept[kWideColumns / 8][kSummers];
  Barriers barriers[kStreams];
  Unit units[kStreams][2];  // this and the next
  Plan plan;

  __device__ void start_barriers() {
    for (Barriers& b : barriers) {
      for (int i = 0; i < kHalves; ++i) {
        init_barrier(shared_address(&b.full[i]), kStreamCopiers);
        init_barrier(shared_address(&b.empty[i]), kStreamSummers / 32);
      }
      init_barrier(shared_address(&b.queries_full), kStreamCopiers + 1);
      init_barrier(shared_address(&b.queries_empty), kStreamSummers / 32);
    }
    publish_barriers();
  }

  // Adds the products of half of the columns.
  static __device__ void score(WideScores& s, std::uint64_t queries, std::uint64_t keys) {
    open_products();
#pragma unroll
    for (unsigned e = 0; e < kE / 32; ++e) {  // 32 bytes each, four to a box; descriptors count by 16
      const unsigned box = e / 4, in_box = e % 4 * 2;
      multiply_add<kLeaf>(s, queries + box * (kQueryBox / 16) + in_box, keys + box * (kKeyBox / 16) + in_box);
    }
    commit_products();
    wait_for_products_but<0>();
    hold(s);
  }
  // Each of the four lanes that hold a row has a sum for each quarter of the keys; lane i gets what row_sum gives for
  // quarter i.
  static __device__ float quarter_sum(const float (&x)[4]) {
    const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
    float pair[2];  // of quarters odd and odd + 2
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float mine = odd ? x[2 * i + 1] : x[2 * i], other = odd ? x[2 * i] : x[2 * i + 1];
      pair[i] = __fadd_rn(mine, __shfl_xor_sync(~0u, other, 1));
    }
    return __fadd_rn(high ? pair[1] : pair[0], __shfl_xor_sync(~0u, high ? pair[0] : pair[1], 2));
  }
  // Scores of the leaf that begins at key `begin` -> rounded weights, their sums and the maxima.
  static __device__ void softmax(WideSums& sums, WideWeights& p, WideScores& s, const Place& at, const Seen (&seen)[2],
                                 float scale, int begin) {
    const bool whole = seen[0].sees(begin) && seen[0].sees(begin + kLeaf - 1) && seen[1].sees(begin) &&
                       seen[1].sees(begin + kLeaf - 1);
    if (__all_sync(~0u, whole)) {
#pragma unroll
      for (int i = 0; i < kLeaf / 2; ++i) s[i] = __fmul_rn(s[i], scale);
    } else {
#pragma unroll
      for (int i = 0; i < kLeaf / 2; ++i) {
        const bool sees = seen[i / 2 % 2].sees(begin + at.column(i / 4) + i % 2);
        s[i] = sees ? __fmul_rn(s[i], scale) : kMinusInfinity;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = kMinusInfinity;
#pragma unroll
      for (int n = 0; n < kLeaf / 8; ++n) {
        largest = fmaxf(largest, fmaxf(s[4 * n + 2 * half], s[4 * n + 2 * half + 1]));
      }
      largest = row_max(largest);
      const float base = reference_score(largest);
      float quarters[4];
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        quarters[q] = 0;
#pragma unroll
        for (int n = q * (kLeaf / 32); n < (q + 1) * (kLeaf / 32); ++n) {
          const float first = power_of_two(__fsub_rn(s[4 * n + 2 * half], base));
          const float second = power_of_two(__fsub_rn(s[4 * n + 2 * half + 1], base));
          quarters[q] = __fadd_rn(quarters[q], __fadd_rn(first, second));
          p[n / 2][n % 2 * 2 + half] = pack(first, second);
        }
      }
      sums.weights[0][half] = quarter_sum(quarters);
      sums.max[0][half] = largest;
    }
  }
  // Adds the products of weights and values of half of the keys.
  static __device__ void weighted_sum(float (&out)[kWideColumns / 2], WideWeights& p, int half, std::uint64_t values) {
    const int first = half * (kLeaf / 32);
    open_products();
#pragma unroll
    for (int j = 0; j < kLeaf / 32; ++j) multiply_add_rows(out, p[first + j], values + j * (16 * kBoxRowBytes / 16));
    commit_products();
    wait_for_products_but<0>();
    hold(out);
#pragma unroll
    for (int j = 0; j < kLeaf / 32; ++j) hold(p[first + j]);
  }
};

// Nobody reads keys and values again soon: they should push nothing else out of L2, such as what units leave.
__device__ inline std::uint64_t dropped_first() {
  std::uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void copy_16(unsigned to, const bfloat* from, bool exists, std::uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to), "l"(from),
               "r"(exists ? 16 : 0), "l"(policy)
               : "memory");
}

// Brings the units of a stream: keys, queries, values of the first leaf, then keys and values of the others.
template <int kE>
__device__ inline void copy_operands(const WindowAttention& a, WideBlock<kE>& block) {
  using Block = WideBlock<kE>;
  const TextAttention& text = a.text;
  const Plan& plan = block.plan;
  const int copier = static_cast<int>(threadIdx.x) - kSummers;
  const int stream = copier / Block::kStreamCopiers, thread = copier % Block::kStreamCopiers;
  auto& operands = block.operands[stream];
  auto& barriers = block.barriers[stream];
  const std::uint64_t policy = dropped_first();
  unsigned parities = 0;  // bit 0 of leaves, bit 1 of queries
  const auto open_half = [&](int half) {
    wait_for(shared_address(&barriers.empty[half]), (parities ^ 1) & 1);  // never filled: counts as read
    return shared_address(operands.halves[half]);
  };

  // Of half of the columns of keys this thread has a piece of 16 bytes of rows key, key + 8, ..., every 1024 bytes.
  constexpr int kKeyPieces = kE / 16;
  static_assert(Block::kStreamCopiers / kKeyPieces == 8);
  const int key = thread / kKeyPieces, key_piece = thread % kKeyPieces;
  const unsigned key_place = key_piece / 8 * Block::kKeyBox + key * kBoxRowBytes + place_of(key, key_piece % 8);
  const auto copy_keys = [&](int half, const Cursor<kWideRows>& c) {
    const unsigned to = open_half(kFirstKeys + half) + key_place;
    const int column = half * (kE / 2) + key_piece * 8;
    const int keys = column < text.head_dim ? plan.keys(c.request) - c.leaf * kLeaf - key : 0;  // from this row on
#pragma unroll
    for (int page = 0; page < 2; ++page) {
      const bfloat* row = text.kv.k.row(text.kv.row(c.pages[page], c.leaf * kLeaf + page * kPageUnit) + key) +
                          c.g * text.head_dim + column;
#pragma unroll
      for (int i = 8 * page; i < 8 * page + 8; ++i, row += 8 * text.kv.k.stride) {
        copy_16(to + i * 1024, row, 8 * i < keys, policy);
      }
    }
    arrive_when_copied(shared_address(&barriers.full[kFirstKeys + half]));
  };

  // Of values and queries a piece of rows first, first + 4, ...: at `even` and `odd`, every 1024 bytes.
  constexpr int kPieces = kE / 8;
  static_assert(Block::kStreamCopiers / kPieces == 4);
  const int first = thread / kPieces, piece = thread % kPieces, column = piece * 8;
  const bool exists = column < text.head_dim;
  const unsigned even = first * kBoxRowBytes + place_of(first, piece % 8);
  const unsigned odd = (first + 4) * kBoxRowBytes + place_of(first + 4, piece % 8);
  const auto copy_values = [&](int half, const Cursor<kWideRows>& c) {
    const unsigned to = open_half(kFirstValues + half) + piece / 8 * Block::kValueBox;
    const int begin = c.leaf * kLeaf + half * kPageUnit, keys = exists ? plan.keys(c.request) - begin - first : 0;
    const bfloat* row = text.kv.v.row(text.kv.row(half == 0 ? c.pages[0] : c.pages[1], begin) + first) +
                        c.g * text.head_dim + column;
#pragma unroll
    for (int i = 0; i < kPageUnit / 4; ++i, row += 4 * text.kv.v.stride) {
      copy_16(to + i / 2 * 1024 + (i % 2 == 0 ? even : odd), row, 4 * i < keys, policy);
    }
    arrive_when_copied(shared_address(&barriers.full[kFirstValues + half]));
  };

  const auto open_queries = [&] {
    wait_for(shared_address(&barriers.queries_empty), parities >> 1 ^ 1);
    parities ^= 2;
  };
  const auto close_queries = [&](const Unit& unit) {
    if (thread == 0) {
      block.units[stream][parities >> 1 ^ 1] = unit;  // of the parity before open_queries
      arrive(shared_address(&barriers.queries_full));
    }
    arrive_when_copied(shared_address(&barriers.queries_full));
  };
  const auto copy_queries = [&](const Cursor<kWideRows>& c) {
    open_queries();
    const int rows = plan.rows[c.request] * text.group, first_token = plan.first_row[c.request];
    const unsigned to = shared_address(operands.queries) + piece / 8 * Block::kQueryBox;
    int row = c.first_row + first, head = row % text.group, token = first_token + row / text.group;
#pragma unroll 4
    for (int i = 0; i < kWideRows / 4; ++i) {
      const bool there = exists && row < rows;
      const bfloat* const from = text.q.row(token) + (c.g * text.group + head) * text.head_dim + column;
      copy_16(to + i / 2 * 1024 + (i % 2 == 0 ? even : odd), there ? from : text.q.data, there);
      row += 4;
      for (head += 4; head >= text.group; head -= text.group) ++token;
    }
    close_queries({c.unit, c.leaf, c.last_leaf, c.first_row, rows, plan.start[c.request], first_token, c.g});
  };

  Cursor<kWideRows> c{.unit = static_cast<int>(blockIdx.x + gridDim.x * stream),
                      .step = static_cast<int>(gridDim.x * Block::kStreams)};
  c.enter(text, plan);
  bool early = c.valid(plan) && c.older(plan);
  if (!early) wait_for_predecessor();
  for (; c.valid(plan); c.advance(text, plan), parities ^= 1) {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) copy_keys(half, c);
    if (c.entered && !early) copy_queries(c);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) copy_values(half, c);
    if (!early) continue;
    wait_for_predecessor();
    copy_queries(c);
    early = false;
  }
  open_queries();
  close_queries({.index = -1});
}

template <int kE>
__device__ inline void sum_units(const WindowAttention& a, WideBlock<kE>& block) {
  using Block = WideBlock<kE>;
  const int thread = static_cast<int>(threadIdx.x), stream = thread / Block::kStreamSummers;
  const Place at{thread % Block::kStreamSummers / 128, thread / 32 % 4 * 16, thread % 32};
  auto& operands = block.operands[stream];
  auto& barriers = block.barriers[stream];
  const auto release = [&](std::uint64_t& barrier) {
    __syncwarp();
    if (at.lane == 0) arrive(shared_address(&barrier));
  };
  unsigned parities = 0;  // as the copiers'
  const auto open_half = [&](int half) {
    wait_for(shared_address(&barriers.full[half]), parities & 1);
    show_products();
    return shared_address(operands.halves[half]);
  };

  wait_for_predecessor();
  let_successor_start();
  if (blockIdx.x == 0) leave_cut<kSummers>(a, block.plan);
  const bool whole = block.plan.cut.shift == kWholeShift;
  const std::uint64_t queries = operand_at(shared_address(operands.queries));
  constexpr unsigned kHalfOfQueries = kE / 2 / kBoxColumns * Block::kQueryBox / 16;
  Kept kept{.out = &block.kept[0][thread]};
  WideSums all;
  all.clear();
  for (;; parities ^= 2) {
    wait_for(shared_address(&barriers.queries_full), parities >> 1);
    const Unit& unit = block.units[stream][parities >> 1];
    if (unit.index < 0) break;
    const int last_leaf = unit.last_leaf;
    const Seen seen[2] = {{a.text, unit, at.row(0, 0)}, {a.text, unit, at.row(0, 1)}};
    for (int leaf = unit.leaf; leaf <= last_leaf; ++leaf, parities ^= 1) {
      WideScores s;
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // given back at once: the next leaf's is waiting
        const unsigned keys = open_half(kFirstKeys + half);
        if (half == 0) clear(s);
        Block::score(s, queries + half * kHalfOfQueries, operand_at(keys));
        release(barriers.empty[kFirstKeys + half]);
      }
      if (leaf == last_leaf) release(barriers.queries_empty);

      WideSums sums;
      WideWeights p;
      Block::softmax(sums, p, s, at, seen, a.text.scale, leaf * kLeaf);
      auto& out = reinterpret_cast<float(&)[kWideColumns / 2]>(sums.out);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned values = open_half(kFirstValues + half) + at.column_warp * 2 * Block::kValueBox;
        if (half == 0) clear(out);
        Block::weighted_sum(out, p, half, operand_at(values, Block::kValueBox));
        release(barriers.empty[kFirstValues + half]);
      }
      merge(all, sums);
      const bool ends = leaf == last_leaf;
      if (!ends && (leaf + 1) % kGroupLeaves != 0) continue;
      if (!whole) {
        store_partial<kE>(a.partials, unit.index, unit.rows - unit.first_row, all, at, at.lane % 4, at.column_warp == 0,
                          false);
      } else {
        if (leaf >= kGroupLeaves) kept.precede(all);
        if (ends) {
          write_rows(a.text, unit, all, at, kept);
        } else {
          kept.keep(all);
        }
      }
      all.clear();
    }
  }
}

template <int kE>
__global__ void __launch_bounds__(kWideThreads, 1) wide_window_kernel(const __grid_constant__ WindowAttention a) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Block = WideBlock<kE>;
  extern __shared__ __align__(1024) unsigned char wide_shared[];
  static_assert(sizeof(Block) <= 227 * 1024 && sizeof(typename Block::Operands) % 1024 == 0);
  Block& block = *reinterpret_cast<Block*>(wide_shared);
  if (threadIdx.x < 32) make_plan<kWideRows>(block.plan, a);
  if (threadIdx.x == kSummers) block.start_barriers();
  __syncthreads();
  if (threadIdx.x >= kSummers) {
    leave_registers<72>();
    copy_operands<kE>(a, block);
  } else {
    take_registers<216>();
    sum_units<kE>(a, block);
  }
  __syncthreads();  // all copies have been waited for
#endif
}

}  // namespace quire::cuda
