#include "ops/norm/norm.h"

#include "ops/testing.h"

namespace quire {
namespace {

constexpr float kEps = 1e-6f;
constexpr std::int64_t kWidths[] = {1, 2, 7, 16, 33, 64, 72, 128, 256, 1000};

class Norm : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(, Norm, each_table_and_format(), case_name);

TEST_P(Norm, ComputesByHand) {
  const float rms = std::sqrt(12.5f);  // of 3 and 4
  const std::vector<float> w = {0, 1}, ones = {1, 1};
  const Matrix x = matrix(format(), 1, 2, {3, 4});
  Matrix y(format(), 1, 2);
  ops().rms_norm(stream(), x, w, 0, y);
  EXPECT_TRUE(compare(y, std::vector<float>{3 / rms, 2 * 4 / rms}, rounded_sum(format(), 2)));
  ops().rms_norm(stream(), x, w, 12.5f, y);  // the eps is inside the root: sqrt(12.5 + 12.5) = 5
  EXPECT_TRUE(compare(y, std::vector<float>{3.0f / 5, 2 * 4.0f / 5}, rounded_sum(format(), 2)));

  Matrix sum = matrix(format(), 1, 2, {1, 5});
  ops().add_rms_norm(stream(), sum, matrix(format(), 1, 2, {2, -1}), sum, w, 0, y);
  EXPECT_TRUE(same_bits(sum, x));
  EXPECT_TRUE(compare(y, std::vector<float>{3 / rms, 2 * 4 / rms}, rounded_sum(format(), 2)));

  ops().gated_rms_norm(stream(), x, matrix(format(), 1, 2, {0, 100}), ones, 0,
                       y);  // silu(0) = 0, silu(100) = 100
  EXPECT_TRUE(compare(y, std::vector<float>{0, 400 / rms}, rounded_sum(format(), 2)));

  const std::vector<float> scale = {2, 2}, shift = {1, 1};
  ops().layer_norm(stream(), matrix(format(), 1, 2, {1, 3}), scale, shift, 0, y);  // mean 2, variance 1
  EXPECT_TRUE(compare(y, std::vector<float>{-1, 3}, rounded_sum(format(), 2)));
}

TEST_P(Norm, GatedNormalisesEachHead) {
  const std::vector<float> ones = {1, 1};
  Matrix y(format(), 1, 4);
  ops().gated_rms_norm(stream(), matrix(format(), 1, 4, {2, 2, 40, -40}),
                       matrix(format(), 1, 4, {100, 100, 100, 100}), ones, 0, y);
  EXPECT_TRUE(compare(y, std::vector<float>{100, 100, 100, -100}, rounded_sum(format(), 2)));
}

TEST_P(Norm, RmsMatchesReference) {
  for (std::int64_t D : kWidths)
    for (std::int64_t T : kRowCounts)
      for (float scale : {1.0f, 1e4f}) {
        const Matrix x = random_matrix(random, format(), T, D, scale);
        const std::vector<float> w = normals(random, D, 0.3f);
        Matrix y(format(), T, D), expected(format(), T, D);
        ops().rms_norm(stream(), x, w, kEps, y);
        reference::rms_norm(stream(), x, w, kEps, expected);
        ASSERT_TRUE(matches(y, expected, {.a = format(), .length = D}))
            << T << " x " << D << ", scale " << scale;
      }
}

TEST_P(Norm, AddRmsMatchesReference) {
  for (std::int64_t D : kWidths)
    for (std::int64_t T : kRowCounts) {
      const Matrix x = random_matrix(random, format(), T, D), r = random_matrix(random, format(), T, D);
      const std::vector<float> w = normals(random, D, 0.3f);
      Matrix sum(format(), T, D), y(format(), T, D), expected_sum(format(), T, D), expected(format(), T, D);
      ops().add_rms_norm(stream(), x, r, sum, w, kEps, y);
      reference::add_rms_norm(stream(), x, r, expected_sum, w, kEps, expected);
      ASSERT_TRUE(same_bits(sum, expected_sum) && sum.padding_untouched()) << T << " x " << D;
      ASSERT_TRUE(matches(y, expected, {.a = format(), .length = D})) << T << " x " << D;
    }
}

// The fused operation is exactly its two parts, in place or not.
TEST_P(Norm, AddRmsIsAddThenRms) {
  const Matrix x = random_matrix(random, format(), 9, 200), r = random_matrix(random, format(), 9, 200);
  const std::vector<float> w = normals(random, 200, 0.3f);
  Matrix expected_sum = x, expected(format(), 9, 200);
  ops().add(stream(), expected_sum, r);
  ops().rms_norm(stream(), expected_sum, w, kEps, expected);
  Matrix in_place = x, untouched = x, sum(format(), 9, 200), y(format(), 9, 200);
  ops().add_rms_norm(stream(), in_place, r, in_place, w, kEps, y);
  EXPECT_TRUE(same_bits(in_place, expected_sum) && same_bits(y, expected));
  ops().add_rms_norm(stream(), untouched, r, sum, w, kEps, y);
  EXPECT_TRUE(same_bits(untouched, x) && same_bits(sum, expected_sum) && same_bits(y, expected));
}

// Of one thread, of a warp, of some warps, of all that a block has, and more.
TEST_P(Norm, AlignedRowsGiveTheSameBits) {
  for (std::int64_t D : {8, 12, 72, 256, 264, 1000, 2560, 4096, 4104}) {
    constexpr std::int64_t T = 3;
    const Matrix x = random_matrix(random, format(), T, D), r = random_matrix(random, format(), T, D);
    const std::vector<float> w = normals(random, D, 0.3f), b = normals(random, D);
    const auto same = [&](const std::function<void(Matrix&, const Matrix&, Matrix&)>& run) {
      Matrix plain = x, vectors = aligned(x), y(format(), T, D), y_vectors = aligned(y);
      run(plain, r, y), run(vectors, aligned(r), y_vectors);
      EXPECT_TRUE(y.padding_untouched() && y_vectors.padding_untouched() && vectors.padding_untouched());
      return same_bits(vectors, plain) && same_bits(y_vectors, y);
    };
    EXPECT_TRUE(same([&](Matrix& a, const Matrix&, Matrix& y) { ops().rms_norm(stream(), a, w, kEps, y); }))
        << D;
    EXPECT_TRUE(same([&](Matrix& a, const Matrix& c, Matrix& y) {
      ops().add_rms_norm(stream(), a, c, a, w, kEps, y);
    })) << D;
    // Of columns of a wider matrix, as features of a drafter stand.
    EXPECT_TRUE(same([&](Matrix& a, const Matrix& c, Matrix& y) {
      Matrix wide(format(), T, 2 * D, Rows(a).stride % 8 ? 3 : 8);
      const Rows sum = Rows(wide).slice_cols(D, D);
      ops().add_rms_norm(stream(), a, c, sum, w, kEps, y);
      for (std::int64_t t = 0; t < T; ++t)
        for (std::int64_t i = 0; i < D; ++i) a.set(t, i, wide.get(t, D + i));
    })) << D;
    EXPECT_TRUE(same([&](Matrix& a, const Matrix&, Matrix& y) {
      ops().layer_norm(stream(), a, w, b, kEps, y);
    })) << D;
    Matrix y(format(), T, D), expected(format(), T, D);
    ops().rms_norm(stream(), aligned(x), w, kEps, y);
    reference::rms_norm(stream(), x, w, kEps, expected);
    EXPECT_TRUE(matches(y, expected, {.a = format(), .length = D})) << D;
  }
}

TEST_P(Norm, GatedMatchesReference) {
  for (std::int64_t E : kWidths)
    for (std::int64_t heads : {1, 2, 3})
      for (std::int64_t T : {0, 1, 2, 5, 17, 65}) {
        const Matrix x = random_matrix(random, format(), T, heads * E);
        const Matrix z = random_matrix(random, format(), T, heads * E, 3);
        const std::vector<float> w = normals(random, E);
        Matrix y(format(), T, heads * E), expected(format(), T, heads * E);
        ops().gated_rms_norm(stream(), x, z, w, kEps, y);
        reference::gated_rms_norm(stream(), x, z, w, kEps, expected);
        ASSERT_TRUE(matches(y, expected, {.a = format(), .length = E}))
            << T << " rows, " << heads << " x " << E;
      }
}

TEST_P(Norm, LayerMatchesReference) {
  for (std::int64_t D : kWidths)
    for (std::int64_t T : kRowCounts)
      for (float mean : {0.0f, 30.0f}) {
        // No row is nearly constant: neighbours lie on either side of the mean, by 0.5 or more.
        Matrix x(format(), T, D);
        for (std::int64_t t = 0; t < T; ++t)
          for (std::int64_t c = 0; c < D; ++c) x.set(t, c, mean + (c % 2 ? -1 : 1) * random.uniform(0.5, 2));
        const std::vector<float> w = normals(random, D), b = normals(random, D);
        Matrix y(format(), T, D), expected(format(), T, D);
        ops().layer_norm(stream(), x, w, b, kEps, y);
        reference::layer_norm(stream(), x, w, b, kEps, expected);
        // x - mean cancels: errors count in units of x, up to 2 and up to 60 deviations.
        const std::int64_t cancellation = mean == 0 ? 2 : 60;
        ASSERT_TRUE(matches(y, expected, {.a = format(), .length = D * cancellation * cancellation}))
            << T << " x " << D << ", mean " << mean;
      }
}

TEST_P(Norm, ZerosStayFinite) {
  const Matrix x = matrix(format(), 2, 20, std::vector<float>(40, 0.0f));
  const std::vector<float> w = normals(random, 20), b = normals(random, 20), head = normals(random, 10);
  Matrix y(format(), 2, 20);
  const std::vector<float> zeros(40, 0.0f);
  ops().rms_norm(stream(), x, w, kEps, y);
  EXPECT_TRUE(compare(y, zeros, exactly()));
  ops().gated_rms_norm(stream(), x, x, head, kEps, y);
  EXPECT_TRUE(compare(y, zeros, exactly()));
  ops().layer_norm(stream(), x, w, b, kEps, y);
  for (std::int64_t c = 0; c < 20; ++c) EXPECT_EQ(y.get(1, c), round_to(format(), b[c]));
}

TEST_P(Norm, NaNStaysInItsRow) {
  Matrix x = random_matrix(random, format(), 4, 50);
  x.set(2, 49, NAN);
  const std::vector<float> w = normals(random, 50), b = normals(random, 50);
  Matrix y(format(), 4, 50), expected(format(), 4, 50);
  ops().rms_norm(stream(), x, w, kEps, y);
  reference::rms_norm(stream(), x, w, kEps, expected);
  EXPECT_TRUE(matches(y, expected, {.a = format(), .length = 50}));
  EXPECT_TRUE(std::isnan(expected.get(2, 0)));
  ops().layer_norm(stream(), x, w, b, kEps, y);
  reference::layer_norm(stream(), x, w, b, kEps, expected);
  EXPECT_TRUE(matches(y, expected, {.a = format(), .length = 50}));
}

TEST_P(Norm, RowsAreIndependent) {
  for (std::int64_t D : {30, 256, 520}) {
    const Matrix x = random_matrix(random, format(), 65, D), z = random_matrix(random, format(), 65, D);
    const std::vector<float> w = normals(random, D), b = normals(random, D), head = normals(random, D / 2);
    const auto independent = [&](const std::function<void(Stream&, Matrix&, Matrix&, Matrix&)>& run) {
      return rows_are_independent(65, [&](Stream& s, std::span<const std::int64_t> rows) {
        Matrix a = gather(x, rows), c = gather(z, rows), y(format(), a.rows(), D);
        run(s, a, c, y);
        return y;
      });
    };
    EXPECT_TRUE(
        independent([&](Stream& s, Matrix& a, Matrix&, Matrix& y) { ops().rms_norm(s, a, w, kEps, y); }));
    EXPECT_TRUE(independent(
        [&](Stream& s, Matrix& a, Matrix& c, Matrix& y) { ops().add_rms_norm(s, a, c, a, w, kEps, y); }));
    EXPECT_TRUE(independent(
        [&](Stream& s, Matrix& a, Matrix& c, Matrix& y) { ops().gated_rms_norm(s, a, c, head, kEps, y); }));
    EXPECT_TRUE(independent(
        [&](Stream& s, Matrix& a, Matrix&, Matrix& y) { ops().layer_norm(s, a, w, b, kEps, y); }));
  }
}

TEST_P(Norm, RejectsShapesThatDoNotFit) {
  Matrix x = random_matrix(random, format(), 2, 8), narrow(format(), 2, 7), y(format(), 2, 8);
  const std::vector<float> w(8), seven(7), five(5);
  EXPECT_THROW(ops().rms_norm(stream(), x, seven, kEps, y), Error);
  EXPECT_THROW(ops().rms_norm(stream(), x, w, kEps, narrow), Error);
  EXPECT_THROW(ops().add_rms_norm(stream(), x, narrow, y, w, kEps, y), Error);
  EXPECT_THROW(ops().add_rms_norm(stream(), x, x, narrow, w, kEps, y), Error);
  EXPECT_THROW(ops().gated_rms_norm(stream(), x, x, five, kEps, y), Error);
  EXPECT_THROW(ops().gated_rms_norm(stream(), x, x, {}, kEps, y), Error);
  EXPECT_THROW(ops().layer_norm(stream(), x, w, seven, kEps, y), Error);
}

}  // namespace
}  // namespace quire
