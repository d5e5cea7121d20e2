#include "ops/linear/linear.h"

#include "backend/cuda.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/on_host.h"
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
  for (const Shape s : {Shape{3, 4100, 9},
                        {7, 3584, 20},
                        {2, 64, 4100},
                        {33, 300, 130},
                        {2, 256, 26000},
                        {65, 33, 17000},
                        {129, 40, 9000}})
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
      const Matrix x = random_matrix(random, format(), 70, s.in), w = weights(weight_format, s.out, s.in);
      const std::vector<float> bias = normals(random, s.out);
      EXPECT_TRUE(rows_are_independent(70,
                                       [&](Stream& stream, std::span<const std::int64_t> rows) {
                                         Matrix y(Format::f32, static_cast<std::int64_t>(rows.size()), s.out);
                                         ops().linear(stream, gather(x, rows), w.weight(), bias, y);
                                         return y;
                                       }))
          << "in " << s.in << ", out " << s.out;
    }
}

// Kernels change with the number of rows; the bits of a row do not.
TEST_P(Linear, EveryNumberOfRowsGivesTheSameBits) {
  struct Shape {
    std::int64_t in, out;
  };
  for (const Shape s : {Shape{64, 16}, {200, 150}, {256, 250}, {1000, 40}, {1032, 24}, {2051, 17}}) {
    const Matrix x = random_matrix(random, format(), 600, s.in), w = weights(Format::bf16, s.out, s.in);
    const std::vector<float> bias = normals(random, s.out);
    Matrix all(Format::f32, 600, s.out);
    ops().linear(stream(), x, w.weight(), bias, all);
    for (std::int64_t T : {1,  2,  7,  8,  9,   15,  16,  17,  31,  32,  33,  63,  64,
                           65, 95, 96, 97, 127, 128, 129, 200, 255, 256, 257, 384, 512}) {
      Matrix y(Format::f32, T, s.out);
      ops().linear(stream(), Rows(x).slice_rows(600 - T, T), w.weight(), bias, y);
      EXPECT_TRUE(same_bits(y, Rows(all).slice_rows(600 - T, T)))
          << T << " rows, in " << s.in << ", out " << s.out;
    }
  }
}

