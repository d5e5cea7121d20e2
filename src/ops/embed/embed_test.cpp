#include "ops/embed/embed.h"

#include "ops/testing.h"

namespace quire {
namespace {

class Embed : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(, Embed, each_table_and_format(), case_name);

TEST_P(Embed, CopiesRowsRounded) {
  for (Format table_format : {Format::f32, Format::bf16})
    for (std::int64_t width : {1, 7, 16, 33, 96}) {
      const Matrix table = random_matrix(random, table_format, 40, width, 1, 0);
      for (std::int64_t T : kRowCounts) {
        std::vector<std::int32_t> ids;
        for (std::int64_t t = 0; t < T; ++t)
          ids.push_back(t % 3 ? static_cast<std::int32_t>(t * 7 % 40) : 39);
        Matrix y(format(), T, width);
        ops().embed(stream(), ids, table.weight(), y);
        for (std::int64_t t = 0; t < T; ++t)
          for (std::int64_t c = 0; c < width; ++c)
            ASSERT_EQ(y.get(t, c), round_to(format(), table.get(ids[t], c)))
                << "row " << t << ", column " << c;
        ASSERT_TRUE(y.padding_untouched());
      }
    }
}

TEST_P(Embed, AlignedRowsGiveTheSameBits) {
  const std::vector<std::int32_t> ids = {3, 0, 3};
  for (std::int64_t width : {8, 264, 2560, 4104}) {
    for (Format table_format : {Format::f32, Format::bf16}) {
      const Matrix table = random_matrix(random, table_format, 4, width, 1, 0);
      Matrix y(format(), 3, width), vectors = aligned(y);
      ops().embed(stream(), ids, table.weight(), y), ops().embed(stream(), ids, table.weight(), vectors);
      EXPECT_TRUE(same_bits(vectors, y)) << width;
      EXPECT_TRUE(vectors.padding_untouched());
    }
    const Matrix from = random_matrix(random, format(), 2, width);
    Matrix x = random_matrix(random, format(), 4, width), vectors = aligned(x);
    const std::vector<std::int32_t> rows = {2, 0};
    ops().scatter_rows(stream(), from, rows, x), ops().scatter_rows(stream(), aligned(from), rows, vectors);
    EXPECT_TRUE(same_bits(vectors, x)) << width;
    EXPECT_TRUE(vectors.padding_untouched());
  }
}

TEST_P(Embed, ScattersRows) {
  for (std::int64_t width : {1, 7, 33})
    for (std::int64_t n : {0, 1, 5, 64}) {
      const Matrix from = random_matrix(random, format(), n, width);
      Matrix x = random_matrix(random, format(), 70, width), expected = x;
      std::vector<std::int32_t> rows;
      for (std::int64_t i = 0; i < n; ++i) {
        rows.push_back(static_cast<std::int32_t>((i * 23 + 69) % 70));
        for (std::int64_t c = 0; c < width; ++c) expected.set(rows[i], c, from.get(i, c));
      }
      ops().scatter_rows(stream(3), from, rows, x);
      EXPECT_TRUE(same_bits(x, expected)) << n << " rows of " << width;
      EXPECT_TRUE(x.padding_untouched());
    }
}

TEST_P(Embed, RejectsRowsOutsideTheTarget) {
  const Matrix from = random_matrix(random, format(), 2, 8), narrow = random_matrix(random, format(), 2, 7);
  Matrix x = random_matrix(random, format(), 4, 8);
  const std::vector<std::int32_t> good = {3, 0}, negative = {0, -1}, past = {4, 0}, one = {0};
  EXPECT_NO_THROW(ops().scatter_rows(stream(), from, good, x));
  EXPECT_THROW(ops().scatter_rows(stream(), from, negative, x), Error);
  EXPECT_THROW(ops().scatter_rows(stream(), from, past, x), Error);
  EXPECT_THROW(ops().scatter_rows(stream(), from, one, x), Error);
  EXPECT_THROW(ops().scatter_rows(stream(), narrow, good, x), Error);
}

TEST_P(Embed, RejectsIdsOutsideTheTable) {
  const Matrix table = random_matrix(random, format(), 4, 8, 1, 0);
  Matrix y(format(), 2, 8);
  for (std::int32_t id : {-1, 4, 1 << 30}) {
    const std::vector<std::int32_t> ids = {0, id};
    EXPECT_THROW(ops().embed(stream(), ids, table.weight(), y), Error);
  }
  const std::vector<std::int32_t> three = {0, 1, 2};
  EXPECT_THROW(ops().embed(stream(), three, table.weight(), y), Error);
}

}  // namespace
}  // namespace quire
