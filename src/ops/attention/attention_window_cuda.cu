// Attention of generated tokens and of blocks of drafts: a few rows of many requests, over the pages of their sequences.
//   out[t, h] = sum_j w_j v_j / sum_j w_j over the keys j that row t sees, w_j = exp(s_j - m), s_j = q k_j E^-1/2
// Shapes: q, out [T, H E]; keys and values in pages [rows, G E]; head h reads h / (H/G); E <= 256; bf16 (f32:
// attention_f32_cuda.cu).
//
// Bytes: K and V once, 4 E G a key: the wall. FLOP: 4 E H a key and row, with 16 rows a third of the tensor cores.
//
// Plan: keys are cut into leaves of kLeaf and groups of kGroupLeaves leaves, rows (token, head of the group) into
// blocks of 16, 32 or 64. A unit of work is a row block, a key head and a leaf, a group or a whole sequence: leaves when
// there are few, groups when they fill the machine, sequences when the results of groups would not fit the scratch
// memory. Resident blocks walk the units, half leaves always on their way; a second kernel merges what units left.
//
// Precision: products bf16 x bf16 summed in f32 by mma.m16n8k16, softmax f32, exp by ex2.approx; weights are rounded to
// bf16 relative to the largest score of a leaf, their sum is not; one round at the end.
//
// Invariance: leaves and groups lie at absolute key indices. A group is the merge of its leaves in order, a sequence
// that of its groups, by the same arithmetic in registers, in scratch memory or in the second kernel: how the work was
// cut shows in no bit. What a leaf gives a row depends on its keys alone (attention_block.cuh).
//
// The arrays of the requests and the block tables are read before the kernel before this one is complete, and so are
// keys from before the step: all of them are older than that kernel (common.cuh).
#include "ops/attention/attention.h"
#include "ops/attention/attention_block.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kLeafShift = 7, kGroupShift = 9, kWholeShift = 30;  // keys of a unit: 1 << shift
constexpr int kLeaf = 1 << kLeafShift, kGroupLeaves = 1 << (kGroupShift - kLeafShift);
constexpr int kMostRequests = 64;
constexpr int kMergeThreads = 64;

// How the work is cut, for the second kernel. Unit u of request r: u - first_unit[r] = (piece of the keys * row blocks
// + row block) * key heads + key head.
struct Cut {
  int shift;
  int first_unit[kMostRequests + 1];
};

// What units left, at index unit * rows + row of its block.
struct Partials {
  float* out;       // [..][kE]: weighted sums of V
  float4* weights;  // [..]: their sums, one for each column of warps
  float4* maxima;   // [..]: the same number four times: each column of warps reads its own
  Cut* cut;
  int rows;      // of a unit
  int capacity;  // units
};

struct WindowAttention {
  TextAttention text;
  Partials partials;
  int enough;  // units that fill the machine
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

template <int kE, int kRowTiles>
__device__ inline void merge(Sums<kE, kRowTiles>& all, const Sums<kE, kRowTiles>& next) {
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (next.max[i][half] == kMinusInfinity) continue;
      const MergeFactors factors = merge_factors(all.max[i][half], next.max[i][half]);
      all.max[i][half] = factors.max;
      all.weights[i][half] = factors(all.weights[i][half], next.weights[i][half]);
#pragma unroll
      for (int n = 0; n < kE / 32; ++n) {
#pragma unroll
        for (int c = 2 * half; c < 2 * half + 2; ++c) {
          all.out[i][n][c] = factors(all.out[i][n][c], next.out[i][n][c]);
        }
      }
    }
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
  int keys[kEach], row_units[kEach], leaves = 0, groups = 0;
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
  }
  leaves = __reduce_add_sync(~0u, leaves), groups = __reduce_add_sync(~0u, groups);
  int shift = kWholeShift;
  if (groups <= a.partials.capacity) shift = kGroupShift;
  if (leaves <= a.partials.capacity && groups < a.enough) shift = kLeafShift;
  int before = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int units = row_units[i] * round_up_shift(keys[i], shift);
    int sum = units;  // of lanes up to this one
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int below = __shfl_up_sync(~0u, sum, offset);
      if (lane >= offset) sum += below;
    }
    if (i * 32 + lane <= count) plan.cut.first_unit[i * 32 + lane] = before + sum - units;
    before += __shfl_sync(~0u, sum, 31);
  }
  if (lane == 0) plan.cut.first_unit[count] = plan.units = before, plan.cut.shift = shift;
}

