// select_drafts: the K likeliest tokens of each row, how well each follows each of those of the row before, and a walk
// (select.h has the rule).
// Bytes: logits [T, V] f32 once, then 2 K rows of the codebooks for each row. Wall: memory for many rows, latency for
// few.
// Plan: 1. survey: a block leaves the K largest of 4,096 logits of a row. 2. edges: a block a row takes the K largest
// of those, of its own row and of the row before, and scores all K x K pairs. 3. walk: a block a request goes along
// these tables in shared memory. The draft before a row is not known in 2; K times as many scores cost less than a walk
// that waits for memory at each row. Scratch: 8 K ceil(V / 4096) + 4 K (K + 1) bytes a row.
// Precision: f32, sums over the rank in order; the order of candidates is that of integer keys.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/select/select.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256, kPiece = 4096, kOwn = kPiece / kThreads;

// --- candidates --------------------------------------------------------------------------------------------

// A candidate as a number, the better one larger: the logit or score in its upper half (NaN counts as -inf, -0 as 0),
// the lower id in the lower. 0 is none.
using Key = unsigned long long;

__device__ Key key_of(float value, std::int32_t id) {
  const float x = isnan(value) ? -INFINITY : __fadd_rn(value, 0.0f);
  const unsigned bits = __float_as_uint(x);
  return Key{bits >> 31 ? ~bits : bits | 0x80000000u} << 32 | ~static_cast<unsigned>(id);
}
__device__ float value_of(Key key) {
  const auto bits = static_cast<unsigned>(key >> 32);
  return __uint_as_float(bits >> 31 ? bits & 0x7fffffffu : ~bits);
}
__device__ std::int32_t id_of(Key key) { return static_cast<std::int32_t>(~static_cast<unsigned>(key)); }

__device__ Key warp_largest(Key key) {
  const auto high = static_cast<unsigned>(key >> 32), low = static_cast<unsigned>(key);
  const unsigned top = __reduce_max_sync(~0u, high);
  return Key{top} << 32 | __reduce_max_sync(~0u, high == top ? low : 0u);
}

struct Search {
  Key largest[kThreads];  // of each thread's keys
  Key found[kMostCandidates * kOwn];
  Key least;
  int count;
};

// The n-th largest of search.largest, or 0, by one warp.
__device__ Key nth_largest(const Search& search, int n) {
  Key own[kThreads / 32];
#pragma unroll
  for (int k = 0; k < kThreads / 32; ++k) own[k] = search.largest[threadIdx.x % 32 + 32 * k];
  Key last = ~Key{0};
  for (int i = 0; i < n; ++i) {
    Key next = 0;
#pragma unroll
    for (int k = 0; k < kThreads / 32; ++k) {
      if (own[k] < last) next = max(next, own[k]);
    }
    last = warp_largest(next);
  }
  return last;
}

// The K largest of key_at(0) .. key_at(n - 1), largest first, into best [K] in shared memory; 0 where there are no
// more. Keys are distinct, and n at most kPiece. The K-th of what each thread has as its largest is a bound: K threads
// have keys at or above it, all others have none, so that at most K * kOwn are looked at.
template <typename KeyAt>
__device__ void find_largest(Search& search, int n, int K, KeyAt key_at, Key* best) {
  Key largest = 0;
#pragma unroll 8
  for (int i = threadIdx.x; i < n; i += kThreads) largest = max(largest, key_at(i));
  search.largest[threadIdx.x] = largest;
  if (threadIdx.x < K) best[threadIdx.x] = 0;
  if (threadIdx.x == 0) search.count = 0;
  __syncthreads();
  if (threadIdx.x < 32) {
    const Key least = nth_largest(search, K);
    if (threadIdx.x == 0) search.least = max(least, Key{1});
  }
  __syncthreads();
#pragma unroll 8
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const Key key = key_at(i);
    if (key >= search.least) search.found[atomicAdd(&search.count, 1)] = key;
  }
  __syncthreads();
  for (int j = threadIdx.x; j < search.count; j += kThreads) {
    int larger = 0;
    for (int i = 0; i < search.count; ++i) larger += search.found[i] > search.found[j];
    if (larger < K) best[larger] = search.found[j];
  }
  __syncthreads();
}

