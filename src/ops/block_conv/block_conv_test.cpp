#include "ops/block_conv/block_conv.h"

#include "ops/norm/norm.h"
#include "ops/testing.h"

namespace quire {
namespace {

class BlockConvTest : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(, BlockConvTest, each_table_and_format(), case_name);

// Operands of one call: blocks of these lengths, then rows that belong to nobody.
struct Operands {
  std::int64_t W, D, groups;
  std::vector<std::int32_t> first_row{0};
  Matrix x, chosen;
  std::vector<float> base;

  Operands(Random& random, Format format, const std::vector<int>& blocks, int nobody, std::int64_t taps,
           std::int64_t channels, std::int64_t channel_groups)
      : W(taps),
        D(channels),
        groups(channel_groups),
        x(random_matrix(random, format, std::accumulate(blocks.begin(), blocks.end(), nobody), channels)),
        chosen(random_matrix(random, format, x.rows(), taps * channel_groups)),
        base(normals(random, taps * channels)) {
    for (const int rows : blocks) first_row.push_back(first_row.back() + rows);
  }
  BlockConv conv() const {
    return {.base = base,
            .chosen = chosen,
            .requests = {.count = static_cast<std::int32_t>(first_row.size()) - 1,
                         .first_row = first_row.data()}};
  }
  std::int64_t used() const { return first_row.back(); }
};

Rows used_rows(const Matrix& m, const Operands& a) {
  return Rows(m).slice_rows(0, a.used());
}

// Two groups of two channels, two taps, blocks of three rows and one. Numbers whose sums are exact.
TEST_P(BlockConvTest, ComputesByHand) {
  const std::vector<std::int32_t> first_row = {0, 3, 4};
  const Matrix x = matrix(format(), 4, 4, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 1, 1, 1});
  const std::vector<float> base = {1, 1, 1, 1, 0, 0, 0, 2};  // tap 0, then tap 1
  const Matrix chosen = matrix(format(), 4, 4,
                               {0, 1, 9, 9,        // the first row of a block has no tap 1
                                0, 0, 1, 0,        // tap 1 of the first group
                                -1, 0, 0, 0.5f,    // takes tap 0 of the first group away
                                2, 3, 100, 100});  // another block
  Matrix y(format(), 4, 4);
  ops().block_conv(stream(), x,
                   {.base = base, .chosen = chosen, .requests = {.count = 2, .first_row = first_row.data()}},
                   y);
  EXPECT_EQ(to_floats(y), (std::vector<float>{1, 2, 6, 8,              //
                                              5 + 1, 6 + 2, 7, 8 + 8,  //
                                              0, 0, 11 + 3.5f, 12 + 20, 3, 3, 4, 4}));
}

TEST_P(BlockConvTest, MatchesReference) {
  const std::vector<std::vector<int>> batches = {{1}, {2}, {16}, {16, 16, 16}, {5, 0, 1, 16, 2}, {0}, {}};
  struct Channels {
    std::int64_t all, groups;
  };
  for (const std::vector<int>& blocks : batches)
    for (const std::int64_t W : {1, 2, 3, 16})
      for (const auto& [D, groups] : {Channels{1, 1}, {6, 2}, {7, 7}, {32, 2}, {48, 3}, {1040, 65}}) {
        const Operands a(random, format(), blocks, 2, W, D, groups);
        Matrix y(format(), a.x.rows(), D), expected(format(), a.x.rows(), D);
        ops().block_conv(stream(), a.x, a.conv(), y);
        reference::block_conv(stream(), a.x, a.conv(), expected);
        // A weight of f32 is itself a sum.
        ASSERT_TRUE(
            matches(to_floats(used_rows(y, a)), to_floats(used_rows(expected, a)),
                    {.a = format(), .length = 2 * W, .typical = std::sqrt(2.0 * static_cast<double>(W))}))
            << blocks.size() << " blocks, W " << W << ", " << D << " channels in " << groups;
        ASSERT_TRUE(y.padding_untouched());
      }
}

// The bits of a row are a function of its block's rows up to it: alone, among others, or with rows behind it.
TEST_P(BlockConvTest, BlocksAreIndependent) {
  const Operands a(random, format(), {7, 16, 3}, 1, 2, 80, 5);
  Matrix all(format(), a.x.rows(), a.D);
  ops().block_conv(stream(1), a.x, a.conv(), all);
  for (const int threads : {2, 3})
    for (std::size_t r = 0; r < 3; ++r)
      for (std::int32_t rows = 1; rows <= a.first_row[r + 1] - a.first_row[r]; ++rows) {
        const std::int32_t first_row[] = {0, rows};
        Matrix y(format(), rows, a.D);
        const BlockConv conv{.base = a.base,
                             .chosen = Rows(a.chosen).slice_rows(a.first_row[r], rows),
                             .requests = {.count = 1, .first_row = first_row}};
        ops().block_conv(stream(threads), Rows(a.x).slice_rows(a.first_row[r], rows), conv, y);
        ASSERT_TRUE(same_bits(y, Rows(all).slice_rows(a.first_row[r], rows)))
            << "block " << r << ", " << rows << " rows";
      }
}

// In front of the residual addition it is what the two operations are, bit for bit.
TEST_P(BlockConvTest, AddedAndNormedAsInTwoSteps) {
  for (const std::int64_t D : {1, 31, 96, 1024, 4112}) {
    const std::int64_t groups = D % 16 == 0 ? D / 16 : 1;
    const Operands a(random, format(), {1, 16, 2, 0, 5}, 3, 2, D, groups);
    Matrix x = random_matrix(random, format(), a.x.rows(), D), expected_x = x;
    const std::vector<float> w = normals(random, D);
    Matrix y(format(), a.x.rows(), D), expected(format(), a.x.rows(), D), mixed(format(), a.x.rows(), D);
    ops().add_conv_rms_norm(stream(), x, a.x, a.conv(), w, 1e-6f, y);
    ops().block_conv(stream(), a.x, a.conv(), mixed);
    const Rows used = Rows(expected_x).slice_rows(0, a.used());
    ops().add_rms_norm(stream(), used, used_rows(mixed, a), used, w, 1e-6f,
                       Rows(expected).slice_rows(0, a.used()));
    EXPECT_TRUE(same_bits(used_rows(x, a), used_rows(expected_x, a))) << D;
    EXPECT_TRUE(same_bits(used_rows(y, a), used_rows(expected, a))) << D;
    EXPECT_TRUE(x.padding_untouched() && y.padding_untouched()) << D;
  }
}

TEST_P(BlockConvTest, AlignedRowsGiveTheSameBits) {
  struct Channels {
    std::int64_t all, groups;
  };
  for (const std::int64_t W : {1, 2, 3})
    for (const auto& [D, groups] : {Channels{8, 1}, {96, 6}, {96, 24}, {264, 33}, {2560, 160}, {4112, 257}}) {
      const Operands a(random, format(), {1, 5, 0, 16}, 2, W, D, groups);
      const Matrix vectors = aligned(a.x);
      const std::vector<float> w = normals(random, D);
      Matrix y(format(), a.x.rows(), D), y_vectors = aligned(y);
      ops().block_conv(stream(), a.x, a.conv(), y);
      ops().block_conv(stream(), vectors, a.conv(), y_vectors);
      EXPECT_TRUE(same_bits(used_rows(y_vectors, a), used_rows(y, a))) << W << " taps of " << D;
      Matrix x = random_matrix(random, format(), a.x.rows(), D), x_vectors = aligned(x);
      ops().add_conv_rms_norm(stream(), x, a.x, a.conv(), w, 1e-6f, y);
      ops().add_conv_rms_norm(stream(), x_vectors, vectors, a.conv(), w, 1e-6f, y_vectors);
      EXPECT_TRUE(same_bits(used_rows(x_vectors, a), used_rows(x, a))) << W << " taps of " << D;
      EXPECT_TRUE(same_bits(used_rows(y_vectors, a), used_rows(y, a))) << W << " taps of " << D;
      EXPECT_TRUE(x_vectors.padding_untouched() && y_vectors.padding_untouched());
    }
}

TEST_P(BlockConvTest, RejectsShapesThatDoNotFit) {
  Operands a(random, format(), {2}, 0, 2, 8, 4);
  Matrix y(format(), 2, 8), narrow(format(), 2, 7);
  const std::vector<float> w(8);
  const auto run = [&](const BlockConv& conv, const Rows& to) { ops().block_conv(stream(), a.x, conv, to); };
  EXPECT_NO_THROW(run(a.conv(), y));
  EXPECT_THROW(run(a.conv(), narrow), Error);
  if (std::string_view(ops().name) != "cuda") {  // which gets copies of its own of what is one here
    EXPECT_THROW(run(a.conv(), a.x), Error);
    EXPECT_THROW(ops().add_conv_rms_norm(stream(), a.x, a.x, a.conv(), w, 1e-6f, y), Error);
  }
  BlockConv conv = a.conv();
  conv.base = conv.base.first(15);
  EXPECT_THROW(run(conv, y), Error);
  conv = a.conv(), conv.chosen = conv.chosen.slice_cols(0, 7);
  EXPECT_THROW(run(conv, y), Error);
  conv = a.conv(), conv.chosen = conv.chosen.slice_cols(0, 6);  // 3 groups of 8 channels
  EXPECT_THROW(run(conv, y), Error);
  conv = a.conv(), conv.chosen = conv.chosen.slice_rows(0, 1);
  EXPECT_THROW(run(conv, y), Error);
  conv = a.conv(), conv.requests.first_row = nullptr;
  EXPECT_THROW(run(conv, y), Error);
  EXPECT_THROW(ops().add_conv_rms_norm(stream(), narrow, a.x, a.conv(), w, 1e-6f, y), Error);
}

}  // namespace
}  // namespace quire
