#include "ops/position_embedding/position_embedding.h"

#include "ops/testing.h"

namespace quire {
namespace {

class PositionEmbedding : public OpsTest {
 protected:
  Matrix zeros(std::int64_t rows, std::int64_t cols) {
    return matrix(format(), rows, cols, std::vector<float>(rows * cols, 0.0f));
  }
};
INSTANTIATE_TEST_SUITE_P(, PositionEmbedding, each_table_and_format(), case_name);

// A table of 2 x 2 corners on a grid of 3 x 3: corners, middles of the sides, the centre.
TEST_P(PositionEmbedding, InterpolatesByHand) {
  const Matrix table = matrix(format(), 4, 1, std::vector<float>{0, 1, 2, 5}, 0);
  Matrix x = matrix(format(), 9, 1, std::vector<float>(9, 10.0f));
  ops().add_position_embedding(stream(), x, table.weight(), 3, 3, 1);
  EXPECT_TRUE(same_bits(x, matrix(format(), 9, 1, {10, 10.5, 11, 11, 12, 13, 12, 13.5, 15})));
}

// A table as large as the grid: each patch gets its own entry, blocks of 2 x 2 in raster order.
TEST_P(PositionEmbedding, FollowsMergeBlocks) {
  std::vector<float> entries(16);
  std::iota(entries.begin(), entries.end(), 0.0f);
  const Matrix table = matrix(format(), 16, 1, entries, 0);
  Matrix x = zeros(16, 1);
  ops().add_position_embedding(stream(), x, table.weight(), 4, 4, 2);
  EXPECT_TRUE(same_bits(x, matrix(format(), 16, 1, {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15})));
}

// One row or column of patches sits at the table's start.
TEST_P(PositionEmbedding, AGridOfOne) {
  const Matrix table = matrix(format(), 4, 1, std::vector<float>{3, 1, 2, 5}, 0);
  Matrix x = zeros(1, 1), row = zeros(2, 1);
  ops().add_position_embedding(stream(), x, table.weight(), 1, 1, 1);
  EXPECT_EQ(x.get(0, 0), 3);
  ops().add_position_embedding(stream(), row, table.weight(), 1, 2, 1);
  EXPECT_TRUE(same_bits(row, matrix(format(), 2, 1, {3, 1})));
}

// Where a patch falls on the table is known to u G in f32, as the taps' weights are: G times the slope of the
// table.
TEST_P(PositionEmbedding, MatchesReference) {
  struct Shape {
    int height, width, merge;
    std::int64_t G, D;
  };
  for (const Shape s : {Shape{2, 2, 2, 48, 33},
                        {2, 50, 2, 48, 16},
                        {30, 4, 2, 48, 40},
                        {6, 9, 3, 7, 7},
                        {0, 4, 2, 5, 8},
                        {20, 22, 2, 1, 5},
                        {96, 2, 2, 48, 3}})
    for (Format table_format : {Format::f32, Format::bf16}) {
      const std::int64_t N = std::int64_t{s.height} * s.width;
      Matrix x = random_matrix(random, format(), N, s.D), expected = x;
      const Matrix table = random_matrix(random, table_format, s.G * s.G, s.D, 1, 0);
      ops().add_position_embedding(stream(), x, table.weight(), s.height, s.width, s.merge);
      reference::add_position_embedding(stream(), expected, table.weight(), s.height, s.width, s.merge);
      ASSERT_TRUE(matches(x, expected, {.a = format(), .length = s.G * s.G})) << s.height << " x " << s.width;
    }
}

TEST_P(PositionEmbedding, ThreadsDoNotMatter) {
  const Matrix start = random_matrix(random, format(), 30 * 34, 20);
  const Matrix table = random_matrix(random, Format::bf16, 48 * 48, 20, 1, 0);
  Matrix expected = start;
  ops().add_position_embedding(stream(1), expected, table.weight(), 30, 34, 2);
  for (int threads : {2, 3}) {
    Matrix x = start;
    ops().add_position_embedding(stream(threads), x, table.weight(), 30, 34, 2);
    EXPECT_TRUE(same_bits(x, expected));
  }
}

TEST_P(PositionEmbedding, RejectsShapesThatDoNotFit) {
  const Matrix table = random_matrix(random, format(), 9, 8, 1, 0),
               oblong = random_matrix(random, format(), 8, 8, 1, 0);
  Matrix x = zeros(16, 8), narrow = zeros(16, 7);
  EXPECT_THROW(ops().add_position_embedding(stream(), x, table.weight(), 4, 5, 2), Error);
  EXPECT_THROW(ops().add_position_embedding(stream(), x, table.weight(), 16, 1, 2), Error);
  EXPECT_THROW(ops().add_position_embedding(stream(), x, table.weight(), 4, 4, 0), Error);
  EXPECT_THROW(ops().add_position_embedding(stream(), x, oblong.weight(), 4, 4, 2), Error);
  EXPECT_THROW(ops().add_position_embedding(stream(), narrow, table.weight(), 4, 4, 2), Error);
}

}  // namespace
}  // namespace quire
