// rms_norm, add_rms_norm, gated_rms_norm, layer_norm: one block a row (a head, for the gated one).
// Bytes: each operand once, the second pass over a row comes from L1; the wall is memory.
// Sums: a thread adds its elements in order, then the fixed tree of block_sum, whatever the number of rows.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/norm/norm.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

// The sum over a row of f(column).
template <typename F>
__device__ float row_sum(std::int64_t cols, F f) {
  float sum = 0;
  for (std::int64_t j = threadIdx.x; j < cols; j += kThreads) sum = __fadd_rn(sum, f(j));
  return block_sum<kThreads>(sum);
}

template <typename T>
__device__ float root_mean_square_inverse(const T* x, std::int64_t cols, float eps) {
  const float squares = row_sum(cols, [=](std::int64_t j) { return __fmul_rn(to_f32(x[j]), to_f32(x[j])); });
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(squares, static_cast<float>(cols)), eps)));
}

template <typename T>
__device__ void rms_norm_row(const T* x, const float* w, float eps, std::int64_t cols, T* y) {
  const float scale = root_mean_square_inverse(x, cols, eps);
  for (std::int64_t j = threadIdx.x; j < cols; j += kThreads) {
    y[j] = from_f32<T>(__fmul_rn(__fmul_rn(to_f32(x[j]), scale), __fadd_rn(1.0f, w[j])));
  }
}

template <typename T>
__global__ void rms_norm_kernel(Matrix<T> x, const float* w, float eps, std::int64_t cols, Matrix<T> y) {
  wait_for_predecessor();
  let_successor_start();
  rms_norm_row(x.row(blockIdx.x), w, eps, cols, y.row(blockIdx.x));
}

template <typename T>
__global__ void add_rms_norm_kernel(Matrix<T> x, Matrix<T> r, const float* w, float eps, std::int64_t cols,
                                    Matrix<T> y) {
  wait_for_predecessor();
  let_successor_start();
  T* a = x.row(blockIdx.x);
  const T* b = r.row(blockIdx.x);
  // A thread reads back only what it wrote itself.
  for (std::int64_t j = threadIdx.x; j < cols; j += kThreads) {
    a[j] = from_f32<T>(__fadd_rn(to_f32(a[j]), to_f32(b[j])));
  }
  rms_norm_row(a, w, eps, cols, y.row(blockIdx.x));
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

template <typename T>
__global__ void layer_norm_kernel(Matrix<T> x, const float* w, const float* b, float eps, std::int64_t cols,
                                  Matrix<T> y) {
  wait_for_predecessor();
  let_successor_start();
  const T* a = x.row(blockIdx.x);
  T* out = y.row(blockIdx.x);
  const float mean = __fdiv_rn(row_sum(cols, [=](std::int64_t j) { return to_f32(a[j]); }), static_cast<float>(cols));
  const float squares = row_sum(cols, [=](std::int64_t j) {
    const float d = __fsub_rn(to_f32(a[j]), mean);
    return __fmul_rn(d, d);
  });
  const float variance = __fdiv_rn(squares, static_cast<float>(cols));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(variance, eps)));
  for (std::int64_t j = threadIdx.x; j < cols; j += kThreads) {
    out[j] = from_f32<T>(__fmaf_rn(__fmul_rn(__fsub_rn(to_f32(a[j]), mean), scale), w[j], b[j]));
  }
}

}  // namespace

void rms_norm(Stream& s, Rows x, std::span<const float> w, float eps, Rows y) {
  check_rms_norm(x, w, y);
  if (x.rows == 0) return;
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "rms_norm", {.blocks = blocks(x.rows, 1), .threads = kThreads}, rms_norm_kernel<T>, matrix<T>(x), w.data(),
           eps, x.cols, matrix<T>(y));
  });
}

void add_rms_norm(Stream& s, Rows x, Rows r, std::span<const float> w, float eps, Rows y) {
  check_add_rms_norm(x, r, w, y);
  if (x.rows == 0) return;
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "add_rms_norm", {.blocks = blocks(x.rows, 1), .threads = kThreads}, add_rms_norm_kernel<T>, matrix<T>(x),
           matrix<T>(r), w.data(), eps, x.cols, matrix<T>(y));
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
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "layer_norm", {.blocks = blocks(x.rows, 1), .threads = kThreads}, layer_norm_kernel<T>, matrix<T>(x),
           w.data(), b.data(), eps, x.cols, matrix<T>(y));
  });
}

}  // namespace quire::cuda
