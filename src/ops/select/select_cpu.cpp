// Candidates of all rows at once, then the walks, a request at a time. A walk scores K candidates a row, not
// K for every draft there might have been before.
#include <cmath>
#include <limits>

#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"
#include "ops/select/select.h"

namespace quire::QUIRE_ISA {
namespace {

constexpr float kLeast = -std::numeric_limits<float>::infinity();

struct Candidate {
  float logit;  // as it is ranked: -inf for NaN
  std::int32_t id;
};

// The K largest of a row, largest first. What is no larger than the last of them cannot get in, since its id
// is higher; so most of the row is compared 16 vectors at a time.
void find_candidates(const float* logits, std::int64_t V, int K, Candidate* best) {
  int found = 0;
  const auto offer = [&](std::int64_t v) {
    const float logit = logits[v] >= kLeast ? logits[v] : kLeast;
    if (found == K && !(logit > best[K - 1].logit)) return;
    int place = found < K ? found++ : K - 1;
    for (; place > 0 && logit > best[place - 1].logit; --place) best[place] = best[place - 1];
    best[place] = {logit, static_cast<std::int32_t>(v)};
  };
  constexpr std::int64_t kStride = 16 * kLanes;
  std::int64_t v = 0;
  for (; v < V && found < K; ++v) offer(v);
  for (; v + kStride <= V; v += kStride) {
    Vf highest = set1(kLeast);
    for (std::int64_t j = 0; j < kStride; j += kLanes) highest = max(load(logits + v + j), highest);
    if (!(max_lane(highest) > best[K - 1].logit)) continue;
    for (std::int64_t j = 0; j < kStride; ++j) offer(v + j);
  }
  for (; v < V; ++v) offer(v);
}

template <typename T>
float edge(const T* predecessor, const float* projected, const T* successor, std::int64_t rank) {
  Vf acc = zero();
  for_lanes(rank, [&](std::int64_t k, int n) {
    const Vf product = mul(load_lanes(predecessor + k, n), load_lanes(projected + k, n));
    acc = fma(product, load_lanes(successor + k, n), acc);
  });
  return sum(acc);
}

template <typename T>
std::int32_t choose(const SelectDrafts& a, std::int64_t t, const Candidate* candidates) {
  const std::int64_t rank = a.predecessor.in;
  const T* before = static_cast<const T*>(a.predecessor.data) + a.ids[t - 1] * rank;
  Candidate best{0, -1};
  for (int i = 0; i < a.candidates; ++i) {
    const std::int32_t id = candidates[i].id;
    float score = a.multiplier * candidates[i].logit;
    if (a.cap > 0) score = a.cap * std::tanh(score / a.cap);
    score +=
        edge(before, row<float>(a.projected, t), static_cast<const T*>(a.successor.data) + id * rank, rank);
    if (!(score >= kLeast)) score = kLeast;
    if (best.id < 0 || score > best.logit || (score == best.logit && id < best.id)) best = {score, id};
  }
  return best.id;
}

}  // namespace

void select_drafts(Stream& s, const SelectDrafts& a) {
  check_select_drafts(a);
  check_select_anchors(a);
  const std::int64_t V = a.logits.cols, K = a.candidates, longest = a.requests.longest;
  const std::size_t bytes = static_cast<std::size_t>(a.logits.rows * K) * sizeof(Candidate);
  auto* candidates = reinterpret_cast<Candidate*>(s.scratch_bytes(bytes));
  s.threads->parallel_for(a.requests.count * longest, [&](std::int64_t i, int) {
    const std::int64_t r = i / longest, t = a.requests.first_row[r] + i % longest;
    if (i % longest > 0 && t < a.requests.first_row[r + 1])
      find_candidates(row<float>(a.logits, t), V, a.candidates, candidates + t * K);
  });
  with_type(a.predecessor.format, [&](auto type) {
    s.threads->parallel_for(a.requests.count, [&](std::int64_t r, int) {
      for (std::int32_t t = a.requests.first_row[r] + 1; t < a.requests.first_row[r + 1]; ++t)
        a.ids[t] = choose<decltype(type)>(a, t, candidates + t * K);
    });
  });
}

}  // namespace quire::QUIRE_ISA
