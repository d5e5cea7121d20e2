// sample: a token for each row (sample.h has the rule).
// logits [T, V] f32, read once; a row that is drawn is read once more, into keys [V] that 3 passes for top_k, 3 for
// top_p and 1 for the draw read from L2. Wall: memory; latency at T = 1.
// Plan: 1. survey: a block for 4,096 tokens of a row leaves their largest logit, sum of e^(l - max) and best token.
// 2. draw: clusters of 8 blocks share the rows; one warp adds up the survey of a row, which ends greedy rows. For
// others each warp has a fixed segment of the ids: histograms of ten bits find a cutoff, then the segment and the token
// of the draw. Launches do not depend on settings. Scratch: 16 ceil(V / 4096) bytes a row and 4 V + 2,044 bytes a
// cluster, of which there are min(T, 32): 32 MB for 64 rows of 248,320.
// Of a row without penalties the best token is the first that is the largest: two instructions a logit rather than a
// branch.
// Precision: the sum of e^x f32, in one order for each V, its terms by ex2.approx, within 2^-20 of themselves down to e^-8;
// weights and their sums are integers. Tokens are those of the reference, bit for bit.
#include <algorithm>
#include <cfloat>
#include <cmath>

#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/sample/draw.h"
#include "ops/sample/sample.h"

namespace quire::cuda {
namespace {

using Word = unsigned long long;

constexpr int kSurveyThreads = 256, kVectors = 4, kPiece = 4 * kVectors * kSurveyThreads;
constexpr int kCluster = 8, kDrawThreads = 512, kWarps = kDrawThreads / 32, kSegments = kCluster * kWarps;
constexpr unsigned kBins = 1024;
constexpr std::int64_t kMostClusters = 32;  // two blocks for nearly each multiprocessor of an H200

// Ids of a warp; a multiple of 4.
constexpr std::int64_t segment_size(std::int64_t vocabulary) {
  return (vocabulary + 4 * kSegments - 1) / (4 * kSegments) * 4;
}

// --- rows ------------------------------------------------------------------------------------------------

struct Candidate {
  float value;
  std::int32_t token;
};

// The larger value, of equal ones the lower id. A NaN is never larger.
__device__ Candidate better(Candidate a, Candidate b) {
  return b.value > a.value || (b.value == a.value && b.token < a.token) ? b : a;
}
__device__ Candidate warp_best(Candidate c) {
  for (int offset = 16; offset > 0; offset >>= 1) {
    c = better(c, {__shfl_xor_sync(~0u, c.value, offset), __shfl_xor_sync(~0u, c.token, offset)});
  }
  return c;
}

struct Four {
  float value[4];
};

// Logits of one row.
struct Row {
  const float* logits;
  std::int64_t vocabulary;
  bool aligned;

  __device__ Row(const Sample& a, std::int64_t t)
      : logits(static_cast<const float*>(a.logits.data) + t * a.logits.stride),
        vocabulary(a.logits.cols),
        aligned(reinterpret_cast<std::uintptr_t>(logits) % 16 == 0) {}

  // Tokens j .. j + 3; -inf from `end` on.
  __device__ Four load(std::int64_t j, std::int64_t end) const {
    Four x;
    if (aligned && j + 4 <= end) {
      const float4 v = *reinterpret_cast<const float4*>(logits + j);
      x = {v.x, v.y, v.z, v.w};
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) x.value[i] = j + i < end ? logits[j + i] : -INFINITY;
    }
    return x;
  }
};

// Settings of one row.
struct Settings : SamplingSettings {
  const std::uint16_t* seen;  // nullptr: no penalties

  __device__ Settings(const Sample& a, std::int64_t t) : SamplingSettings(a.settings[a.slot[t]]) {
    seen = a.seen && has_penalties(*this) ? a.seen + a.slot[t] * a.logits.cols : nullptr;
  }

