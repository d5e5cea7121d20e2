// Channels are the lanes. The taps are transposed to [W, C] once a call.
#include "ops/conv1d/conv1d.h"
#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"

namespace quire::QUIRE_ISA {

void conv1d_silu(Stream& s, Rows x, std::span<const float> w, Rows state, Rows y) {
  check_conv1d_silu(x, w, state, y);
  const std::int64_t T = x.rows, C = x.cols;
  if (T == 0 || C == 0) return;
  const std::int64_t W = static_cast<std::int64_t>(w.size()) / C, old = W - 1;
  float* taps = reinterpret_cast<float*>(s.scratch_bytes(static_cast<std::size_t>(W * C) * sizeof(float)));
  for (std::int64_t c = 0; c < C; ++c) {
    for (std::int64_t j = 0; j < W; ++j) taps[j * C + c] = w[static_cast<std::size_t>(c * W + j)];
  }
  with_type(x.format, [&](auto t) {
    using E = decltype(t);
    const auto sample = [&](std::int64_t i) { return i < 0 ? row<E>(state, i + old) : row<E>(x, i); };
    for_rows(s, T, 8 * C, [&](std::int64_t i) {
      E* out = row<E>(y, i);
      for_lanes(C, [&](std::int64_t c, int n) {
        Vf acc = zero();
        for (std::int64_t j = 0; j < W; ++j) {
          acc = fma(load_lanes(taps + j * C + c, n), load_lanes(sample(i - old + j) + c, n), acc);
        }
        store_lanes(out + c, silu(acc), n);
      });
    });
    // Upwards: row j takes the place of row j + T, which has not been overwritten.
    for (std::int64_t j = 0; j < old; ++j) {
      const E* from = sample(T - old + j);
      std::copy(from, from + C, row<E>(state, j));
    }
  });
}

}  // namespace quire::QUIRE_ISA
