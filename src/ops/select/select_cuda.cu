// select_drafts: the K likeliest tokens of each row, how well each follows each of those of the row before, and a walk
// (select.h has the rule).
// Bytes: logits [T, V] f32 once, or their maxima [T, V / 32] and K groups of 32 of each row; then 2 K rows of the
// codebooks for each row. Wall: memory for many rows, latency for few and with maxima.
// Plan: 1. survey: a block leaves the K largest of a piece of a row, of 4,096 logits or, where there are many rows, of
// 16,384. It reads them once, 4,096 at a time: the largest of its threads give a bound, and what is not below it waits in
// a list until the end, or until there are too many; then the K-th of those is the bound. With maxima a block does the
// same with those of a whole row, and takes the K largest of the groups that it finds. 2. edges: a block a row takes
// the K largest of those, of its own row and of the row before, and scores all K x K pairs. 3. walk: a block a request
// goes along these tables in shared memory. The draft before a row is not known in 2; K times as many scores cost less
// than a walk that waits for memory at each row. Scratch: 8 K ceil(V / 4096) + 4 K (K + 1) bytes a row at most.
// Precision: f32, sums over the rank in order; the order of candidates is that of integer keys.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/select/select.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256, kPass = 4096, kOwn = kPass / kThreads;  // kPass: logits that a block looks at at a time
constexpr int kRoom = 512;        // of the list, before the keys of a pass
constexpr int kManyPasses = 4;    // of a piece
constexpr int kManyBlocks = 4096;  // several for each place that the GPU has for one

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
  Key found[kMostCandidates * (kOwn + kRoom / kThreads)];
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

// The K-th largest of what each thread has as its largest, or 1: K threads have keys at or above it, all others none.
__device__ Key bound_of(Search& search, int K, Key largest) {
  search.largest[threadIdx.x] = largest;
  __syncthreads();
  if (threadIdx.x < 32) {
    const Key least = nth_largest(search, K);
    if (threadIdx.x == 0) search.least = max(least, Key{1});
  }
  __syncthreads();
  return search.least;
}

// The K largest of `count` keys, largest first, into best [K], which is 0.
__device__ void rank(const Key* keys, int count, int K, Key* best) {
  for (int j = threadIdx.x; j < count; j += kThreads) {
    int larger = 0;
    for (int i = 0; i < count; ++i) larger += keys[i] > keys[j];
    if (larger < K) best[larger] = keys[j];
  }
  __syncthreads();
}

// The K largest of key_at(0) .. key_at(n - 1), largest first, into best [K] in shared memory; 0 where there are no
// more. Keys are distinct, and n at most kRoom + kPass: a thread has so few that all at or above the bound fit `found`.
template <typename KeyAt>
__device__ void find_largest(Search& search, int n, int K, KeyAt key_at, Key* best) {
  Key largest = 0;
#pragma unroll 8
  for (int i = threadIdx.x; i < n; i += kThreads) largest = max(largest, key_at(i));
  if (threadIdx.x < K) best[threadIdx.x] = 0;
  if (threadIdx.x == 0) search.count = 0;
  const Key bound = bound_of(search, K, largest);
#pragma unroll 8
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const Key key = key_at(i);
    if (key >= bound) search.found[atomicAdd(&search.count, 1)] = key;
  }
  __syncthreads();
  rank(search.found, search.count, K, best);
}

// --- the three kernels ---------------------------------------------------------------------------------------

// The rows after the first of each request have places: place r * (longest - 1) + i is row i + 1 of request r.
struct Select {
  const float *logits, *maxima;
  std::int64_t logits_stride, maxima_stride;
  int vocabulary, groups, rank, K;
  int pieces, passes, places;  // pieces of a row, passes of a piece, places of a request
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
    if (pieces == 1) {  // in order
      if (threadIdx.x < K) best[threadIdx.x] = of_row[threadIdx.x];
      __syncthreads();
    } else {
      find_largest(search, pieces * K, K, [&](int i) { return of_row[i]; }, best);
    }
  }
  __device__ float unary(float logit) const {
    const float u = __fmul_rn(multiplier, logit);
    return cap > 0 ? __fmul_rn(cap, tanhf(__fdiv_rn(u, cap))) : u;
  }
};

