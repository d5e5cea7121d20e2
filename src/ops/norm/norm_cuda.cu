// rms_norm, add_rms_norm, gated_rms_norm, layer_norm: one block a row (a warp a head, for the gated one).
// Bytes: each operand once; the wall is memory for many rows, the chain of latencies for few.
// Plan: a row stands in the registers of its block, eight columns a thread, weights loaded before the kernel before ends;
// a block has as many warps as the row needs, so that all of 512 rows are there at once. What a thread reads is on its
// way before it looks at any of it, and elements are rounded in pairs.
// Sums: a thread adds its elements in order, then a fixed tree (RowOf::sum), whatever the number of rows.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_row.cuh"

namespace quire::cuda {
namespace {

// kAdd: of sum = round(x + r), which may stand where x stood: a thread has read what it writes.
template <typename T, typename Shape, bool kAdd>
__global__ void __launch_bounds__(kRowThreads) rms_norm_kernel(Matrix<T> x, Matrix<T> r, Matrix<T> sum, const float* w,
                                                               float eps, int cols, Matrix<T> y, bool aligned) {
  RowOf<float, Shape> weight;
  weight.load(w, cols, aligned);
  wait_for_predecessor();
  let_successor_start();
  RowOf<T, Shape> row;
  row.load(x.row(blockIdx.x), cols, aligned);
  if constexpr (kAdd) {
    RowOf<T, Shape> more;
    more.load(r.row(blockIdx.x), cols, aligned);
    row.each([&](float value, int k, int i) { return __fadd_rn(value, more.part[k].v[i]); });
    row.round();
    row.store(sum.row(blockIdx.x), aligned);
  }
  rms_normalise(row, weight, eps);
  row.store(y.row(blockIdx.x), aligned);
}

template <typename T, typename Shape>
__global__ void __launch_bounds__(kRowThreads) layer_norm_kernel(Matrix<T> x, const float* w, const float* b, float eps,
                                                                 int cols, Matrix<T> y, bool aligned) {
  wait_for_predecessor();
  let_successor_start();
  RowOf<T, Shape> row;
  row.load(x.row(blockIdx.x), cols, aligned);
  const float mean = __fdiv_rn(row.template sum<0>([](float v) { return v; }), static_cast<float>(cols));
  row.each([&](float value, int k, int i) { return row.column(k) + i < cols ? __fsub_rn(value, mean) : 0.0f; });
  const float scale = inverse_root(row.template sum<1>([](float d) { return __fmul_rn(d, d); }), cols, eps);
  row.each([&](float d, int k, int i) {
    const int j = row.column(k) + i;
    return j < cols ? __fmaf_rn(__fmul_rn(d, scale), w[j], b[j]) : 0.0f;
  });
  row.store(y.row(blockIdx.x), aligned);
}

// A warp a head: heads of 128 would leave most of a block idle.
constexpr int kHeadsPerBlock = 4;

template <typename T>
__global__ void gated_rms_norm_kernel(Matrix<T> x, Matrix<T> z, const float* w, float eps, std::int64_t rows,
                                      std::int64_t heads, std::int64_t head_dim, Matrix<T> y) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t item = std::int64_t{blockIdx.x} * kHeadsPerBlock + threadIdx.x / 32;
  if (item >= rows * heads) return;
  const std::int64_t at = item % heads * head_dim;
  const T* a = x.row(item / heads) + at;
  const T* gate = z.row(item / heads) + at;
  T* out = y.row(item / heads) + at;
  const int lane = threadIdx.x % 32;
  float squares = 0;
  for (std::int64_t j = lane; j < head_dim; j += 32) squares = __fmaf_rn(to_f32(a[j]), to_f32(a[j]), squares);
  const float mean = __fdiv_rn(warp_sum(squares), static_cast<float>(head_dim));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, eps)));
  for (std::int64_t j = lane; j < head_dim; j += 32) {
    const float normed = __fmul_rn(w[j], __fmul_rn(to_f32(a[j]), scale));
    out[j] = from_f32<T>(__fmul_rn(normed, silu(to_f32(gate[j]))));
  }
}

}  // namespace

void rms_norm(Stream& s, Rows x, std::span<const float> w, float eps, Rows y) {
  check_rms_norm(x, w, y);
  if (x.rows == 0) return;
  const bool aligned = vectors_of(x) && vectors_of(y) && aligned_to_vectors(w);
  with_type(x.format, [&](auto t) {
    with_row_shape(x.cols, aligned, [&](auto shape, unsigned threads) {
      using T = decltype(t);
      launch(s, "rms_norm", {.blocks = blocks(x.rows, 1), .threads = threads}, rms_norm_kernel<T, decltype(shape), false>,
             matrix<T>(x), matrix<T>(x), matrix<T>(x), w.data(), eps, static_cast<int>(x.cols), matrix<T>(y), aligned);
    });
  });
}

void add_rms_norm(Stream& s, Rows x, Rows r, Rows sum, std::span<const float> w, float eps, Rows y) {
  check_add_rms_norm(x, r, sum, w, y);
  if (x.rows == 0) return;
  const bool aligned =
      vectors_of(x) && vectors_of(r) && vectors_of(sum) && vectors_of(y) && aligned_to_vectors(w);
  with_type(x.format, [&](auto t) {
    with_row_shape(x.cols, aligned, [&](auto shape, unsigned threads) {
      using T = decltype(t);
      launch(s, "add_rms_norm", {.blocks = blocks(x.rows, 1), .threads = threads},
             rms_norm_kernel<T, decltype(shape), true>, matrix<T>(x), matrix<T>(r), matrix<T>(sum), w.data(), eps,
             static_cast<int>(x.cols), matrix<T>(y), aligned);
    });
  });
}

void gated_rms_norm(Stream& s, Rows x, Rows z, std::span<const float> w, float eps, Rows y) {
  check_gated_rms_norm(x, z, w, y);
  if (x.rows == 0 || x.cols == 0) return;
  const auto head_dim = static_cast<std::int64_t>(w.size()), heads = x.cols / head_dim;
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    const Grid grid{.blocks = blocks(x.rows * heads, kHeadsPerBlock), .threads = 32 * kHeadsPerBlock};
    launch(s, "gated_rms_norm", grid, gated_rms_norm_kernel<T>, matrix<T>(x), matrix<T>(z), w.data(), eps, x.rows, heads,
           head_dim, matrix<T>(y));
  });
}

void layer_norm(Stream& s, Rows x, std::span<const float> w, std::span<const float> b, float eps, Rows y) {
  check_layer_norm(x, w, b, y);
  if (x.rows == 0) return;
  const bool aligned = vectors_of(x) && vectors_of(y);
  with_type(x.format, [&](auto t) {
    with_row_shape(x.cols, aligned, [&](auto shape, unsigned threads) {
      using T = decltype(t);
      launch(s, "layer_norm", {.blocks = blocks(x.rows, 1), .threads = threads}, layer_norm_kernel<T, decltype(shape)>,
             matrix<T>(x), w.data(), b.data(), eps, static_cast<int>(x.cols), matrix<T>(y), aligned);
    });
  });
}

}  // namespace quire::cuda
