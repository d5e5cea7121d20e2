// y = x W^T + bias, for one weight or for several that meet the same x
// x [T, K] bf16 or f32, W [N, K] as stored, y [T, N]; summed in f32.
// Bytes: W once for a decode step (2 N K), the wall there; FLOP: 2 T N K, the wall from about 16 rows on.
// Plan: x is widened to f32 once; then tiles of kTileRows x 4 outputs from dot_tile.h, straight from the
// mapped weights: nothing is repacked, so a model costs its file and no more. Tasks are blocks of outputs
// whose weights stay in L1 and L2 while all rows pass. Precision: see dot_tile.h; one order of summation for
// each K.
#include <array>
#include <limits>

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

// One of the products of x, and where its tasks begin among those of all.
struct Part {
  const Weight* w;
  const float* bias;  // or nullptr
  Rows y;
  std::int64_t outs;  // of a task
  std::int64_t first_task = 0;
};

constexpr std::int64_t kBlockRows = 192;     // of x, of a task
constexpr std::int64_t kAheadBytes = 12288;  // weights are fetched so long before their turn

// Blocks of about 64 KB of weights; a decode step gets at least one block for each thread, of 4 outputs or
// more.
Part part_of(const Stream& s, const Weight& w, const float* bias, const Rows& y) {
  constexpr std::int64_t kBlockBytes = 65536;
  const std::int64_t by_size = kBlockBytes / (w.in * size_of(w.format));
  const std::int64_t by_threads = (w.out + s.threads->size() - 1) / s.threads->size();
  return {&w, bias, y, std::max<std::int64_t>(4, std::min(by_size, by_threads) / 4 * 4)};
}

std::int64_t tasks_across(const Part& p) {
  return (p.w->out + p.outs - 1) / p.outs;
}

template <typename W, typename Y>
void multiply_block(const Widened& x, const Part& p, std::int64_t row0, std::int64_t rows,
                    std::int64_t out0) {
  const Weight& w = *p.w;
  const W* weights = static_cast<const W*>(w.data) + out0 * w.in;
  const std::int64_t outs = std::min(p.outs, w.out - out0);
  const std::int64_t ahead = std::min(kAheadBytes / (w.in * size_of(w.format)) + 4, w.out - out0);
  const Next<W> next = {weights + ahead * w.in, w.out - out0 - ahead};
  dot_block(x.data + row0 * x.stride, x.stride, rows, weights, w.in, outs, w.in, next,
            [&](std::int64_t i, std::int64_t j, __m128 sums, int n) {
              const __m128 b = p.bias ? load4(p.bias + out0 + j, n) : _mm_setzero_ps();
              store4(row<Y>(p.y, row0 + i) + out0 + j, _mm_add_ps(sums, b), n);
            });
}

// The tasks of all parts in one parallel region.
void multiply(Stream& s, const Rows& x, std::span<Part> parts) {
  if (x.rows == 0) return;
  const Widened wide = widen(s, x);
  const std::int64_t down = (x.rows + kBlockRows - 1) / kBlockRows;
  std::int64_t tasks = 0;
  for (Part& p : parts) {
    p.first_task = tasks;
    tasks += tasks_across(p) * down;
  }
  s.threads->parallel_for(tasks, [&](std::int64_t task, int) {
    std::size_t i = parts.size() - 1;
    while (task < parts[i].first_task) --i;
    const Part& p = parts[i];
    const std::int64_t t = task - p.first_task, across = tasks_across(p), row0 = t / across * kBlockRows;
    with_type(p.w->format, [&](auto tw) {
      with_type(p.y.format, [&](auto ty) {
        multiply_block<decltype(tw), decltype(ty)>(wide, p, row0, std::min(kBlockRows, x.rows - row0),
                                                   t % across * p.outs);
      });
    });
  });
}

void find_maxima(Stream& s, const Projection& p) {
  for_rows(s, p.y.rows, p.y.cols, [&](std::int64_t i) {
    const float* y = row<const float>(p.y, i);
    for (std::int64_t group = 0; group < p.maxima.cols; ++group) {
      float largest = -std::numeric_limits<float>::infinity();
      const std::int64_t end = std::min(p.y.cols, (group + 1) * kMaximaColumns);
      for (std::int64_t o = group * kMaximaColumns; o < end; ++o) largest = y[o] > largest ? y[o] : largest;
      row<float>(p.maxima, i)[group] = largest;
    }
  });
}

}  // namespace

void linear(Stream& s, Rows x, const Weight& w, std::span<const float> bias, Rows y) {
  check_linear(x, w, bias, y);
  Part part = part_of(s, w, bias.empty() ? nullptr : bias.data(), y);
  multiply(s, x, {&part, 1});
}

void project(Stream& s, Rows x, std::span<const Projection> parts) {
  check_project(x, parts);
  std::array<Part, kMostProjections> all;
  for (std::size_t i = 0; i < parts.size(); ++i) all[i] = part_of(s, *parts[i].weight, nullptr, parts[i].y);
  multiply(s, x, std::span(all).first(parts.size()));
  for (const Projection& p : parts)
    if (p.maxima.data) find_maxima(s, p);
}

void project_swiglu(Stream& s, Rows x, const Weight& gate, const Weight& up, Rows spare, Rows y) {
  check_project_swiglu(x, gate, up, spare, y);
  const Projection parts[] = {{&gate, y}, {&up, spare}};
  project(s, x, parts);
  swiglu(s, y, spare, y);
}

}  // namespace quire::QUIRE_ISA