// The logits of a thread in one pass: fours of neighbours from id(0) on; -inf from `end` on.
struct Pass {
  float x[kOwn];
  int begin;

  __device__ int id(int i) const { return begin + 4 * (static_cast<int>(threadIdx.x) + kThreads * (i / 4)) + i % 4; }

  __device__ Pass(const float* row, int first, int end, bool aligned) : begin(first) {
    if (aligned && begin + kPass <= end) {
#pragma unroll
      for (int i = 0; i < kOwn; i += 4) {
        const float4 four = *reinterpret_cast<const float4*>(row + id(i));
        x[i] = four.x, x[i + 1] = four.y, x[i + 2] = four.z, x[i + 3] = four.w;
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) x[i] = id(i) < end ? row[id(i)] : -INFINITY;
    }
  }
  __device__ Key largest(int end) const {
    Key key = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      if (id(i) < end) key = max(key, key_of(x[i], id(i)));
    }
    return key;
  }
};

struct Survey {
  Search search;
  Key best[kMostCandidates], list[kRoom + kPass];
  int listed;
};

// The K largest of row[begin] .. row[end - 1], largest first, into survey.best [K]; 0 where there are no more.
__device__ void find_in_row(Survey& survey, const float* row, int begin, int end, int K) {
  Key *const list = survey.list, *const best = survey.best;
  const bool aligned = reinterpret_cast<std::uintptr_t>(row) % 16 == 0;
  if (threadIdx.x == 0) survey.listed = 0;

  Key bound = 0;
  for (int at = begin; at < end; at += kPass) {
    const Pass pass(row, at, end, aligned);
    if (at == begin) bound = bound_of(survey.search, K, pass.largest(end));
    const float least = value_of(bound);  // not a number where the bound is none
    float top = pass.x[0];
#pragma unroll
    for (int i = 1; i < kOwn; ++i) top = fmaxf(top, pass.x[i]);
    bool full = false;
    if (!(top < least)) {
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (pass.x[i] < least || pass.id(i) >= end) continue;
        const Key key = key_of(pass.x[i], pass.id(i));
        if (key < bound) continue;
        const int place_in_list = atomicAdd(&survey.listed, 1);
        list[place_in_list] = key;
        full = full || place_in_list >= kRoom;
      }
    }
    if (!__syncthreads_or(full)) continue;  // there is room for all of the next pass
    find_largest(survey.search, survey.listed, K, [&](int i) { return list[i]; }, best);
    bound = best[K - 1];
    if (threadIdx.x < K) list[threadIdx.x] = best[threadIdx.x];
    if (threadIdx.x == 0) survey.listed = K;
    __syncthreads();
  }

  if (survey.listed > kThreads) {
    find_largest(survey.search, survey.listed, K, [&](int i) { return list[i]; }, best);
  } else {
    if (threadIdx.x < K) best[threadIdx.x] = 0;
    __syncthreads();
    rank(list, survey.listed, K, best);
  }
}

__global__ void __launch_bounds__(kThreads, 5) survey_kernel(Select a) {
  __shared__ Survey survey;
  const auto place = static_cast<int>(blockIdx.y);
  const int begin = static_cast<int>(blockIdx.x) * a.passes * kPass, end = min(begin + a.passes * kPass, a.vocabulary);
  const int t = a.row_at(place);
  wait_for_predecessor();
  let_successor_start();
  if (t < 0) return;
  find_in_row(survey, a.logits + t * a.logits_stride, begin, end, a.K);
  Key* out = a.keys + (std::int64_t{place} * a.pieces + blockIdx.x) * a.K;
  if (threadIdx.x < a.K) out[threadIdx.x] = survey.best[threadIdx.x];
}

