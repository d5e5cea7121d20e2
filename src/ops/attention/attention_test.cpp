#include "ops/attention/attention.h"

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

class AttentionTest : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(, AttentionTest, each_table_and_format(), case_name);

// Two equal scores give the mean of the two values; a score 100 larger takes all. Later keys are not seen.
TEST_P(AttentionTest, ComputesByHand) {
  const Matrix q = matrix(format(), 2, 4, {0, 0, 0, 0, 100, 0, 0, 0});  // scale 1/2
  const Matrix k = matrix(format(), 3, 4, {1, 2, 3, 4, 3, 1, 1, 1, 1, 9, 9, 9});
  const Matrix v = matrix(format(), 3, 4, {1, 2, 3, 4, 5, 6, 7, 8, -3, -4, -5, -6});
  Matrix out(format(), 2, 4);
  ops().attention(stream(), {.q = q, .kv = {k, v}, .start = 1, .head_dim = 4, .out = out});
  EXPECT_TRUE(same_bits(out, matrix(format(), 2, 4, {3, 4, 5, 6, 5, 6, 7, 8})));
  Matrix first(format(), 1, 4);
  ops().attention(stream(),
                  {.q = Rows(q).slice_rows(0, 1), .kv = {k, v}, .start = 0, .head_dim = 4, .out = first});
  EXPECT_TRUE(same_bits(first, matrix(format(), 1, 4, {1, 2, 3, 4})));
}

// exp(s) = 1/3 of the larger weight: (3 v0 + v1) / 4, with a scale of E^-1/2 = 1/2.
TEST_P(AttentionTest, ScalesScores) {
  const float log3 = 1.0986123f;
  const Matrix q = matrix(Format::f32, 1, 4, {2, 0, 0, 0}),
               v = matrix(Format::f32, 2, 4, {1, 1, 1, 1, 5, 5, 5, 5});
  const Matrix k = matrix(Format::f32, 2, 4, {log3, 7, 7, 7, 0, 8, 8, 8});
  Matrix out(Format::f32, 1, 4);
  ops().attention(stream(), {.q = q, .kv = {k, v}, .start = 1, .head_dim = 4, .out = out});
  EXPECT_NEAR(out.get(0, 0), 2, 1e-5);
}

// The second weight is exp(-0.28515625) = 0.7518967, which bf16 rounds to 3/4: exactly what it takes to
// cancel. The sum of the weights is not rounded: 1.7578125 / 1.7518967 lies below the boundary 1.0039,
// by 1.75 it would not.
TEST_P(AttentionTest, RoundsWeightsButNotTheirSum) {
  const Matrix q = matrix(format(), 1, 4, {2, 0, 0, 0});  // scale 1/2
  const Matrix k = matrix(format(), 2, 4, {0, 0, 0, 0, -0.28515625f, 0, 0, 0});
  const Matrix v = matrix(format(), 2, 4, {-3, 1.0078125f, 1, 0, 4, 1, 0, 1});
  Matrix out(format(), 1, 4);
  ops().attention(stream(), {.q = q, .kv = {k, v}, .start = 1, .head_dim = 4, .out = out});
  const float weight = 0.7518967f, rounded = round_to(format(), weight), sum = 1 + weight;
  const float expected[] = {(4 * rounded - 3) / sum, (1.0078125f + rounded) / sum, 1 / sum, rounded / sum};
  for (std::int64_t c = 0; c < 4; ++c) EXPECT_NEAR(out.get(0, c), round_to(format(), expected[c]), 1e-6) << c;
}

TEST_P(AttentionTest, QueryHeadsShareKeyHeads) {
  constexpr int E = 8;
  const Matrix q = random_matrix(random, format(), 1, 6 * E), k = random_matrix(random, format(), 1, 2 * E),
               v = random_matrix(random, format(), 1, 2 * E);
  Matrix out(format(), 1, 6 * E);
  ops().attention(stream(), {.q = q, .kv = {k, v}, .start = 0, .head_dim = E, .out = out});
  for (std::int64_t c = 0; c < 6 * E; ++c)  // one key: its value; heads 0..2 read the first, 3..5 the second
    EXPECT_EQ(out.get(0, c), v.get(0, c / (3 * E) * E + c % E)) << c;
}

struct Shape {
  int E;
  std::int64_t H, G, T, start;
};
// A cache with room to spare: rows from start + T on are NaN, as memory never written may be.
struct Inputs {
  Inputs(Random& random, Format f, const Shape& s, float scale = 1)
      : q(random_matrix(random, f, s.T, s.H * s.E, scale)),
        k(f, s.start + s.T + 3, s.G * s.E),
        v(f, s.start + s.T + 3, s.G * s.E) {
    for (std::int64_t j = 0; j < s.start + s.T; ++j)
      for (std::int64_t c = 0; c < s.G * s.E; ++c) {
        k.set(j, c, scale * random.normal());
        v.set(j, c, random.normal());
      }
  }
  Matrix q, k, v;
};
Matrix run(decltype(Ops::attention) op, Stream& stream, const Inputs& in, const Shape& s) {
  Matrix out(in.q.format(), s.T, s.H * s.E);
  op(stream, {.q = in.q, .kv = {in.k, in.v}, .start = s.start, .head_dim = s.E, .out = out});
  return out;
}

