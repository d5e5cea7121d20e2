// attention_prefill and attention_window (one contract, every test runs both), attention_gate,
// vision_attention.
#include "ops/attention/attention.h"

#include <algorithm>
#include <string_view>
#include <tuple>

#include "ops/testing.h"

namespace quire {
namespace {

// In f32: sums over E and over the keys; an error of a score is a relative error of its weight, so scores of
// size `score` add as many roundings again. In bf16 both round each weight, but relative to different maxima:
// two independent errors of at most u, together 0.82 u (standard deviation), which average over the keys
// exactly as v does. 8 deviations for one element; the last rounding adds 2 u of it and u^2 to the square.
Tolerance softmax_tolerance(Format a, std::int64_t E, std::int64_t keys, double score = 1) {
  const double u = unit_roundoff(a);
  const double sum = 8 * 0x1p-24 * (std::sqrt(static_cast<double>(E + keys)) + score);
  if (a == Format::f32) return {sum, sum + 2 * u, 2 * sum * sum};
  return {8 * 0.82 * u + sum, 2 * u + sum, 2 * u * u};
}

struct Heads {
  int E;
  std::int64_t H, G;
};

// A query, a key and a value at each index of a sequence.
struct Sequence {
  Matrix q, k, v;
};
Sequence random_sequence(Random& random, Format f, Heads heads, std::int64_t length, float scale = 1) {
  return {random_matrix(random, f, length, heads.H * heads.E, scale),
          random_matrix(random, f, length, heads.G * heads.E, scale),
          random_matrix(random, f, length, heads.G * heads.E)};
}

// Rows start .. start + rows - 1 of a sequence in one step.
struct Piece {
  const Sequence* sequence;
  std::int64_t start, rows;
};

// Where keys and values lie.
struct Layout {
  std::int32_t page_size = 64;
  std::uint64_t seed = 1;  // of the order of pages and slots
  std::int64_t padding = 3;
};

// The pools of a step. Rows that no piece sees are NaN; entries of the block table that none needs, and start
// and slot of requests without rows, are wild.
struct Step {
  Step(Format f, Heads h, std::span<const Piece> pieces, const Layout& layout)
      : heads(h),
        page_size(layout.page_size),
        pages_per_slot(most_keys(pieces) / page_size + 2),
        slots(static_cast<std::int64_t>(pieces.size()) + 1),
        k(f, slots * pages_per_slot * page_size, h.G * h.E, layout.padding),
        v(f, slots * pages_per_slot * page_size, h.G * h.E, layout.padding),
        q(f, rows_of(pieces) + 2, h.H * h.E, layout.padding),  // two rows are nobody's
        out(f, rows_of(pieces) + 2, h.H * h.E, layout.padding) {
    Random random(layout.seed);
    const auto shuffled = [&](std::int64_t n) {
      std::vector<std::int32_t> x(n);
      std::iota(x.begin(), x.end(), 0);
      for (std::int64_t i = n - 1; i > 0; --i) {
        std::swap(x[i], x[static_cast<std::int64_t>(random.uniform() * static_cast<double>(i + 1))]);
      }
      return x;
    };
    const std::int64_t pages = slots * pages_per_slot, count = slots - 1;
    block_table.assign(pages, 1 << 30);
    const std::vector<std::int32_t> free_pages = shuffled(pages), free_slots = shuffled(slots);
    first_row.push_back(0);
    std::int64_t page = 0;
    for (std::int64_t r = 0; r < count; ++r) {
      const Piece& p = pieces[r];
      start.push_back(p.rows ? static_cast<std::int32_t>(p.start) : 1 << 30);
      slot.push_back(p.rows ? free_slots[r] : -(1 << 30));
      for (std::int64_t j = 0; p.rows && j < p.start + p.rows; ++j) {
        std::int32_t& entry = block_table[std::int64_t{free_slots[r]} * pages_per_slot + j / page_size];
        if (j % page_size == 0) entry = free_pages[page++];
        copy_row(p.sequence->k, j, k, std::int64_t{entry} * page_size + j % page_size);
        copy_row(p.sequence->v, j, v, std::int64_t{entry} * page_size + j % page_size);
      }
      for (std::int64_t i = 0; i < p.rows; ++i) copy_row(p.sequence->q, p.start + i, q, first_row.back() + i);
      longest = std::max(longest, static_cast<std::int32_t>(p.rows));
      first_row.push_back(first_row.back() + static_cast<std::int32_t>(p.rows));
    }
  }

