#include "ops/argmax/argmax.h"

#include "ops/testing.h"

namespace quire {
namespace {

// Logits are f32 in both precisions.
class Argmax : public OpsTest {
 protected:
  std::vector<Sampled> run(const Matrix& logits) {
    std::vector<Sampled> out(logits.rows(), {-1, NAN});
    ops().argmax(stream(), logits, out);
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(, Argmax,
                         testing::Combine(testing::ValuesIn(tables()), testing::Values(Format::f32)),
                         case_name);

TEST_P(Argmax, ComputesByHand) {
  const Sampled s = run(matrix(Format::f32, 1, 3, {0, std::log(2.0f), 0}))[0];  // probability 2 / 4
  EXPECT_EQ(s.token, 1);
  EXPECT_NEAR(s.logprob, std::log(0.5), 1e-6);
}

TEST_P(Argmax, TiesGoToTheLowestId) {
  for (std::int64_t V : {1, 2, 7, 16, 33, 1000}) {
    const Sampled s = run(matrix(Format::f32, 1, V, std::vector<float>(V, -3.0f)))[0];
    EXPECT_EQ(s.token, 0);
    EXPECT_NEAR(s.logprob, -std::log(static_cast<double>(V)), 1e-5) << "uniform over " << V;
  }
  // Every pair of equal maxima, whichever lanes they fall into.
  Matrix logits = random_matrix(random, Format::f32, 1, 70);
  for (std::int64_t first = 0; first < 70; ++first)
    for (std::int64_t second = first + 1; second < 70; ++second) {
      Matrix x = logits;
      x.set(0, first, 9);
      x.set(0, second, 9);
      ASSERT_EQ(run(x)[0].token, first) << first << " and " << second;
    }
  Matrix zeros = matrix(Format::f32, 1, 40, std::vector<float>(40, -1.0f));
  zeros.set(0, 20, -0.0f);
  zeros.set(0, 33, 0.0f);
  EXPECT_EQ(run(zeros)[0].token, 20) << "-0 equals 0";
}

TEST_P(Argmax, FindsEveryPlace) {
  for (std::int64_t V : {1, 15, 16, 17, 65, 130})
    for (std::int64_t place = 0; place < V; ++place) {
      Matrix x = random_matrix(random, Format::f32, 1, V);
      x.set(0, place, 20);
      ASSERT_EQ(run(x)[0].token, place);
    }
}

// The sum of V terms in (0, 1] is at least 1: its log errs by 8 u sqrt(V), and by an ulp of the logits'
// differences, up to 80 here.
TEST_P(Argmax, MatchesReference) {
  for (std::int64_t T : kRowCounts)
    for (std::int64_t V : {1, 7, 33, 4096})
      for (float scale : {1.0f, 10.0f}) {
        if (T > 17 && V > 33) continue;
        const Matrix x = random_matrix(random, Format::f32, T, V, scale);
        std::vector<Sampled> expected(T);
        reference::argmax(stream(), x, expected);
        const std::vector<Sampled> out = run(x);
        const double slack = 8 * 0x1p-24 * std::sqrt(static_cast<double>(V)) + 80 * 0x1p-23;
        for (std::int64_t t = 0; t < T; ++t) {
          ASSERT_EQ(out[t].token, expected[t].token);
          ASSERT_NEAR(out[t].logprob, expected[t].logprob, slack) << "row " << t << " of " << T << " x " << V;
        }
      }
}

// Masked logits are -inf; large ones must not overflow; what is certain has logprob 0.
TEST_P(Argmax, ExtremeLogits) {
  std::vector<float> values(50, -INFINITY);
  values[37] = -1e30f;
  Sampled s = run(matrix(Format::f32, 1, 50, values))[0];
  EXPECT_EQ(s.token, 37);
  EXPECT_EQ(s.logprob, 0);
  values.assign(50, 1e30f);
  values[3] = 2e30f;
  s = run(matrix(Format::f32, 1, 50, values))[0];
  EXPECT_EQ(s.token, 3);
  EXPECT_EQ(s.logprob, 0);
}

// A broken model must not make a broken id.
TEST_P(Argmax, NaNGivesAValidToken) {
  for (std::int64_t V : {1, 16, 50}) {
    const Sampled s = run(matrix(Format::f32, 1, V, std::vector<float>(V, NAN)))[0];
    EXPECT_EQ(s.token, 0);
    EXPECT_TRUE(std::isnan(s.logprob));
  }
  for (std::int64_t place : {0, 1, 17, 49}) {
    Matrix x = random_matrix(random, Format::f32, 1, 50);
    x.set(0, 30, 9);
    x.set(0, place, NAN);
    const Sampled s = run(x)[0];
    EXPECT_EQ(s.token, 30) << "NaN at " << place;
    EXPECT_TRUE(std::isnan(s.logprob));
  }
  const Sampled s = run(matrix(Format::f32, 1, 40, std::vector<float>(40, -INFINITY)))[0];
  EXPECT_EQ(s.token, 0);
}

TEST_P(Argmax, RowsAreIndependent) {
  const Matrix logits = random_matrix(random, Format::f32, 40, 515);
  EXPECT_TRUE(rows_are_independent(40, [&](Stream& s, std::span<const std::int64_t> rows) {
    std::vector<Sampled> out(rows.size());
    ops().argmax(s, gather(logits, rows), out);
    Matrix y(Format::f32, static_cast<std::int64_t>(rows.size()), 2);
    for (std::int64_t t = 0; t < y.rows(); ++t) {
      y.set(t, 0, static_cast<float>(out[t].token));
      y.set(t, 1, out[t].logprob);
    }
    return y;
  }));
}

TEST_P(Argmax, RejectsShapesThatDoNotFit) {
  std::vector<Sampled> out(2);
  EXPECT_THROW(ops().argmax(stream(), Matrix(Format::f32, 3, 8), out), Error);
  EXPECT_THROW(ops().argmax(stream(), Matrix(Format::bf16, 2, 8), out), Error);
  EXPECT_THROW(ops().argmax(stream(), Matrix(Format::f32, 2, 0), out), Error);
}

}  // namespace
}  // namespace quire
