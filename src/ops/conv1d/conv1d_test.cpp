#include "ops/conv1d/conv1d.h"

#include "ops/testing.h"

namespace quire {
namespace {

class Conv1d : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(, Conv1d, each_table_and_format(), case_name);

// silu(100) = 100 and more, so that the sums show: taps 1, 10, 100, the last for the current row.
TEST_P(Conv1d, ComputesByHand) {
  const std::vector<float> w = {1, 10, 100};
  Matrix state = matrix(format(), 2, 1, {5, 7});
  Matrix y(format(), 3, 1);
  ops().conv1d_silu(stream(), matrix(format(), 3, 1, {1, 2, 3}), w, state, y);
  EXPECT_TRUE(compare(y, std::vector<float>{175, 217, 321}, rounded_sum(format(), 3)));
  EXPECT_EQ(to_floats(state), (std::vector<float>{2, 3}));
  Matrix one(format(), 1, 1);
  ops().conv1d_silu(stream(), matrix(format(), 1, 1, {-9}), w, state, one);  // silu(2 + 30 - 900) = 0
  EXPECT_NEAR(one.get(0, 0), 0, 1e-30);
  EXPECT_EQ(to_floats(state), (std::vector<float>{3, -9}));
}

TEST_P(Conv1d, MatchesReference) {
  for (std::int64_t W : {1, 2, 4, 5})
    for (std::int64_t C : {1, 7, 16, 33, 96})
      for (std::int64_t T : kRowCounts) {
        const Matrix x = random_matrix(random, format(), T, C);
        const std::vector<float> w = normals(random, C * W);
        Matrix state = random_matrix(random, format(), W - 1, C), expected_state = state;
        Matrix y(format(), T, C), expected(format(), T, C);
        ops().conv1d_silu(stream(), x, w, state, y);
        reference::conv1d_silu(stream(), x, w, expected_state, expected);
        ASSERT_TRUE(matches(y, expected, {.a = format(), .length = W}))
            << "W " << W << ", " << T << " x " << C;
        ASSERT_TRUE(same_bits(state, expected_state)) << "W " << W << ", " << T << " x " << C;
      }
}

TEST_P(Conv1d, LargeValuesMatchReference) {
  const Matrix x = random_matrix(random, format(), 9, 40, 1e4f);
  const std::vector<float> w = normals(random, 160);
  Matrix state = random_matrix(random, format(), 3, 40), expected_state = state;
  Matrix y(format(), 9, 40), expected(format(), 9, 40);
  ops().conv1d_silu(stream(), x, w, state, y);
  reference::conv1d_silu(stream(), x, w, expected_state, expected);
  EXPECT_TRUE(matches(y, expected, {.a = format(), .length = 4}));
}

// However a sequence is cut into calls, and on however many threads: the same bits, also shorter than the
// state.
TEST_P(Conv1d, CallsMayBeCutAnywhere) {
  constexpr std::int64_t T = 67, C = 50, W = 4;
  const Matrix x = random_matrix(random, format(), T, C);
  const std::vector<float> w = normals(random, C * W);
  const Matrix start = random_matrix(random, format(), W - 1, C);
  Matrix expected(format(), T, C);
  Matrix end = start;
  ops().conv1d_silu(stream(1), x, w, end, expected);
  for (int threads : {1, 2, 3})
    for (std::int64_t step : {1, 2, 3, 5, 64, 67}) {
      Matrix y(format(), T, C);
      Matrix state = start;
      for (std::int64_t t = 0; t < T; t += step) {
        const std::int64_t n = std::min(step, T - t);
        ops().conv1d_silu(stream(threads), Rows(x).slice_rows(t, n), w, state, Rows(y).slice_rows(t, n));
      }
      EXPECT_TRUE(same_bits(y, expected)) << threads << " threads, steps of " << step;
      EXPECT_TRUE(same_bits(state, end)) << threads << " threads, steps of " << step;
    }
}

TEST_P(Conv1d, RejectsShapesThatDoNotFit) {
  const Matrix x = random_matrix(random, format(), 2, 8);
  Matrix y(format(), 2, 8), narrow(format(), 2, 7), state(format(), 3, 8), short_state(format(), 2, 8);
  std::vector<float> w(32), uneven(30);
  EXPECT_THROW(ops().conv1d_silu(stream(), x, w, state, narrow), Error);
  EXPECT_THROW(ops().conv1d_silu(stream(), x, uneven, state, y), Error);
  EXPECT_THROW(ops().conv1d_silu(stream(), x, w, short_state, y), Error);
  EXPECT_THROW(ops().conv1d_silu(stream(), x, {}, state, y), Error);
}

}  // namespace
}  // namespace quire
