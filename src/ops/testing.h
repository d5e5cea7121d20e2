// What the tests of the operations share: the tables under test, matrices with guarded padding, random
// values, comparison with the reference, and the invariance that greedy output rests on.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "compare.h"
#include "core/thread_pool.h"
#include "ops/cpu/table.h"
#include "ops/cuda/on_host.h"
#include "ops/matrix.h"
#include "ops/ops.h"
#include "sanitized.h"

namespace quire {

// Around the sizes at which kernels change their path.
inline constexpr std::int64_t kRowCounts[] = {0, 1, 2, 3, 5, 15, 16, 17, 63, 64, 65, 130};

// Every table this machine can run. With sanitizers the reference runs only where another is compared with
// it.
inline std::vector<const Ops*> tables() {
  std::vector<const Ops*> all;
  if (!kSanitized || cpu_tables().empty()) all.push_back(&reference_ops());
  for (const Ops* ops : cpu_tables()) all.push_back(ops);
  if (const Ops* ops = cuda::ops_on_host()) all.push_back(ops);
  return all;
}

// --- matrices --------------------------------------------------------------------------------------------

// The listed rows of x, in that order.
inline Matrix gather(const Matrix& x, std::span<const std::int64_t> rows) {
  Matrix y(x.format(), static_cast<std::int64_t>(rows.size()), x.cols());
  for (std::int64_t r = 0; r < y.rows(); ++r)
    for (std::int64_t c = 0; c < y.cols(); ++c) y.set(r, c, x.get(rows[r], c));
  return y;
}
// x in rows that begin at multiples of 16 bytes, which kernels may read as vectors.
inline Matrix aligned(const Matrix& x) {
  Matrix y(x.format(), x.rows(), x.cols(), 8 + (8 - x.cols() % 8) % 8);
  for (std::int64_t r = 0; r < y.rows(); ++r)
    for (std::int64_t c = 0; c < y.cols(); ++c) y.set(r, c, x.get(r, c));
  return y;
}
// The listed rows of a dense [T, cols] array.
inline std::vector<float> gather(std::span<const float> x, std::int64_t cols,
                                 std::span<const std::int64_t> rows) {
  std::vector<float> y;
  for (std::int64_t r : rows) y.insert(y.end(), x.begin() + r * cols, x.begin() + (r + 1) * cols);
  return y;
}

// What `project` gives as maxima of y.
inline Matrix maxima_of(const Matrix& y) {
  Matrix maxima(Format::f32, y.rows(), maxima_cols(y.cols()));
  for (std::int64_t r = 0; r < y.rows(); ++r)
    for (std::int64_t group = 0; group < maxima.cols(); ++group) {
      float largest = -std::numeric_limits<float>::infinity();
      for (std::int64_t c = group * kMaximaColumns; c < std::min(y.cols(), (group + 1) * kMaximaColumns); ++c)
        largest = std::fmax(largest, y.get(r, c));
      maxima.set(r, group, largest);
    }
  return maxima;
}

// --- comparison ------------------------------------------------------------------------------------------

// What may separate a backend from the reference, which sums in double. With u the unit roundoff of `a`:
//  - f32 sums of `length` terms: 8 u32 sqrt(length) of the typical result (rounded_sum in compare.h);
//  - each of `roundings` roundings to `a` in a row may cross a boundary: 2 u of the value;
//  - where rounded intermediates cancel, they are up to `intermediate` times the typical result: 2 u of that.
struct Rounded {
  Format a = Format::f32;
  std::int64_t length = 1;
  int roundings = 1;
  double intermediate = 0;
  double typical = 0;  // size of a typical result; 0: that of those at hand

