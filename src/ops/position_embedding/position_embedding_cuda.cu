// add_position_embedding: one block a patch. The taps are those of position_embedding_cpu.cpp.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/position_embedding/position_embedding.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

struct Tap {
  std::int64_t low, high;
  float weight;  // of `high`
};

__device__ Tap tap(std::int64_t i, std::int64_t count, std::int64_t side) {
  const float step = __fdiv_rn(static_cast<float>(side - 1), static_cast<float>(count > 1 ? count - 1 : 1));
  const float at = __fmul_rn(static_cast<float>(i), step);
  const std::int64_t low = min(static_cast<std::int64_t>(at), side - 1);
  return {low, min(low + 1, side - 1), __fsub_rn(at, static_cast<float>(low))};
}

__device__ float mix(float a, float b, float weight) {
  return __fmaf_rn(b, weight, __fmul_rn(a, __fsub_rn(1.0f, weight)));
}

template <typename T, typename U>
__global__ void position_kernel(Matrix<T> x, const U* table, std::int64_t cols, std::int64_t side, int height,
                                int width, int merge) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t block = blockIdx.x / (merge * merge), inside = blockIdx.x % (merge * merge);
  const std::int64_t across = width / merge;
  const Tap r = tap(block / across * merge + inside / merge, height, side);
  const Tap c = tap(block % across * merge + inside % merge, width, side);
  const auto at = [&](std::int64_t row, std::int64_t col, std::int64_t j) {
    return to_f32(table[(row * side + col) * cols + j]);
  };
  T* out = x.row(blockIdx.x);
  for (std::int64_t j = threadIdx.x; j < cols; j += kThreads) {
    const float top = mix(at(r.low, c.low, j), at(r.low, c.high, j), c.weight);
    const float bottom = mix(at(r.high, c.low, j), at(r.high, c.high, j), c.weight);
    out[j] = from_f32<T>(__fadd_rn(to_f32(out[j]), mix(top, bottom, r.weight)));
  }
}

}  // namespace

void add_position_embedding(Stream& s, Rows x, const Weight& table, int grid_height, int grid_width, int merge) {
  check_add_position_embedding(x, table, grid_height, grid_width, merge);
  if (x.rows == 0) return;
  std::int64_t side = 1;
  while ((side + 1) * (side + 1) <= table.out) ++side;
  with_type(x.format, [&](auto t) {
    with_type(table.format, [&](auto u) {
      using T = decltype(t);
      using U = decltype(u);
      launch(s, "add_position_embedding", {.blocks = blocks(x.rows, 1), .threads = kThreads}, position_kernel<T, U>,
             matrix<T>(x), static_cast<const U*>(table.data), x.cols, side, grid_height, grid_width, merge);
    });
  });
}

}  // namespace quire::cuda