  // The logit of token j; -inf, which nothing changes, may stand for tokens beyond the vocabulary.
  __device__ float penalised(float l, std::int64_t j) const {
    if (!seen || l == -INFINITY || seen[j] == 0) return l;
    l = l > 0 ? __fdiv_rn(l, repetition_penalty) : __fmul_rn(l, repetition_penalty);
    const int count = seen[j] & ~kInPrompt;
    if (count == 0) return l;
    l = __fsub_rn(l, presence_penalty);
    return __fsub_rn(l, __fmul_rn(frequency_penalty, static_cast<float>(count)));
  }
};

// --- survey ----------------------------------------------------------------------------------------------

struct Survey {
  float top;       // largest logit
  float sum;       // of e^(l - top)
  Candidate best;  // after penalties
};

// The same bits in every lane. `top` starts finite, so that a part of -inf alone adds 0.
__device__ Survey warp_total(Survey s) {
  const float top = warp_max(s.top);
  return {top, warp_sum(__fmul_rn(s.sum, expf(__fsub_rn(s.top, top)))), warp_best(s.best)};
}
__device__ Survey nothing() { return {-FLT_MAX, 0, {-INFINITY, INT32_MAX}}; }

// e^x for x <= 0, e^0 = 1; 0 where it is no normal number.
__device__ float exp_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(__fmul_rn(x, 1.44269504f)));
  return y;
}

__global__ void __launch_bounds__(kSurveyThreads) survey_kernel(Sample a, Survey* out) {
  wait_for_predecessor();
  let_successor_start();
  const Row row(a, blockIdx.y);
  const std::int64_t first = std::int64_t{blockIdx.x} * kPiece + 4 * threadIdx.x;
  Four x[kVectors];
  if (row.aligned && std::int64_t{blockIdx.x + 1} * kPiece <= row.vocabulary) {  // no branch between these loads
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const float4 v = *reinterpret_cast<const float4*>(row.logits + first + 4 * kSurveyThreads * k);
      x[k] = {v.x, v.y, v.z, v.w};
    }
  } else {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) x[k] = row.load(first + 4 * kSurveyThreads * k, row.vocabulary);
  }
  const Settings settings(a, blockIdx.y);

  Survey s = nothing();
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s.top = fmaxf(s.top, x[k].value[i]);
  }
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s.sum = __fadd_rn(s.sum, exp_of(__fsub_rn(x[k].value[i], s.top)));
  }
  if (settings.seen) {
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t j = first + 4 * kSurveyThreads * k + i;
        const float p = settings.penalised(x[k].value[i], j);
        if (p > s.best.value) s.best = {p, static_cast<std::int32_t>(j)};
      }
    }
  } else {
    int where = -1;  // the first that is s.top; there is none where all are -inf or NaN
#pragma unroll
    for (int k = kVectors - 1; k >= 0; --k) {
#pragma unroll
      for (int i = 3; i >= 0; --i) where = x[k].value[i] == s.top ? 4 * kSurveyThreads * k + i : where;
    }
    if (where >= 0) s.best = {s.top, static_cast<std::int32_t>(first) + where};
  }
  __shared__ Survey warps[kSurveyThreads / 32];
  s = warp_total(s);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  s = warp_total(threadIdx.x < kSurveyThreads / 32 ? warps[threadIdx.x] : nothing());
  if (threadIdx.x == 0) out[std::int64_t{blockIdx.y} * gridDim.x + blockIdx.x] = s;
}

// Of a whole row, by one warp; the same in every lane.
__device__ Survey row_total(const Survey* pieces, int count) {
  Survey s = nothing();
  for (int i = threadIdx.x % 32; i < count; i += 32) {
    const Survey piece = pieces[i];
    const float top = fmaxf(s.top, piece.top);
    s.sum = __fadd_rn(__fmul_rn(s.sum, expf(__fsub_rn(s.top, top))),
                      __fmul_rn(piece.sum, expf(__fsub_rn(piece.top, top))));
    s = {top, s.sum, better(s.best, piece.best)};
  }
  s = warp_total(s);
  if (s.best.token == INT32_MAX) s.best.token = 0;  // nothing but NaN and -inf
  return s;
}

// --- cutoffs ---------------------------------------------------------------------------------------------

