// The output gate: y[t, c] = x[t, c] sigmoid(gate), the gate of head h beside its queries.
// Shapes: x, y [T, H E], q_gate [T, H 2E], bf16 or f32.
//
// Bytes: x, gate and y once; the wall is memory, at few rows the launch.
//
// Plan: one thread an element.
//
// Precision: f32, the sigmoid and the product rounded.
#include "ops/attention/attention.h"
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T>
__global__ void attention_gate_kernel(Matrix<T> x, Matrix<T> q_gate, Matrix<T> y, std::int64_t rows, int cols,
                                      int head_dim) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= rows * cols) return;
  const std::int64_t t = i / cols;
  const int c = static_cast<int>(i % cols), head = c / head_dim;
  const float gate = to_f32(q_gate.row(t)[c + (head + 1) * head_dim]);
  y.row(t)[c] = from_f32<T>(__fmul_rn(to_f32(x.row(t)[c]), round_to<T>(sigmoid(gate))));
}

}  // namespace

void attention_gate(Stream& s, Rows x, Rows q_gate, int head_dim, Rows y) {
  check_attention_gate(x, q_gate, head_dim, y);
  if (x.rows == 0 || x.cols == 0) return;
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "attention_gate", {.blocks = blocks(x.rows * x.cols, kThreads), .threads = kThreads},
           attention_gate_kernel<T>, matrix<T>(x), matrix<T>(q_gate), matrix<T>(y), x.rows, static_cast<int>(x.cols),
           head_dim);
  });
}

}  // namespace quire::cuda
