// Comparing an array of floats with what it should be.
//
//   EXPECT_TRUE(compare(actual, expected, rounded_sum(Format::bf16, 256)));
//
// Three things are demanded: infinities and NaNs in the same places; each element within an absolute plus a
// relative bound; the whole array close in direction and length (cosine gap). The second finds one wrong
// element among thousands, the third finds a small bias in all of them.
//
// Bounds are derived from what was computed, never from what passes. Let u be the unit roundoff of the
// format: 2^-24 (f32) or 2^-8 (bf16).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/dtype.h"
#include "ops/ops.h"

namespace quire {

struct Tolerance {
  double absolute = 0;    // in units of the root mean square of the finite expected values
  double relative = 0;    // in units of the element's expected magnitude
  double cosine_gap = 0;  // 1 - 2<x, y> / (<x, x> + <y, y>), which is half the squared relative error
};

constexpr double unit_roundoff(Format a) {
  return a == Format::f32 ? 0x1p-24 : 0x1p-8;
}

// For values that must be equal bit for bit (-0 equals 0).
constexpr Tolerance exactly() {
  return {};
}

// Sums of `length` products in f32, rounded once to `a`, that two programs may add in different orders.
// Elements: the order moves a sum by about u32 sqrt(length) of the typical result, 8 times that at most among
// many elements; then the two values may fall on either side of a rounding boundary, one unit in the last
// place (2 u) apart. `length` 1 is for elementwise functions, where the same slack covers the library
// functions.
inline Tolerance rounded_sum(Format a, std::int64_t length) {
  const double sum = 8 * 0x1p-24 * std::sqrt(static_cast<double>(std::max<std::int64_t>(length, 1)));
  const double last_place = 2 * unit_roundoff(a);
  const double error = sum + last_place;
  return {sum, error, error * error / 2};
}

// A chain of `roundings` operations one after the other, each a rounded_sum of at most `length` terms. Two
// programs that round in the same places still drift apart by about one rounding an operation: a difference
// in the last bits of a sum tips a few roundings, and those tip more further on. Such an error passes through
// the next operations about unchanged in size (norms keep activations at unit size), and errors are
// independent, so they add as a square root; 8 standard deviations for one element among many, 3 for the
// whole array.
inline Tolerance rounded_chain(Format a, std::int64_t length, std::int64_t roundings) {
  const double one = unit_roundoff(a) + 0x1p-24 * std::sqrt(static_cast<double>(length));
  const double error = one * std::sqrt(static_cast<double>(roundings));
  return {8 * error, 8 * error, 9 * error * error / 2};
}

namespace compare_detail {

inline bool same_class(float x, float y) {
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
  if (std::isinf(x) || std::isinf(y)) return x == y;
  return true;
}

struct Difference {
  std::size_t index = 0;
  double ratio = 0;  // difference / bound of the worst element
  double cosine_gap = 0;
};

inline Difference measure(std::span<const float> actual, std::span<const float> expected, Tolerance t) {
  double xx = 0, yy = 0, dd = 0;
  std::size_t finite = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double x = actual[i], y = expected[i];
    if (!std::isfinite(x) || !std::isfinite(y)) continue;
    xx += x * x, yy += y * y, dd += (x - y) * (x - y);
    ++finite;
  }
  const double scale = finite ? std::sqrt(yy / static_cast<double>(finite)) : 0;
  Difference worst;
  worst.cosine_gap = xx + yy > 0 ? dd / (xx + yy) : 0;  // the same quantity, without cancellation
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double x = actual[i], y = expected[i];
    if (!std::isfinite(x) || !std::isfinite(y) || x == y) continue;
    const double bound = t.absolute * scale + t.relative * std::abs(y);
    const double ratio = bound > 0 ? std::abs(x - y) / bound : INFINITY;
    if (ratio > worst.ratio) worst.index = i, worst.ratio = ratio;
  }
  return worst;
}

}  // namespace compare_detail

inline testing::AssertionResult compare(std::span<const float> actual, std::span<const float> expected,
                                        Tolerance t) {
  using namespace compare_detail;
  if (actual.size() != expected.size())
    return testing::AssertionFailure()
           << fmt::format("{} values, expected {}", actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    if (!same_class(actual[i], expected[i]))
      return testing::AssertionFailure() << fmt::format("[{}] is {}, expected {}", i, actual[i], expected[i]);
  const Difference worst = measure(actual, expected, t);
  const auto describe = [&] {
    if (expected.empty()) return std::string("no values");
    return fmt::format(
        "worst element [{}] is {}, expected {} ({:.3g} of its bound); cosine gap {:.3g}, allowed {:.3g}; {} "
        "values",
        worst.index, actual[worst.index], expected[worst.index], worst.ratio, worst.cosine_gap, t.cosine_gap,
        expected.size());
  };
  if (worst.ratio > 1 || worst.cosine_gap > t.cosine_gap) return testing::AssertionFailure() << describe();
  return testing::AssertionSuccess() << describe();
}

// The values of bf16 or f32 rows, as one dense array.
inline std::vector<float> to_floats(const Rows& x) {
  std::vector<float> out;
  out.reserve(static_cast<std::size_t>(x.rows * x.cols));
  for (std::int64_t r = 0; r < x.rows; ++r)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const std::int64_t i = r * x.stride + c;
      out.push_back(x.format == Format::f32 ? static_cast<const float*>(x.data)[i]
                                            : to_float(static_cast<const bf16*>(x.data)[i]));
    }
  return out;
}

inline testing::AssertionResult compare(const Rows& actual, const Rows& expected, Tolerance t) {
  return compare(to_floats(actual), to_floats(expected), t);
}

inline testing::AssertionResult compare(const Rows& actual, std::span<const float> expected, Tolerance t) {
  return compare(to_floats(actual), expected, t);
}

}  // namespace quire
