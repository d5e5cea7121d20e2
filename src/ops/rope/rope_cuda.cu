// The angles of the text decoder, its heads' norm and rotation on the way to the cache, the rotation of vision heads.
//   rotary: cos and sin of position x theta^(-2i/R);   n = x / rms(x) (1 + w);   (a, b) -> (a c - b s, b c + a s)
// Shapes: q_gate [T, 2 H E], k, v [T, G E] -> q [T, H E], rows of the pools; qkv [N, 3 D] in place; cos, sin [T, R/2].
//
// Bytes: every operand once; the wall is memory, at few rows the launch.
//
// Plan: rotary: a thread a value. qk_norm_rope: a warp a head of q, k or v, norm and rotation in one pass.
// vision_rope: a thread a pair.
//
// Precision: angles in double, rounded to f32 and then to A; norms in f32, n and the products of the rotation rounded.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/rope/rope.h"

namespace quire::cuda {
namespace {

constexpr int kHeadsPerBlock = 4, kThreads = 256;

struct Angles {
  const std::int32_t* position;
  float *cos, *sin;
  std::int64_t rows;
  int half, section_h, section_w;
  double theta;
  bool narrow;  // A is bf16
};

__global__ void rotary_kernel(const Angles a) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (item >= a.rows * a.half) return;
  const std::int64_t t = item / a.half;
  const int i = static_cast<int>(item % a.half);
  const int stream = rotary_stream(i, a.section_h, a.section_w);
  const double angle = a.position[stream * a.rows + t] * pow(a.theta, -2.0 * i / (2 * a.half));
  const float c = static_cast<float>(cos(angle)), s = static_cast<float>(sin(angle));
  a.cos[item] = a.narrow ? round_to<bfloat>(c) : c;
  a.sin[item] = a.narrow ? round_to<bfloat>(s) : s;
}

template <typename T>
struct NormRope {
  Matrix<T> q_gate, k, v, q, to_k, to_v;
  const std::int32_t* kv_row;
  const float *q_norm, *k_norm, *cos, *sin;
  std::int64_t rows, heads, kv_heads, head_dim, half, query;  // query: columns of q_gate from head to head
  float eps;
};

template <typename T>
__global__ void qk_norm_rope_kernel(const NormRope<T> a) {
  const std::int64_t per_row = a.heads + 2 * a.kv_heads;  // heads of q, then k, then v
  const std::int64_t item = std::int64_t{blockIdx.x} * kHeadsPerBlock + threadIdx.x / 32;
  wait_for_predecessor();
  let_successor_start();
  if (item >= a.rows * per_row) return;
  const std::int64_t t = item / per_row, h = item % per_row, kv_column = (h - a.heads) % a.kv_heads * a.head_dim;
  const int lane = threadIdx.x % 32;
  const bool is_query = h < a.heads;
  const std::int64_t kept = is_query ? 0 : a.kv_row[t];
  if (kept < 0) return;
  if (h >= a.heads + a.kv_heads) {
    const T* x = a.v.row(t) + kv_column;
    T* y = a.to_v.row(kept) + kv_column;
    for (std::int64_t j = lane; j < a.head_dim; j += 32) y[j] = x[j];
    return;
  }
  const T* x = is_query ? a.q_gate.row(t) + h * a.query : a.k.row(t) + kv_column;
  T* y = is_query ? a.q.row(t) + h * a.head_dim : a.to_k.row(kept) + kv_column;
  const float* w = is_query ? a.q_norm : a.k_norm;

  float squares = 0;
  for (std::int64_t j = lane; j < a.head_dim; j += 32) squares = __fmaf_rn(to_f32(x[j]), to_f32(x[j]), squares);
  const float mean = __fdiv_rn(warp_sum(squares), static_cast<float>(a.head_dim));
  const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, a.eps)));
  const auto normed = [&](std::int64_t j) {
    return round_to<T>(__fmul_rn(__fmul_rn(to_f32(x[j]), scale), __fadd_rn(1.0f, w[j])));
  };
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
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * 2 * heads * half) return;
  const std::int64_t j = i % half, h = i / half % (2 * heads), row = i / (half * 2 * heads);
  T* x = qkv.row(row) + h * 2 * half;  // q heads, then k heads
  const float a = to_f32(x[j]), b = to_f32(x[half + j]), c = cos[row * half + j], s = sin[row * half + j];
  x[j] = from_f32<T>(__fsub_rn(__fmul_rn(a, c), __fmul_rn(b, s)));
  x[half + j] = from_f32<T>(__fadd_rn(__fmul_rn(b, c), __fmul_rn(a, s)));
}

}  // namespace

void rotary(Stream& s, const Rotary& a) {
  check_rotary(a);
  const std::int64_t values = a.rows * (a.dims / 2);
  if (values == 0) return;
  launch(s, "rotary", {.blocks = blocks(values, kThreads), .threads = kThreads}, rotary_kernel,
         Angles{a.position, a.cos.data(), a.sin.data(), a.rows, a.dims / 2, a.section_h, a.section_w, a.theta,
                a.format == Format::bf16});
}

void qk_norm_rope(Stream& s, const QkNormRope& a) {
  check_qk_norm_rope(a);
  if (a.q.rows == 0) return;
  const std::int64_t heads = a.q.cols / a.head_dim, kv_heads = a.k.cols / a.head_dim;
  const std::int64_t half = static_cast<std::int64_t>(a.cos.size()) / a.q.rows;
  const unsigned grid = blocks(a.q.rows * (heads + 2 * kv_heads), kHeadsPerBlock);
  with_type(a.q.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "qk_norm_rope", {.blocks = grid, .threads = 32 * kHeadsPerBlock}, qk_norm_rope_kernel<T>,
           NormRope<T>{matrix<T>(a.q_gate), matrix<T>(a.k), matrix<T>(a.v), matrix<T>(a.q), matrix<T>(a.kv.k),
                       matrix<T>(a.kv.v), a.kv_row, a.q_norm.data(), a.k_norm.data(), a.cos.data(), a.sin.data(),
                       a.q.rows, heads, kv_heads, a.head_dim, half, a.gated ? 2 * a.head_dim : a.head_dim, a.eps});
  });
}

void vision_rope(Stream& s, Rows qkv, int heads, std::span<const float> cos, std::span<const float> sin) {
  check_vision_rope(qkv, heads, cos, sin);
  if (qkv.rows == 0) return;
  const std::int64_t half = qkv.cols / 3 / heads / 2;
  with_type(qkv.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "vision_rope", {.blocks = blocks(qkv.rows * 2 * heads * half, kThreads), .threads = kThreads},
           vision_rope_kernel<T>, matrix<T>(qkv), cos.data(), sin.data(), qkv.rows, heads, half);
  });
}

}  // namespace quire::cuda
