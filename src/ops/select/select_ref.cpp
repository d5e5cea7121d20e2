#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/select/select.h"

namespace quire {
namespace {

template <typename T>
T number_or_least(T x) {
  return std::isnan(x) ? -std::numeric_limits<T>::infinity() : x;
}

std::vector<std::int32_t> candidates_of(const SelectDrafts& a, std::int64_t t) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(a.logits.cols));
  std::iota(ids.begin(), ids.end(), 0);
  const auto likelier = [&](std::int32_t c, std::int32_t d) {
    const float x = number_or_least(load(a.logits, t, c)), y = number_or_least(load(a.logits, t, d));
    return x > y || (x == y && c < d);
  };
  std::partial_sort(ids.begin(), ids.begin() + a.candidates, ids.end(), likelier);
  ids.resize(static_cast<std::size_t>(a.candidates));
  return ids;
}

double score(const SelectDrafts& a, std::int64_t t, std::int32_t predecessor, std::int32_t candidate) {
  double unary = double{a.multiplier} * number_or_least(load(a.logits, t, candidate));
  if (a.cap > 0) unary = a.cap * std::tanh(unary / a.cap);
  double edge = 0;
  for (std::int64_t k = 0; k < a.predecessor.in; ++k)
    edge += double{load(a.predecessor, predecessor, k)} * load(a.projected, t, k) *
            load(a.successor, candidate, k);
  return number_or_least(unary + edge);
}

}  // namespace

void check_select_drafts(const SelectDrafts& a) {
  const std::int64_t T = a.logits.rows, V = a.logits.cols, R = a.predecessor.in;
  check_rows("select_drafts", "logits", a.logits, T, V, Format::f32);
  check_rows("select_drafts", "projected", a.projected, T, R, Format::f32);
  if (a.maxima.data) check_rows("select_drafts", "maxima", a.maxima, T, maxima_cols(V), Format::f32);
  check_weight("select_drafts", "predecessor", a.predecessor);
  check_weight("select_drafts", "successor", a.successor);
  QUIRE_CHECK(a.predecessor.out == V && a.successor.out == V && a.successor.in == R &&
                  a.successor.format == a.predecessor.format,
              "select_drafts: codebooks [{}, {}] and [{}, {}], expected a vocabulary of {} and one format",
              a.predecessor.out, R, a.successor.out, a.successor.in, V);
  QUIRE_CHECK(R <= kMostRank, "select_drafts: a rank of {}, at most {}", R, kMostRank);
  QUIRE_CHECK(a.candidates >= 1 && a.candidates <= kMostCandidates && a.candidates <= V,
              "select_drafts: {} candidates of {} tokens, expected 1 to {}", a.candidates, V,
              kMostCandidates);
  QUIRE_CHECK(a.requests.count >= 0 && a.requests.longest >= 0 && a.requests.longest <= kMostWindow,
              "select_drafts: {} requests of up to {} rows, expected at most {}", a.requests.count,
              a.requests.longest, kMostWindow);
  QUIRE_CHECK(a.requests.first_row && (a.ids || T == 0), "select_drafts: an operand has no memory");
}

void check_select_anchors(const SelectDrafts& a) {
  for (std::int32_t r = 0; r < a.requests.count; ++r) {
    const std::int32_t first = a.requests.first_row[r], end = a.requests.first_row[r + 1];
    QUIRE_CHECK(first >= 0 && first <= end && end - first <= a.requests.longest && end <= a.logits.rows,
                "select_drafts: request {} has rows {} to {} of {}", r, first, end, a.logits.rows);
    QUIRE_CHECK(first == end || (a.ids[first] >= 0 && a.ids[first] < a.logits.cols),
                "select_drafts: request {} begins with token {} of {}", r, a.ids[first], a.logits.cols);
  }
}

void reference::select_drafts(Stream&, const SelectDrafts& a) {
  check_select_drafts(a);
  check_select_anchors(a);
  for (std::int32_t r = 0; r < a.requests.count; ++r) {
    for (std::int32_t t = a.requests.first_row[r] + 1; t < a.requests.first_row[r + 1]; ++t) {
      double best = 0;
      bool any = false;
      for (const std::int32_t c : candidates_of(a, t)) {
        const double s = score(a, t, a.ids[t - 1], c);
        if (any && (s < best || (s == best && c > a.ids[t]))) continue;
        any = true, best = s, a.ids[t] = c;
      }
    }
  }
}

}  // namespace quire
