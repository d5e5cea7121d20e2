// qk_norm_rope: a warp a head, norm and rotation in one pass. vision_rope: one thread a pair.
// Bytes: q_gate's query half, k twice, q once; the wall is memory.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/rope/rope.h"

namespace quire::cuda {
namespace {

constexpr int kHeadsPerBlock = 4, kThreads = 256;

template <typename T>
struct NormRope {
  Matrix<T> q_gate, k, q;
  const float *q_norm, *k_norm, *cos, *sin;
  std::int64_t rows, heads, kv_heads, head_dim, half;
  float eps;
};

template <typename T>
__global__ void qk_norm_rope_kernel(NormRope<T> a) {
  const std::int64_t per_row = a.heads + a.kv_heads;
  const std::int64_t item = std::int64_t{blockIdx.x} * kHeadsPerBlock + threadIdx.x / 32;
  if (item >= a.rows * per_row) return;
  const std::int64_t t = item / per_row, h = item % per_row;
  const bool is_query = h < a.heads;
  const T* x = is_query ? a.q_gate.row(t) + 2 * h * a.head_dim : a.k.row(t) + (h - a.heads) * a.head_dim;
  T* y = is_query ? a.q.row(t) + h * a.head_dim : a.k.row(t) + (h - a.heads) * a.head_dim;
  const float* w = is_query ? a.q_norm : a.k_norm;
  const int lane = threadIdx.x % 32;

  float squares = 0;
  for (std::int64_t j = lane; j < a.head_dim; j += 32) squares = __fmaf_rn(to_f32(x[j]), to_f32(x[j]), squares);
  const float mean = __fdiv_rn(warp_sum(squares), static_cast<float>(a.head_dim));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, a.eps)));
  const auto normed = [&](std::int64_t j) {
    return round_to<T>(__fmul_rn(__fmul_rn(to_f32(x[j]), scale), __fadd_rn(1.0f, w[j])));
  };
  // A lane writes only the elements that it alone reads, so k may be rotated in place.
  for (std::int64_t j = lane; j < a.half; j += 32) {
    const float u = normed(j), v = normed(a.half + j);
    const float c = a.cos[t * a.half + j], s = a.sin[t * a.half + j];
    y[j] = from_f32<T>(__fsub_rn(round_to<T>(__fmul_rn(u, c)), round_to<T>(__fmul_rn(v, s))));
    y[a.half + j] = from_f32<T>(__fadd_rn(round_to<T>(__fmul_rn(v, c)), round_to<T>(__fmul_rn(u, s))));
  }
  for (std::int64_t j = 2 * a.half + lane; j < a.head_dim; j += 32) y[j] = from_f32<T>(normed(j));
}

template <typename T>
__global__ void vision_rope_kernel(Matrix<T> qkv, const float* cos, const float* sin, std::int64_t rows,
                                   std::int64_t heads, std::int64_t half) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * 2 * heads * half) return;
  const std::int64_t j = i % half, h = i / half % (2 * heads), row = i / (half * 2 * heads);
  T* x = qkv.row(row) + h * 2 * half;  // q heads, then k heads
  const float a = to_f32(x[j]), b = to_f32(x[half + j]), c = cos[row * half + j], s = sin[row * half + j];
  x[j] = from_f32<T>(__fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s)));
  x[half + j] = from_f32<T>(__fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s)));
}

}  // namespace

void qk_norm_rope(Stream& s, const QkNormRope& a) {
  check_qk_norm_rope(a);
  if (a.q.rows == 0) return;
  const std::int64_t heads = a.q.cols / a.head_dim, kv_heads = a.k.cols / a.head_dim;
  const std::int64_t half = static_cast<std::int64_t>(a.cos.size()) / a.q.rows;
  with_type(a.q.format, [&](auto t) {
    using T = decltype(t);
    qk_norm_rope_kernel<<<blocks(a.q.rows * (heads + kv_heads), kHeadsPerBlock), 32 * kHeadsPerBlock, 0,
                          handle(s)>>>(NormRope<T>{matrix<T>(a.q_gate), matrix<T>(a.k), matrix<T>(a.q),
                                                   a.q_norm.data(), a.k_norm.data(), a.cos.data(), a.sin.data(),
                                                   a.q.rows, heads, kv_heads, a.head_dim, half, a.eps});
  });
  check_launch("qk_norm_rope");
}

void vision_rope(Stream& s, Rows qkv, int heads, std::span<const float> cos, std::span<const float> sin) {
  check_vision_rope(qkv, heads, cos, sin);
  if (qkv.rows == 0) return;
  const std::int64_t half = qkv.cols / 3 / heads / 2;
  with_type(qkv.format, [&](auto t) {
    using T = decltype(t);
    vision_rope_kernel<<<blocks(qkv.rows * 2 * heads * half, kThreads), kThreads, 0, handle(s)>>>(
        matrix<T>(qkv), cos.data(), sin.data(), qkv.rows, heads, half);
  });
  check_launch("vision_rope");
}

}  // namespace quire::cuda
