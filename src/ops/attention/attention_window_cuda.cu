// Attention of generated tokens and of blocks of drafts: a few rows of many requests, over the pages of their sequences.
//   out[t, h] = sum_j w_j v_j / sum_j w_j over the keys j that row t sees, w_j = exp(s_j - m), s_j = q k_j E^-1/2
// Shapes: q, out [T, H E]; keys and values in pages [rows, G E]; head h reads h / (H/G); E <= 256; bf16 (f32:
// attention_f32_cuda.cu).
//
// Bytes: K and V once, 4 E G a key: the wall. FLOP: 4 E H a key and row, with 16 rows a third of the tensor cores.
//
// Plan: keys are cut into leaves of kLeaf and groups of kGroupLeaves leaves, rows (token, head of the group) into
// blocks of 16, 32 or 64. A unit of work is a row block, a key head and a leaf, a group or a whole sequence: leaves
// when there are few, groups when they fill the machine, sequences when the results of groups would not fit the scratch
// memory or, of many rows, when sequences fill the machine evenly. Resident blocks walk the units
// (attention_window.cuh), leaves always on their way; a second kernel merges what units left. Up to 16 rows, and
// everywhere but on Hopper, all warps of a block copy and sum; more rows are summed by warpgroups, and copied by one of
// their own. What 64 rows of a group leave is an eighth of its keys and values, which is written, read and written
// again; of whole sequences warpgroups therefore keep their sums in shared memory, and write the output themselves.
//
// Precision: products bf16 x bf16 summed in f32 by mma.m16n8k16 or wgmma, softmax f32, exp by ex2.approx; weights are
// rounded to bf16 relative to the largest score of a leaf, their sum is not; one round at the end.
//
// Invariance: leaves and groups lie at absolute key indices. A group is the merge of its leaves in order, a sequence
// that of its groups, by the same arithmetic in registers, in shared or scratch memory or in the second kernel: how the
// work was cut shows in no bit. What a leaf gives a row depends on its keys alone (attention_block.cuh), and wgmma
// gives the bits of mma.sync (ops/cuda/wgmma.cuh): both kernels take columns and keys by 16 in order, and add weights
// by the same quarters of a leaf.
//
// The arrays of the requests and the block tables are read before the kernel before this one is complete, and so are
// keys from before the step: all of them are older than that kernel (common.cuh).
#include <type_traits>

#include "ops/attention/attention.h"
#include "ops/attention/attention_window.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kMergeThreads = 128, kMergeBlocks = 4;  // of a multiprocessor

// --- by warps --------------------------------------------------------------------------------------------------------

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
  typename Block::Cursor ahead{.unit = static_cast<int>(blockIdx.x), .step = static_cast<int>(gridDim.x)};
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
  if (blockIdx.x == 0) leave_cut<Block::kThreads>(a, plan);

  const Place at = place<kRowTiles>();
  typename Block::Sums all;
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
    typename Block::Sums sums;
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
      store_partial<kE>(a.partials, here.unit, plan.rows[here.request] * text.group - here.first_row, all, at,
                        at.column_warp, at.lane % 4 == 0, plan.cut.shift == kWholeShift && here.leaf >= kGroupLeaves);
      all.clear();
    }
  }
}

// --- merging ---------------------------------------------------------------------------------------------------------

// Of a thread. Of many rows there is much to merge, and what a thread has to do besides should be for many columns.
template <int kRows>
constexpr int kMergeColumns = kRows == 16 ? 4 : 8;

