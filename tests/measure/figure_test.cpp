#include "measure/figure.h"

#include <cmath>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Figure, IsTheRatioOfSumsWithAnInterval) {
  const std::vector<Share> pages = {{10, 5}, {40, 10}, {9, 3}, {0, 0}};
  const Figure f = figure_of(pages);
  EXPECT_DOUBLE_EQ(f.value, 59.0 / 18);
  EXPECT_GE(f.low, 2);
  EXPECT_LE(f.high, 4);
  EXPECT_LT(f.low, f.value);
  EXPECT_GT(f.high, f.value);
  const Figure wider = figure_of(pages, 0.999);
  EXPECT_LE(wider.low, f.low);
  EXPECT_GE(wider.high, f.high);
}

TEST(Figure, OnePageSaysNothingOfOthers) {
  const Figure f = figure_of(std::vector<Share>{{6, 2}, {0, 0}});
  EXPECT_EQ(f.value, 3);
  EXPECT_TRUE(std::isnan(f.low) && std::isnan(f.high));
  EXPECT_TRUE(std::isnan(figure_of({}).value));
}

// Pages differ much more than the two ways to read them.
TEST(Figure, ADifferenceIsOfPagesInPairs) {
  const std::vector<Share> before = {{10, 10}, {50, 10}, {90, 10}, {20, 10}},
                           after = {{11, 10}, {52, 10}, {91, 10}, {21, 10}};
  EXPECT_LT(figure_of(after).low, figure_of(before).value);
  const Figure gain = difference_of(after, before);
  EXPECT_NEAR(gain.value, 0.125, 1e-9);
  EXPECT_NEAR(gain.low, 0.1, 1e-9);
  EXPECT_LE(gain.high, 0.2);
}

}  // namespace
}  // namespace quire
