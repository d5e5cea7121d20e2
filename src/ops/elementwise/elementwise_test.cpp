#include "ops/elementwise/elementwise.h"

#include "ops/testing.h"

namespace quire {
namespace {

class Elementwise : public OpsTest {
 protected:
  // Values where a vectorised exp is tempted to go wrong, beside random ones.
  Matrix hard_matrix(std::int64_t rows, std::int64_t cols) {
    Matrix x = random_matrix(random, format(), rows, cols, 3);
    const float hard[] = {0,      -0.0f,  1e-30f, -1e-30f, 5,        -5,        20,   -20,  87.5f,
                          -87.5f, 88.5f,  -88.5f, 89.5f,   -89.5f,   104,       -104, 1e4f, -1e4f,
                          1e30f,  -1e30f, 3e38f,  -3e38f,  INFINITY, -INFINITY, NAN};
    std::int64_t i = 0;
    for (float v : hard) {
      if (i < rows * cols) x.set(i / cols, i % cols, v);
      ++i;
    }
    return x;
  }
};
INSTANTIATE_TEST_SUITE_P(, Elementwise, each_table_and_format(), case_name);

// One value a row and many a row; multiples of no vector width, and one more than one.
constexpr std::int64_t kWidths[] = {1, 7, 16, 33, 96, 257};

TEST_P(Elementwise, ComputesByHand) {
  Matrix x = matrix(format(), 1, 2, {1.5, -2});
  ops().add(stream(), x, matrix(format(), 1, 2, {0.25, 2}));
  EXPECT_TRUE(same_bits(x, matrix(format(), 1, 2, {1.75, 0})));

  Matrix y(format(), 1, 3);
  ops().swiglu(stream(), matrix(format(), 1, 3, {0, 1, -1}), matrix(format(), 1, 3, {5, 2, 4}), y);
  // sigmoid(1) = 0.7310586, sigmoid(-1) = 0.2689414
  EXPECT_TRUE(compare(y, std::vector<float>{0, 2 * 0.7310586f, -4 * 0.2689414f}, rounded_sum(format(), 1)));

  for (const auto& [kind, at_one] : {std::pair(Gelu::tanh, 0.8411920f), std::pair(Gelu::erf, 0.8413447f)}) {
    Matrix z = matrix(format(), 1, 4, {0, 1, -1, 10});
    ops().gelu(stream(), z, kind);
    EXPECT_TRUE(compare(z, std::vector<float>{0, at_one, at_one - 1, 10}, rounded_sum(format(), 1)));
  }
}

// silu(1.5) = 1.2263617, which bf16 rounds to 1.2265625; times 3 is 3.6796875, halfway between two bf16, and
// goes to the even 3.6875. Without the inner rounding 3.6790851 would go to 3.671875.
TEST_P(Elementwise, SwigluRoundsBeforeItMultiplies) {
  Matrix y(format(), 1, 1);
  ops().swiglu(stream(), matrix(format(), 1, 1, {1.5}), matrix(format(), 1, 1, {3}), y);
  EXPECT_NEAR(y.get(0, 0), format() == Format::f32 ? 3.6790851f : 3.6875f, 2e-6f);
}

TEST_P(Elementwise, AddIsExact) {
  for (std::int64_t T : kRowCounts)
    for (std::int64_t width : kWidths) {
      Matrix x = hard_matrix(T, width), expected = x;
      const Matrix y = random_matrix(random, format(), T, width);
      ops().add(stream(), x, y);
      reference::add(stream(), expected, y);
      ASSERT_TRUE(compare(x, expected, exactly())) << T << " x " << width;
      ASSERT_TRUE(x.padding_untouched());
    }
}

TEST_P(Elementwise, ConvertIsExact) {
  for (Format to : {Format::f32, Format::bf16})
    for (std::int64_t T : kRowCounts)
      for (std::int64_t width : kWidths) {
        const Matrix x = hard_matrix(T, width);
        Matrix y(to, T, width);
        ops().convert(stream(), x, y);
        for (std::int64_t t = 0; t < T; ++t)
          for (std::int64_t c = 0; c < width; ++c) {
            const float expected = round_to(to, x.get(t, c));
            ASSERT_TRUE(y.get(t, c) == expected || (std::isnan(y.get(t, c)) && std::isnan(expected)))
                << x.get(t, c) << " became " << y.get(t, c);
          }
        ASSERT_TRUE(y.padding_untouched());
      }
}

TEST_P(Elementwise, SwigluMatchesReference) {
  for (std::int64_t T : kRowCounts)
    for (std::int64_t width : kWidths) {
      const Matrix gate = random_matrix(random, format(), T, width, 3);
      const Matrix up = random_matrix(random, format(), T, width);
      Matrix y(format(), T, width), expected(format(), T, width);
      ops().swiglu(stream(), gate, up, y);
      reference::swiglu(stream(), gate, up, expected);
      ASSERT_TRUE(matches(y, expected, {.a = format(), .roundings = 2})) << T << " x " << width;
    }
}

TEST_P(Elementwise, AlignedRowsGiveTheSameBits) {
  for (std::int64_t T : {1, 3, 130})
    for (std::int64_t width : {8, 12, 96, 257, 2560}) {
      const Matrix x = random_matrix(random, format(), T, width, 3),
                   y = random_matrix(random, format(), T, width);
      Matrix sum = x, sum_vectors = aligned(x), gated(format(), T, width), gated_vectors = aligned(gated);
      ops().add(stream(), sum, y), ops().add(stream(), sum_vectors, aligned(y));
      EXPECT_TRUE(same_bits(sum_vectors, sum)) << T << " x " << width;
      ops().swiglu(stream(), x, y, gated), ops().swiglu(stream(), aligned(x), aligned(y), gated_vectors);
      EXPECT_TRUE(same_bits(gated_vectors, gated)) << T << " x " << width;
      EXPECT_TRUE(sum_vectors.padding_untouched() && gated_vectors.padding_untouched());
      for (Format to : {Format::f32, Format::bf16}) {
        Matrix converted(to, T, width), converted_vectors = aligned(converted);
        ops().convert(stream(), x, converted), ops().convert(stream(), aligned(x), converted_vectors);
        EXPECT_TRUE(same_bits(converted_vectors, converted)) << T << " x " << width;
        EXPECT_TRUE(converted_vectors.padding_untouched());
      }
    }
}

TEST_P(Elementwise, GeluMatchesReference) {
  for (Gelu kind : {Gelu::tanh, Gelu::erf})
    for (std::int64_t T : kRowCounts)
      for (std::int64_t width :
           kWidths) {  // 1 + tanh and 1 + erf cancel: errors count in units of x, about 1
        Matrix x = random_matrix(random, format(), T, width, 2), expected = x;
        ops().gelu(stream(), x, kind);
        reference::gelu(stream(), expected, kind);
        ASSERT_TRUE(matches(x, expected, {.a = format(), .typical = 1})) << T << " x " << width;
      }
}

// Each value alone, so that the scale of the others hides nothing: relative to itself, or to 1 where it is
// small.
TEST_P(Elementwise, HardValuesMatchReference) {
  const Matrix x = hard_matrix(1, 25), ones = matrix(format(), 1, 25, std::vector<float>(25, 1.0f));
  Matrix silu(format(), 1, 25), tanh = x, erf = x, silu_ref(format(), 1, 25), tanh_ref = x, erf_ref = x;
  ops().swiglu(stream(), x, ones, silu);
  ops().gelu(stream(), tanh, Gelu::tanh);
  ops().gelu(stream(), erf, Gelu::erf);
  reference::swiglu(stream(), x, ones, silu_ref);
  reference::gelu(stream(), tanh_ref, Gelu::tanh);
  reference::gelu(stream(), erf_ref, Gelu::erf);
  const double slack = 8 * 0x1p-24 + 2 * unit_roundoff(format());
  const auto expect_near = [&](const char* what, float input, float actual, float expected) {
    SCOPED_TRACE(fmt::format("{}({}) is {}, expected {}", what, input, actual, expected));
    if (!std::isfinite(expected)) {
      EXPECT_TRUE(std::isnan(expected) ? std::isnan(actual) : actual == expected);
    } else {
      EXPECT_NEAR(actual, expected, slack * std::max(1.0f, std::abs(expected)));
    }
  };
  for (std::int64_t c = 0; c < 25; ++c) {
    expect_near("silu", x.get(0, c), silu.get(0, c), silu_ref.get(0, c));
    expect_near("gelu tanh", x.get(0, c), tanh.get(0, c), tanh_ref.get(0, c));
    expect_near("gelu erf", x.get(0, c), erf.get(0, c), erf_ref.get(0, c));
  }
}

TEST_P(Elementwise, RowsAreIndependent) {
  const Matrix x = random_matrix(random, format(), 65, 33), y = random_matrix(random, format(), 65, 33);
  EXPECT_TRUE(rows_are_independent(65, [&](Stream& s, std::span<const std::int64_t> rows) {
    Matrix out = gather(x, rows);
    ops().add(s, out, gather(y, rows));
    return out;
  }));
  EXPECT_TRUE(rows_are_independent(65, [&](Stream& s, std::span<const std::int64_t> rows) {
    Matrix out(format(), static_cast<std::int64_t>(rows.size()), 33);
    ops().swiglu(s, gather(x, rows), gather(y, rows), out);
    return out;
  }));
  for (Format to : {Format::f32, Format::bf16})
    EXPECT_TRUE(rows_are_independent(65, [&](Stream& s, std::span<const std::int64_t> rows) {
      Matrix out(to, static_cast<std::int64_t>(rows.size()), 33);
      ops().convert(s, gather(x, rows), out);
      return out;
    }));
  for (Gelu kind : {Gelu::tanh, Gelu::erf})
    EXPECT_TRUE(rows_are_independent(65, [&](Stream& s, std::span<const std::int64_t> rows) {
      Matrix out = gather(x, rows);
      ops().gelu(s, out, kind);
      return out;
    }));
}

TEST_P(Elementwise, RejectsShapesThatDoNotFit) {
  Matrix x = random_matrix(random, format(), 2, 8), narrow(format(), 2, 7);
  const Matrix other(format() == Format::f32 ? Format::bf16 : Format::f32, 2, 8);
  EXPECT_THROW(ops().add(stream(), x, narrow), Error);
  EXPECT_THROW(ops().add(stream(), x, other), Error);
  EXPECT_THROW(ops().convert(stream(), x, narrow), Error);
  EXPECT_THROW(ops().swiglu(stream(), x, narrow, x), Error);
  EXPECT_THROW(ops().swiglu(stream(), x, x, narrow), Error);
}

}  // namespace
}  // namespace quire