__device__ unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
// What the blocks of the cluster wrote before, all of them see after.
__device__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
}
// *x in the shared memory of another block of the cluster.
__device__ Word load_from(unsigned rank, const Word* x) {
  const auto here = static_cast<unsigned>(__cvta_generic_to_shared(x));
  unsigned there;
  Word value;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(rank));
  asm volatile("ld.shared::cluster.u64 %0, [%1];" : "=l"(value) : "r"(there) : "memory");
  return value;
}

struct Shared {
  Word bins[2][kBins];   // by turns, so that one may be cleared while other blocks still read the other
  Word segment[kWarps];  // weight of the segment above the cutoff
  Word ties[kWarps];     // its tokens at the cutoff
  Word scan[kWarps];
  Word wanted;
  unsigned bin;
};

// x + *sum for a word in shared memory, by atomics of 32 bits: those of 64 are a loop. The carries add up to the same
// number in any order.
__device__ void add_to(Word* sum, Word x) {
  auto* half = reinterpret_cast<unsigned*>(sum);
  const auto low = static_cast<unsigned>(x);
  auto high = static_cast<unsigned>(x >> 32);
  if (atomicAdd(half, low) > ~low) ++high;
  if (high != 0) atomicAdd(half + 1, high);
}

__device__ Word inclusive_scan(Word x) {
  for (int offset = 1; offset < 32; offset <<= 1) {
    const Word below = __shfl_up_sync(~0u, x, offset);
    if (threadIdx.x % 32 >= offset) x += below;
  }
  return x;
}

struct Count {
  static __device__ Word of(unsigned) { return 1; }
  static __device__ void add(Word* bin, unsigned) { atomicAdd(reinterpret_cast<unsigned*>(bin), 1u); }
};
struct Weight64 {
  static __device__ Word of(unsigned key) { return weight_of(__uint_as_float(key)); }
  static __device__ void add(Word* bin, unsigned key) { add_to(bin, of(key)); }
};

// A row that is drawn, as a cluster sees it. The key of a token is the bits of its ratio.
struct Draw {
  Shared& shared;
  unsigned* keys;  // [kSegments, segment]
  unsigned rank, warp, lane;
  int segment;
  Cutoff cutoff{kLeastKey, kAllTies};

  __device__ Draw(Shared& of_block, unsigned* of_cluster, std::int64_t vocabulary)
      : shared(of_block),
        keys(of_cluster),
        rank(cluster_rank()),
        warp(threadIdx.x / 32),
        lane(threadIdx.x % 32),
        segment(static_cast<int>(segment_size(vocabulary))) {}

  // `ratio` of sample_ref.cpp, its bits. Adding 1.5 * 2^23 rounds to an integer, which then stands in the last bits.
  __device__ static unsigned ratio(float x) {
    const float shifted = __fadd_rn(__fmul_rn(x, 1.44269504f), 0x1.8p23f), n = __fsub_rn(shifted, 0x1.8p23f);
    float r = __fmaf_rn(n, -0.693145752f, x);
    r = __fmaf_rn(n, -1.42860677e-6f, r);
    float p = 1.38888894e-3f;
    p = __fmaf_rn(p, r, 8.33333377e-3f);
    p = __fmaf_rn(p, r, 4.16666642e-2f);
    p = __fmaf_rn(p, r, 1.66666671e-1f);
    p = __fmaf_rn(p, r, 0.5f);
    p = __fmaf_rn(p, r, 1.0f);
    p = __fmaf_rn(p, r, 1.0f);
    const unsigned bits = __float_as_uint(p) + (__float_as_uint(shifted) << 23);  // p 2^n
    return x >= -28.0f && bits >= kLeastKey ? bits : 0;
  }

  // The keys of this warp's segment; 0 beyond the vocabulary.
  __device__ void store_keys(const Row& row, const Settings& settings, float top) {
    const float inverse = inverse_temperature(settings.temperature);
    const int begin = static_cast<int>(rank * kWarps + warp) * segment;
    const int end = static_cast<int>(min(std::int64_t{begin} + segment, row.vocabulary));
    for (int j = 4 * static_cast<int>(lane); j < segment; j += 128 * kVectors) {
      Four x[kVectors];
#pragma unroll
      for (int k = 0; k < kVectors; ++k) x[k] = row.load(begin + j + 128 * k, end);
#pragma unroll
      for (int k = 0; k < kVectors; ++k) {
        unsigned key[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float p = settings.penalised(x[k].value[i], begin + j + 128 * k + i);
          key[i] = ratio(__fmul_rn(__fsub_rn(p, top), inverse));
        }
        if (j + 128 * k < segment) {
          *reinterpret_cast<uint4*>(keys + begin + j + 128 * k) = make_uint4(key[0], key[1], key[2], key[3]);
        }
      }
    }
  }

