#include <cmath>
#include <limits>

#include "ops/argmax/argmax.h"
#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"

namespace quire::QUIRE_ISA {

void argmax(Stream& s, Rows logits, std::span<Sampled> out) {
  check_argmax(logits, out);
  for_rows(s, logits.rows, 8 * logits.cols, [&](std::int64_t i) {
    const float* x = row<float>(logits, i);
    // The largest value by lanes (a NaN in the first operand is dropped), then its first place.
    Vf best = set1(-std::numeric_limits<float>::infinity());
    std::int64_t j = 0;
    for (; j + kLanes <= logits.cols; j += kLanes) best = max(load(x + j), best);
    float top = max_lane(best);
    for (; j < logits.cols; ++j) top = x[j] > top ? x[j] : top;
    std::int64_t token = 0;
    while (token < logits.cols && x[token] != top) ++token;
    if (token == logits.cols) token = 0;  // only NaN

    Vf total = zero();
    for_lanes(logits.cols, [&](std::int64_t k, int n) {
      const Vf e = exp(sub(load_lanes(x + k, n), set1(x[token])));
      total = QUIRE_ISA::add(total, n == kLanes ? e : masked(e, n));
    });
    out[static_cast<std::size_t>(i)] = {static_cast<std::int32_t>(token), -std::log(sum(total))};
  });
}

}  // namespace quire::QUIRE_ISA
