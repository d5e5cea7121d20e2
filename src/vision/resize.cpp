// Bicubic resampling in two passes of 8-bit results, horizontal then vertical, bit for bit as Pillow does it.
//
// Each pass: out[i] = clamp((sum over t of weight[i][t] * in[first[i] + t] + 2^21) >> 22), the weights in
// units of 2^-22. All sums are exact in 32 bits.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "vision/preprocess.h"

namespace quire {

namespace {

constexpr int kWeightBits = 22;
// Taps are padded with zero weights to whole vectors of 16-bit numbers.
constexpr int kTapGroup = 8;

// The weights of one axis.
struct Taps {
  int count = 0;                      // of each output, padded
  std::vector<int> first;             // [out]: the first input
  std::vector<int> used;              // [out]: taps that are not padding
  std::vector<std::int32_t> weights;  // [out, count]
};

// Keys' cubic with a = -0.5.
double cubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

// When shrinking, the cubic is stretched to cover all inputs of an output: that is the antialiasing.
Taps make_taps(int in, int out) {
  const double scale = static_cast<double>(in) / out, stretch = std::max(scale, 1.0), support = 2 * stretch;
  const int most = 2 * static_cast<int>(std::ceil(support)) + 1;
  Taps taps{.count = (most + kTapGroup - 1) / kTapGroup * kTapGroup, .first = {}, .used = {}, .weights = {}};
  const std::size_t count = static_cast<std::size_t>(taps.count);
  taps.weights.resize(count * out);
  std::vector<double> weights(count);
  for (int i = 0; i < out; ++i) {
    const double center = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(center - support + 0.5));
    const int used = std::min(in, static_cast<int>(center + support + 0.5)) - first;
    const double inverse = 1.0 / stretch;
    double sum = 0;
    for (int t = 0; t < used; ++t) sum += weights[t] = cubic((t + first - center + 0.5) * inverse);
    for (int t = 0; t < used; ++t) {
      const double weight = weights[t] / sum * (1 << kWeightBits);
      taps.weights[i * count + t] = static_cast<std::int32_t>(weight < 0 ? weight - 0.5 : weight + 0.5);
    }
    taps.first.push_back(first);
    taps.used.push_back(used);
  }
  return taps;
}

std::uint8_t to_pixel(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp((sum + (1 << (kWeightBits - 1))) >> kWeightBits, 0, 255));
}

// Rows of three interleaved channels, one at a time. A weight has 23 bits with its sign, too many for the
// 16-bit multiply-add that every x86-64 and ARM CPU has: it is split into 2^11 * high + low.
class HorizontalPass {
 public:
  HorizontalPass(int in, int out) : in_(in), taps_(make_taps(in, out)) {
    for (const std::int32_t weight : taps_.weights) {
      high_.push_back(static_cast<std::int16_t>(weight >> kLowBits));
      low_.push_back(static_cast<std::int16_t>(weight & ((1 << kLowBits) - 1)));
    }
    // Padding taps read past the row's end.
    for (auto& plane : planes_) plane.resize(static_cast<std::size_t>(in + taps_.count));
  }

  void run(const std::uint8_t* from, std::uint8_t* to) {
    std::int16_t *const red = planes_[0].data(), *const green = planes_[1].data(),
                        *const blue = planes_[2].data();
    for (int x = 0; x < in_; ++x) red[x] = from[3 * x], green[x] = from[3 * x + 1], blue[x] = from[3 * x + 2];
    const int count = taps_.count / kTapGroup * kTapGroup;  // says so to the compiler
    const std::int16_t *high = high_.data(), *low = low_.data();
    for (const int first : taps_.first) {
      const std::int16_t *const r = red + first, *const g = green + first, *const b = blue + first;
      std::int32_t r_high = 0, r_low = 0, g_high = 0, g_low = 0, b_high = 0, b_low = 0;
      for (int t = 0; t < count; ++t) {
        r_high += r[t] * high[t], r_low += r[t] * low[t];
        g_high += g[t] * high[t], g_low += g[t] * low[t];
        b_high += b[t] * high[t], b_low += b[t] * low[t];
      }
      to[0] = to_pixel(r_high * (1 << kLowBits) + r_low);
      to[1] = to_pixel(g_high * (1 << kLowBits) + g_low);
      to[2] = to_pixel(b_high * (1 << kLowBits) + b_low);
      high += count, low += count, to += 3;
    }
  }

 private:
  static constexpr int kLowBits = 11;
  int in_;
  Taps taps_;
  std::vector<std::int16_t> high_, low_;  // [out, taps]
  std::vector<std::int16_t> planes_[3];   // [in + padding]
};

}  // namespace

Image resize_bicubic(const ImageView& image, Size to) {
  QUIRE_CHECK(image.width > 0 && image.height > 0 && to.width > 0 && to.height > 0, "{}x{} to {}x{}",
              image.width, image.height, to.width, to.height);
  const std::size_t in_row = std::size_t{3} * image.width, out_row = std::size_t{3} * to.width;
  std::vector<std::uint8_t> narrowed(image.width == to.width ? 0 : out_row * image.height);
  const std::uint8_t* rows = image.rgb;
  if (!narrowed.empty()) {
    HorizontalPass pass(image.width, to.width);
    for (int y = 0; y < image.height; ++y) pass.run(image.rgb + in_row * y, narrowed.data() + out_row * y);
    rows = narrowed.data();
  }

  Image out{.width = to.width, .height = to.height, .rgb = std::vector<std::uint8_t>(out_row * to.height)};
  if (image.height == to.height) {
    std::copy_n(rows, out.rgb.size(), out.rgb.data());
    return out;
  }
  const Taps taps = make_taps(image.height, to.height);
  std::vector<std::int32_t> sums(out_row);
  for (std::size_t y = 0; y < static_cast<std::size_t>(to.height); ++y) {
    std::fill(sums.begin(), sums.end(), 0);
    const std::uint8_t* from = rows + out_row * taps.first[y];
    for (int t = 0; t < taps.used[y]; ++t, from += out_row) {
      const std::int32_t weight = taps.weights[y * taps.count + t];
      for (std::size_t i = 0; i < out_row; ++i) sums[i] += weight * from[i];
    }
    std::uint8_t* row = out.rgb.data() + out_row * y;
    for (std::size_t i = 0; i < out_row; ++i) row[i] = to_pixel(sums[i]);
  }
  return out;
}

}  // namespace quire
