// The angles of the text decoder, its heads' norm and rotation on the way to the cache, the rotation of vision heads.
//   rotary: cos and sin of position x theta^(-2i/R);   n = x / rms(x) (1 + w);   (a, b) -> (a c - b s, b c + a s)
// Shapes: q_gate [T, 2 H E], k, v [T, G E] -> q [T, H E], rows of the pools; qkv [N, 3 D] in place; cos, sin [T, R/2].
//
// Bytes: every operand once; the wall is memory, at few rows the launch.
//
// Plan: rotary: a thread a value, whose frequency it has before the kernel before ends. qk_norm_rope: a block for the
// queries of a row and one for its keys and values, of each layer that join_kv has; a warp (of heads up to 128 half a
// one) has two heads at a time, eight neighbouring elements a lane, all on their way before the first is looked at; the
// lane with the other of a pair is asked by shuffles. Heads, norms or rotations that are not made of aligned eights: a
// warp a head, element by element. vision_rope: a thread a pair.
//
// Precision: angles in double, rounded to f32 and then to A; norms in f32, n and the products of the rotation rounded.
// Sums of squares: a lane adds eights 256 apart in order, then warp_sum; the same bits whichever kernel has the head.
#include <algorithm>

#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/rope/rope.h"

namespace quire::cuda {
namespace {

constexpr int kHeadsPerBlock = 4, kThreads = 256;
constexpr int kEach = 2;  // heads of a warp, or of half a one, at a time

struct Angles {
  const std::int32_t* position;
  float *cos, *sin;
  std::int64_t rows;
  int half, section_h, section_w;
  double theta;
  bool narrow;  // A is bf16
};

__global__ void rotary_kernel(const Angles a) {
  const std::int64_t item = std::int64_t{blockIdx.x} * kThreads + threadIdx.x, t = item / a.half;
  const int i = static_cast<int>(item % a.half);
  const int stream = rotary_stream(i, a.section_h, a.section_w);
  const double frequency = pow(a.theta, -2.0 * i / (2 * a.half));
  wait_for_predecessor();
  let_successor_start();
  if (item >= a.rows * a.half) return;
  const double angle = a.position[stream * a.rows + t] * frequency;
  const float c = static_cast<float>(cos(angle)), s = static_cast<float>(sin(angle));
  a.cos[item] = a.narrow ? round_to<bfloat>(c) : c;
  a.sin[item] = a.narrow ? round_to<bfloat>(s) : s;
}

// Of a layer.
template <typename T>
struct KeysValues {
  Matrix<T> k, v, to_k, to_v;
  const float* k_norm;
};

template <typename T>
struct NormRope {
  Matrix<T> q_gate, q;
  KeysValues<T> layers[kMostJoined];
  const std::int32_t* kv_row;
  const float *q_norm, *cos, *sin;
  std::int64_t rows, heads, kv_heads, head_dim, half, query;  // query: columns of q_gate from head to head
  float eps;
};

// 1 / sqrt(sum / n + eps)
__device__ float inverse_root(float sum, int n, float eps) {
  return __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(__fdiv_rn(sum, static_cast<float>(n)), eps)));
}

template <typename T>
__global__ void qk_norm_rope_kernel(const __grid_constant__ NormRope<T> a) {
  const KeysValues<T>& kv = a.layers[0];
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
    const T* x = kv.v.row(t) + kv_column;
    T* y = kv.to_v.row(kept) + kv_column;
    for (std::int64_t j = lane; j < a.head_dim; j += 32) y[j] = x[j];
    return;
  }
  const T* x = is_query ? a.q_gate.row(t) + h * a.query : kv.k.row(t) + kv_column;
  T* y = is_query ? a.q.row(t) + h * a.head_dim : kv.to_k.row(kept) + kv_column;
  const float* w = is_query ? a.q_norm : kv.k_norm;

  float squares = 0;
  for (std::int64_t j = 8 * lane; j < a.head_dim; j += 256) {
    for (std::int64_t i = j; i < min(j + 8, a.head_dim); ++i) squares = __fmaf_rn(to_f32(x[i]), to_f32(x[i]), squares);
  }
  const float scale = inverse_root(warp_sum(squares), static_cast<int>(a.head_dim), a.eps);
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