// A leaf on a block's way through its units.
template <int kRows>
struct Cursor {
  int unit, request = 0, g, first_row, leaf, last_leaf;
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
    while (unit >= plan.cut.first_unit[request + 1]) ++request;
    const int row_blocks = (plan.rows[request] * a.group + kRows - 1) / kRows;
    const int rest = unit - plan.cut.first_unit[request];
    g = rest % a.key_heads;
    first_row = rest / a.key_heads % row_blocks * kRows;
    const int piece = rest / a.key_heads / row_blocks, first_key = piece << plan.cut.shift;
    leaf = first_key / kLeaf;
    last_leaf = (min(plan.keys(request) - first_key, 1 << plan.cut.shift) - 1 + first_key) / kLeaf;
    entered = true;
    find_pages(a, plan);
  }
  __device__ void advance(const TextAttention& a, const Plan& plan) {
    entered = false;
    if (leaf == last_leaf) {
      unit += static_cast<int>(gridDim.x);
      enter(a, plan);
    } else {
      ++leaf;
      find_pages(a, plan);
    }
  }
};

// kTiles buffers take halves of leaves in turn: two of keys, two of values.
template <int kE, int kRowWarps, int kRowTiles, int kTiles>
struct WindowBlock : AttentionBlock<kE, kRowWarps, kRowTiles, kLeaf, kTiles, 1> {
  using Block = AttentionBlock<kE, kRowWarps, kRowTiles, kLeaf, kTiles, 1>;
  using Cursor = cuda::Cursor<Block::kRows>;
  static constexpr int kResident = sizeof(Block) > 100 * 1024 ? 1 : 2;  // blocks of a multiprocessor

  Plan plan;
  Cursor leaves[2];  // this and the next

  template <bool kNow = false>
  __device__ void load_queries(const TextAttention& a, const Cursor& c) {
    Block::template load_queries<kNow>(a, plan.first_row[c.request], plan.start[c.request],
                                       plan.rows[c.request] * a.group, c.g, c.first_row, 0);
  }
  // Leaves the result of a unit, or merges it into what the unit left before.
  __device__ void store_partial(const WindowAttention& a, const Sums<kE, kRowTiles>& sums, const Place& at,
                                const Cursor& c, bool more) const {
    const int rows = plan.rows[c.request] * a.text.group - c.first_row;
#pragma unroll
    for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = at.row(i, half);
        const bool exists = row < rows;
        const std::int64_t index = std::int64_t{c.unit} * a.partials.rows + (exists ? row : 0);
        float* const to_max = reinterpret_cast<float*>(a.partials.maxima + index) + at.column_warp;
        float* const to_weights = reinterpret_cast<float*>(a.partials.weights + index) + at.column_warp;
        float* const out = a.partials.out + index * kE + at.column_warp * (kE / kColumnWarps);
        float max = sums.max[i][half], weights = sums.weights[i][half];
        MergeFactors factors{max, 0, 1};
        const bool add = more && exists;
        if (add) {
          const float before = *to_max;
          factors = max == kMinusInfinity ? MergeFactors{before, 1, 0} : merge_factors(before, max);
          max = factors.max, weights = factors(*to_weights, weights);
        }
        __syncwarp();  // four lanes have read what one writes
        if (exists && at.lane % 4 == 0) *to_max = max, *to_weights = weights;
#pragma unroll
        for (int n = 0; n < kE / 32; ++n) {
          float2& pair = *reinterpret_cast<float2*>(out + at.column(n));
          float2 next = make_float2(sums.out[i][n][2 * half], sums.out[i][n][2 * half + 1]);
          if (add) next = make_float2(factors(pair.x, next.x), factors(pair.y, next.y));
          if (exists) pair = next;
        }
      }
    }
  }
};