// Rows and columns at multiples of 16 bytes are read by vectors, others are not.
TEST_P(Linear, EveryStrideGivesTheSameBits) {
  for (std::int64_t T : {1, 5, 16, 40, 100, 150, 400}) {
    const std::vector<float> values = normals(random, T * 264);
    const Matrix w = weights(Format::bf16, 50, 264), x = matrix(format(), T, 264, values, 0);
    Matrix expected(format(), T, 50, 0);
    ops().linear(stream(), x, w.weight(), {}, expected);
    for (std::int64_t padding : {1, 3, 8}) {
      Matrix y(format(), T, 50, padding);
      ops().linear(stream(), matrix(format(), T, 264, values, padding), w.weight(), {}, y);
      EXPECT_TRUE(same_bits(y, expected) && y.padding_untouched()) << T << " rows, padding " << padding;
    }
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

// Also where the rest is so small that its sums are spread over more blocks.
TEST_P(Linear, FewOutputsHaveTheBitsOfMany) {
  for (std::int64_t T : {1, 40}) {
    const Matrix x = random_matrix(random, format(), T, 256), w = weights(Format::bf16, 9000, 256);
    Matrix all(Format::f32, T, 9000);
    ops().linear(stream(), x, w.weight(), {}, all);
    for (std::int64_t begin : {16, 8900}) {
      const Rows rows = Rows(w).slice_rows(begin, 100);
      Matrix y(Format::f32, T, 100);
      ops().linear(stream(), x, {.data = rows.data, .format = rows.format, .out = 100, .in = 256}, {}, y);
      EXPECT_TRUE(same_bits(y, Rows(all).slice_cols(begin, 100))) << T << " rows, outputs from " << begin;
    }
  }
}

TEST_P(Linear, ProjectGivesTheBitsOfLinear) {
  struct Shape {
    std::int64_t in;
    std::vector<std::int64_t> outs;
  };
  for (const Shape& s :
       {Shape{96, {5}}, Shape{256, {48, 16, 16}}, Shape{515, {70, 33, 2, 1}}, Shape{24, {1, 1, 1, 9000}},
        Shape{64, {}}, Shape{72, {3, 90, 1, 40, 2, 16, 8, 33, 1, 7}}})
    for (std::int64_t T : {0, 1, 8, 9, 17, 40, 65, 130, 300}) {
      const Matrix x = random_matrix(random, format(), T, s.in, 1, T % 2 ? 3 : 0);
      std::vector<Matrix> w, y, expected;
      for (std::int64_t out : s.outs) {
        const Format f = w.size() == 1 ? Format::f32 : format();
        w.push_back(weights(Format::bf16, out, s.in));
        y.emplace_back(f, T, out), expected.emplace_back(f, T, out);
      }
      std::vector<Weight> views;
      for (const Matrix& m : w) views.push_back(m.weight());
      std::vector<Projection> parts;
      for (std::size_t i = 0; i < w.size(); ++i) parts.push_back({&views[i], y[i]});
      ops().project(stream(3), x, parts);
      for (std::size_t i = 0; i < w.size(); ++i) {
        ops().linear(stream(), x, views[i], {}, expected[i]);
        EXPECT_TRUE(same_bits(y[i], expected[i]) && y[i].padding_untouched())
            << "T " << T << ", in " << s.in << ", part " << i;
      }
    }
}

TEST_P(Linear, ProjectTakesWeightsOfSeveralFormats) {
  const Matrix x = random_matrix(random, format(), 6, 50);
  const Matrix a = weights(Format::bf16, 20, 50), b = weights(Format::f32, 9, 50);
  Matrix ya(format(), 6, 20), yb(format(), 6, 9), expected_a(format(), 6, 20), expected_b(format(), 6, 9);
  const Weight wa = a.weight(), wb = b.weight();
  ops().project(stream(), x, std::vector<Projection>{{&wa, ya}, {&wb, yb}});
  ops().linear(stream(), x, wa, {}, expected_a);
  ops().linear(stream(), x, wb, {}, expected_b);
  EXPECT_TRUE(same_bits(ya, expected_a));
  EXPECT_TRUE(same_bits(yb, expected_b));
}

// Around the numbers of rows at which a kernel finds them as it stores; widths that are no multiple of a
// group or a tile; outputs that are all below 0, so that nothing beyond the last may count; rows with outputs
// that are no numbers.
TEST_P(Linear, ProjectFindsMaxima) {
  struct Shape {
    std::int64_t in;
    std::vector<std::int64_t> outs;
  };
  for (const Shape& s : {Shape{96, {5}}, Shape{256, {300, 16, 90}}, Shape{515, {70, 33}},
                         Shape{24, {1, 2, 4000}}, Shape{1032, {96, 1, 200}}})
    for (std::int64_t T : {0, 1, 9, 40, 95, 96, 130, 300}) {
      const bool below = T % 2 == 0;
      Matrix x = random_matrix(random, format(), T, s.in, 1, below ? 0 : 8);
      std::vector<Matrix> w, y, expected, maxima;
      for (std::int64_t out : s.outs) {
        w.push_back(weights(Format::bf16, out, s.in));
        y.emplace_back(Format::f32, T, out), expected.emplace_back(Format::f32, T, out);
        maxima.emplace_back(Format::f32, T, maxima_cols(out));
      }
      if (below) {
        for (std::int64_t t = 0; t < T; ++t)
          for (std::int64_t i = 0; i < s.in; ++i) x.set(t, i, std::abs(x.get(t, i)));
        for (Matrix& m : w)
          for (std::int64_t out = 0; out < m.rows(); ++out)
            for (std::int64_t i = 0; i < s.in; ++i) m.set(out, i, -std::abs(m.get(out, i)));
      }
      if (T > 8) x.set(3, 0, NAN), x.set(5, 1, INFINITY), x.set(8, 2, -INFINITY);
      std::vector<Weight> views;
      for (const Matrix& m : w) views.push_back(m.weight());
      std::vector<Projection> parts;
      for (std::size_t i = 0; i < w.size(); ++i) {
        parts.push_back({&views[i], y[i]});
        if (i != 1) parts.back().maxima = maxima[i];
      }
      ops().project(stream(3), x, parts);
      for (std::size_t i = 0; i < w.size(); ++i) {
        ops().linear(stream(), x, views[i], {}, expected[i]);
        const std::string where = fmt::format("T {}, in {}, part {}", T, s.in, i);
        EXPECT_TRUE(same_bits(y[i], expected[i]) && y[i].padding_untouched()) << where;
        if (i == 1) continue;
        EXPECT_TRUE(same_bits(maxima[i], maxima_of(y[i])) && maxima[i].padding_untouched()) << where;
      }
    }
}

// Around the numbers of rows at which it becomes one kernel; widths that are no multiple of a tile, of 16 or
// of anything; sums in one piece and in segments.
TEST_P(Linear, ProjectSwigluGivesTheBitsOfProjectAndSwiglu) {
  struct Shape {
    std::int64_t in, out;
  };
  for (const Shape s : {Shape{96, 48}, {256, 200}, {515, 33}, {520, 77}, {1032, 150}, {24, 1}, {64, 2000}})
    for (std::int64_t T : {0, 1, 9, 65, 95, 96, 97, 130, 300}) {
      const std::int64_t padding = T % 2 ? 8 : 0;
      const Matrix x = random_matrix(random, format(), T, s.in, 1, padding);
      const Matrix gate = weights(Format::bf16, s.out, s.in), up = weights(Format::bf16, s.out, s.in);
      const Weight wg = gate.weight(), wu = up.weight();
      Matrix a(format(), T, s.out), b(format(), T, s.out), expected(format(), T, s.out);
      ops().project(stream(), x, std::vector<Projection>{{&wg, a}, {&wu, b}});
      ops().swiglu(stream(), a, b, expected);
      Matrix spare(format(), T, s.out, padding), y(format(), T, s.out, padding);
      ops().project_swiglu(stream(3), x, wg, wu, spare, y);
      EXPECT_TRUE(same_bits(y, expected) && y.padding_untouched() && spare.padding_untouched())
          << "T " << T << ", in " << s.in << ", out " << s.out;
    }
}

TEST_P(Linear, ProjectSwigluMatchesReference) {
  for (std::int64_t T : {3, 100}) {
    const Matrix x = random_matrix(random, format(), T, 264);
    const Matrix gate = weights(Format::bf16, 120, 264), up = weights(format(), 120, 264);
    Matrix spare(format(), T, 120), y(format(), T, 120), expected(format(), T, 120);
    ops().project_swiglu(stream(), x, gate.weight(), up.weight(), spare, y);
    reference::project_swiglu(stream(), x, gate.weight(), up.weight(), spare, expected);
    EXPECT_TRUE(matches(y, expected, {.a = format(), .length = 264, .roundings = 4, .typical = 1})) << T;
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
  const Weight weight = w.weight();
  EXPECT_THROW(ops().project(stream(), x, std::vector<Projection>{{&weight, y}, {&weight, wide}}), Error);
  EXPECT_THROW(ops().project(stream(), x, std::vector<Projection>{{nullptr, y}}), Error);
  EXPECT_THROW(ops().project(stream(), x, std::vector<Projection>(kMostProjections + 1, {&weight, y})),
               Error);
  Matrix single(Format::f32, 2, 4), maxima(Format::f32, 2, 1), more(Format::f32, 2, 2);
  EXPECT_NO_THROW(ops().project(stream(), x, std::vector<Projection>{{&weight, single, maxima}}));
  EXPECT_THROW(ops().project(stream(), x, std::vector<Projection>{{&weight, single, more}}), Error);
  const Matrix other = weights(format(), 5, 8);
  EXPECT_THROW(ops().project_swiglu(stream(), x, weight, other.weight(), y, y), Error);
  EXPECT_THROW(ops().project_swiglu(stream(), x, weight, other.weight(), wide, y), Error);
  EXPECT_THROW(ops().project_swiglu(stream(), x, weight, weight, y, tall), Error);
  if (format() == Format::bf16) {
    EXPECT_THROW(ops().project(stream(), x, std::vector<Projection>{{&weight, y, maxima}}), Error);
    Matrix longer(Format::f32, 2, 4);
    EXPECT_THROW(ops().project_swiglu(stream(), x, weight, weight, y, longer), Error);
    EXPECT_THROW(ops().project_swiglu(stream(), x, weight, weight, longer, y), Error);
  }
}

// Shapes for which the plan for many rows has one or several tiles for each block, and splits the sum or does
// not.
TEST(LinearOnDevice, ManyRowsHaveTheBitsOfFew) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "there is no CUDA device";
  const Ops& ops = *cuda::ops_on_host();
  Random random(1);
  Stream stream;
  struct Shape {
    std::int64_t in, out, T;
  };
  for (const Shape s : {Shape{256, 9000, 600},
                        {2560, 1300, 512},
                        {4096, 700, 256},
                        {9216, 300, 128},
                        {40, 17000, 200},
                        {1000, 333, 512},
                        {520, 50, 2048}})
    for (Format f : {Format::bf16, Format::f32})
      for (bool has_bias : {false, true}) {
        const Matrix x = random_matrix(random, Format::bf16, s.T, s.in, 1, 8),
                     w = random_matrix(random, Format::bf16, s.out, s.in, 0.02f, 0);
        const std::vector<float> bias = has_bias ? normals(random, s.out) : std::vector<float>();
        Matrix many(f, s.T, s.out), few(f, s.T, s.out);
        ops.linear(stream, x, w.weight(), bias, many);
        for (std::int64_t t = 0; t < s.T; t += 64) {
          const std::int64_t rows = std::min<std::int64_t>(64, s.T - t);
          ops.linear(stream, Rows(x).slice_rows(t, rows), w.weight(), bias, Rows(few).slice_rows(t, rows));
        }
        EXPECT_TRUE(same_bits(many, few) && many.padding_untouched())
            << s.T << " rows, in " << s.in << ", out " << s.out << ", " << size_of(f) << " bytes, bias "
            << has_bias;
      }
}

// Plans of one or several tiles for each block, of either width that has whole groups; beside a part without.
TEST(LinearOnDevice, ManyRowsHaveMaxima) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "there is no CUDA device";
  const Ops& ops = *cuda::ops_on_host();
  Random random(1);
  Stream stream;
  struct Shape {
    std::int64_t in, out, T;
  };
  for (const Shape s : {Shape{256, 9000, 600},
                        {2560, 1300, 512},
                        {9216, 300, 128},
                        {40, 17000, 200},
                        {1000, 333, 512},
                        {264, 40000, 97},
                        {520, 50, 2048}}) {
    const Matrix x = random_matrix(random, Format::bf16, s.T, s.in, 1, 8),
                 w = random_matrix(random, Format::bf16, s.out, s.in, 0.02f, 0),
                 other = random_matrix(random, Format::bf16, 256, s.in, 0.02f, 0);
    const Weight weights[] = {w.weight(), other.weight()};
    Matrix y(Format::f32, s.T, s.out), z(Format::f32, s.T, 256), expected(Format::f32, s.T, s.out);
    Matrix maxima(Format::f32, s.T, maxima_cols(s.out));
    const Projection parts[] = {{&weights[0], y, maxima}, {&weights[1], z}};
    ops.project(stream, x, std::span(parts));
    ops.linear(stream, x, weights[0], {}, expected);
    const std::string where = fmt::format("{} rows, in {}, out {}", s.T, s.in, s.out);
    EXPECT_TRUE(same_bits(y, expected) && y.padding_untouched()) << where;
    EXPECT_TRUE(same_bits(maxima, maxima_of(y)) && maxima.padding_untouched()) << where;
  }
}

// On the device a kernel starts before the one before has ended: here each reads what that one wrote, and
// writes what that one read, with weights of its own.
TEST(LinearOnDevice, EachProductOfAChainSeesTheOneBefore) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "there is no CUDA device";
  constexpr std::int64_t D = 512;
  constexpr int kProducts = 40;
  Random random(1);
  Stream stream;
  const Matrix w = random_matrix(random, Format::bf16, kProducts + D, D, 0.04f, 0);
  const std::size_t weight_bytes = static_cast<std::size_t>(w.rows() * D * 2);
  cuda::DeviceBuffer weights(weight_bytes);
  cuda::upload(stream, weights.data(), Rows(w).data, weight_bytes);
  for (std::int64_t T : {1, 40, 100, 150, 512}) {
    const auto bytes = static_cast<std::size_t>(T * D * 2);
    const Matrix x = random_matrix(random, Format::bf16, T, D, 1, 0);
    const cuda::DeviceBuffer at[2] = {cuda::DeviceBuffer(bytes), cuda::DeviceBuffer(bytes)};
    const auto rows = [&](int i) {
      return Rows{.data = at[i % 2].data(), .format = Format::bf16, .rows = T, .cols = D, .stride = D};
    };
    const auto chain = [&](bool one_by_one) {
      Matrix y(Format::bf16, T, D, 0);
      cuda::upload(stream, at[0].data(), Rows(x).data, bytes);
      for (int i = 0; i < kProducts; ++i) {
        const Weight weight = {.data = weights.data() + i * D * 2, .format = Format::bf16, .out = D, .in = D};
        cuda::ops()->linear(stream, rows(i), weight, {}, rows(i + 1));
        if (one_by_one) cuda::synchronize(stream);
      }
      cuda::download(stream, Rows(y).data, at[kProducts % 2].data(), bytes);
      return y;
    };
    EXPECT_TRUE(same_bits(chain(false), chain(true))) << T << " rows";
  }
}

}  // namespace
}  // namespace quire