// A survey of the maxima of a whole row, then of the groups that have the K largest. A group that is not among them has
// no candidate: each of the K has an element that comes before any of its own, for of equal maxima the lower groups are
// taken, and all ids of those are lower.
__global__ void __launch_bounds__(kThreads, 5) groups_kernel(Select a) {
  __shared__ Survey survey;
  const auto place = static_cast<int>(blockIdx.x);
  const int t = a.row_at(place), n = a.K * kMaximaColumns;
  static_assert(kMostCandidates * kMaximaColumns <= kRoom + kPass);
  wait_for_predecessor();
  let_successor_start();
  if (t < 0) return;
  find_in_row(survey, a.maxima + t * a.maxima_stride, 0, a.groups, a.K);
  const float* row = a.logits + t * a.logits_stride;
#pragma unroll 4
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const Key group = survey.best[i / kMaximaColumns];  // 0 where a row has no more groups
    const int id = group ? id_of(group) * kMaximaColumns + i % kMaximaColumns : a.vocabulary;
    survey.list[i] = id < a.vocabulary ? key_of(row[id], id) : 0;
  }
  __syncthreads();
  find_largest(survey.search, n, a.K, [&](int i) { return survey.list[i]; }, survey.best);
  if (threadIdx.x < a.K) a.keys[std::int64_t{place} * a.K + threadIdx.x] = survey.best[threadIdx.x];
}

constexpr int kWarps = kThreads / 32, kCodes = 4;  // kCodes: rows of codes that a warp waits for at a time

// From one row of codes to the next: whole eights, and then so much that neighbours begin four banks apart.
__host__ __device__ constexpr int stride_of(int rank) { return (rank + 7) / 8 * 8 + 4; }