template <int kE, int kRowWarps, int kRowTiles, int kTiles>
__global__ __launch_bounds__(32 * kColumnWarps * kRowWarps, 1) void window_kernel(const WindowAttention a) {
  using Block = WindowBlock<kE, kRowWarps, kRowTiles, kTiles>;
  extern __shared__ __align__(16) unsigned char shared[];
  static_assert(sizeof(Block) <= 227 * 1024);
  Block& block = *reinterpret_cast<Block*>(shared);
  const TextAttention& text = a.text;
  if (threadIdx.x < 32) make_plan<Block::kRows>(block.plan, a);
  __syncthreads();
  const Plan& plan = block.plan;

  // Load 4 i + j is a half of leaf i's keys (j = 0, 1) or values (2, 3); each is a group of copies.
  typename Block::Cursor ahead{.unit = static_cast<int>(blockIdx.x)};
  ahead.enter(text, plan);
  const auto load = [&](int n) {
    const int half = n % 2;
    if (n % 4 == 0 && threadIdx.x == 0) block.leaves[n / 4 % 2] = ahead;
    if (ahead.valid(plan)) {
      block.load_keys(text, n % 4 < 2 ? text.kv.k : text.kv.v, half == 0 ? ahead.pages[0] : ahead.pages[1], ahead.g,
                      ahead.leaf * kLeaf + half * kPageUnit, plan.keys(ahead.request), n % kTiles);
      if (n % 4 == 3) ahead.advance(text, plan);
    }
    commit_copies();
  };
  const bool early = ahead.valid(plan) && ahead.older(plan);
  if (early) {
    for (int n = 0; n < kTiles - 2; ++n) load(n);
    wait_for_predecessor();
    let_successor_start();
    __syncthreads();
    block.template load_queries<true>(text, block.leaves[0]);
  } else {
    wait_for_predecessor();
    let_successor_start();
    if (ahead.valid(plan)) block.load_queries(text, ahead);
    for (int n = 0; n < kTiles - 2; ++n) load(n);
  }
  if (blockIdx.x == 0) {
    const int words = 2 + text.requests.count;  // of the used part of Cut
    for (int i = static_cast<int>(threadIdx.x); i < words; i += Block::kThreads) {
      reinterpret_cast<int*>(a.partials.cut)[i] = reinterpret_cast<const int*>(&plan.cut)[i];
    }
  }

  const Place at = place<kRowTiles>();
  Sums<kE, kRowTiles> all;
  all.clear();
  for (int n = 0;; n += 4) {
    wait_for_copies_but<kTiles - 4>();
    __syncthreads();  // the keys are here, and nobody reads the values before them any more
    const typename Block::Cursor& here = block.leaves[n / 4 % 2];
    if (!here.valid(plan)) break;
    load(n + kTiles - 2);
    load(n + kTiles - 1);
    typename Block::Scores s;
    const typename Block::Tiles keys{n % kTiles, (n + 1) % kTiles}, values{(n + 2) % kTiles, (n + 3) % kTiles};
    block.template score<4>(s, at, text.scale, here.leaf * kLeaf, keys, 0, [&](std::uint32_t (&x)[4], int i, int e) {
      block.read_query(x, at, 0, i, e);
    });
    Sums<kE, kRowTiles> sums;
    sums.clear();
    block.template softmax<true>(sums, s, at);
    wait_for_copies_but<kTiles - 4>();
    __syncthreads();  // weights and values are here, and nobody reads the keys and queries any more
    const typename Block::Cursor& next = block.leaves[n / 4 % 2 ^ 1];
    if (next.valid(plan) && next.entered) block.load_queries(text, next);
    if (kTiles == 6) commit_copies();  // both halves of the next keys are on their way already
    load(n + kTiles);
    load(n + kTiles + 1);
    block.weighted_sum(sums, at, values);
    merge(all, sums);
    if (here.ends_group()) {
      block.store_partial(a, all, at, here, plan.cut.shift == kWholeShift && here.leaf >= kGroupLeaves);
      all.clear();
    }
  }
}

