// Figures of pages: ratios of two sums over all of them, with intervals of what other pages may give.
#pragma once

#include <limits>
#include <span>
#include <string>
#include <vector>

namespace quire {

// What one page adds to a figure that is a ratio of two sums.
struct Share {
  double over = 0, under = 0;
};

struct Figure {
  double value = std::numeric_limits<double>::quiet_NaN();  // NaN: nothing is known
  double low = value, high = value;                         // NaN: one page says nothing of others
};

inline constexpr const char* kInterval = "95 %: percentile bootstrap over pages, 10,000 draws";

double ratio_of(std::span<const Share> shares);
// The ratio over all pages, and the middle `level` of what as many pages give that are drawn from these, each
// any number of times. Pages with nothing under the line are left out.
Figure figure_of(std::span<const Share> pages, double level = 0.95);
// By how much the ratio of one way to read pages is above that of another. Page i of both is the same page,
// and both are drawn together.
Figure difference_of(std::span<const Share> one, std::span<const Share> other, double level = 0.95);

std::string text_of(const Figure& figure);  // "7.21 (6.60 to 7.93)"

}  // namespace quire