  // body(key) for what this thread has stored.
  template <typename Body>
  __device__ void for_keys(Body body) const {
    const unsigned* own = keys + (rank * kWarps + warp) * segment;
    for (int j = 4 * static_cast<int>(lane); j < segment; j += 128 * kVectors) {
      uint4 k[kVectors];
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        k[i] = make_uint4(0, 0, 0, 0);
        if (j + 128 * i < segment) k[i] = *reinterpret_cast<const uint4*>(own + j + 128 * i);
      }
#pragma unroll
      for (int i = 0; i < kVectors; ++i) body(k[i].x), body(k[i].y), body(k[i].z), body(k[i].w);
    }
  }

  // Of this level's bins, the sum over the cluster, from the top: the bin in which `wanted` is reached, and what is
  // still wanted of it. target(total) replaces `wanted` at the first level.
  template <typename Target>
  __device__ void find_bin(const Word* bins, bool first, Target target) {
    const unsigned high = kBins - 1 - 2 * threadIdx.x, low = high - 1;
    Word x = 0, y = 0;
    for (unsigned r = 0; r < kCluster; ++r) x += load_from(r, bins + high), y += load_from(r, bins + low);
    Word through = inclusive_scan(x + y);
    if (lane == 31) shared.scan[warp] = through;
    __syncthreads();
    Word total = 0;
    for (unsigned w = 0; w < kWarps; ++w) {
      if (w < warp) through += shared.scan[w];
      total += shared.scan[w];
    }
    const Word wanted = first ? target(total) : shared.wanted, before = through - x - y;
    __syncthreads();
    if (before < wanted && wanted <= through) {
      const bool in_high = wanted <= before + x;
      shared.bin = in_high ? high : low;
      shared.wanted = wanted - before - (in_high ? 0 : x);
    }
    __syncthreads();
  }

  // Keeps as many as it takes, in order of rank, for the measure to add up to target(total).
  template <typename Measure, typename Target>
  __device__ void shrink(Target target) {
    unsigned prefix = 0;
    for (int level = 0; level < 3; ++level) {
      const int shift = 20 - 10 * level;
      Word* bins = shared.bins[turn_ ^= 1];
      for (unsigned b = threadIdx.x; b < kBins; b += kDrawThreads) bins[b] = 0;
      __syncthreads();
      const unsigned least = cutoff.key + (cutoff.ties == kAllTies ? 0 : 1);
      for_keys([&](unsigned k) {
        if (k >= least && k >> shift >> 10 == prefix) Measure::add(&bins[k >> shift & (kBins - 1)], k);
      });
      if (rank == 0 && threadIdx.x == 0 && cutoff.ties != kAllTies && cutoff.key >> shift >> 10 == prefix) {
        add_to(&bins[cutoff.key >> shift & (kBins - 1)], cutoff.ties * Measure::of(cutoff.key));
      }
      cluster_sync();
      find_bin(bins, level == 0, target);
      prefix = prefix << 10 | shared.bin;
    }
    const Word each = Measure::of(prefix);
    cutoff = {prefix, (shared.wanted + each - 1) / each};
  }

  __device__ void raise(float least) {
    const unsigned k = __float_as_uint(least);
    if (k > cutoff.key) cutoff = {k, kAllTies};
  }

  __device__ Word kept_ties(Word before, Word ties) const {
    return before >= cutoff.ties ? 0 : min(ties, static_cast<Word>(cutoff.ties - before));
  }

  // The token, in the one warp of the cluster that finds it; -1 in the others.
  __device__ std::int32_t token(Word bits) {
    Word above = 0, ties = 0;
    for_keys([&](unsigned k) { above += k > cutoff.key ? Weight64::of(k) : 0, ties += k == cutoff.key; });
    above = __shfl_sync(~0u, inclusive_scan(above), 31), ties = __shfl_sync(~0u, inclusive_scan(ties), 31);
    if (lane == 0) shared.segment[warp] = above, shared.ties[warp] = ties;
    cluster_sync();
    Word target = 0, tie = 0;
    unsigned found = kSegments;
    if (warp == 0) found = find_segment(bits, target, tie);
    cluster_sync();  // nobody ends while its memory is read
    const std::int32_t token = found / kWarps == rank ? find_token(found, target, tie) : -1;
    __syncthreads();  // before the keys are those of the next row
    return token;
  }

 private:
  // The segment, what is left of the target in it, the ties before it.
  __device__ unsigned find_segment(Word bits, Word& target, Word& tie) const {
    constexpr int kEach = kSegments / 32;
    const Word at_cutoff = Weight64::of(cutoff.key);
    Word above[kEach], ties[kEach], mine = 0, kept = 0;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const unsigned s = lane * kEach + i;
      above[i] = load_from(s / kWarps, shared.segment + s % kWarps);
      ties[i] = load_from(s / kWarps, shared.ties + s % kWarps);
      mine += ties[i];
    }
    Word before = inclusive_scan(mine) - mine;  // ties
    const Word ties_before = before;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      above[i] += kept_ties(before, ties[i]) * at_cutoff;
      before += ties[i];
      kept += above[i];
    }
    const Word through = inclusive_scan(kept);
    target = uniform_below(__shfl_sync(~0u, through, 31), bits);
    const int found = __ffs(__ballot_sync(~0u, through > target)) - 1;
    target -= __shfl_sync(~0u, through - kept, found);
    tie = __shfl_sync(~0u, ties_before, found);
    unsigned owner = found * kEach;
