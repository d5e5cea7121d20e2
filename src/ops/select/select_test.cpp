#include "ops/select/select.h"

#include <limits>
#include <optional>

#include <gmock/gmock.h>

#include "ops/testing.h"

namespace quire {
namespace {

using testing::ElementsAre;
using Ints = std::vector<std::int32_t>;

// A table, and how the codebooks are stored.
class SelectTest : public OpsTest {
 protected:
  // Operands of one call: blocks of these lengths, then rows that belong to nobody. Whole numbers, so few
  // that sums are exact and that equal ones are everywhere: every table gives the reference's drafts.
  struct Operands {
    Ints first_row{0};
    Matrix logits, projected, predecessor, successor;
    Ints ids;
    int candidates;
    std::int32_t longest = 0;

    Operands(Random& random, Format format, const std::vector<int>& blocks, int nobody, std::int64_t V,
             std::int64_t R, int K)
        : logits(Format::f32, std::accumulate(blocks.begin(), blocks.end(), nobody), V),
          projected(Format::f32, logits.rows(), R),
          predecessor(format, V, R, 0),
          successor(format, V, R, 0),
          candidates(K) {
      for (const int rows : blocks)
        first_row.push_back(first_row.back() + rows), longest = std::max(longest, rows);
      const auto fill = [&](Matrix& m, double size) {
        for (std::int64_t t = 0; t < m.rows(); ++t)
          for (std::int64_t c = 0; c < m.cols(); ++c) m.set(t, c, std::round(random.uniform(-size, size)));
      };
      fill(logits, 20), fill(projected, 2), fill(predecessor, 2), fill(successor, 2);
      for (std::int64_t t = 0; t < logits.rows(); ++t)
        ids.push_back(static_cast<std::int32_t>(random.uniform(0, static_cast<double>(V) - 0.5)));
    }
    SelectDrafts call(Ints& out) const {
      return {.logits = logits,
              .projected = projected,
              .predecessor = predecessor.weight(),
              .successor = successor.weight(),
              .candidates = candidates,
              .requests = {.count = static_cast<std::int32_t>(first_row.size()) - 1,
                           .longest = longest,
                           .first_row = first_row.data()},
              .ids = out.data()};
    }
  };