  Attention call() {
    return {.q = q,
            .kv = {.k = k,
                   .v = v,
                   .page_size = page_size,
                   .block_table = block_table.data(),
                   .pages_per_slot = pages_per_slot},
            .requests = {.count = static_cast<std::int32_t>(start.size()),
                         .longest = longest,
                         .first_row = first_row.data(),
                         .start = start.data(),
                         .slot = slot.data()},
            .head_dim = heads.E,
            .out = out};
  }

  Heads heads;
  std::int32_t page_size, pages_per_slot, longest = 0;
  std::int64_t slots;
  Matrix k, v, q, out;
  std::vector<std::int32_t> first_row, start, slot, block_table;

 private:
  static std::int32_t most_keys(std::span<const Piece> pieces) {
    std::int64_t most = 0;
    for (const Piece& p : pieces) most = std::max(most, p.start + p.rows);
    return static_cast<std::int32_t>(most);
  }
  static std::int64_t rows_of(std::span<const Piece> pieces) {
    std::int64_t rows = 0;
    for (const Piece& p : pieces) rows += p.rows;
    return rows;
  }
  static void copy_row(const Matrix& from, std::int64_t i, Matrix& to, std::int64_t j) {
    for (std::int64_t c = 0; c < from.cols(); ++c) to.set(j, c, from.get(i, c));
  }
};

using Path = void (*Ops::*)(Stream&, const Attention&);
constexpr Path kPaths[] = {&Ops::attention_prefill, &Ops::attention_window};

// The rows of all pieces, one after the other.
template <typename Op>
Matrix run(Op op, Stream& stream, Heads heads, std::span<const Piece> pieces, const Layout& layout = {}) {
  Step step(pieces.front().sequence->q.format(), heads, pieces, layout);
  op(stream, step.call());
  EXPECT_TRUE(step.out.padding_untouched());
  std::vector<std::int64_t> rows(step.first_row.back());
  std::iota(rows.begin(), rows.end(), 0);
  return gather(step.out, rows);
}
template <typename Op>
Matrix run(Op op, Stream& stream, Heads heads, const Piece& piece, const Layout& layout = {}) {
  return run(op, stream, heads, std::span(&piece, 1), layout);
}

class AttentionTest : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(, AttentionTest, each_table_and_format(), case_name);

// Two equal scores give the mean of the two values; a score 100 larger takes all. Later keys are not seen.
TEST_P(AttentionTest, ComputesByHand) {
  const Sequence s{matrix(format(), 3, 4, {9, 9, 9, 9, 0, 0, 0, 0, 100, 0, 0, 0}),  // scale 1/2
                   matrix(format(), 3, 4, {1, 2, 3, 4, 3, 1, 1, 1, 1, 9, 9, 9}),
                   matrix(format(), 3, 4, {1, 2, 3, 4, 5, 6, 7, 8, -3, -4, -5, -6})};
  for (const Path path : kPaths) {
    EXPECT_TRUE(same_bits(run(ops().*path, stream(), {4, 1, 1}, {&s, 1, 2}),
                          matrix(format(), 2, 4, {3, 4, 5, 6, 5, 6, 7, 8})));
    EXPECT_TRUE(
        same_bits(run(ops().*path, stream(), {4, 1, 1}, {&s, 0, 1}), matrix(format(), 1, 4, {1, 2, 3, 4})));
  }
}

// exp(s) = 1/3 of the larger weight: (3 v0 + v1) / 4, with a scale of E^-1/2 = 1/2.
TEST_P(AttentionTest, ScalesScores) {
  const float log3 = 1.0986123f;
  const Sequence s{matrix(Format::f32, 2, 4, {0, 0, 0, 0, 2, 0, 0, 0}),
                   matrix(Format::f32, 2, 4, {log3, 7, 7, 7, 0, 8, 8, 8}),
                   matrix(Format::f32, 2, 4, {1, 1, 1, 1, 5, 5, 5, 5})};
  for (const Path path : kPaths)
    EXPECT_NEAR(run(ops().*path, stream(), {4, 1, 1}, {&s, 1, 1}).get(0, 0), 2, 1e-5);
}

// The second weight is exp(-0.28515625) = 0.7518967, which bf16 rounds to 3/4: exactly what it takes to
// cancel. The sum of the weights is not rounded: 1.7578125 / 1.7518967 lies below the boundary 1.0039,
// by 1.75 it would not.
TEST_P(AttentionTest, RoundsWeightsButNotTheirSum) {
  const Sequence s{matrix(format(), 2, 4, {0, 0, 0, 0, 2, 0, 0, 0}),  // scale 1/2
                   matrix(format(), 2, 4, {0, 0, 0, 0, -0.28515625f, 0, 0, 0}),
                   matrix(format(), 2, 4, {-3, 1.0078125f, 1, 0, 4, 1, 0, 1})};
  const float weight = 0.7518967f, rounded = round_to(format(), weight), sum = 1 + weight;
  const float expected[] = {(4 * rounded - 3) / sum, (1.0078125f + rounded) / sum, 1 / sum, rounded / sum};
  for (const Path path : kPaths) {
    const Matrix out = run(ops().*path, stream(), {4, 1, 1}, {&s, 1, 1});
    for (std::int64_t c = 0; c < 4; ++c)
      EXPECT_NEAR(out.get(0, c), round_to(format(), expected[c]), 1e-6) << c;
  }
}

TEST_P(AttentionTest, QueryHeadsShareKeyHeads) {
  constexpr int E = 8;
  const Sequence s = random_sequence(random, format(), {E, 6, 2}, 1);
  for (const Path path : kPaths) {
    const Matrix out = run(ops().*path, stream(), {E, 6, 2}, {&s, 0, 1});
    for (std::int64_t c = 0; c < 6 * E;
         ++c)  // one key: its value; heads 0..2 read the first, 3..5 the second
      EXPECT_EQ(out.get(0, c), s.v.get(0, c / (3 * E) * E + c % E)) << c;
  }
}

struct Shape {
  Heads heads;
  std::int64_t T, start;
};

TEST_P(AttentionTest, MatchesReference) {
  for (const Shape& s :
       {Shape{{64, 2, 1}, 1, 0}, {{64, 2, 2}, 2, 0},     {{64, 3, 1}, 3, 1},     {{64, 4, 2}, 5, 60},
        {{64, 1, 1}, 15, 49},    {{64, 2, 1}, 16, 0},    {{64, 6, 2}, 17, 64},   {{64, 1, 1}, 63, 1},
        {{64, 2, 1}, 64, 64},    {{64, 1, 1}, 130, 0},   {{64, 8, 1}, 16, 120},  {{64, 7, 1}, 3, 1000},
        {{72, 2, 1}, 65, 0},     {{72, 3, 3}, 7, 250},   {{128, 2, 1}, 65, 63},  {{128, 3, 1}, 1, 500},
        {{128, 8, 4}, 2, 127},   {{128, 5, 1}, 4, 620},  {{256, 2, 1}, 1, 0},    {{256, 2, 1}, 5, 300},
        {{256, 2, 1}, 65, 0},    {{256, 6, 2}, 3, 127},  {{256, 16, 4}, 1, 62},  {{256, 16, 4}, 1, 63},
        {{256, 16, 4}, 1, 64},   {{256, 4, 1}, 16, 113}, {{256, 8, 1}, 16, 112}, {{256, 4, 4}, 1, 128},
        {{8, 2, 1}, 20, 3},      {{20, 1, 1}, 33, 5},    {{256, 1, 1}, 2, 1100}, {{64, 4, 1}, 1, 999}}) {
    const Sequence all = random_sequence(random, format(), s.heads, s.start + s.T);
    const Piece piece{&all, s.start, s.T};
    const Matrix expected = run(reference::attention, stream(), s.heads, piece);
    for (const Path path : kPaths)
      ASSERT_TRUE(compare(run(ops().*path, stream(), s.heads, piece), expected,
                          softmax_tolerance(format(), s.heads.E, s.start + s.T)))
          << "E " << s.heads.E << ", " << s.heads.H << " / " << s.heads.G << " heads, T " << s.T << " from "
          << s.start;
  }
}

// Rows of a block that see one another, and rows that see the last keys only.
struct Block {
  bool causal;
  std::int32_t sliding_window;
};
Matrix run_block(void (*op)(Stream&, const Attention&), Stream& stream, Heads heads,
                 std::span<const Piece> pieces, Block block, const Layout& layout = {}) {
  return run(
      [&](Stream& s, const Attention& plain) {
        Attention a = plain;
        a.causal = block.causal;
        a.sliding_window = block.sliding_window;
        op(s, a);
      },
      stream, heads, pieces, layout);
}

// Equal scores: the mean of the values that are seen.
TEST_P(AttentionTest, BlocksByHand) {
  const Sequence s{matrix(format(), 5, 1, {0, 0, 0, 0, 0}), matrix(format(), 5, 1, {0, 0, 0, 0, 0}),
                   matrix(format(), 5, 1, {1, 2, 4, 8, 16})};
  const Piece piece{&s, 3, 2};
  const auto result = [&](Block block) {
    return run_block(ops().attention_window, stream(), {1, 1, 1}, {&piece, 1}, block);
  };
  const auto mean = [&](float a, float b) {
    return matrix(format(), 2, 1, {round_to(format(), a), round_to(format(), b)});
  };
  EXPECT_TRUE(same_bits(result({false, 0}), mean(31 / 5.0f, 31 / 5.0f)));
  EXPECT_TRUE(same_bits(result({false, 2}), mean(28 / 3.0f, 24 / 2.0f)));
  EXPECT_TRUE(same_bits(result({true, 2}), mean(12 / 2.0f, 24 / 2.0f)));
  EXPECT_TRUE(same_bits(result({false, 1}), mean(24 / 2.0f, 24 / 2.0f)));  // the block alone
}

TEST_P(AttentionTest, BlocksMatchReference) {
  for (const Heads heads : {Heads{64, 4, 2}, {128, 6, 2}, {8, 2, 1}, {128, 4, 1}, {256, 4, 2}}) {
    const Sequence a = random_sequence(random, format(), heads, 300),
                   b = random_sequence(random, format(), heads, 20);
    const Piece pieces[] = {{&a, 284, 16}, {&b, 0, 7}, {&b, 3, 0}, {&a, 64, 1}, {&a, 100, 9}};
    for (const Block block : {Block{false, 0}, {false, 40}, {true, 70}, {false, 1000}}) {
      const Matrix out = run_block(ops().attention_window, stream(), heads, pieces, block);
      EXPECT_TRUE(compare(out, run_block(reference::attention, stream(), heads, pieces, block),
                          softmax_tolerance(format(), heads.E, 300)))
          << heads.E << " causal " << block.causal << " window " << block.sliding_window;
      EXPECT_TRUE(
          same_bits(run_block(ops().attention_window, stream(), heads, pieces, block, {.padding = 0}), out))
          << heads.E << " causal " << block.causal << " window " << block.sliding_window;
    }
  }
}

// Scores of some hundreds: exp of the difference to the maximum, never of the score.
TEST_P(AttentionTest, LargeScoresMatchReference) {
  for (float scale : {3.0f, 10.0f}) {
    const Heads heads{64, 2, 1};
    const Sequence s = random_sequence(random, format(), heads, 70, scale);
    const double largest = 5 * scale * scale;  // 5 deviations
    for (const Path path : kPaths)
      EXPECT_TRUE(compare(run(ops().*path, stream(), heads, {&s, 30, 40}),
                          run(reference::attention, stream(), heads, {&s, 30, 40}),
                          softmax_tolerance(format(), 64, 70, largest)))
          << scale;
  }
}

TEST_P(AttentionTest, ExtremeInputs) {
  const Heads heads{64, 1, 1};
  const Sequence zeros = random_sequence(random, format(), heads, 20, 0);  // equal scores: running means of v
  const Sequence large =
      random_sequence(random, format(), heads, 20, 1e4f);  // scores of 1e8: the best takes all
  for (const Path path : kPaths) {
    EXPECT_TRUE(compare(run(ops().*path, stream(), heads, {&zeros, 0, 20}),
                        run(reference::attention, stream(), heads, {&zeros, 0, 20}),
                        softmax_tolerance(format(), 64, 20)));
    EXPECT_TRUE(compare(run(ops().*path, stream(), heads, {&large, 0, 20}),
                        run(reference::attention, stream(), heads, {&large, 0, 20}),
                        rounded_sum(format(), 1)));
  }
}

// One call, row by row, any cut, any number of threads: the same bits.
TEST_P(AttentionTest, CallsMayBeCutAnywhere) {
  for (const Shape& s : {Shape{{64, 2, 1}, 70, 37},
                         {{72, 3, 1}, 70, 250},
                         {{256, 2, 1}, 70, 0},
                         {{256, 4, 1}, 16, 1020},
                         {{128, 8, 2}, 16, 500},
                         {{64, 8, 1}, 16, 500}}) {
    const Sequence all = random_sequence(random, format(), s.heads, s.start + s.T);
    for (const Path path : kPaths) {
      const Matrix expected = run(ops().*path, stream(1), s.heads, {&all, s.start, s.T});
      for (int threads : {2, 3})
        EXPECT_TRUE(same_bits(run(ops().*path, stream(threads), s.heads, {&all, s.start, s.T}), expected));
      for (std::int64_t step : {1, 2, 3, 5, 16, 64})
        for (std::int64_t t = 0; t < s.T; t += step) {
          const std::int64_t n = std::min(step, s.T - t);
          const Layout layout{.padding = step % 2 == 0 ? 0 : 3};  // vectors or not
          ASSERT_TRUE(same_bits(run(ops().*path, stream(), s.heads, {&all, s.start + t, n}, layout),
                                Rows(expected).slice_rows(t, n)))
              << "E " << s.heads.E << ", steps of " << step << ", row " << t;
        }
    }
  }
}

// Ragged requests, some without rows: every one has the bits that it has alone, wherever its pages lie.
TEST_P(AttentionTest, RequestsDoNotMatterToEachOther) {
  for (const Heads heads : {Heads{64, 4, 2}, {256, 4, 1}, {128, 5, 1}, {20, 2, 2}}) {
    const Sequence a = random_sequence(random, format(), heads, 1),
                   b = random_sequence(random, format(), heads, 64),
                   c = random_sequence(random, format(), heads, 129),
                   d = random_sequence(random, format(), heads, 700);
    const Piece pieces[] = {{&a, 0, 0}, {&a, 0, 1}, {&b, 60, 4},   {&c, 0, 0},  {&c, 113, 16},
                            {&d, 3, 1}, {&b, 0, 2}, {&d, 684, 16}, {&c, 64, 3}, {&d, 0, 0}};
    for (const Path path : kPaths) {
      std::vector<float> expected;
      for (const Piece& p : pieces) {
        if (p.rows == 0) continue;
        const std::vector<float> alone = to_floats(run(ops().*path, stream(), heads, p));
        expected.insert(expected.end(), alone.begin(), alone.end());
      }
      for (const Layout& layout : {Layout{}, {64, 2, 0}, {128, 3, 3}, {320, 4, 8}})
        EXPECT_TRUE(same_bits(to_floats(run(ops().*path, stream(), heads, pieces, layout)), expected))
            << "E " << heads.E << ", pages of " << layout.page_size;
    }
  }
}

// As many requests as a step has, on pages that they share: a table may then divide the work in other ways,
// the more so with little scratch memory or when all are about as long.
TEST_P(AttentionTest, LoadDoesNotMatter) {
  if (ops().name == reference_ops().name) GTEST_SKIP() << "has nothing to divide";
  if (kSanitized) GTEST_SKIP() << "takes a minute; CallsMayBeCutAnywhere runs the same code";
  struct Case {
    Heads heads;
    int rows;
    bool even = false;
    Block block = {true, 0};
  };
  for (const auto& [heads, rows, even, block] : {Case{{64, 4, 4}, 1},
                                                 {{64, 4, 1}, 16},
                                                 {{128, 4, 1}, 16},
                                                 {{256, 2, 1}, 16},
                                                 {{256, 4, 2}, 9, true},
                                                 {{256, 4, 1}, 17, true},
                                                 {{128, 8, 4}, 9, true},
                                                 {{128, 8, 2}, 17, true},
                                                 {{256, 4, 2}, 9, true, {false, 700}},
                                                 {{128, 8, 4}, 9, true, {false, 700}}}) {
    constexpr std::int64_t kLength = 1600, kRequests = 64;
    const Sequence all = random_sequence(random, format(), heads, kLength);
    const Piece whole{&all, 0, kLength};
    for (const Path path : kPaths) {
      if (!block.causal && path != &Ops::attention_window) continue;
      Step step(format(), heads, std::span(&whole, 1), {.padding = 0});
      const std::int32_t only = step.slot[0];
      step.first_row = {0}, step.start.clear(), step.slot.clear();
      std::vector<std::int64_t> at;
      for (std::int64_t r = 0; r < kRequests; ++r) {
        const std::int64_t start = !even && (r * 53) % 7 == 0 ? r : kLength - rows - r;
        step.start.push_back(static_cast<std::int32_t>(start)), step.slot.push_back(only);
        step.first_row.push_back(step.first_row.back() + rows);
        for (std::int64_t i = 0; i < rows; ++i) at.push_back(start + i);
      }
      step.longest = rows;
      Matrix q(format(), static_cast<std::int64_t>(at.size()), step.q.cols(), 0);
      for (std::int64_t r = 0; r < q.rows(); ++r)
        for (std::int64_t c = 0; c < q.cols(); ++c) q.set(r, c, step.q.get(at[r], c));
      // For the results of sequences, not for those of their groups.
      const std::size_t little = std::size_t{rows > 16 ? 12u : 4u} << 20;
      for (const auto& [scratch, padding] : {std::pair(std::size_t{0}, 0), {little, 3}}) {
        Matrix out(format(), q.rows(), q.cols(), padding);
        Attention call = step.call();
        call.q = q, call.out = out;
        call.causal = block.causal, call.sliding_window = block.sliding_window;
        stream().cuda_scratch_bytes = scratch;
        (ops().*path)(stream(), call);
        stream().cuda_scratch_bytes = 0;
        for (std::int64_t r = 0; r < kRequests; r += 9) {
          const Piece alone{&all, step.start[r], rows};
          ASSERT_TRUE(same_bits(Rows(out).slice_rows(r * rows, rows),
                                run_block(ops().*path, stream(), heads, std::span(&alone, 1), block)))
              << "E " << heads.E << ", " << rows << " rows, request " << r << ", scratch " << scratch;
        }
      }
    }
  }
}

// Rows on 16-byte boundaries may be loaded in another way, never with another result.
TEST_P(AttentionTest, AlignmentDoesNotMatter) {
  for (const Shape& s : {Shape{{64, 2, 1}, 20, 130},
                         {{72, 2, 1}, 9, 70},
                         {{72, 8, 1}, 9, 127},
                         {{128, 3, 1}, 3, 300},
                         {{128, 3, 1}, 6, 505},
                         {{128, 8, 2}, 16, 1013},
                         {{256, 6, 2}, 40, 700},
                         {{256, 4, 1}, 5, 0},
                         {{256, 16, 4}, 16, 1024}}) {
    const Sequence all = random_sequence(random, format(), s.heads, s.start + s.T);
    for (const Path path : kPaths) {
      const Matrix expected = run(ops().*path, stream(), s.heads, {&all, s.start, s.T});
      for (const std::int64_t padding : {0, 8})
        EXPECT_TRUE(same_bits(run(ops().*path, stream(), s.heads, {&all, s.start, s.T}, {.padding = padding}),
                              expected))
            << "E " << s.heads.E << ", padding " << padding;
    }
  }
}

// A drafted token that will be rejected must leave no trace in the rows before it, large as it may be.
TEST_P(AttentionTest, LaterTokensDoNotMatter) {
  const Heads heads{64, 2, 1};
  const Sequence all = random_sequence(random, format(), heads, 80);
  for (const Path path : kPaths) {
    const Matrix expected = run(ops().*path, stream(), heads, {&all, 50, 30});
    for (std::int64_t first_changed : {51, 64, 79}) {
      Sequence changed = all;
      for (std::int64_t j = first_changed; j < 80; ++j)
        for (std::int64_t c = 0; c < 64; ++c) {
          changed.k.set(j, c, 1000 * random.normal());
          changed.v.set(j, c, 1000 * random.normal());
          changed.q.set(j, c, 1000 * random.normal());
        }
      const Matrix out = run(ops().*path, stream(), heads, {&changed, 50, 30});
      EXPECT_TRUE(same_bits(Rows(out).slice_rows(0, first_changed - 50),
                            Rows(expected).slice_rows(0, first_changed - 50)))
          << first_changed;
    }
  }
}

TEST_P(AttentionTest, RejectsShapesThatDoNotFit) {
  const Heads heads{8, 3, 1};
  const Sequence all = random_sequence(random, format(), heads, 70);
  const Piece piece{&all, 67, 3};
  Step step(format(), heads, std::span(&piece, 1), {});
  Matrix narrow(format(), 5, 7), few(format(), step.k.rows(), 7);
  for (const Path path : kPaths) {
    const auto call = [&](auto change) {
      Attention a = step.call();
      change(a);
      (ops().*path)(stream(), a);
    };
    EXPECT_NO_THROW(call([](Attention&) {}));
    EXPECT_THROW(call([](Attention& a) { a.head_dim = 5; }), Error);
    EXPECT_THROW(call([](Attention& a) { a.head_dim = 0; }), Error);
    EXPECT_THROW(call([&](Attention& a) { a.out = narrow; }), Error);
    EXPECT_THROW(call([&](Attention& a) { a.kv.v = few; }), Error);
    EXPECT_THROW(call([](Attention& a) { a.kv.page_size = 32; }), Error);
    EXPECT_THROW(call([](Attention& a) { a.kv.pages_per_slot = 1; }), Error) << "past the slot";
    EXPECT_THROW(call([](Attention& a) { a.requests.longest = 2; }), Error);
    EXPECT_THROW(call([](Attention& a) { a.requests.start = nullptr; }), Error);
    EXPECT_THROW(call([](Attention& a) { a.kv.block_table = nullptr; }), Error);
  }
  if (std::string_view(ops().name) == "cuda" && format() == Format::bf16) {
    stream().cuda_scratch_bytes = 64;
    EXPECT_THROW(ops().attention_window(stream(), step.call()), Error) << "no room for partial results";
    stream().cuda_scratch_bytes = 0;
  }
  step.start[0] = -1;
  for (const Path path : kPaths) EXPECT_THROW((ops().*path)(stream(), step.call()), Error);
}

// --- the gate, and vision ---------------------------------------------------------------------------------

class AttentionGateTest : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(, AttentionGateTest, each_table_and_format(), case_name);
class VisionAttentionTest : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(, VisionAttentionTest, each_table_and_format(), case_name);

Matrix run_vision(decltype(Ops::vision_attention) op, Stream& stream, const Matrix& qkv, int heads) {
  Matrix out(qkv.format(), qkv.rows(), qkv.cols() / 3);
  op(stream, {.qkv = qkv, .heads = heads, .out = out});
  return out;
}

TEST_P(AttentionGateTest, MatchesReference) {
  for (int E : {1, 7, 64, 72, 256})
    for (std::int64_t heads : {1, 3})
      for (std::int64_t T : kRowCounts) {
        const Matrix x = random_matrix(random, format(), T, heads * E);
        const Matrix q_gate = random_matrix(random, format(), T, heads * 2 * E, 3);
        Matrix y(format(), T, heads * E), expected(format(), T, heads * E), in_place = x;
        ops().attention_gate(stream(), x, q_gate, E, y);
        reference::attention_gate(stream(), x, q_gate, E, expected);
        ASSERT_TRUE(matches(y, expected, {.a = format(), .roundings = 2}))
            << T << " rows, " << heads << " x " << E;
        ops().attention_gate(stream(), in_place, q_gate, E, in_place);
        ASSERT_TRUE(same_bits(in_place, y));
      }
}

TEST_P(AttentionGateTest, AlignedRowsGiveTheSameBits) {
  for (int E : {8, 72, 256})
    for (std::int64_t T : {1, 3, 40}) {
      const Matrix x = random_matrix(random, format(), T, 3 * E),
                   q_gate = random_matrix(random, format(), T, 6 * E, 3);
      Matrix y(format(), T, 3 * E), vectors = aligned(y);
      ops().attention_gate(stream(), x, q_gate, E, y);
      ops().attention_gate(stream(), aligned(x), aligned(q_gate), E, vectors);
      EXPECT_TRUE(same_bits(vectors, y)) << T << " rows, heads of " << E;
      EXPECT_TRUE(vectors.padding_untouched());
    }
}

TEST_P(AttentionGateTest, ByHand) {
  Matrix y(format(), 1, 4);
  ops().attention_gate(stream(), matrix(format(), 1, 4, {1, 2, 3, 4}),
                       matrix(format(), 1, 8, {9, 9, 0, 100, 9, 9, 0, -100}), 2, y);
  EXPECT_TRUE(compare(y, std::vector<float>{0.5, 2, 1.5, 0}, rounded_sum(format(), 1)));
}

TEST_P(AttentionGateTest, RowsAreIndependent) {
  const Matrix x = random_matrix(random, format(), 40, 144),
               q_gate = random_matrix(random, format(), 40, 288);
  EXPECT_TRUE(rows_are_independent(40, [&](Stream& s, std::span<const std::int64_t> rows) {
    Matrix y(format(), static_cast<std::int64_t>(rows.size()), 144);
    ops().attention_gate(s, gather(x, rows), gather(q_gate, rows), 72, y);
    return y;
  }));
}

TEST_P(VisionAttentionTest, ByHand) {
  // Two patches, one head of 2: equal scores, then the second patch prefers itself.
  const Matrix qkv = matrix(format(), 2, 6, {0, 0, 1, 1, 2, 4, 200, 0, 9, 1, 4, 8});
  EXPECT_TRUE(
      same_bits(run_vision(ops().vision_attention, stream(), qkv, 1), matrix(format(), 2, 2, {3, 6, 4, 8})));
}

TEST_P(VisionAttentionTest, MatchesReference) {
  for (const auto& [heads, E] : {std::pair(1, 64), {2, 72}, {3, 20}, {1, 128}})
    for (std::int64_t N : {0, 1, 2, 5, 16, 17, 63, 64, 65, 130, 259}) {
      const Matrix qkv = random_matrix(random, format(), N, 3 * heads * E);
      const Matrix actual = run_vision(ops().vision_attention, stream(), qkv, heads);
      ASSERT_TRUE(compare(actual, run_vision(reference::vision_attention, stream(), qkv, heads),
                          softmax_tolerance(format(), E, N)))
          << "N " << N << ", " << heads << " heads of " << E;
      ASSERT_TRUE(actual.padding_untouched());
    }
}

// The queries of other patches, and the threads, leave no trace.
TEST_P(VisionAttentionTest, QueriesAreIndependent) {
  Matrix qkv = random_matrix(random, format(), 150, 3 * 2 * 72);
  const Matrix expected = run_vision(ops().vision_attention, stream(1), qkv, 2);
  for (int threads : {2, 3})
    EXPECT_TRUE(same_bits(run_vision(ops().vision_attention, stream(threads), qkv, 2), expected));
  for (std::int64_t r = 0; r < 150; ++r)
    for (std::int64_t c = 0; c < 144 && r % 7 != 3; ++c) qkv.set(r, c, 100 * random.normal());
  const Matrix out = run_vision(ops().vision_attention, stream(), qkv, 2);
  for (std::int64_t r = 3; r < 150; r += 7)
    EXPECT_TRUE(same_bits(Rows(out).slice_rows(r, 1), Rows(expected).slice_rows(r, 1))) << r;
}

// Rows on 16-byte boundaries may be loaded in another way, never with another result.
TEST_P(VisionAttentionTest, AlignmentDoesNotMatter) {
  const Matrix qkv = random_matrix(random, format(), 150, 3 * 2 * 64);
  const Matrix expected = run_vision(ops().vision_attention, stream(), qkv, 2);
  for (const std::int64_t padding : {0, 8}) {
    const Matrix copy = matrix(format(), 150, 3 * 2 * 64, to_floats(qkv), padding);
    EXPECT_TRUE(same_bits(run_vision(ops().vision_attention, stream(), copy, 2), expected));
  }
}

TEST_P(VisionAttentionTest, RejectsShapesThatDoNotFit) {
  Matrix q(format(), 3, 24), out(format(), 3, 24), third(format(), 3, 8);
  EXPECT_THROW(ops().attention_gate(stream(), q, q, 8, out), Error);
  EXPECT_THROW(ops().vision_attention(stream(), {.qkv = q, .heads = 5, .out = out}), Error);
  EXPECT_NO_THROW(ops().vision_attention(stream(), {.qkv = q, .heads = 2, .out = third}));
  EXPECT_THROW(ops().vision_attention(stream(), {.qkv = q, .heads = 3, .out = third}), Error);
}

}  // namespace
}  // namespace quire