#pragma unroll
    for (int i = 0; i < kEach - 1; ++i) {
      const Word here = __shfl_sync(~0u, above[i], found), tied = __shfl_sync(~0u, ties[i], found);
      if (owner == static_cast<unsigned>(found * kEach + i) && target >= here) target -= here, tie += tied, ++owner;
    }
    return owner;
  }

  // In segment s, the id at which the kept weights exceed `target`, `tie` of the ties being before it.
  __device__ std::int32_t find_token(unsigned s, Word target, Word tie) const {
    const int begin = static_cast<int>(s) * segment;
    for (int j = 4 * static_cast<int>(lane);; j += 128) {
      uint4 four = make_uint4(0, 0, 0, 0);
      if (j < segment) four = *reinterpret_cast<const uint4*>(keys + begin + j);
      const unsigned key[4] = {four.x, four.y, four.z, four.w};
      Word weight[4], ties[4], mine = 0, kept = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weight[i] = key[i] < cutoff.key ? 0 : Weight64::of(key[i]);
        ties[i] = key[i] == cutoff.key;
        mine += ties[i];
      }
      const Word ties_through = inclusive_scan(mine);
      Word before = tie + ties_through - mine;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (ties[i] && kept_ties(before++, 1) == 0) weight[i] = 0;
        kept += weight[i];
      }
      const Word through = inclusive_scan(kept), total = __shfl_sync(~0u, through, 31);
      if (total > target) {
        const int found = __ffs(__ballot_sync(~0u, through > target)) - 1;
        Word sum = through - kept;
        int token = begin + j;
#pragma unroll
        for (int i = 0; i < 3; ++i) {
          sum += weight[i];
          if (token == begin + j + i && sum <= target) ++token;
        }
        return __shfl_sync(~0u, token, found);
      }
      target -= total;
      tie += __shfl_sync(~0u, ties_through, 31);
    }
  }

  int turn_ = 0;
};

__device__ void store(const Sample& a, std::int64_t t, std::int32_t token, float logit, const Survey& row) {
  if (threadIdx.x % 32 == 0) a.out.data()[t] = {token, __fsub_rn(__fsub_rn(logit, row.top), logf(row.sum))};
}

