// Channels are the lanes. The taps are transposed to [W, C] once a call, and the last W-1 rows are kept as
// f32.
#include "ops/conv1d/conv1d.h"
#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"

namespace quire::QUIRE_ISA {

void conv1d_silu(Stream& s, Rows x, std::span<const float> w, std::span<float> state, Rows y) {
  check_conv1d_silu(x, w, state, y);
  const std::int64_t T = x.rows, C = x.cols;
  if (T == 0 || C == 0) return;
  const std::int64_t W = static_cast<std::int64_t>(w.size()) / C, old = W - 1;
  float* taps =
      reinterpret_cast<float*>(s.scratch_bytes(static_cast<std::size_t>((W + old) * C) * sizeof(float)));
  float* next_state = taps + W * C;
  for (std::int64_t c = 0; c < C; ++c) {
    for (std::int64_t j = 0; j < W; ++j) taps[j * C + c] = w[static_cast<std::size_t>(c * W + j)];
  }
  with_type(x.format, [&](auto t) {
    using E = decltype(t);
    for_rows(s, T, 8 * C, [&](std::int64_t i) {
      E* out = row<E>(y, i);
      for_lanes(C, [&](std::int64_t c, int n) {
        Vf acc = zero();
        for (std::int64_t j = 0; j < W; ++j) {
          const std::int64_t from = i - old + j;
          const Vf v = from < 0 ? load_lanes(state.data() + (from + old) * C + c, n)
                                : load_lanes(row<E>(x, from) + c, n);
          acc = fma(load_lanes(taps + j * C + c, n), v, acc);
        }
        store_lanes(out + c, silu(acc), n);
      });
    });
    for (std::int64_t j = 0; j < old; ++j) {
      const std::int64_t from = T - old + j;
      for_lanes(C, [&](std::int64_t c, int n) {
        const Vf v = from < 0 ? load_lanes(state.data() + (from + old) * C + c, n)
                              : load_lanes(row<E>(x, from) + c, n);
        store_lanes(next_state + j * C + c, v, n);
      });
    }
  });
  std::copy(next_state, next_state + old * C, state.data());
}

}  // namespace quire::QUIRE_ISA
