#include <cmath>

#include "ops/check.h"
#include "ops/element.h"
#include "ops/elementwise/elementwise.h"

namespace quire {
namespace {

// x sigmoid(x). Minus infinity gives NaN, as the formula does.
double silu(double x) {
  return x / (1 + std::exp(-x));
}

double gelu_tanh(double x) {
  const double kSqrt2OverPi = 0.79788456080286535588;
  return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + 0.044715 * x * x * x)));
}

double gelu_erf(double x) {
  const double kSqrtHalf = 0.70710678118654752440;
  return 0.5 * x * (1 + std::erf(x * kSqrtHalf));
}

}  // namespace

void check_add(const Rows& x, const Rows& y) {
  check_rows("add", "x", x, x.rows, x.cols, x.format);
  check_rows("add", "y", y, x.rows, x.cols, x.format);
}

void check_convert(const Rows& x, const Rows& y) {
  check_rows("convert", "x", x, x.rows, x.cols, x.format);
  check_rows("convert", "y", y, x.rows, x.cols, y.format);
}

void check_swiglu(const Rows& gate, const Rows& up, const Rows& y) {
  check_rows("swiglu", "gate", gate, gate.rows, gate.cols, gate.format);
  check_rows("swiglu", "up", up, gate.rows, gate.cols, gate.format);
  check_rows("swiglu", "y", y, gate.rows, gate.cols, gate.format);
}

void check_gelu(const Rows& x) {
  check_rows("gelu", "x", x, x.rows, x.cols, x.format);
}

void reference::add(Stream&, Rows x, Rows y) {
  check_add(x, y);
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t c = 0; c < x.cols; ++c) store(x, t, c, load(x, t, c) + load(y, t, c));
}

void reference::convert(Stream&, Rows x, Rows y) {
  check_convert(x, y);
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t c = 0; c < x.cols; ++c) store(y, t, c, load(x, t, c));
}

void reference::swiglu(Stream&, Rows gate, Rows up, Rows y) {
  check_swiglu(gate, up, y);
  for (std::int64_t t = 0; t < y.rows; ++t)
    for (std::int64_t c = 0; c < y.cols; ++c)
      store(y, t, c, round_to(y.format, silu(load(gate, t, c))) * load(up, t, c));
}

void reference::gelu(Stream&, Rows x, Gelu kind) {
  check_gelu(x);
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const double v = load(x, t, c);
      store(x, t, c, kind == Gelu::tanh ? gelu_tanh(v) : gelu_erf(v));
    }
}

}  // namespace quire