// By one warp: a row that is greedy, or has no finite maximum.
__device__ void finish(const Sample& a, std::int64_t t, const Survey* surveys, int pieces) {
  const Settings s(a, t);
  const Survey total = row_total(surveys + t * pieces, pieces);
  if (s.temperature > 0 && isfinite(total.best.value)) return;
  const std::int32_t token = total.best.token;
  store(a, t, token, s.seen || s.temperature > 0 ? Row(a, t).logits[token] : total.best.value, total);
}

// By a cluster.
__device__ void draw(const Sample& a, std::int64_t t, const Survey* surveys, int pieces, Shared& shared,
                     unsigned* keys) {
  const Survey total = row_total(surveys + t * pieces, pieces);
  if (!isfinite(total.best.value)) return;
  const Row row(a, t);
  const SamplingSettings& s = a.settings[a.slot[t]];  // loaded where it is used: registers are short
  Draw draw(shared, keys, row.vocabulary);
  draw.store_keys(row, Settings(a, t), total.best.value);
  if (s.top_k > 0) draw.shrink<Count>([&](Word all) { return min(all, static_cast<Word>(s.top_k)); });
  if (s.min_p > 0) draw.raise(fminf(s.min_p, 1.0f));
  if (s.top_p < 1) draw.shrink<Weight64>([&](Word all) { return static_cast<Word>(nucleus(s.top_p, all)); });
  const std::int32_t token = draw.token(random_bits(s.seed, a.position[t], Purpose::draw));
  if (token >= 0) store(a, t, token, row.logits[token], total);
}

// A cluster has every gridDim.x / kCluster-th row, 32 at a time: a warp for each that is greedy, all for the others.
__global__ void __launch_bounds__(kDrawThreads, 2)
    draw_kernel(Sample a, const Survey* surveys, int pieces, unsigned* all_keys) {
  __shared__ Shared shared;
  wait_for_predecessor();
  let_successor_start();
  const int T = static_cast<int>(a.logits.rows), clusters = gridDim.x / kCluster, cluster = blockIdx.x / kCluster;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 * kCluster + cluster_rank();
  unsigned* keys = all_keys + std::int64_t{cluster} * kSegments * segment_size(a.logits.cols);
  for (int first = cluster; first < T; first += 32 * clusters) {
    const int own = first + warp * clusters, watched = first + lane * clusters;
    if (warp < 32 && own < T) finish(a, own, surveys, pieces);
    const bool drawn = watched < T && a.settings[a.slot[watched]].temperature > 0;
    for (unsigned rows = __ballot_sync(~0u, drawn); rows != 0; rows &= rows - 1) {
      draw(a, first + (__ffs(rows) - 1) * clusters, surveys, pieces, shared, keys);
    }
  }
}

}  // namespace

void sample(Stream& s, const Sample& a) {
  check_sample(a);
  const std::int64_t T = a.logits.rows;
  if (T == 0) return;
  const unsigned pieces = blocks(a.logits.cols, kPiece);
  const auto clusters = static_cast<unsigned>(std::min(T, kMostClusters));
  const std::size_t survey_bytes = sizeof(Survey) * pieces * static_cast<std::size_t>(T);
  const std::int64_t keys_of_row = kSegments * segment_size(a.logits.cols);
  const std::size_t key_bytes = sizeof(unsigned) * clusters * static_cast<std::size_t>(keys_of_row);
  if (T > 65535 || s.cuda_scratch_bytes < survey_bytes + key_bytes) {
    throw Error(ErrorCode::internal, "sample: " + std::to_string(T) + " rows of at most 65535, scratch of " +
                                         std::to_string(s.cuda_scratch_bytes) + " bytes, expected at least " +
                                         std::to_string(survey_bytes + key_bytes));
  }
  auto* surveys = static_cast<Survey*>(s.cuda_scratch);
  auto* keys = reinterpret_cast<unsigned*>(static_cast<std::byte*>(s.cuda_scratch) + survey_bytes);
  launch(s, "sample", {.blocks = dim3(pieces, static_cast<unsigned>(T)), .threads = kSurveyThreads}, survey_kernel, a,
         surveys);
  launch(s, "sample", {.blocks = dim3(kCluster * clusters), .threads = kDrawThreads, .cluster = kCluster}, draw_kernel,
         a, surveys, static_cast<int>(pieces), keys);
}

}  // namespace quire::cuda