// An item: (token, query head) of the request with rows first .. first + tokens - 1 of x. Units of its pieces begin with
// first_unit, of its last piece with last_unit.
template <int kE, int kRows>
__device__ inline void merge_item(const WindowAttention& a, int shift, int first_unit, int last_unit, int first,
                                  int tokens, int start, int item) {
  // Results on their way: the fewer the more threads run at once, and of many rows there are many threads.
  constexpr int kAhead = kRows == 16 ? 8 : 4, kColumns = kMergeColumns<kRows>, kItemThreads = kE / kColumns;
  const TextAttention& text = a.text;
  const int heads = text.key_heads * text.group, thread = static_cast<int>(threadIdx.x), token = item / heads;
  const int column = thread % kItemThreads * kColumns, last_piece = (start + tokens - 1) >> shift;
  const bool exists = token < tokens;
  const int row = token * text.group + item % text.group, row_blocks = (tokens * text.group + kRows - 1) / kRows;
  const int last_key = start + (text.causal ? token : tokens - 1);
  const int pieces = exists ? (last_key >> shift) + 1 : 0;
  // Where results stand, below 2^30: of a piece, of the last; from a piece to the next.
  const int place = row / kRows * text.key_heads + item % heads / text.group;  // among the units of a piece
  const int first_index = (first_unit + place) * a.partials.rows + row % kRows;
  const int last_index = (last_unit + place) * a.partials.rows + row % kRows;
  const int step = row_blocks * text.key_heads * a.partials.rows;

  struct Result {
    float max, weights, out[kColumns];
    __device__ void merge(const Result& next) {  // a leaf without keys changes nothing
      const MergeFactors factors = merge_factors(max, next.max);
      max = factors.max;
      weights = factors(weights, next.weights);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) out[c] = factors(out[c], next.out[c]);
    }
  };
  const Result nothing{.max = kMinusInfinity, .weights = 0, .out = {}};
  const auto read = [&](int piece) {
    if (piece >= pieces) return nothing;
    const std::int64_t index = piece < last_piece ? first_index + piece * step : last_index;
    Result result;
    result.max = a.partials.maxima[index].x;
    result.weights = reinterpret_cast<const float*>(a.partials.weights + index)[thread % 4];
#pragma unroll
    for (int c = 0; c < kColumns; c += 4) {
      const float4 sums = *reinterpret_cast<const float4*>(a.partials.out + index * kE + column + c);
      result.out[c] = sums.x, result.out[c + 1] = sums.y, result.out[c + 2] = sums.z, result.out[c + 3] = sums.w;
    }
    return result;
  };
  static_assert(kAhead % kGroupLeaves == 0);
  Result all = nothing, of_group = nothing, next[kAhead];
#pragma unroll
  for (int i = 0; i < kAhead; ++i) next[i] = read(i);
  for (int begin = 0; begin < pieces; begin += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const Result here = next[i];
      next[i] = read(begin + kAhead + i);
      if (shift != kLeafShift) {
        if (begin + i < pieces) all.merge(here);
        continue;
      }
      if (begin + i < pieces) of_group.merge(here);
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
  using Vector = std::conditional_t<kColumns == 4, uint2, uint4>;
  alignas(Vector) bfloat values[kColumns];
#pragma unroll
  for (int c = 0; c < kColumns; ++c) values[c] = from_f32<bfloat>(quotient(all.out[c], weights));
  if (column + kColumns <= text.head_dim && reinterpret_cast<std::uintptr_t>(out) % sizeof(Vector) == 0) {
    *reinterpret_cast<Vector*>(out) = *reinterpret_cast<const Vector*>(values);
    return;
  }
#pragma unroll
  for (int c = 0; c < kColumns; ++c) {
    if (column + c < text.head_dim) out[c] = values[c];
  }
}

// Grid: requests, as many of their items at a time as run at once; an item by threads, each of which has some columns
// and the weights of a quarter of the keys.
template <int kE, int kRows>
__global__ __launch_bounds__(kMergeThreads, kMergeBlocks) void merge_kernel(const WindowAttention a) {
  constexpr int kItemThreads = kE / kMergeColumns<kRows>, kItems = kMergeThreads / kItemThreads;
  const TextAttention& text = a.text;
  const int request = blockIdx.x, heads = text.key_heads * text.group;
  const int first = __ldcg(text.requests.first_row + request);
  const int tokens = __ldcg(text.requests.first_row + request + 1) - first;
  const int start = __ldcg(text.requests.start + request);
  wait_for_predecessor();
  let_successor_start();
  const Cut& cut = *a.partials.cut;
  const int shift = cut.shift, first_unit = cut.first_unit[request];
  const int last_unit = cut.first_unit[text.requests.count + request];
  if (a.streams != 0 && shift == kWholeShift) return;  // the rows are written
  for (int item = static_cast<int>(blockIdx.y) * kItems; item < tokens * heads; item += gridDim.y * kItems) {
    merge_item<kE, kRows>(a, shift, first_unit, last_unit, first, tokens, start,
                          item + static_cast<int>(threadIdx.x) / kItemThreads);
  }
}

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "attention_window");
  check(cudaDeviceGetAttribute(&value, attribute, device), "attention_window");
  return value;
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

