#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/sample/draw.h"
#include "ops/sample/sample.h"

namespace quire {
namespace {

struct Candidate {
  std::int32_t token;
  float ratio;
  std::uint64_t weight;
};

float penalised(float l, const SamplingSettings& s, std::uint16_t seen) {
  const int count = seen & ~kInPrompt;
  if (seen != 0) l = l > 0 ? l / s.repetition_penalty : l * s.repetition_penalty;
  if (count > 0) l = l - s.presence_penalty - s.frequency_penalty * static_cast<float>(count);
  return l;
}

// e^x for x <= 0, within 2 ulp and the same bits everywhere: Cody-Waite reduction, degree-6 polynomial on
// [-ln2/2, ln2/2].
float ratio(float x) {
  if (!(x >= -28)) return 0;
  const float n = std::nearbyint(x * 1.44269504f);
  float r = std::fma(n, -0.693145752f, x);
  r = std::fma(n, -1.42860677e-6f, r);
  float p = 1.38888894e-3f;
  for (float coefficient : {8.33333377e-3f, 4.16666642e-2f, 1.66666671e-1f, 0.5f, 1.0f, 1.0f})
    p = std::fma(p, r, coefficient);
  const float y = std::ldexp(p, static_cast<int>(n));
  return y < 0x1p-40f ? 0 : y;
}

std::uint64_t total_weight(const std::vector<Candidate>& candidates) {
  std::uint64_t total = 0;
  for (const Candidate& c : candidates) total += c.weight;
  return total;
}

// Of candidates in order of rank.
void keep(std::vector<Candidate>& ranked, const SamplingSettings& s) {
  if (s.top_k > 0 && static_cast<std::size_t>(s.top_k) < ranked.size()) ranked.resize(s.top_k);
  const float min_p = std::min(s.min_p, 1.0f);
  std::erase_if(ranked, [&](const Candidate& c) { return c.ratio < min_p; });
  if (s.top_p >= 1) return;
  const double bound = double{s.top_p} * static_cast<double>(total_weight(ranked));
  std::uint64_t before = 0;
  std::size_t kept = 0;
  do {
    before += ranked[kept++].weight;
  } while (kept < ranked.size() && static_cast<double>(before) < bound);
  ranked.resize(kept);
}

std::int32_t draw(const std::vector<float>& p, float highest, const SamplingSettings& s,
                  std::int32_t position) {
  std::vector<Candidate> kept;
  const float inverse = std::min(1 / s.temperature, 1e30f);
  for (std::size_t v = 0; v < p.size(); ++v) {
    const float r = ratio((p[v] - highest) * inverse);
    if (r > 0) kept.push_back({static_cast<std::int32_t>(v), r, static_cast<std::uint64_t>(r * 0x1p40f)});
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const Candidate& a, const Candidate& b) { return a.ratio > b.ratio; });
  keep(kept, s);
  std::sort(kept.begin(), kept.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  const std::uint64_t bits = random_bits(s.seed, position, Purpose::draw);
  const std::uint64_t target = uniform_below(total_weight(kept), bits);
  std::uint64_t sum = 0;
  for (const Candidate& c : kept)
    if ((sum += c.weight) > target) return c.token;
  fail(ErrorCode::internal, "sample: {} of {} lies beyond every token", target, sum);
}

}  // namespace

void check_sample(const Sample& a) {
  const Rows& l = a.logits;
  QUIRE_CHECK(l.cols > 0 && l.cols <= kLargestVocabulary,
              "sample: a vocabulary of {} tokens, expected 1 to {}", l.cols, kLargestVocabulary);
  check_rows("sample", "logits", l, l.rows, l.cols, Format::f32);
  check_size("sample", "out", a.out.size(), l.rows);
  QUIRE_CHECK(l.rows == 0 || (a.settings && a.slot && a.position),
              "sample: {} rows without settings, slot or position", l.rows);
}

void reference::sample(Stream&, const Sample& a) {
  check_sample(a);
  const std::int64_t V = a.logits.cols;
  for (std::int64_t t = 0; t < a.logits.rows; ++t) {
    const SamplingSettings& s = a.settings[a.slot[t]];
    std::vector<float> p(static_cast<std::size_t>(V));
    std::int64_t best = 0;
    float top = -INFINITY, highest = -INFINITY;
    for (std::int64_t v = 0; v < V; ++v) {
      const float l = load(a.logits, t, v);
      p[v] = a.seen ? penalised(l, s, a.seen[a.slot[t] * V + v]) : l;
      if (p[v] > highest) best = v, highest = p[v];
      top = std::fmax(top, l);
    }
    double sum = 0;
    for (std::int64_t v = 0; v < V; ++v) sum += std::exp(double{load(a.logits, t, v)} - top);
    auto token = static_cast<std::int32_t>(best);
    if (s.temperature > 0 && std::isfinite(highest)) token = draw(p, highest, s, a.position[t]);
    a.out[t] = {token, static_cast<float>(double{load(a.logits, t, token)} - top - std::log(sum))};
  }
}

}  // namespace quire
