#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/check.h"
#include "ops/conv1d/conv1d.h"
#include "ops/element.h"

namespace quire {

void check_conv1d_silu(const Rows& x, std::span<const float> w, const Rows& state, const Rows& y) {
  const std::int64_t C = x.cols, taps = C > 0 ? static_cast<std::int64_t>(w.size()) / C : 0;
  QUIRE_CHECK(taps > 0, "conv1d_silu: {} weights for {} channels, expected a positive multiple", w.size(), C);
  check_rows("conv1d_silu", "x", x, x.rows, C, x.format);
  check_rows("conv1d_silu", "y", y, x.rows, C, x.format);
  check_size("conv1d_silu", "w", w.size(), C * taps);
  check_rows("conv1d_silu", "state", state, taps - 1, C, x.format);
}

void reference::conv1d_silu(Stream&, Rows x, std::span<const float> w, Rows state, Rows y) {
  check_conv1d_silu(x, w, state, y);
  const std::int64_t C = x.cols, W = static_cast<std::int64_t>(w.size()) / C;
  std::vector<float> history(W - 1 + x.rows);  // of one channel: the state's rows, then those of x
  for (std::int64_t c = 0; c < C; ++c) {
    for (std::int64_t j = 0; j < W - 1; ++j) history[j] = load(state, j, c);
    for (std::int64_t t = 0; t < x.rows; ++t) history[W - 1 + t] = load(x, t, c);
    for (std::int64_t t = 0; t < x.rows; ++t) {
      double sum = 0;
      for (std::int64_t j = 0; j < W; ++j) sum += double{w[c * W + j]} * history[t + j];
      store(y, t, c, sum / (1 + std::exp(-sum)));
    }
    for (std::int64_t j = 0; j < W - 1; ++j) store(state, j, c, history[x.rows + j]);
  }
}

}  // namespace quire