  Ints run(const Ops& by, const Operands& a, float multiplier = 1, float cap = 0) {
    Ints ids = a.ids;
    SelectDrafts call = a.call(ids);
    call.multiplier = multiplier, call.cap = cap;
    by.select_drafts(stream(), call);
    return ids;
  }
  // By the table under test, with maxima of the logits.
  Ints run_with_maxima(const Operands& a, float multiplier = 1, float cap = 0) {
    const Matrix maxima = maxima_of(a.logits);
    Ints ids = a.ids;
    SelectDrafts call = a.call(ids);
    call.maxima = maxima, call.multiplier = multiplier, call.cap = cap;
    ops().select_drafts(stream(), call);
    return ids;
  }
};
INSTANTIATE_TEST_SUITE_P(, SelectTest, each_table_and_format(), case_name);

// Two candidates of five tokens, a rank of one: what follows 3 well is 1, what follows 1 well is 4.
TEST_P(SelectTest, ComputesByHand) {
  const Ints first_row = {0, 3, 3, 4};
  const Matrix logits =
      matrix(Format::f32, 5, 5, std::vector<float>{0, 0, 0, 0, 0,    // the anchor's mean nothing
                                                   3, 5, 6, 0, 1,    // 2 and 1
                                                   1, 2, 9, 0, 8,    // 2 and 4
                                                   0, 0, 0, 0, 0,    // an anchor alone
                                                   9, 0, 0, 0, 0});  // nobody
  const Matrix projected = matrix(Format::f32, 5, 1, std::vector<float>{9, 1, 2, 9, 9});
  const Matrix predecessor = matrix(format(), 5, 1, std::vector<float>{0, 1, -1, 2, 0}, 0);
  const Matrix successor = matrix(format(), 5, 1, std::vector<float>{0, 1, 0, 0, 1}, 0);
  Ints ids = {3, 70, 71, 4, 72};
  const SelectDrafts call{.logits = logits,
                          .projected = projected,
                          .predecessor = predecessor.weight(),
                          .successor = successor.weight(),
                          .candidates = 2,
                          .requests = {.count = 3, .longest = 3, .first_row = first_row.data()},
                          .ids = ids.data()};
  ops().select_drafts(stream(), call);
  // 6 against 5 + 2 * 1 * 1; then, after 1, 9 against 8 + 1 * 2 * 1.
  EXPECT_THAT(ids, ElementsAre(3, 1, 4, 4, 72));
  ids[0] = 2;  // after 2: 6 against 5 - 1; then 9 against 8 - 2
  ops().select_drafts(stream(), call);
  EXPECT_THAT(ids, ElementsAre(2, 2, 2, 4, 72));
  SelectDrafts one = call;
  one.candidates = 1;  // the likeliest, whatever it follows
  ids[0] = 3;
  ops().select_drafts(stream(), one);
  EXPECT_THAT(ids, ElementsAre(3, 2, 2, 4, 72));
}

TEST_P(SelectTest, SettlesTiesByTheLowestId) {
  Random r(3);
  Operands a(r, format(), {4}, 0, 9000, 3, 3);
  for (std::int64_t t = 0; t < 4; ++t)
    for (std::int64_t c = 0; c < 9000; ++c) a.logits.set(t, c, -1);
  for (std::int64_t c = 0; c < 9000; ++c)
    for (std::int64_t k = 0; k < 3; ++k) a.successor.set(c, k, 0);
  // Among equal logits the lowest ids are candidates; among equal scores the lowest id is the draft.
  a.logits.set(1, 5000, 2), a.logits.set(1, 4097, 2), a.logits.set(1, 70, 2), a.logits.set(1, 4098, 2);
  a.logits.set(2, 8999, 2), a.logits.set(2, 3, 1), a.logits.set(2, 4, 1), a.logits.set(2, 5, 1);
  a.logits.set(3, 0, -0.0f), a.logits.set(3, 1, 0), a.logits.set(3, 2, -0.0f), a.logits.set(3, 3, 0);
  for (std::int64_t k = 0; k < 3; ++k) {
    a.predecessor.set(a.ids[0], k, 1), a.predecessor.set(70, k, 1), a.predecessor.set(3, k, 1);
    a.projected.set(1, k, 1), a.projected.set(2, k, 1), a.projected.set(3, k, 1);
  }
  a.successor.set(5000, 0, 1);  // is no candidate, though it would follow best
  a.successor.set(3, 0, 1);     // 1 + 1 is as good as 2
  a.successor.set(5, 0, 9);     // is no candidate
  EXPECT_THAT(run(ops(), a), ElementsAre(a.ids[0], 70, 3, 0));
  EXPECT_THAT(run_with_maxima(a), ElementsAre(a.ids[0], 70, 3, 0));
}

TEST_P(SelectTest, MatchesReference) {
  const std::vector<std::vector<int>> batches = {{1}, {2}, {16}, {8, 8, 8}, {5, 0, 1, 16, 2}, {0}, {}};
  struct Selector {
    std::int64_t rank;
    int candidates;
  };
  for (const std::vector<int>& blocks : batches)
    for (const std::int64_t V : {1, 17, 300, 9000})
      for (const auto& [R, K] : {Selector{3, 1}, {1, 2}, {40, 16}, {180, 32}}) {
        if (K > V) continue;
        const Operands a(random, format(), blocks, 2, V, R, K);
        const Ints expected = run(reference_ops(), a);
        ASSERT_EQ(run(ops(), a), expected)
            << blocks.size() << " blocks, V " << V << ", R " << R << ", K " << K;
        ASSERT_EQ(run_with_maxima(a), expected)
            << blocks.size() << " blocks, V " << V << ", R " << R << ", K " << K;
      }
}

// Logits that are all equal, or are not numbers at all.
TEST_P(SelectTest, OddLogits) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const float fill : {0.0f, -inf, inf, nan})
    for (const float other : {nan, -inf, 5.0f})
      for (const float cap : {0.0f, 2.0f}) {
        Operands a(random, format(), {4, 3}, 0, 5000, 5, 16);
        for (std::int64_t t = 0; t < 7; ++t)
          for (std::int64_t c = 0; c < 5000; ++c) a.logits.set(t, c, c % 700 == 650 ? other : fill);
        const Ints expected = run(reference_ops(), a, 1, cap);
        EXPECT_EQ(run(ops(), a, 1, cap), expected) << fill << " " << other << " " << cap;
        EXPECT_EQ(run_with_maxima(a, 1, cap), expected) << fill << " " << other << " " << cap;
      }
}

// So many groups that their maxima take several passes, the last of them not whole: maxima that rise, of
// which all that was found is soon forgotten, that fall, that are few different numbers, and all alike;
// candidates that stand in one group, and no numbers.
TEST_P(SelectTest, ManyGroups) {
  constexpr std::int64_t V = 300011;
  Operands a(random, format(), {6, 1, 2}, 1, V, 2, 16);
  const auto fill = [&](std::int64_t t, const auto& logit) {
    for (std::int64_t c = 0; c < V; ++c) a.logits.set(t, c, static_cast<float>(logit(c)));
  };
  fill(1, [&](std::int64_t c) { return c / 3; });
  fill(2, [&](std::int64_t c) { return c % 7 ? -c : -V; });
  fill(3, [&](std::int64_t c) { return c / 32 == 8000 || c > V - 4 ? 1 : -1; });
  fill(4, [&](std::int64_t) { return -5; });
  fill(5, [&](std::int64_t c) { return c % 3 ? NAN : c > V - 20 ? static_cast<float>(c) : -INFINITY; });
  const Ints expected = run(reference_ops(), a);
  EXPECT_EQ(run(ops(), a), expected);
  EXPECT_EQ(run_with_maxima(a), expected);
}

