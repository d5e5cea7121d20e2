#include "measure/figure.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include <fmt/format.h>

#include "core/error.h"

namespace quire {
namespace {

constexpr std::size_t kDraws = 10'000;

using Pages = std::span<const std::size_t>;  // by number, as drawn

Figure bootstrap(std::size_t pages, double level, const std::function<double(Pages)>& value_of) {
  Figure f;
  if (pages == 0) return f;
  std::vector<std::size_t> draw(pages);
  std::iota(draw.begin(), draw.end(), std::size_t{0});
  f.value = value_of(draw);
  if (pages == 1) return f;
  std::mt19937_64 random(1);
  std::vector<double> drawn(kDraws);
  for (double& value : drawn) {
    for (std::size_t& page : draw) page = random() % pages;
    value = value_of(draw);
  }
  std::sort(drawn.begin(), drawn.end());
  const auto tail = static_cast<std::size_t>(std::lround(kDraws * (1 - level) / 2));
  f.low = drawn[tail];
  f.high = drawn[std::min(kDraws - tail, kDraws - 1)];
  return f;
}

double ratio_of(std::span<const Share> shares, Pages pages) {
  double over = 0, under = 0;
  for (const std::size_t page : pages) over += shares[page].over, under += shares[page].under;
  return over / under;
}

}  // namespace

double ratio_of(std::span<const Share> shares) {
  double over = 0, under = 0;
  for (const Share& s : shares) over += s.over, under += s.under;
  return over / under;
}

Figure figure_of(std::span<const Share> pages, double level) {
  std::vector<Share> shares;
  std::ranges::copy_if(pages, std::back_inserter(shares), [](const Share& s) { return s.under > 0; });
  return bootstrap(shares.size(), level, [&](Pages drawn) { return ratio_of(shares, drawn); });
}

Figure difference_of(std::span<const Share> one, std::span<const Share> other, double level) {
  QUIRE_CHECK(one.size() == other.size(), "{} pages beside {}", one.size(), other.size());
  std::vector<Share> a, b;
  for (std::size_t i = 0; i < one.size(); ++i)
    if (one[i].under > 0 && other[i].under > 0) a.push_back(one[i]), b.push_back(other[i]);
  return bootstrap(a.size(), level, [&](Pages drawn) { return ratio_of(a, drawn) - ratio_of(b, drawn); });
}

std::string text_of(const Figure& f) {
  return std::isnan(f.low) ? fmt::format("{:.2f}", f.value)
                           : fmt::format("{:.2f} ({:.2f} to {:.2f})", f.value, f.low, f.high);
}

}  // namespace quire
