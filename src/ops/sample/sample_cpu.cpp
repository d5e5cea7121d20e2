#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"
#include "ops/sample/draw.h"
#include "ops/sample/sample.h"

namespace quire::QUIRE_ISA {
namespace {

void penalise(const float* l, std::int64_t V, const SamplingSettings& s, const std::uint16_t* seen,
              float* p) {
  std::memcpy(p, l, static_cast<std::size_t>(V) * sizeof(float));
  for (std::int64_t v = 0; v < V; ++v) {
    if (seen[v] == 0) continue;
    p[v] = l[v] > 0 ? l[v] / s.repetition_penalty : l[v] * s.repetition_penalty;
    const int count = seen[v] & ~kInPrompt;
    if (count > 0) p[v] = p[v] - s.presence_penalty - s.frequency_penalty * static_cast<float>(count);
  }
}

// The largest value by lanes; a NaN in the first operand is dropped.
float highest(const float* x, std::int64_t V) {
  Vf best = set1(-std::numeric_limits<float>::infinity());
  std::int64_t j = 0;
  for (; j + kLanes <= V; j += kLanes) best = max(load(x + j), best);
  float top = max_lane(best);
  for (; j < V; ++j) top = x[j] > top ? x[j] : top;
  return top;
}

std::int64_t first_place(const float* x, float value) {
  if (!(value > -std::numeric_limits<float>::infinity())) return 0;
  std::int64_t v = 0;
  while (x[v] != value) ++v;
  return v;
}

float sum_of_exp(const float* x, std::int64_t V, float top) {
  Vf total = zero();
  for_lanes(V, [&](std::int64_t k, int n) {
    const Vf e = exp(sub(load_lanes(x + k, n), set1(top)));
    total = QUIRE_ISA::add(total, n == kLanes ? e : masked(e, n));
  });
  return sum(total);
}

// `ratio` of sample_ref.cpp, operation by operation.
Vf ratio(Vf x) {
  const Vf y = exp_in_range(max(x, set1(-28.0f)));           // a NaN becomes -28 too
  return negative_or(sub(y, set1(kLeastRatio)), zero(), y);  // e^-28 is below it
}

// The ratios of a row, what is kept of them so far, and the draw. A histogram of ten bits at a time, from the
// top, finds a cutoff in three passes.
class Kept {
 public:
  Kept(const float* ratios, std::int64_t V) : ratios_(ratios), V_(V) {}

  // Keeps as many as it takes, in order of rank, for measure(key) to add up to target(total).
  template <typename Measure, typename Target>
  void shrink(Measure measure, Target target) {
    std::uint32_t prefix = 0;
    std::uint64_t wanted = 0;
    for (int shift : {20, 10, 0}) {
      std::uint64_t bins[kBins] = {};
      for (std::int64_t v = 0; v < V_; ++v) {
        const std::uint32_t k = key(v);
        const bool kept = k > cutoff_.key || (k == cutoff_.key && cutoff_.ties == kAllTies);
        if (kept && k >> shift >> 10 == prefix) bins[k >> shift & (kBins - 1)] += measure(k);
      }
      if (cutoff_.ties != kAllTies && cutoff_.key >> shift >> 10 == prefix)
        bins[cutoff_.key >> shift & (kBins - 1)] += cutoff_.ties * measure(cutoff_.key);
      if (shift == 20) {
        std::uint64_t total = 0;
        for (std::uint64_t bin : bins) total += bin;
        wanted = target(total);
      }
      std::uint32_t bin = kBins - 1;
      while (bins[bin] < wanted) wanted -= bins[bin--];
      prefix = prefix << 10 | bin;
    }
    const std::uint64_t each = measure(prefix);
    cutoff_ = {prefix, (wanted + each - 1) / each};
  }

  void raise(float least) {
    const auto k = std::bit_cast<std::uint32_t>(least);
    if (k > cutoff_.key) cutoff_ = {k, kAllTies};
  }

  std::int32_t draw(std::uint64_t bits) const {
    std::uint64_t total = 0, sum = 0;
    walk([&](std::int64_t, std::uint64_t weight) { return total += weight, true; });
    const std::uint64_t target = uniform_below(total, bits);
    std::int64_t token = 0;
    walk([&](std::int64_t v, std::uint64_t weight) { return token = v, (sum += weight) <= target; });
    return static_cast<std::int32_t>(token);
  }

 private:
  static constexpr std::uint32_t kBins = 1024;

  std::uint32_t key(std::int64_t v) const { return std::bit_cast<std::uint32_t>(ratios_[v]); }

  // body(v, weight) for what is kept, in order of id, until it says false.
  template <typename Body>
  void walk(Body body) const {
    std::uint64_t ties = 0;
    for (std::int64_t v = 0; v < V_; ++v) {
      const std::uint32_t k = key(v);
      if (k < cutoff_.key || (k == cutoff_.key && ties++ >= cutoff_.ties)) continue;
      if (!body(v, weight_of(ratios_[v]))) return;
    }
  }

  const float* ratios_;
  std::int64_t V_;
  Cutoff cutoff_{kLeastKey, kAllTies};
};

// p [V] becomes ratios in `ratios`, which may be p.
std::int32_t draw(const float* p, std::int64_t V, float top, const SamplingSettings& s, std::int32_t position,
                  float* ratios) {
  const Vf inverse = set1(inverse_temperature(s.temperature));
  for_lanes(V, [&](std::int64_t j, int n) {
    store_lanes(ratios + j, ratio(mul(sub(load_lanes(p + j, n), set1(top)), inverse)), n);
  });
  Kept kept(ratios, V);
  if (s.top_k > 0) {
    kept.shrink([](std::uint32_t) { return std::uint64_t{1}; },
                [&](std::uint64_t total) { return std::min(total, static_cast<std::uint64_t>(s.top_k)); });
  }
  if (s.min_p > 0) kept.raise(std::min(s.min_p, 1.0f));
  if (s.top_p < 1) {
    kept.shrink([](std::uint32_t k) { return weight_of(std::bit_cast<float>(k)); },
                [&](std::uint64_t total) { return nucleus(s.top_p, total); });
  }
  return kept.draw(random_bits(s.seed, position, Purpose::draw));
}

Sampled sample_row(const Sample& a, std::int64_t t, float* scratch) {
  const std::int64_t V = a.logits.cols, slot = a.slot[t];
  const float* l = row<float>(a.logits, t);
  const SamplingSettings& s = a.settings[slot];
  const bool penalties = a.seen && has_penalties(s);
  if (penalties) penalise(l, V, s, a.seen + slot * V, scratch);
  const float* p = penalties ? scratch : l;

  const float best = highest(p, V), top = penalties ? highest(l, V) : best;
  auto token = static_cast<std::int32_t>(first_place(p, best));
  if (s.temperature > 0 && best - best == 0) token = draw(p, V, best, s, a.position[t], scratch);
  return {token, l[token] - top - std::log(sum_of_exp(l, V, top))};
}

}  // namespace

void sample(Stream& s, const Sample& a) {
  check_sample(a);
  const std::int64_t V = a.logits.cols;
  const std::size_t bytes = static_cast<std::size_t>(s.threads->size() * V) * sizeof(float);
  auto* scratch = reinterpret_cast<float*>(s.scratch_bytes(bytes));
  s.threads->parallel_for(a.logits.rows, [&](std::int64_t t, int worker) {
    a.out[static_cast<std::size_t>(t)] = sample_row(a, t, scratch + worker * V);
  });
}

}  // namespace quire::QUIRE_ISA