// `kernel` takes units of kRows rows, `grid` says how many blocks run at once; `enough` units fill the machine;
// `streams` as in WindowAttention.
template <int kE, int kRows>
void launch_units(Stream& s, const Attention& a, void (*kernel)(WindowAttention), Grid grid, int enough, int streams) {
  const TextAttention text = text_attention(a);
  const std::int64_t rows = std::int64_t{a.requests.longest} * text.group;
  const std::int64_t least_units = std::int64_t{a.requests.count} * text.key_heads * blocks(rows, kRows);
  const std::int64_t leaves = blocks(std::int64_t{a.kv.pages_per_slot} * a.kv.page_size, kLeaf);
  const WindowAttention call{
      .text = text,
      .partials = partials_in<kE>(s, static_cast<int>(std::min<std::int64_t>(rows, kRows)), least_units),
      .enough = enough,
      .streams = streams};
  grid.blocks = static_cast<unsigned>(std::min<std::int64_t>(grid.blocks.x, least_units * leaves));
  launch(s, "attention_window", grid, kernel, call);
  const std::int64_t items = blocks(rows * text.key_heads, kMergeThreads * kMergeColumns<kRows> / kE);
  const int merging = kMergeBlocks * device_attribute(cudaDevAttrMultiProcessorCount);  // blocks at a time
  const dim3 merges(static_cast<unsigned>(a.requests.count),
                    static_cast<unsigned>(std::min<std::int64_t>(items, blocks(merging, a.requests.count))));
  launch(s, "attention_window", {.blocks = merges, .threads = kMergeThreads}, merge_kernel<kE, kRows>, call);
}

template <int kE, int kRowWarps, int kRowTiles, int kTiles>
void launch_window(Stream& s, const Attention& a) {
  using Block = WindowBlock<kE, kRowWarps, kRowTiles, kTiles>;
  const int resident = device_attribute(cudaDevAttrMultiProcessorCount) * Block::kResident;
  // A leaf of 16 rows costs little beside its keys, of 64 as much as half of them.
  launch_units<kE, Block::kRows>(
      s, a, window_kernel<kE, kRowWarps, kRowTiles, kTiles>,
      {.blocks = static_cast<unsigned>(resident), .threads = Block::kThreads, .shared = sizeof(Block)},
      Block::kRows == 16 ? 4 * resident : 3 * resident / 4, 0);
}

template <int kE>
void launch_wide_window(Stream& s, const Attention& a) {
  using Block = WideBlock<kE>;
  const int resident = device_attribute(cudaDevAttrMultiProcessorCount);
  // What a leaf leaves costs as much as half of its keys; groups on half of the machine take as long.
  launch_units<kE, kWideRows>(
      s, a, wide_window_kernel<kE>,
      {.blocks = static_cast<unsigned>(resident), .threads = kWideThreads, .shared = sizeof(Block)},
      resident * Block::kStreams / 2, resident * Block::kStreams);
}

// Every choice here is one of speed: the bits are the same.
template <int kE>
void launch_window(Stream& s, const Attention& a) {
  const std::int64_t rows = a.requests.longest * (a.q.cols / a.kv.k.cols);
  if (rows <= 16) return launch_window<kE, 1, 1, 6>(s, a);
  if constexpr (kE >= kWideColumns) {
    if (text_attention(a).vectors && device_attribute(cudaDevAttrComputeCapabilityMajor) == 9) {
      return launch_wide_window<kE>(s, a);
    }
  }
  if (rows <= 32) return launch_window<kE, 2, 1, 5>(s, a);
  launch_window<kE, 2, 2, 5>(s, a);
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
