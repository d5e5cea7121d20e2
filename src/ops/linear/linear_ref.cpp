// y = x W^T + bias. The sum is in double: what a backend differs by is its own error.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/elementwise/elementwise.h"
#include "ops/linear/linear.h"

namespace quire {

void check_linear(const Rows& x, const Weight& w, std::span<const float> bias, const Rows& y) {
  check_weight("linear", "w", w);
  check_rows("linear", "x", x, x.rows, w.in, x.format);
  check_rows("linear", "y", y, x.rows, w.out, y.format);
  QUIRE_CHECK(y.format == x.format || y.format == Format::f32, "linear: f32 input, bf16 output");
  if (!bias.empty()) check_size("linear", "bias", bias.size(), w.out);
}

void check_project(const Rows& x, std::span<const Projection> parts) {
  QUIRE_CHECK(parts.size() <= kMostProjections, "project: {} parts, expected at most {}", parts.size(),
              kMostProjections);
  for (const Projection& p : parts) {
    QUIRE_CHECK(p.weight, "project: a part has no weight");
    check_linear(x, *p.weight, {}, p.y);
    if (!p.maxima.data) continue;
    QUIRE_CHECK(p.y.format == Format::f32, "project: maxima of outputs in bf16, expected f32");
    check_rows("project", "maxima", p.maxima, x.rows, maxima_cols(p.y.cols), Format::f32);
  }
}

void check_project_swiglu(const Rows& x, const Weight& gate, const Weight& up, const Rows& spare,
                          const Rows& y) {
  check_linear(x, gate, {}, y);
  check_linear(x, up, {}, spare);
  check_rows("project_swiglu", "spare", spare, y.rows, y.cols, x.format);
  check_rows("project_swiglu", "y", y, y.rows, y.cols, x.format);
}

namespace {

void find_maxima(const Projection& p) {
  for (std::int64_t t = 0; t < p.y.rows; ++t)
    for (std::int64_t group = 0; group < p.maxima.cols; ++group) {
      float largest = -std::numeric_limits<float>::infinity();
      for (std::int64_t o = group * kMaximaColumns; o < std::min(p.y.cols, (group + 1) * kMaximaColumns); ++o)
        if (load(p.y, t, o) > largest) largest = load(p.y, t, o);
      store(p.maxima, t, group, largest);
    }
}

}  // namespace

void reference::linear(Stream&, Rows x, const Weight& w, std::span<const float> bias, Rows y) {
  check_linear(x, w, bias, y);
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t o = 0; o < w.out; ++o) {
      double sum = 0;
      for (std::int64_t i = 0; i < w.in; ++i) sum += double{load(x, t, i)} * load(w, o, i);
      store(y, t, o, bias.empty() ? sum : sum + bias[o]);
    }
}

void reference::project(Stream& s, Rows x, std::span<const Projection> parts) {
  check_project(x, parts);
  for (const Projection& p : parts) {
    linear(s, x, *p.weight, {}, p.y);
    if (p.maxima.data) find_maxima(p);
  }
}

void reference::project_swiglu(Stream& s, Rows x, const Weight& gate, const Weight& up, Rows spare, Rows y) {
  check_project_swiglu(x, gate, up, spare, y);
  linear(s, x, gate, {}, y);
  linear(s, x, up, {}, spare);
  swiglu(s, y, spare, y);
}

}  // namespace quire