// --- the three kernels ---------------------------------------------------------------------------------------

// The rows after the first of each request have places: place r * (longest - 1) + i is row i + 1 of request r.
struct Select {
  const float* logits;
  std::int64_t logits_stride;
  int vocabulary, rank, K, pieces, places;  // places of a request
  float multiplier, cap;
  const std::int32_t* first_row;
  std::int32_t* ids;
  Key* keys;              // [all places, pieces, K]
  float* scores;          // [all places, K before, K]
  std::int32_t* choices;  // [all places, K]

  // The row at a place, or -1.
  __device__ int row_at(int place) const {
    const int r = place / places, t = first_row[r] + 1 + place % places;
    return t < first_row[r + 1] ? t : -1;
  }
  __device__ void find_candidates(Search& search, int place, Key* best) const {
    const Key* of_row = keys + std::int64_t{place} * pieces * K;
    find_largest(search, pieces * K, K, [&](int i) { return of_row[i]; }, best);
  }
  __device__ float unary(float logit) const {
    const float u = __fmul_rn(multiplier, logit);
    return cap > 0 ? __fmul_rn(cap, tanhf(__fdiv_rn(u, cap))) : u;
  }
};

__global__ void __launch_bounds__(kThreads) survey_kernel(Select a) {
  __shared__ Search search;
  __shared__ Key best[kMostCandidates];
  const auto place = static_cast<int>(blockIdx.y), begin = static_cast<int>(blockIdx.x) * kPiece;
  const int t = a.row_at(place);
  wait_for_predecessor();
  let_successor_start();
  if (t < 0) return;
  const float* logits = a.logits + t * a.logits_stride + begin;
  const int n = min(kPiece, a.vocabulary - begin);
  find_largest(search, n, a.K, [&](int i) { return key_of(logits[i], begin + i); }, best);
  Key* out = a.keys + (std::int64_t{place} * a.pieces + blockIdx.x) * a.K;
  if (threadIdx.x < a.K) out[threadIdx.x] = best[threadIdx.x];
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    edges_kernel(Select a, Matrix<const float> projected, const T* predecessor, const T* successor) {
  extern __shared__ float codes[];  // [2, K, stride]: predecessors times the projected row, successors
  __shared__ Search search;
  __shared__ Key before[kMostCandidates], best[kMostCandidates];
  const auto place = static_cast<int>(blockIdx.x);
  const int t = a.row_at(place), K = a.K;
  wait_for_predecessor();
  let_successor_start();
  if (t < 0) return;
  const bool after_anchor = place % a.places == 0;
  if (after_anchor) {
    if (threadIdx.x == 0) before[0] = key_of(0, a.ids[t - 1]);
  } else {
    a.find_candidates(search, place - 1, before);
  }
  a.find_candidates(search, place, best);

  const int stride = a.rank | 1, befores = after_anchor ? 1 : K;  // an odd stride spreads rows over the banks
  float* successors = codes + K * stride;
  for (int i = threadIdx.x; i < K * a.rank; i += kThreads) {
    const int row = i / a.rank, k = i % a.rank;
    successors[row * stride + k] = to_f32(successor[std::int64_t{id_of(best[row])} * a.rank + k]);
    if (row >= befores) continue;
    const float code = to_f32(predecessor[std::int64_t{id_of(before[row])} * a.rank + k]);
    codes[row * stride + k] = __fmul_rn(code, projected.row(t)[k]);
  }
  __syncthreads();
  for (int pair = threadIdx.x; pair < befores * K; pair += kThreads) {
    const float *p = codes + pair / K * stride, *c = successors + pair % K * stride;
    float sum = 0;
    for (int k = 0; k < a.rank; ++k) sum = __fmaf_rn(p[k], c[k], sum);
    a.scores[std::int64_t{place} * K * K + pair] = __fadd_rn(a.unary(value_of(best[pair % K])), sum);
  }
  if (threadIdx.x < K) a.choices[place * K + threadIdx.x] = id_of(best[threadIdx.x]);
}

__global__ void __launch_bounds__(kThreads) walk_kernel(Select a) {
  extern __shared__ float scores[];  // [places, K, K], then ids [places, K]
  const int r = blockIdx.x, K = a.K, first = a.first_row[r], rows = a.first_row[r + 1] - first - 1;
  wait_for_predecessor();
  let_successor_start();
  auto* ids = reinterpret_cast<std::int32_t*>(scores + a.places * K * K);
  const std::int64_t begin = std::int64_t{r} * a.places * K;
  for (int i = threadIdx.x; i < rows * K * K; i += kThreads) scores[i] = a.scores[begin * K + i];
  for (int i = threadIdx.x; i < rows * K; i += kThreads) ids[i] = a.choices[begin + i];
  __syncthreads();
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  int before = 0;  // which candidate of the row before is its draft; the anchor is the only one of its row
  for (int i = 0; i < rows; ++i) {
    const Key own = lane < K ? key_of(scores[(i * K + before) * K + lane], ids[i * K + lane]) : 0;
    const Key best = warp_largest(own);
    before = __ffs(__ballot_sync(~0u, own == best)) - 1;
    if (lane == 0) a.ids[first + 1 + i] = id_of(best);
  }
}

}  // namespace

