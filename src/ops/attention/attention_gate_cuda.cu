// The output gate: y[t, c] = x[t, c] sigmoid(gate), the gate of head h beside its queries. (attention_window
// applies gates in its own kernels.)
// Shapes: x, y [T, H E], q_gate [T, H 2E], bf16 or f32.
//
// Bytes: x, gate and y once; the wall is memory, at few rows the launch.
//
// Plan: eight neighbouring elements a thread, both operands on their way before the first is looked at; heads that are
// not made of aligned eights: one thread an element.
//
// Precision: f32, the sigmoid and the product rounded.
#include "ops/attention/attention.h"
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostItems = std::int64_t{1} << 31;

template <typename T>
__global__ void attention_gate_kernel(Matrix<T> x, Matrix<T> q_gate, Matrix<T> y, std::int64_t rows, int cols,
                                      int head_dim) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * cols) return;
  const std::int64_t t = i / cols;
  const int c = static_cast<int>(i % cols), head = c / head_dim;
  y.row(t)[c] = gate_value(x.row(t)[c], q_gate.row(t)[c + (head + 1) * head_dim]);
}

// The same for heads of aligned eights, of which a row has `eights`.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    attention_gate_eights_kernel(Matrix<T> x, Matrix<T> q_gate, Matrix<T> y, unsigned items, unsigned eights, int head_dim) {
  const unsigned item = blockIdx.x * kThreads + threadIdx.x, t = item / eights;
  const int c = static_cast<int>(8 * (item - t * eights)), head = c / head_dim;
  const bool inside = item < items;
  wait_for_predecessor();
  let_successor_start();
  const auto gate = Packed<T>::load(q_gate.row(t) + c + (head + 1) * head_dim, inside);
  auto out = Eight<T>::of(Packed<T>::load(x.row(t) + c, inside));
  auto factor = Eight<T>::of(gate);
#pragma unroll
  for (int i = 0; i < 8; ++i) factor.v[i] = sigmoid(factor.v[i]);
  factor = factor.rounded();
#pragma unroll
  for (int i = 0; i < 8; ++i) out.v[i] = __fmul_rn(out.v[i], factor.v[i]);
  if (inside) out.packed().store(y.row(t) + c);
}

}  // namespace

void attention_gate(Stream& s, Rows x, Rows q_gate, int head_dim, Rows y) {
  check_attention_gate(x, q_gate, head_dim, y);
  if (x.rows == 0 || x.cols == 0) return;
  const std::int64_t items = x.rows * (x.cols / 8);
  const bool eights = head_dim % 8 == 0 && vectors_of(x) && vectors_of(q_gate) && vectors_of(y) && items < kMostItems;
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    if (eights) {
      launch(s, "attention_gate", {.blocks = blocks(items, kThreads), .threads = kThreads},
             attention_gate_eights_kernel<T>, matrix<T>(x), matrix<T>(q_gate), matrix<T>(y),
             static_cast<unsigned>(items), static_cast<unsigned>(x.cols / 8), head_dim);
    } else {
      launch(s, "attention_gate", {.blocks = blocks(x.rows * x.cols, kThreads), .threads = kThreads},
             attention_gate_kernel<T>, matrix<T>(x), matrix<T>(q_gate), matrix<T>(y), x.rows, static_cast<int>(x.cols),
             head_dim);
    }
  });
}

}  // namespace quire::cuda