// Of a head that kLanes lanes have, eight elements each: normed, with weights that are offset already, and turned, with
// sines that have the sign of their element. Lanes below `across` have the first of pairs, as many after them the second.
template <typename T, int kLanes>
__device__ Packed<T> norm_rope(const Packed<T>& x, const Eight<float>& weight, const Eight<float>& cos,
                               const Eight<float>& sin, int E, float eps, int lane, int across) {
  auto y = Eight<T>::of(x);
  float squares = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) squares = __fmaf_rn(y.v[k], y.v[k], squares);
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    squares = __fadd_rn(squares, __shfl_xor_sync(~0u, squares, offset));
  }
  const float scale = inverse_root(squares, E, eps);
#pragma unroll
  for (int k = 0; k < 8; ++k) y.v[k] = __fmul_rn(__fmul_rn(y.v[k], scale), weight.v[k]);
  const Packed<T> normed = y.packed();
  y = Eight<T>::of(normed);

  Packed<T> out;
  constexpr int kWords = sizeof(out) / 4;
#pragma unroll
  for (int k = 0; k < kWords; ++k) {
    out.word[k] = __shfl_sync(~0u, normed.word[k], lane < across ? lane + across : lane - across, kLanes);
  }
  auto other = Eight<T>::of(out);
#pragma unroll
  for (int k = 0; k < 8; ++k) y.v[k] = __fmul_rn(y.v[k], cos.v[k]), other.v[k] = __fmul_rn(other.v[k], sin.v[k]);
  y = y.rounded(), other = other.rounded();
#pragma unroll
  for (int k = 0; k < 8; ++k) y.v[k] = __fadd_rn(y.v[k], other.v[k]);
  out = y.packed();
#pragma unroll
  for (int k = 0; k < kWords; ++k) out.word[k] = lane < 2 * across ? out.word[k] : normed.word[k];
  return out;
}

