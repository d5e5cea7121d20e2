#include <cmath>

#include "core/error.h"
#include "ops/argmax/argmax.h"
#include "ops/check.h"
#include "ops/element.h"

namespace quire {

void check_argmax(const Rows& logits, std::span<Sampled> out) {
  QUIRE_CHECK(logits.cols > 0, "argmax: a vocabulary of {} tokens", logits.cols);
  check_rows("argmax", "logits", logits, logits.rows, logits.cols, Format::f32);
  check_size("argmax", "out", out.size(), logits.rows);
}

void reference::argmax(Stream&, Rows logits, std::span<Sampled> out) {
  check_argmax(logits, out);
  for (std::int64_t t = 0; t < logits.rows; ++t) {
    std::int64_t best = 0;
    for (std::int64_t v = 1; v < logits.cols; ++v) {
      const float x = load(logits, t, v), highest = load(logits, t, best);
      if (x > highest || (std::isnan(highest) && !std::isnan(x))) best = v;
    }
    double sum = 0;
    for (std::int64_t v = 0; v < logits.cols; ++v)
      sum += std::exp(double{load(logits, t, v)} - load(logits, t, best));
    out[t] = {static_cast<std::int32_t>(best), static_cast<float>(-std::log(sum))};
  }
}

}  // namespace quire