TEST_P(AttentionTest, MatchesReference) {
  for (const Shape s : {Shape{64, 1, 1, 0, 0}, {64, 2, 1, 1, 0},    {64, 2, 2, 2, 0},    {64, 3, 1, 3, 1},
                        {64, 4, 2, 5, 60},     {64, 1, 1, 15, 49},  {64, 2, 1, 16, 0},   {64, 6, 2, 17, 64},
                        {64, 1, 1, 63, 1},     {64, 2, 1, 64, 64},  {64, 1, 1, 130, 0},  {72, 2, 1, 65, 0},
                        {72, 3, 3, 7, 250},    {128, 2, 1, 65, 63}, {128, 3, 1, 1, 500}, {256, 2, 1, 1, 0},
                        {256, 2, 1, 5, 300},   {256, 2, 1, 65, 0},  {256, 3, 1, 3, 127}, {8, 2, 1, 20, 3},
                        {20, 1, 1, 33, 5},     {256, 1, 1, 2, 1100}}) {
    const Inputs in(random, format(), s);
    const Matrix actual = run(ops().attention, stream(), in, s),
                 expected = run(reference::attention, stream(), in, s);
    ASSERT_TRUE(compare(actual, expected, softmax_tolerance(format(), s.E, s.start + s.T)))
        << "E " << s.E << ", " << s.H << " / " << s.G << " heads, T " << s.T << " from " << s.start;
    ASSERT_TRUE(actual.padding_untouched());
  }
}

// Scores of some hundreds: exp of the difference to the maximum, never of the score.
TEST_P(AttentionTest, LargeScoresMatchReference) {
  for (float scale : {3.0f, 10.0f}) {
    const Shape s{64, 2, 1, 40, 30};
    const Inputs in(random, format(), s, scale);
    const double largest = 5 * scale * scale;  // 5 deviations
    EXPECT_TRUE(compare(run(ops().attention, stream(), in, s), run(reference::attention, stream(), in, s),
                        softmax_tolerance(format(), s.E, 70, largest)))
        << scale;
  }
}

TEST_P(AttentionTest, ExtremeInputs) {
  const Shape s{64, 1, 1, 20, 0};
  Inputs zeros(random, format(), s, 0);  // all scores equal: running means of v
  EXPECT_TRUE(compare(run(ops().attention, stream(), zeros, s), run(reference::attention, stream(), zeros, s),
                      softmax_tolerance(format(), s.E, 20)));
  Inputs large(random, format(), s, 1e4f);  // scores of 1e8: the best key takes all
  EXPECT_TRUE(compare(run(ops().attention, stream(), large, s), run(reference::attention, stream(), large, s),
                      rounded_sum(format(), 1)));
}

// One call, row by row, any cut, any number of threads: the same bits.
TEST_P(AttentionTest, CallsMayBeCutAnywhere) {
  for (const Shape s : {Shape{64, 2, 1, 70, 37}, {72, 3, 1, 70, 250}, {256, 2, 1, 70, 0}}) {
    const Inputs in(random, format(), s);
    const Matrix expected = run(ops().attention, stream(1), in, s);
    for (int threads : {2, 3}) EXPECT_TRUE(same_bits(run(ops().attention, stream(threads), in, s), expected));
    for (std::int64_t step : {1, 2, 3, 5, 16, 64}) {
      Matrix out(format(), s.T, s.H * s.E);
      for (std::int64_t t = 0; t < s.T; t += step) {
        const std::int64_t n = std::min(step, s.T - t);
        ops().attention(stream(), {.q = Rows(in.q).slice_rows(t, n),
                                   .kv = {in.k, in.v},
                                   .start = s.start + t,
                                   .head_dim = s.E,
                                   .out = Rows(out).slice_rows(t, n)});
      }
      EXPECT_TRUE(same_bits(out, expected)) << "E " << s.E << ", steps of " << step;
    }
  }
}

// A drafted token that will be rejected must leave no trace in the rows before it, large as it may be.
Matrix run_vision(decltype(Ops::vision_attention) op, Stream& stream, const Matrix& qkv, int heads) {
  Matrix out(qkv.format(), qkv.rows(), qkv.cols() / 3);
  op(stream, {.qkv = qkv, .heads = heads, .out = out});
  return out;
}

// The same values in rows apart by another number of elements.
Matrix with_padding(const Matrix& x, std::int64_t padding) {
  Matrix y(x.format(), x.rows(), x.cols(), padding);
  for (std::int64_t r = 0; r < x.rows(); ++r)
    for (std::int64_t c = 0; c < x.cols(); ++c) y.set(r, c, x.get(r, c));
  return y;
}