// Grid: requests, (token, query head) by threads, each of which has 4 columns and the weights of one column of warps.
template <int kE, int kRows>
__global__ __launch_bounds__(kMergeThreads) void merge_kernel(const WindowAttention a) {
  constexpr int kAhead = 8, kItemThreads = kE / 4, kItems = kMergeThreads / kItemThreads;
  wait_for_predecessor();
  let_successor_start();
  const TextAttention& text = a.text;
  const int request = blockIdx.x, heads = text.key_heads * text.group, thread = static_cast<int>(threadIdx.x);
  const int item = static_cast<int>(blockIdx.y) * kItems + thread / kItemThreads, token = item / heads;
  const int first = text.requests.first_row[request], tokens = text.requests.first_row[request + 1] - first;
  const int column = thread % kItemThreads * 4, start = text.requests.start[request];
  const int shift = a.partials.cut->shift, first_unit = a.partials.cut->first_unit[request];
  const bool exists = token < tokens;
  const int row = token * text.group + item % text.group, row_blocks = (tokens * text.group + kRows - 1) / kRows;
  const int last_key = start + (text.causal ? token : tokens - 1);
  const int pieces = exists ? (last_key >> shift) + 1 : 0;
  const int unit = first_unit + row / kRows * text.key_heads + item % heads / text.group;

  struct Result {
    float max, weights;
    float4 out;
    __device__ void merge(const Result& next) {  // nothing, or a leaf without keys, changes nothing
      const MergeFactors factors = merge_factors(max, next.max);
      max = factors.max;
      weights = factors(weights, next.weights);
      out = make_float4(factors(out.x, next.out.x), factors(out.y, next.out.y), factors(out.z, next.out.z),
                        factors(out.w, next.out.w));
    }
  };
  const Result nothing{kMinusInfinity, 0, make_float4(0, 0, 0, 0)};
  const auto read = [&](int piece) {
    if (piece >= pieces) return nothing;
    const std::int64_t index = std::int64_t{unit + piece * row_blocks * text.key_heads} * a.partials.rows + row % kRows;
    return Result{a.partials.maxima[index].x, reinterpret_cast<const float*>(a.partials.weights + index)[thread % 4],
                  *reinterpret_cast<const float4*>(a.partials.out + index * kE + column)};
  };
  static_assert(kAhead % kGroupLeaves == 0);
  Result all = nothing, next[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) next[i] = read(i);
  for (int begin = 0; begin < pieces; begin += kAhead) {
    Result here[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) here[i] = next[i], next[i] = read(begin + kAhead + i);
    Result of_group = nothing;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (shift != kLeafShift) {
        all.merge(here[i]);
        continue;
      }
      of_group.merge(here[i]);
      if ((i + 1) % kGroupLeaves != 0) continue;
      all.merge(of_group);
      of_group = nothing;
    }
  }
  float weights = __shfl_sync(~0u, all.weights, 0, 4);
#pragma unroll
  for (int w = 1; w < kColumnWarps; ++w) weights = __fadd_rn(weights, __shfl_sync(~0u, all.weights, w, 4));
  if (!exists) return;
  bfloat* const out = text.out.row(first + token) + item % heads * text.head_dim + column;
  const float sums[] = {all.out.x, all.out.y, all.out.z, all.out.w};
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    if (column + c < text.head_dim) out[c] = from_f32<bfloat>(quotient(sums[c], weights));
  }
}

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "attention_window");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "attention_window");
  return count;
}

