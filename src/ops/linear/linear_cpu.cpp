// y = x W^T + bias
// x [T, K] bf16 or f32, W [N, K] as stored, y [T, N]; summed in f32.
// Bytes: W once for a decode step (2 N K), the wall there; FLOP: 2 T N K, the wall from about 16 rows on.
// Plan: x is widened to f32 once; then tiles of kTileRows x 4 outputs from dot_tile.h, straight from the
// mapped weights: nothing is repacked, so a model costs its file and no more. Tasks are blocks of outputs
// whose weights stay in L1 and L2 while all rows pass. Precision: see dot_tile.h; one order of summation for
// each K.
#include "ops/cpu/dot_tile.h"
#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"
#include "ops/linear/linear.h"

namespace quire::QUIRE_ISA {
namespace {

struct Widened {
  const float* data;
  std::int64_t stride;
};

// x itself when it is f32, else a copy in the stream's scratch memory.
Widened widen(Stream& s, const Rows& x) {
  if (x.format == Format::f32) return {row<const float>(x, 0), x.stride};
  float* copy =
      reinterpret_cast<float*>(s.scratch_bytes(static_cast<std::size_t>(x.rows * x.cols) * sizeof(float)));
  for_rows(s, x.rows, x.cols,
           [&](std::int64_t i) { widen_row(row<const bf16>(x, i), x.cols, copy + i * x.cols); });
  return {copy, x.cols};
}

template <typename W, typename Y>
void linear_block(const Widened& x, const Weight& w, const float* bias, const Rows& y, std::int64_t row0,
                  std::int64_t rows, std::int64_t out0, std::int64_t outs) {
  const W* weights = static_cast<const W*>(w.data) + out0 * w.in;
  dot_block(x.data + row0 * x.stride, x.stride, rows, weights, w.in, outs, w.in,
            [&](std::int64_t i, std::int64_t j, __m128 sums, int n) {
              const __m128 b = bias ? load4(bias + out0 + j, n) : _mm_setzero_ps();
              store4(row<Y>(y, row0 + i) + out0 + j, _mm_add_ps(sums, b), n);
            });
}

}  // namespace

void linear(Stream& s, Rows x, const Weight& w, std::span<const float> bias, Rows y) {
  check_linear(x, w, bias, y);
  if (x.rows == 0) return;
  const Widened wide = widen(s, x);
  // Blocks of about 64 KB of weights; a decode step gets at least one block for each thread, of 4 outputs or
  // more.
  constexpr std::int64_t kBlockBytes = 65536, kBlockRows = 192;
  const std::int64_t by_size = kBlockBytes / (w.in * size_of(w.format));
  const std::int64_t by_threads = (w.out + s.threads->size() - 1) / s.threads->size();
  const std::int64_t outs = std::max<std::int64_t>(4, std::min(by_size, by_threads) / 4 * 4);
  const std::int64_t across = (w.out + outs - 1) / outs, down = (x.rows + kBlockRows - 1) / kBlockRows;
  const float* b = bias.empty() ? nullptr : bias.data();
  with_type(w.format, [&](auto tw) {
    with_type(y.format, [&](auto ty) {
      s.threads->parallel_for(across * down, [&](std::int64_t task, int) {
        const std::int64_t row0 = task / across * kBlockRows, out0 = task % across * outs;
        linear_block<decltype(tw), decltype(ty)>(wide, w, b, y, row0, std::min(kBlockRows, x.rows - row0),
                                                 out0, std::min(outs, w.out - out0));
      });
    });
  });
}

}  // namespace quire::QUIRE_ISA