// Rows on 16-byte boundaries may be loaded in another way, never with another result. 40 rows of 6 heads from
// 700 make a block walk several splits of the keys.
TEST_P(AttentionTest, AlignmentDoesNotMatter) {
  for (const Shape s :
       {Shape{64, 2, 1, 20, 130}, {72, 2, 1, 9, 70}, {128, 3, 1, 3, 300}, {256, 6, 2, 40, 700}}) {
    const Inputs in(random, format(), s);
    const Matrix expected = run(ops().attention, stream(), in, s);
    for (const std::int64_t padding : {0, 8}) {
      const Matrix q = with_padding(in.q, padding), k = with_padding(in.k, padding),
                   v = with_padding(in.v, padding);
      Matrix out(format(), s.T, s.H * s.E, padding);
      ops().attention(stream(), {.q = q, .kv = {k, v}, .start = s.start, .head_dim = s.E, .out = out});
      EXPECT_TRUE(same_bits(out, expected)) << "E " << s.E << ", padding " << padding;
    }
  }
  const Matrix qkv = random_matrix(random, format(), 150, 3 * 2 * 64);
  const Matrix expected = run_vision(ops().vision_attention, stream(), qkv, 2);
  for (const std::int64_t padding : {0, 8})
    EXPECT_TRUE(
        same_bits(run_vision(ops().vision_attention, stream(), with_padding(qkv, padding), 2), expected));
}

TEST_P(AttentionTest, LaterTokensDoNotMatter) {
  const Shape s{64, 2, 1, 30, 50};
  Inputs in(random, format(), s);
  const Matrix expected = run(ops().attention, stream(), in, s);
  for (std::int64_t first_changed : {51, 64, 79}) {
    Inputs changed = in;
    for (std::int64_t j = first_changed; j < 80; ++j)
      for (std::int64_t c = 0; c < 64; ++c) {
        changed.k.set(j, c, 1000 * random.normal());
        changed.v.set(j, c, 1000 * random.normal());
        changed.q.set(j - 50, c, 1000 * random.normal());
      }
    const Matrix out = run(ops().attention, stream(), changed, s);
    EXPECT_TRUE(same_bits(Rows(out).slice_rows(0, first_changed - 50),
                          Rows(expected).slice_rows(0, first_changed - 50)))
        << first_changed;
  }
}

TEST_P(AttentionTest, GateMatchesReference) {
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

TEST_P(AttentionTest, GateByHand) {
  Matrix y(format(), 1, 4);
  ops().attention_gate(stream(), matrix(format(), 1, 4, {1, 2, 3, 4}),
                       matrix(format(), 1, 8, {9, 9, 0, 100, 9, 9, 0, -100}), 2, y);
  EXPECT_TRUE(compare(y, std::vector<float>{0.5, 2, 1.5, 0}, rounded_sum(format(), 1)));
}

TEST_P(AttentionTest, GateRowsAreIndependent) {
  const Matrix x = random_matrix(random, format(), 40, 144),
               q_gate = random_matrix(random, format(), 40, 288);
  EXPECT_TRUE(rows_are_independent(40, [&](Stream& s, std::span<const std::int64_t> rows) {
    Matrix y(format(), static_cast<std::int64_t>(rows.size()), 144);
    ops().attention_gate(s, gather(x, rows), gather(q_gate, rows), 72, y);
    return y;
  }));
}

TEST_P(AttentionTest, VisionByHand) {
  // Two patches, one head of 2: equal scores, then the second patch prefers itself.
  const Matrix qkv = matrix(format(), 2, 6, {0, 0, 1, 1, 2, 4, 200, 0, 9, 1, 4, 8});
  EXPECT_TRUE(
      same_bits(run_vision(ops().vision_attention, stream(), qkv, 1), matrix(format(), 2, 2, {3, 6, 4, 8})));
}

TEST_P(AttentionTest, VisionMatchesReference) {
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
TEST_P(AttentionTest, VisionQueriesAreIndependent) {
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

TEST_P(AttentionTest, RejectsShapesThatDoNotFit) {
  Matrix q(format(), 3, 24), k(format(), 5, 8), v(format(), 5, 8), narrow(format(), 5, 7),
      out(format(), 3, 24);
  const auto call = [&](const Matrix& values, std::int64_t start, int head_dim) {
    ops().attention(stream(), {.q = q, .kv = {k, values}, .start = start, .head_dim = head_dim, .out = out});
  };
  EXPECT_NO_THROW(call(v, 2, 8));
  EXPECT_THROW(call(v, 3, 8), Error) << "past the cache";
  EXPECT_THROW(call(v, -1, 8), Error);
  EXPECT_THROW(call(narrow, 0, 8), Error);
  EXPECT_THROW(call(v, 0, 5), Error);
  EXPECT_THROW(call(v, 0, 0), Error);
  EXPECT_THROW(ops().attention_gate(stream(), q, q, 8, out), Error);
  EXPECT_THROW(ops().vision_attention(stream(), {.qkv = q, .heads = 5, .out = out}), Error);
  Matrix third(format(), 3, 8);
  EXPECT_NO_THROW(ops().vision_attention(stream(), {.qkv = q, .heads = 2, .out = third}));
  EXPECT_THROW(ops().vision_attention(stream(), {.qkv = q, .heads = 3, .out = third}), Error);
}

}  // namespace
}  // namespace quire
