#include "ops/linear/linear.h"

#include "ops/testing.h"

namespace quire {
namespace {

class Linear : public OpsTest {
 protected:
  // Weights that keep the output about as large as the input.
  Matrix weights(Format f, std::int64_t out, std::int64_t in) {
    return random_matrix(random, f, out, in, 1 / std::sqrt(static_cast<float>(in)), 0);
  }
};
INSTANTIATE_TEST_SUITE_P(, Linear, each_table_and_format(), case_name);

TEST_P(Linear, ComputesByHand) {
  const Matrix x = matrix(format(), 2, 3, {1, 2, 3, -1, 0, 4});
  const Matrix w = matrix(format(), 2, 3, std::vector<float>{1, 10, 100, 0.5, 0, -2}, 0);
  const std::vector<float> bias = {1, -1};
  Matrix y(format(), 2, 2);
  ops().linear(stream(), x, w.weight(), {}, y);
  EXPECT_TRUE(same_bits(y, matrix(format(), 2, 2, {321, -5.5, 399, -8.5})));
  ops().linear(stream(), x, w.weight(), bias, y);
  EXPECT_TRUE(same_bits(y, matrix(format(), 2, 2, {322, -6.5, 400, -9.5})));
}

TEST_P(Linear, AddsTheBiasBeforeItRounds) {
  // 256 + 1 is a tie that bf16 rounds down to 256; 256 + 1 + 0.5 is not.
  const Matrix x = matrix(format(), 1, 2, {256, 1}), w = matrix(format(), 1, 2, std::vector<float>{1, 1}, 0);
  const std::vector<float> bias = {0.5};
  Matrix y(format(), 1, 1);
  ops().linear(stream(), x, w.weight(), bias, y);
  EXPECT_EQ(y.get(0, 0), format() == Format::f32 ? 257.5f : 258.0f);
}

TEST_P(Linear, MatchesReference) {
  struct Shape {
    std::int64_t in, out;
  };
  for (const Shape s :
       {Shape{1, 1}, {2, 3}, {7, 4}, {16, 16}, {31, 5}, {33, 17}, {64, 33}, {100, 67}, {256, 48}})
    for (std::int64_t T : kRowCounts)
      for (Format weight_format : {Format::f32, Format::bf16}) {
        const Format y_format = T % 2 ? format() : Format::f32;
        const Matrix x = random_matrix(random, format(), T, s.in), w = weights(weight_format, s.out, s.in);
        const std::vector<float> bias = T % 3 ? normals(random, s.out) : std::vector<float>();
        Matrix y(y_format, T, s.out), expected(y_format, T, s.out);
        ops().linear(stream(), x, w.weight(), bias, y);
        reference::linear(stream(), x, w.weight(), bias, expected);
        ASSERT_TRUE(matches(y, expected, {.a = y_format, .length = s.in}))
            << "T " << T << ", in " << s.in << ", out " << s.out << ", weights of " << size_of(weight_format)
            << " bytes";
      }
}

TEST_P(Linear, MatchesReferenceOnLongSumsAndWideOutputs) {
  struct Shape {
    std::int64_t T, in, out;
  };
  for (const Shape s : {Shape{3, 4100, 9}, {7, 3584, 20}, {2, 64, 4100}, {33, 300, 130}})
    for (Format weight_format : {Format::f32, Format::bf16}) {
      const Matrix x = random_matrix(random, format(), s.T, s.in), w = weights(weight_format, s.out, s.in);
      Matrix y(format(), s.T, s.out), expected(format(), s.T, s.out);
      ops().linear(stream(3), x, w.weight(), {}, y);
      reference::linear(stream(), x, w.weight(), {}, expected);
      ASSERT_TRUE(matches(y, expected, {.a = format(), .length = s.in}))
          << "in " << s.in << ", out " << s.out;
    }
}

TEST_P(Linear, MatchesReferenceOnZerosAndLargeValues) {
  const Matrix w = weights(Format::bf16, 19, 50);
  for (float scale : {0.0f, 1e-12f, 1e4f, 1e15f}) {
    const Matrix x = random_matrix(random, format(), 9, 50, scale);
    Matrix y(format(), 9, 19), expected(format(), 9, 19);
    ops().linear(stream(), x, w.weight(), {}, y);
    reference::linear(stream(), x, w.weight(), {}, expected);
    EXPECT_TRUE(matches(y, expected, {.a = format(), .length = 50})) << scale;
  }
}

TEST_P(Linear, KeepsInfinitiesAndNaNsInTheirRows) {
  Matrix x = random_matrix(random, format(), 8, 37);
  const Matrix w = weights(Format::bf16, 11, 37);
  x.set(1, 0, INFINITY);
  x.set(4, 36, -INFINITY);
  x.set(6, 20, NAN);
  Matrix y(format(), 8, 11), expected(format(), 8, 11);
  ops().linear(stream(), x, w.weight(), {}, y);
  reference::linear(stream(), x, w.weight(), {}, expected);
  EXPECT_TRUE(matches(y, expected, {.a = format(), .length = 37}));
  EXPECT_TRUE(std::isinf(expected.get(1, 3)) && std::isinf(expected.get(4, 3)) &&
              std::isnan(expected.get(6, 3)));
}

TEST_P(Linear, RowsAreIndependent) {
  struct Shape {
    std::int64_t in, out;
  };
  for (const Shape s : {Shape{40, 7}, {256, 64}, {515, 33}})
    for (Format weight_format : {Format::f32, Format::bf16}) {
      const Matrix x = random_matrix(random, format(), 200, s.in), w = weights(weight_format, s.out, s.in);
      const std::vector<float> bias = normals(random, s.out);
      EXPECT_TRUE(rows_are_independent(200,
                                       [&](Stream& stream, std::span<const std::int64_t> rows) {
                                         Matrix y(Format::f32, static_cast<std::int64_t>(rows.size()), s.out);
                                         ops().linear(stream, gather(x, rows), w.weight(), bias, y);
                                         return y;
                                       }))
          << "in " << s.in << ", out " << s.out;
    }
}

// A model may be cut by output rows (tensor parallel), and a head may have any number of outputs.
TEST_P(Linear, OutputsAreIndependent) {
  const Matrix x = random_matrix(random, format(), 5, 96), w = weights(Format::bf16, 70, 96);
  Matrix all(Format::f32, 5, 70);
  ops().linear(stream(), x, w.weight(), {}, all);
  for (std::int64_t begin : {0, 1, 3, 64}) {
    const Rows rest = Rows(w).slice_rows(begin, 70 - begin);
    const Weight part = {.data = rest.data, .format = rest.format, .out = rest.rows, .in = rest.cols};
    Matrix y(Format::f32, 5, 70 - begin);
    ops().linear(stream(), x, part, {}, y);
    EXPECT_TRUE(same_bits(y, Rows(all).slice_cols(begin, 70 - begin))) << "outputs from " << begin;
  }
}

TEST_P(Linear, RejectsShapesThatDoNotFit) {
  const Matrix x = random_matrix(random, format(), 2, 8), w = weights(format(), 4, 8);
  Matrix y(format(), 2, 4), wide(format(), 2, 5), tall(format(), 3, 4);
  const std::vector<float> bias(3);
  EXPECT_THROW(ops().linear(stream(), x, w.weight(), {}, wide), Error);
  EXPECT_THROW(ops().linear(stream(), x, w.weight(), {}, tall), Error);
  EXPECT_THROW(ops().linear(stream(), x, w.weight(), bias, y), Error);
  EXPECT_THROW(ops().linear(stream(), y, w.weight(), {}, y), Error);
  Rows narrow = y;
  narrow.stride = 3;
  EXPECT_THROW(ops().linear(stream(), x, w.weight(), {}, narrow), Error);
}

}  // namespace
}  // namespace quire