// codes [2, K, stride]: those of the candidates `before` times the factors of the row, then those of `best`; zeros from
// the rank to whole eights.
template <typename T>
__device__ void load_codes(const Select& a, const Key* before, int befores, const T* predecessor, const float* factor,
                           const Key* best, const T* successor, bool vectors, float* codes) {
  const int K = a.K, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bool factors_aligned = reinterpret_cast<std::uintptr_t>(factor) % 16 == 0;
  for (int k = 8 * lane; k < a.rank; k += 256) {
    const auto factors = Eight<float>::load(factor + k, a.rank - k, factors_aligned);
    for (int first = warp; first < 2 * K; first += kCodes * kWarps) {
      const T* from[kCodes];
#pragma unroll
      for (int i = 0; i < kCodes; ++i) {
        const int row = first + kWarps * i;
        from[i] = row < befores ? predecessor + std::int64_t{id_of(before[row])} * a.rank + k : nullptr;
        if (row >= K && row < 2 * K) from[i] = successor + std::int64_t{id_of(best[row - K])} * a.rank + k;
      }
      Packed<T> code[kCodes];
      if (vectors) {
#pragma unroll
        for (int i = 0; i < kCodes; ++i) code[i] = Packed<T>::load(from[i], from[i] != nullptr);
      } else {
#pragma unroll
        for (int i = 0; i < kCodes; ++i) {
          if (from[i]) code[i] = Eight<T>::load(from[i], a.rank - k, false).packed();
        }
      }
#pragma unroll
      for (int i = 0; i < kCodes; ++i) {
        const int row = first + kWarps * i;
        if (!from[i]) continue;
        auto x = Eight<T>::of(code[i]);
#pragma unroll
        for (int j = 0; j < 8; ++j) x.v[j] = row < K ? __fmul_rn(x.v[j], factors.v[j]) : x.v[j];
        auto* to = reinterpret_cast<float4*>(codes + row * stride_of(a.rank) + k);
        to[0] = make_float4(x.v[0], x.v[1], x.v[2], x.v[3]), to[1] = make_float4(x.v[4], x.v[5], x.v[6], x.v[7]);
      }
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 2 ? 4 : 2)
    edges_kernel(Select a, Matrix<const float> projected, const T* predecessor, const T* successor, bool vectors) {
  extern __shared__ __align__(16) float codes[];  // [2, K, stride]: predecessors times the projected row, successors
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

  const int stride = stride_of(a.rank), befores = after_anchor ? 1 : K;
  load_codes(a, before, befores, predecessor, projected.row(t), best, successor, vectors, codes);
  __syncthreads();
  for (int pair = threadIdx.x; pair < befores * K; pair += kThreads) {
    const float *p = codes + pair / K * stride, *c = codes + (K + pair % K) * stride;
    float sum = 0;
#pragma unroll 4
    for (int k = 0; k < a.rank; k += 4) {  // beyond the rank are zeros
      const auto x = *reinterpret_cast<const float4*>(p + k), y = *reinterpret_cast<const float4*>(c + k);
      sum = __fmaf_rn(x.x, y.x, sum);
      sum = __fmaf_rn(x.y, y.y, sum);
      sum = __fmaf_rn(x.z, y.z, sum);
      sum = __fmaf_rn(x.w, y.w, sum);
    }
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

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

}  // namespace

void select_drafts(Stream& s, const SelectDrafts& a) {
  check_select_drafts(a);
  const std::int64_t V = a.logits.cols, K = a.candidates, places = a.requests.longest - 1;
  const std::int64_t all = a.requests.count * places;
  if (a.logits.rows == 0 || all <= 0) return;
  const int passes = all * blocks(V, kPass) < kManyBlocks ? 1 : kManyPasses;
  const bool by_groups = a.maxima.data != nullptr;
  const unsigned pieces = by_groups ? 1 : blocks(V, passes * kPass);
  const std::size_t key_bytes = sizeof(Key) * static_cast<std::size_t>(all * pieces * K);
  const std::size_t score_bytes = sizeof(float) * static_cast<std::size_t>(all * K * K);
  const std::size_t bytes = key_bytes + score_bytes + sizeof(std::int32_t) * static_cast<std::size_t>(all * K);
  if (blocks(V, kPass) * K > kPass) {
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
                      .maxima = static_cast<const float*>(a.maxima.data),
                      .logits_stride = a.logits.stride,
                      .maxima_stride = a.maxima.stride,
                      .vocabulary = static_cast<int>(V),
                      .groups = static_cast<int>(maxima_cols(V)),
                      .rank = static_cast<int>(a.predecessor.in),
                      .K = static_cast<int>(K),
                      .pieces = static_cast<int>(pieces),
                      .passes = passes,
                      .places = static_cast<int>(places),
                      .multiplier = a.multiplier,
                      .cap = a.cap,
                      .first_row = a.requests.first_row,
                      .ids = a.ids,
                      .keys = reinterpret_cast<Key*>(scratch),
                      .scores = reinterpret_cast<float*>(scratch + key_bytes),
                      .choices = reinterpret_cast<std::int32_t*>(scratch + key_bytes + score_bytes)};
  if (by_groups) {
    launch(s, "select_drafts", {.blocks = dim3(static_cast<unsigned>(all)), .threads = kThreads}, groups_kernel,
           select);
  } else {
    launch(s, "select_drafts", {.blocks = dim3(pieces, static_cast<unsigned>(all)), .threads = kThreads}, survey_kernel,
           select);
  }
  const std::size_t codes = sizeof(float) * static_cast<std::size_t>(2 * K * stride_of(select.rank));
  with_type(a.predecessor.format, [&](auto t) {
    using T = decltype(t);
    // launch() asks for more than 48 KB; here what the block has besides may make it more.
    check(cudaFuncSetAttribute(edges_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(codes)),
          "select_drafts");
    const bool vectors = a.predecessor.in % 8 == 0 && aligned(a.predecessor.data) && aligned(a.successor.data);
    launch(s, "select_drafts", {.blocks = dim3(static_cast<unsigned>(all)), .threads = kThreads, .shared = codes},
           edges_kernel<T>, select, matrix<const float>(a.projected), static_cast<const T*>(a.predecessor.data),
           static_cast<const T*>(a.successor.data), vectors);
  });
  const std::size_t table = sizeof(float) * static_cast<std::size_t>(places * K * (K + 1));
  launch(s, "select_drafts",
         {.blocks = dim3(static_cast<unsigned>(a.requests.count)), .threads = kThreads, .shared = table}, walk_kernel,
         select);
}

}  // namespace quire::cuda