// So many rows that a kernel takes larger pieces of each, and rows that rise, of which all that was found is
// soon forgotten.
TEST_P(SelectTest, ManyRows) {
  if (std::string_view(ops().name) != "cuda") GTEST_SKIP() << "rows are alike on a CPU";
  constexpr std::int64_t V = 20000;
  Operands a(random, format(), std::vector<int>(56, 16), 1, V, 8, 16);
  for (std::int64_t t = 0; t < a.logits.rows(); t += 5)
    for (std::int64_t c = 0; c < V; ++c) {
      const std::int64_t level = t % 2 ? c / 3 : t % 4 ? (c * 7919) % V : 0;
      a.logits.set(t, c, static_cast<float>(level));
    }
  const Ints expected = run(reference_ops(), a);
  EXPECT_EQ(run(ops(), a), expected);
  EXPECT_EQ(run_with_maxima(a), expected);
}

// What the reference scores of a row after what was drafted before it: the draft is a candidate, and no other
// is better by more than rounding. At the sizes of published drafters.
TEST_P(SelectTest, NoCandidateIsBetter) {
  constexpr std::int64_t V = 5000, R = 256;
  constexpr int K = 16;
  for (const float cap : {0.0f, 0.5f}) {
    Operands a(random, format(), {16, 7}, 0, V, R, K);
    const auto fill = [&](Matrix& m, float size) {
      for (std::int64_t t = 0; t < m.rows(); ++t)
        for (std::int64_t c = 0; c < m.cols(); ++c) m.set(t, c, size * random.normal());
    };
    fill(a.logits, 1), fill(a.projected, 1), fill(a.predecessor, 0.5f), fill(a.successor, 0.5f);
    const float multiplier = 0.5f;
    const Ints ids = run(ops(), a, multiplier, cap);
    int moved = 0;
    for (std::size_t r = 0; r < 2; ++r)
      for (std::int32_t t = a.first_row[r] + 1; t < a.first_row[r + 1]; ++t) {
        std::vector<std::pair<float, std::int32_t>> order;
        for (std::int32_t c = 0; c < V; ++c) order.push_back({-a.logits.get(t, c), c});
        std::partial_sort(order.begin(), order.begin() + K, order.end());
        std::optional<double> drafted;
        double best = -std::numeric_limits<double>::infinity();
        for (int i = 0; i < K; ++i) {
          const std::int32_t c = order[static_cast<std::size_t>(i)].second;
          double score = multiplier * a.logits.get(t, c);
          if (cap > 0) score = cap * std::tanh(score / cap);
          for (std::int64_t k = 0; k < R; ++k)
            score += double{a.predecessor.get(ids[t - 1], k)} * a.projected.get(t, k) * a.successor.get(c, k);
          best = std::max(best, score);
          if (c == ids[t]) drafted = score;
        }
        ASSERT_TRUE(drafted) << "row " << t << ": " << ids[t] << " is no candidate";
        EXPECT_GE(*drafted, best - 1e-4) << "row " << t;
        moved += ids[t] != order[0].second;
      }
    EXPECT_GT(moved, 10);  // of 21 rows: these scores do not follow the logits alone
  }
}

TEST_P(SelectTest, RejectsShapesThatDoNotFit) {
  Operands a(random, format(), {3}, 0, 40, 8, 4);
  Ints ids = a.ids;
  const auto run = [&](const SelectDrafts& call) { ops().select_drafts(stream(), call); };
  EXPECT_NO_THROW(run(a.call(ids)));
  SelectDrafts call = a.call(ids);
  for (const int K : {0, -1, kMostCandidates + 1, 41}) {
    call.candidates = K;
    EXPECT_THROW(run(call), Error) << K;
  }
  call = a.call(ids), call.projected = call.projected.slice_cols(0, 7);
  EXPECT_THROW(run(call), Error);
  call = a.call(ids), call.logits = call.logits.slice_cols(0, 39);
  EXPECT_THROW(run(call), Error);
  const Matrix maxima = maxima_of(a.logits);
  call = a.call(ids), call.maxima = maxima;
  EXPECT_NO_THROW(run(call));
  call.maxima = call.maxima.slice_cols(0, 1);
  EXPECT_THROW(run(call), Error);
  call = a.call(ids), call.successor.in = 7;
  EXPECT_THROW(run(call), Error);
  call = a.call(ids), call.requests.longest = kMostWindow + 1;
  EXPECT_THROW(run(call), Error);
  call = a.call(ids), call.ids = nullptr;
  EXPECT_THROW(run(call), Error);
  ids[0] = 40;
  EXPECT_THROW(run(a.call(ids)), Error);
}

}  // namespace
}  // namespace quire