// Scratch memory: room for Cut, then for each unit 4 kE + 32 bytes a row of its block. It takes R G (row blocks) units
// for every request of the longest window; with more, the work is cut finer.
template <int kE>
Partials partials_in(const Stream& s, int rows, std::int64_t least_units) {
  constexpr std::int64_t kCutBytes = (sizeof(Cut) + 15) / 16 * 16;
  const std::int64_t unit_bytes = std::int64_t{rows} * (kE * 4 + 32);
  const std::int64_t capacity = (static_cast<std::int64_t>(s.cuda_scratch_bytes) - kCutBytes) / unit_bytes;
  if (capacity < least_units) {
    throw Error(ErrorCode::internal, "attention_window: " + std::to_string(s.cuda_scratch_bytes) +
                                         " bytes of scratch memory, expected at least " +
                                         std::to_string(kCutBytes + least_units * unit_bytes));
  }
  const std::int64_t n = std::min<std::int64_t>(capacity, 1 << 24) * rows;
  auto* const memory = static_cast<std::byte*>(s.cuda_scratch);
  float* const out = reinterpret_cast<float*>(memory + kCutBytes);
  return {.out = out,
          .weights = reinterpret_cast<float4*>(out + n * kE),
          .maxima = reinterpret_cast<float4*>(out + n * (kE + 4)),
          .cut = reinterpret_cast<Cut*>(memory),
          .rows = rows,
          .capacity = static_cast<int>(n / rows)};
}

template <int kE, int kRowWarps, int kRowTiles, int kTiles>
void launch_window(Stream& s, const Attention& a) {
  using Block = WindowBlock<kE, kRowWarps, kRowTiles, kTiles>;
  const TextAttention text = text_attention(a);
  const std::int64_t longest = a.requests.longest, rows = longest * text.group;
  const std::int64_t least_units = std::int64_t{a.requests.count} * text.key_heads * blocks(rows, Block::kRows);
  const std::int64_t leaves = blocks(std::int64_t{a.kv.pages_per_slot} * a.kv.page_size, 1 << kLeafShift);
  const int resident = multiprocessors() * Block::kResident;
  const WindowAttention call{
      .text = text,
      .partials = partials_in<kE>(s, static_cast<int>(std::min<std::int64_t>(rows, Block::kRows)), least_units),
      // A leaf of 16 rows costs little beside its keys, of 64 as much as half of them.
      .enough = Block::kRows == 16 ? 4 * resident : 3 * resident / 4};
  launch(s, "attention_window",
         {.blocks = static_cast<unsigned>(std::min<std::int64_t>(resident, least_units * leaves)),
          .threads = Block::kThreads,
          .shared = sizeof(Block)},
         window_kernel<kE, kRowWarps, kRowTiles, kTiles>, call);
  const dim3 grid(static_cast<unsigned>(a.requests.count),
                  blocks(longest * text.group * text.key_heads, kMergeThreads / (kE / 4)));
  launch(s, "attention_window", {.blocks = grid, .threads = kMergeThreads}, merge_kernel<kE, Block::kRows>, call);
}

template <int kE>
void launch_window(Stream& s, const Attention& a) {
  const std::int64_t rows = a.requests.longest * (a.q.cols / a.kv.k.cols);
  if (rows <= 16) {
    launch_window<kE, 1, 1, 6>(s, a);
  } else if (rows <= 32) {
    launch_window<kE, 2, 1, 5>(s, a);
  } else {
    launch_window<kE, 2, 2, 5>(s, a);
  }
}

}  // namespace

void attention_window(Stream& s, const Attention& a) {
  check_attention(a);
  check_head_dim("attention_window", a.head_dim);
  if (a.requests.count == 0 || a.requests.longest == 0) return;
  if (a.requests.count > kMostRequests) {
    throw Error(ErrorCode::unsupported, "attention_window: " + std::to_string(a.requests.count) +
                                            " requests on CUDA, at most " + std::to_string(kMostRequests));
  }
  if (a.q.format == Format::f32) return plain_attention(s, a);
  if (a.head_dim <= 64) {
    launch_window<64>(s, a);
  } else if (a.head_dim <= 128) {
    launch_window<128>(s, a);
  } else {
    launch_window<256>(s, a);
  }
}

}  // namespace quire::cuda