void select_drafts(Stream& s, const SelectDrafts& a) {
  check_select_drafts(a);
  const std::int64_t V = a.logits.cols, K = a.candidates, places = a.requests.longest - 1;
  const std::int64_t all = a.requests.count * places;
  if (a.logits.rows == 0 || all <= 0) return;
  const unsigned pieces = blocks(V, kPiece);
  const std::size_t key_bytes = sizeof(Key) * static_cast<std::size_t>(all * pieces * K);
  const std::size_t score_bytes = sizeof(float) * static_cast<std::size_t>(all * K * K);
  const std::size_t bytes = key_bytes + score_bytes + sizeof(std::int32_t) * static_cast<std::size_t>(all * K);
  if (pieces * K > kPiece) {
    throw Error(ErrorCode::unsupported, "select_drafts: " + std::to_string(K) + " candidates of " + std::to_string(V) +
                                            " tokens; their product is at most 2^24 on CUDA");
  }
  if (all > 65535 || s.cuda_scratch_bytes < bytes) {
    throw Error(ErrorCode::internal, "select_drafts: " + std::to_string(all) + " rows of at most 65535, scratch of " +
                                         std::to_string(s.cuda_scratch_bytes) + " bytes, expected at least " +
                                         std::to_string(bytes));
  }
  auto* const scratch = static_cast<std::byte*>(s.cuda_scratch);
  const Select select{.logits = static_cast<const float*>(a.logits.data),
                      .logits_stride = a.logits.stride,
                      .vocabulary = static_cast<int>(V),
                      .rank = static_cast<int>(a.predecessor.in),
                      .K = static_cast<int>(K),
                      .pieces = static_cast<int>(pieces),
                      .places = static_cast<int>(places),
                      .multiplier = a.multiplier,
                      .cap = a.cap,
                      .first_row = a.requests.first_row,
                      .ids = a.ids,
                      .keys = reinterpret_cast<Key*>(scratch),
                      .scores = reinterpret_cast<float*>(scratch + key_bytes),
                      .choices = reinterpret_cast<std::int32_t*>(scratch + key_bytes + score_bytes)};
  launch(s, "select_drafts", {.blocks = dim3(pieces, static_cast<unsigned>(all)), .threads = kThreads}, survey_kernel,
         select);
  const std::size_t codes = sizeof(float) * static_cast<std::size_t>(2 * K * (a.predecessor.in | 1));
  with_type(a.predecessor.format, [&](auto t) {
    using T = decltype(t);
    // launch() asks for more than 48 KB; here what the block has besides may make it more.
    check(cudaFuncSetAttribute(edges_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(codes)),
          "select_drafts");
    launch(s, "select_drafts", {.blocks = dim3(static_cast<unsigned>(all)), .threads = kThreads, .shared = codes},
           edges_kernel<T>, select, matrix<const float>(a.projected), static_cast<const T*>(a.predecessor.data),
           static_cast<const T*>(a.successor.data));
  });
  const std::size_t table = sizeof(float) * static_cast<std::size_t>(places * K * (K + 1));
  launch(s, "select_drafts",
         {.blocks = dim3(static_cast<unsigned>(a.requests.count)), .threads = kThreads, .shared = table}, walk_kernel,
         select);
}

}  // namespace quire::cuda
