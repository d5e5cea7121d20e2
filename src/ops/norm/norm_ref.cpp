#include <cmath>

#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/norm/norm.h"

namespace quire {
namespace {

// 1 / sqrt(mean(x^2) + eps) over columns [begin, begin + width) of row t.
double inverse_rms(const Rows& x, std::int64_t t, std::int64_t begin, std::int64_t width, float eps) {
  double sum = 0;
  for (std::int64_t c = begin; c < begin + width; ++c) {
    const double v = load(x, t, c);
    sum += v * v;
  }
  return 1 / std::sqrt(sum / static_cast<double>(width) + eps);
}

}  // namespace

void check_rms_norm(const Rows& x, std::span<const float> w, const Rows& y) {
  check_rows("rms_norm", "x", x, x.rows, x.cols, x.format);
  check_rows("rms_norm", "y", y, x.rows, x.cols, x.format);
  check_size("rms_norm", "w", w.size(), x.cols);
}

void check_add_rms_norm(const Rows& x, const Rows& r, const Rows& sum, std::span<const float> w,
                        const Rows& y) {
  check_rows("add_rms_norm", "x", x, x.rows, x.cols, x.format);
  check_rows("add_rms_norm", "r", r, x.rows, x.cols, x.format);
  check_rows("add_rms_norm", "sum", sum, x.rows, x.cols, x.format);
  check_rows("add_rms_norm", "y", y, x.rows, x.cols, x.format);
  check_size("add_rms_norm", "w", w.size(), x.cols);
}

void check_gated_rms_norm(const Rows& x, const Rows& z, std::span<const float> w, const Rows& y) {
  check_rows("gated_rms_norm", "x", x, x.rows, x.cols, x.format);
  check_rows("gated_rms_norm", "z", z, x.rows, x.cols, x.format);
  check_rows("gated_rms_norm", "y", y, x.rows, x.cols, x.format);
  QUIRE_CHECK(!w.empty() && x.cols % static_cast<std::int64_t>(w.size()) == 0,
              "gated_rms_norm: {} columns are not heads of {}", x.cols, w.size());
}

void check_layer_norm(const Rows& x, std::span<const float> w, std::span<const float> b, const Rows& y) {
  check_rows("layer_norm", "x", x, x.rows, x.cols, x.format);
  check_rows("layer_norm", "y", y, x.rows, x.cols, x.format);
  check_size("layer_norm", "w", w.size(), x.cols);
  check_size("layer_norm", "b", b.size(), x.cols);
}

void reference::rms_norm(Stream&, Rows x, std::span<const float> w, float eps, Rows y) {
  check_rms_norm(x, w, y);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    const double scale = inverse_rms(x, t, 0, x.cols, eps);
    for (std::int64_t c = 0; c < x.cols; ++c) store(y, t, c, load(x, t, c) * scale * (1.0 + w[c]));
  }
}

void reference::add_rms_norm(Stream& stream, Rows x, Rows r, Rows sum, std::span<const float> w, float eps,
                             Rows y) {
  check_add_rms_norm(x, r, sum, w, y);
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t c = 0; c < x.cols; ++c) store(sum, t, c, load(x, t, c) + load(r, t, c));
  rms_norm(stream, sum, w, eps, y);
}

void reference::gated_rms_norm(Stream&, Rows x, Rows z, std::span<const float> w, float eps, Rows y) {
  check_gated_rms_norm(x, z, w, y);
  const auto width = static_cast<std::int64_t>(w.size());
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t head = 0; head < x.cols; head += width) {
      const double scale = inverse_rms(x, t, head, width, eps);
      for (std::int64_t e = 0; e < width; ++e) {
        const double gate = load(z, t, head + e);
        store(y, t, head + e, w[e] * (load(x, t, head + e) * scale) * (gate / (1 + std::exp(-gate))));
      }
    }
}

void reference::layer_norm(Stream&, Rows x, std::span<const float> w, std::span<const float> b, float eps,
                           Rows y) {
  check_layer_norm(x, w, b, y);
  const auto width = static_cast<double>(x.cols);
  for (std::int64_t t = 0; t < x.rows; ++t) {
    double mean = 0, variance = 0;
    for (std::int64_t c = 0; c < x.cols; ++c) mean += load(x, t, c);
    mean /= width;
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const double d = load(x, t, c) - mean;
      variance += d * d;
    }
    const double scale = 1 / std::sqrt(variance / width + eps);
    for (std::int64_t c = 0; c < x.cols; ++c) store(y, t, c, (load(x, t, c) - mean) * scale * w[c] + b[c]);
  }
}

}  // namespace quire
