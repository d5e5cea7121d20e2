// rms_norm, add_rms_norm, gated_rms_norm, layer_norm: one block a row (a head, for the gated one).
// Bytes: each operand once; the wall is memory for many rows, the chain of latencies for few.
// Plan: a row stands in the registers of its block, eight columns a thread, weights loaded before the kernel before ends.
// Sums: a thread adds its elements in order, then the fixed tree of block_sum, whatever the number of rows.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_row.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = kRowThreads;

// kAdd: x = round(x + r) first.
template <typename T, int kEights, bool kAdd>
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(Matrix<T> x, Matrix<T> r, const float* w, float eps,
                                                            std::int64_t cols, Matrix<T> y, bool aligned) {
  RowOf<float, kEights> weight;
  weight.load(w, cols, reinterpret_cast<std::uintptr_t>(w) % 16 == 0);
  wait_for_predecessor();
  let_successor_start();
  T* at = x.row(blockIdx.x);
  RowOf<T, kEights> row;
  row.load(at, cols, aligned);
  if constexpr (kAdd) {
    RowOf<T, kEights> more;
    more.load(r.row(blockIdx.x), cols, aligned);
    row.each([&](float value, int k, int i) { return round_to<T>(__fadd_rn(value, more.part[k].v[i])); });
    row.store(at, aligned);
  }
  rms_normalise(row, weight, eps);
  row.store(y.row(blockIdx.x), aligned);
}

template <typename T, int kEights>
__global__ void __launch_bounds__(kThreads) layer_norm_kernel(Matrix<T> x, const float* w, const float* b, float eps,
                                                              std::int64_t cols, Matrix<T> y, bool aligned) {
  wait_for_predecessor();
  let_successor_start();
  RowOf<T, kEights> row;
  row.load(x.row(blockIdx.x), cols, aligned);
  const float mean = __fdiv_rn(row.sum([](float v) { return v; }), static_cast<float>(cols));
  const float scale = inverse_root(row.sum([=](float v) {
    const float d = __fsub_rn(v, mean);
    return __fmul_rn(d, d);
  }), cols, eps);
  row.each([&](float value, int k, int i) {
    const std::int64_t j = row.column(k) + i;
    return __fmaf_rn(__fmul_rn(__fsub_rn(value, mean), scale), w[j], b[j]);
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
  const bool aligned = vectors_of(x) && vectors_of(y);
  with_type(x.format, [&](auto t) {
    with_eights(x.cols, [&](auto eights) {
      using T = decltype(t);
      launch(s, "rms_norm", {.blocks = blocks(x.rows, 1), .threads = kThreads}, rms_norm_kernel<T, eights(), false>,
             matrix<T>(x), matrix<T>(x), w.data(), eps, x.cols, matrix<T>(y), aligned);
    });
  });
}

void add_rms_norm(Stream& s, Rows x, Rows r, std::span<const float> w, float eps, Rows y) {
  check_add_rms_norm(x, r, w, y);
  if (x.rows == 0) return;
  const bool aligned = vectors_of(x) && vectors_of(r) && vectors_of(y);
  with_type(x.format, [&](auto t) {
    with_eights(x.cols, [&](auto eights) {
      using T = decltype(t);
      launch(s, "add_rms_norm", {.blocks = blocks(x.rows, 1), .threads = kThreads}, rms_norm_kernel<T, eights(), true>,
             matrix<T>(x), matrix<T>(r), w.data(), eps, x.cols, matrix<T>(y), aligned);
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
    with_eights(x.cols, [&](auto eights) {
      using T = decltype(t);
      launch(s, "layer_norm", {.blocks = blocks(x.rows, 1), .threads = kThreads}, layer_norm_kernel<T, eights()>,
             matrix<T>(x), w.data(), b.data(), eps, x.cols, matrix<T>(y), aligned);
    });
  });
}

}  // namespace quire::cuda
