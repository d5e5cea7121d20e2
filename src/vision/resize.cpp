// Bicubic resampling in two passes of 8-bit results, bit for bit as Pillow does it.
//
// Each pass: out[i] = clamp((sum over t of k[i][t] * in[first[i] + t] + 2^21) >> 22), k = weights * 2^22
// rounded. A weight has 23 bits with its sign, too many for the 16-bit multiply-add that every x86-64 and ARM
// CPU does fastest, so it is split: k = 2^11 * high + low. Both sums are exact, and so is the result.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "vision/preprocess.h"

namespace quire {

namespace {

constexpr int kWeightBits = 22, kLowBits = 11;
// Taps are padded with zero weights to whole vectors of 16-bit numbers.
constexpr int kTapGroup = 8;

// The weights of one axis.
struct Taps {
  int count = 0;                        // of each output, padded
  std::vector<int> first;               // [out]: the first input
  std::vector<int> used;                // [out]: taps that are not padding
  std::vector<std::int16_t> high, low;  // [out, count]
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
  Taps taps{.count = (most + kTapGroup - 1) / kTapGroup * kTapGroup,
            .first = std::vector<int>(static_cast<std::size_t>(out)),
            .used = std::vector<int>(static_cast<std::size_t>(out)),
            .high = {},
            .low = {}};
  const std::size_t count = static_cast<std::size_t>(taps.count);
  taps.high.resize(count * out);
  taps.low.resize(count * out);
  std::vector<double> weights(count);
  for (std::size_t i = 0; i < static_cast<std::size_t>(out); ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(center - support + 0.5));
    const int used = std::min(in, static_cast<int>(center + support + 0.5)) - first;
    double sum = 0;
    const double inverse = 1.0 / stretch;
    for (int t = 0; t < used; ++t) sum += weights[t] = cubic((t + first - center + 0.5) * inverse);
    for (int t = 0; t < used; ++t) {
      const double weight = weights[t] / sum * (1 << kWeightBits);
      const int k = static_cast<int>(weight < 0 ? weight - 0.5 : weight + 0.5);
      taps.high[i * count + t] = static_cast<std::int16_t>(k >> kLowBits);
      taps.low[i * count + t] = static_cast<std::int16_t>(k & ((1 << kLowBits) - 1));
    }
    taps.first[i] = first;
    taps.used[i] = used;
  }
  return taps;
}

std::uint8_t rounded(std::int32_t high, std::int32_t low) {
  const std::int32_t sum = high * (1 << kLowBits) + low + (1 << (kWeightBits - 1));
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// One row of three interleaved channels.
class HorizontalPass {
 public:
  HorizontalPass(int in, int out) : in_(in), taps_(make_taps(in, out)) {
    // Padding taps read past the row's end.
    for (auto& channel : planes_) channel.resize(static_cast<std::size_t>(in + taps_.count));
  }

  void run(const std::uint8_t* from, std::uint8_t* to) {
    std::int16_t* const r = planes_[0].data();
    std::int16_t* const g = planes_[1].data();
    std::int16_t* const b = planes_[2].data();
    for (int x = 0; x < in_; ++x) r[x] = from[3 * x], g[x] = from[3 * x + 1], b[x] = from[3 * x + 2];
    const std::size_t count = static_cast<std::size_t>(taps_.count);
    for (std::size_t i = 0; i < taps_.first.size(); ++i) {
      const std::int16_t* high = taps_.high.data() + i * count;
      const std::int16_t* low = taps_.low.data() + i * count;
      for (std::size_t c = 0; c < 3; ++c) {
        const std::int16_t* in = planes_[c].data() + taps_.first[i];
        to[3 * i + c] = rounded(dot(in, high), dot(in, low));
      }
    }
  }

 private:
  std::int32_t dot(const std::int16_t* a, const std::int16_t* b) const {
    std::int32_t sum = 0;
    for (int t = 0; t < taps_.count / kTapGroup * kTapGroup; ++t) sum += a[t] * b[t];
    return sum;
  }

  int in_;
  Taps taps_;
  std::vector<std::int16_t> planes_[3];
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
  std::vector<std::int32_t> high(out_row), low(out_row);
  for (std::size_t y = 0; y < static_cast<std::size_t>(to.height); ++y) {
    std::fill(high.begin(), high.end(), 0);
    std::fill(low.begin(), low.end(), 0);
    for (int t = 0; t < taps.used[y]; ++t) {
      const std::int16_t k_high = taps.high[y * taps.count + t], k_low = taps.low[y * taps.count + t];
      const std::uint8_t* from = rows + out_row * (taps.first[y] + t);
      for (std::size_t i = 0; i < out_row; ++i) {
        const std::int16_t pixel = from[i];
        high[i] += k_high * pixel;
        low[i] += k_low * pixel;
      }
    }
    std::uint8_t* row = out.rgb.data() + out_row * y;
    for (std::size_t i = 0; i < out_row; ++i) row[i] = rounded(high[i], low[i]);
  }
  return out;
}

}  // namespace quire