// The same for heads of up to 8 kLanes elements, all of it aligned eights. A block has a row, blockIdx.x, and of it the
// queries, or, where blockIdx.y + first_part is i > 0, keys and values of layer i - 1; heads go around its units of
// kLanes lanes.
template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 2 ? 4 : 2)
    qk_norm_rope_rows_kernel(const __grid_constant__ NormRope<T> a, int first_part) {
  constexpr int kPerWarp = 32 / kLanes;
  const int part = static_cast<int>(blockIdx.y) + first_part;
  const bool is_query = part == 0;
  const KeysValues<T>& kv = a.layers[is_query ? 0 : part - 1];
  const int t = blockIdx.x, E = static_cast<int>(a.head_dim), half = static_cast<int>(a.half);
  const int units = static_cast<int>(blockDim.x) / kLanes, unit = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = threadIdx.x % kLanes, c = 8 * lane;
  const int keys = static_cast<int>(a.kv_heads), heads = is_query ? static_cast<int>(a.heads) : 2 * keys;
  const bool inside = c < E, first = c < half, rotated = c < 2 * half;
  auto weight = Eight<float>::of(Packed<float>::load((is_query ? a.q_norm : kv.k_norm) + c, inside));
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t angles = std::int64_t{t} * half + (first ? c : c - half);
  const auto cos = Eight<float>::of(Packed<float>::load(a.cos + angles, rotated));
  auto sin = Eight<float>::of(Packed<float>::load(a.sin + angles, rotated));
  const int kept = is_query ? t : a.kv_row[t];  // looked at only to store, so that nothing waits for it

  // Whole warps go on or stop, for their lanes ask each other.
  for (int begin = unit - unit % kPerWarp; begin < heads; begin += kEach * units) {
    const int own = begin + unit % kPerWarp;
    Packed<T> x[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int h = own + i * units;
      const bool is_value = !is_query && h >= keys;
      const Matrix<T> from = is_query ? a.q_gate : is_value ? kv.v : kv.k;
      const int column = is_query ? h * static_cast<int>(a.query) : (is_value ? h - keys : h) * E;
      x[i] = Packed<T>::load(from.row(t) + column + c, inside && h < heads);
    }
    if (begin < units) {  // once: here, so that the loads of heads are on their way
#pragma unroll
      for (int k = 0; k < 8; ++k) weight.v[k] = __fadd_rn(1.0f, weight.v[k]), sin.v[k] = first ? -sin.v[k] : sin.v[k];
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (begin + i * units >= heads) break;
      const int h = own + i * units;
      const bool is_value = !is_query && h >= keys;
      Packed<T> y = norm_rope<T, kLanes>(x[i], weight, cos, sin, E, a.eps, lane, half / 8);
#pragma unroll
      for (int k = 0; k < static_cast<int>(sizeof(y) / 4); ++k) y.word[k] = is_value ? x[i].word[k] : y.word[k];
      const Matrix<T> to = is_query ? a.q : is_value ? kv.to_v : kv.to_k;
      if (inside && h < heads && kept >= 0) y.store(to.row(kept) + (is_value ? h - keys : h) * E + c);
    }
  }
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

template <typename T>
KeysValues<T> keys_values(const QkNormRope& a) {
  return {matrix<T>(a.k), matrix<T>(a.v), matrix<T>(a.kv.k), matrix<T>(a.kv.v), a.k_norm.data()};
}

// Of one layer.
template <typename T>
NormRope<T> norm_rope_of(const QkNormRope& a) {
  NormRope<T> n = {};
  n.q_gate = matrix<T>(a.q_gate), n.q = matrix<T>(a.q), n.layers[0] = keys_values<T>(a);
  n.kv_row = a.kv_row, n.q_norm = a.q_norm.data(), n.cos = a.cos.data(), n.sin = a.sin.data();
  n.rows = a.q.rows, n.heads = a.q.cols / a.head_dim, n.kv_heads = a.k.cols / a.head_dim;
  n.head_dim = a.head_dim, n.half = static_cast<std::int64_t>(a.cos.size()) / a.q.rows;
  n.query = a.gated ? 2 * a.head_dim : a.head_dim, n.eps = a.eps;
  return n;
}

// Whether heads, their norms and their angles are aligned eights, and a warp has all of a head.
bool in_eights(const QkNormRope& a) {
  const std::int64_t half = static_cast<std::int64_t>(a.cos.size()) / a.q.rows;
  bool aligned = a.head_dim <= 256 && a.head_dim % 8 == 0 && half % 8 == 0;
  for (const Rows& x : {a.q_gate, a.k, a.v, a.q, a.kv.k, a.kv.v}) aligned = aligned && vectors_of(x);
  for (const auto& x : {a.q_norm, a.k_norm, std::span<const float>(a.cos), std::span<const float>(a.sin)}) {
    aligned = aligned && reinterpret_cast<std::uintptr_t>(x.data()) % 16 == 0;
  }
  return aligned;
}

// Of rows in eights: the queries, if there are any, and keys and values of so many layers.
template <typename T>
void launch_rows(Stream& s, const NormRope<T>& a, int layers) {
  const std::int64_t lanes = a.head_dim > 128 ? 32 : 16, most = std::max(a.heads, 2 * a.kv_heads);
  const unsigned threads = std::min<unsigned>(kThreads, 32 * blocks(blocks(most, kEach) * lanes, 32));
  const int first_part = a.heads > 0 ? 0 : 1;
  const dim3 grid(static_cast<unsigned>(a.rows), static_cast<unsigned>(1 + layers - first_part));
  launch(s, "qk_norm_rope", {.blocks = grid, .threads = threads},
         lanes == 32 ? qk_norm_rope_rows_kernel<T, 32> : qk_norm_rope_rows_kernel<T, 16>, a, first_part);
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
  const bool eights = in_eights(a);
  with_type(a.q.format, [&](auto t) {
    using T = decltype(t);
    const NormRope<T> operands = norm_rope_of<T>(a);
    if (eights) return launch_rows(s, operands, 1);
    const unsigned grid = blocks(operands.rows * (operands.heads + 2 * operands.kv_heads), kHeadsPerBlock);
    launch(s, "qk_norm_rope", {.blocks = grid, .threads = 32 * kHeadsPerBlock}, qk_norm_rope_kernel<T>, operands);
  });
}

// In one kernel where all layers are in eights.
void join_kv(Stream& s, const JoinKv& a) {
  check_join_kv(a);
  if (a.layers.empty() || a.layers[0].k.rows == 0) return;
  bool eights = true;
  for (const JoinKv::Layer& l : a.layers) eights = eights && in_eights(keys_alone(a, l));
  if (!eights) {
    for (const JoinKv::Layer& l : a.layers) qk_norm_rope(s, keys_alone(a, l));
    return;
  }
  with_type(a.layers[0].k.format, [&](auto t) {
    using T = decltype(t);
    NormRope<T> operands = norm_rope_of<T>(keys_alone(a, a.layers[0]));
    for (std::size_t i = 1; i < a.layers.size(); ++i) operands.layers[i] = keys_values<T>(keys_alone(a, a.layers[i]));
    launch_rows(s, operands, static_cast<int>(a.layers.size()));
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