  double sum() const {
    return 8 * 0x1p-24 * std::sqrt(static_cast<double>(std::max<std::int64_t>(length, 1)));
  }
};

inline double root_mean_square(std::span<const float> x) {
  double sum = 0, count = 0;
  for (float v : x)
    if (std::isfinite(v)) sum += double{v} * v, ++count;
  return count > 0 ? std::sqrt(sum / count) : 0;
}

inline testing::AssertionResult matches(std::span<const float> actual, std::span<const float> expected,
                                        Rounded rounded) {
  const double u = unit_roundoff(rounded.a), last_place = 2 * u, at_hand = root_mean_square(expected);
  const double stretch = at_hand > 0 ? std::max(1.0, rounded.typical / at_hand) : 1;
  const double absolute = stretch * (rounded.sum() + rounded.intermediate * last_place);
  const double relative = rounded.sum() + rounded.roundings * last_place, worst = absolute + relative;
  const testing::AssertionResult close = compare(actual, expected, {absolute, relative, worst * worst / 2});
  if (!close || rounded.a == Format::f32) return close;
  // A bf16 value falls to the other side only when it lies within its f32 error of a boundary, and boundaries
  // are at least u apart. So nearly all are equal; truncation, or a rounding left out, shows here.
  double unequal = 0, allowed = 4;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double size = std::abs(expected[i]);
    if (!std::isfinite(size)) continue;
    unequal += actual[i] != expected[i];
    const double error = rounded.sum() * (stretch * at_hand + size);
    allowed += size > 0 ? std::min(1.0, rounded.roundings * error / (u * size)) : 1;
  }
  if (unequal <= allowed) return close;
  return testing::AssertionFailure() << fmt::format("{} of {} values are not equal, allowed {:.1f}", unequal,
                                                    actual.size(), allowed);
}
inline testing::AssertionResult matches(const Matrix& actual, const Matrix& expected, Rounded rounded) {
  if (!actual.padding_untouched()) return testing::AssertionFailure() << "wrote between the rows";
  return matches(to_floats(actual), to_floats(expected), rounded);
}

inline testing::AssertionResult same_bits(std::span<const float> actual, std::span<const float> expected) {
  if (actual.size() != expected.size())
    return testing::AssertionFailure() << actual.size() << " values, expected " << expected.size();
  for (std::size_t i = 0; i < actual.size(); ++i)
    if (std::bit_cast<std::uint32_t>(actual[i]) != std::bit_cast<std::uint32_t>(expected[i]))
      return testing::AssertionFailure()
             << fmt::format("[{}] is {:a}, expected {:a}", i, actual[i], expected[i]);
  return testing::AssertionSuccess();
}
inline testing::AssertionResult same_bits(const Rows& actual, const Rows& expected) {
  if (actual.cols != expected.cols) return testing::AssertionFailure() << "different widths";
  return same_bits(to_floats(actual), to_floats(expected));
}

// --- the fixture -----------------------------------------------------------------------------------------

// A table and a precision.
class OpsTest : public testing::TestWithParam<std::tuple<const Ops*, Format>> {
 protected:
  const Ops& ops() const { return *std::get<0>(GetParam()); }
  Format format() const { return std::get<1>(GetParam()); }
  // A stream of 1, 2 or 3 threads.
  Stream& stream(int threads = 2) { return streams_[threads - 1]; }

  // `run(stream, rows)` computes an operation for the listed rows of fixed inputs, in that order. The bits of
  // a row must not depend on how many rows there are, on its place, on its neighbours, or on the threads.
  testing::AssertionResult rows_are_independent(
      std::int64_t T, const std::function<Matrix(Stream&, std::span<const std::int64_t>)>& run) {
    std::vector<std::int64_t> all(T);
    std::iota(all.begin(), all.end(), 0);
    const Matrix expected = run(stream(1), all);
    const auto check = [&](const std::string& what, Stream& s, const std::vector<std::int64_t>& rows) {
      const auto same = same_bits(run(s, rows), gather(expected, rows));
      return same ? same : testing::AssertionFailure() << what << ": " << same.message();
    };
    for (int threads : {2, 3})
      if (const auto same = check(fmt::format("{} threads", threads), stream(threads), all); !same)
        return same;
    for (std::int64_t count : {1, 2, 3, 5, 6, 7, 17})
      for (std::int64_t begin = 0; begin + count <= T; begin += count) {
        const std::vector<std::int64_t> rows(all.begin() + begin, all.begin() + begin + count);
        if (const auto same = check(fmt::format("{} rows from {}", count, begin), stream(), rows); !same)
          return same;
      }
    const std::vector<std::int64_t> reversed(all.rbegin(), all.rend());
    return check("rows reversed", stream(), reversed);
  }

  Random random{1};

 private:
  ThreadPool pools_[3]{ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  Stream streams_[3]{{&pools_[0], {}}, {&pools_[1], {}}, {&pools_[2], {}}};
};

inline auto each_table_and_format() {
  return testing::Combine(testing::ValuesIn(tables()), testing::Values(Format::f32, Format::bf16));
}
inline std::string case_name(const testing::TestParamInfo<OpsTest::ParamType>& info) {
  return std::string(std::get<0>(info.param)->name) +
         (std::get<1>(info.param) == Format::f32 ? "_f32" : "_bf16");
}

}  // namespace quire
