// embed, scatter_rows: one block a row. Indices are in device memory and not checked here; the host knows them.
#include "ops/check.h"
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

template <typename U, typename T>
__global__ void embed_kernel(const std::int32_t* ids, const U* table, std::int64_t cols, Matrix<T> y) {
  wait_for_predecessor();
  let_successor_start();
  const U* from = table + ids[blockIdx.x] * cols;
  T* to = y.row(blockIdx.x);
  for (std::int64_t j = threadIdx.x; j < cols; j += kThreads) to[j] = from_f32<T>(to_f32(from[j]));
}

template <typename T>
__global__ void scatter_rows_kernel(Matrix<T> from, const std::int32_t* rows, std::int64_t cols, Matrix<T> x) {
  wait_for_predecessor();
  let_successor_start();
  const T* source = from.row(blockIdx.x);
  T* to = x.row(rows[blockIdx.x]);
  for (std::int64_t j = threadIdx.x; j < cols; j += kThreads) to[j] = source[j];
}

}  // namespace

void embed(Stream& s, std::span<const std::int32_t> ids, const Weight& table, Rows y) {
  check_weight("embed", "table", table);
  check_rows("embed", "y", y, static_cast<std::int64_t>(ids.size()), table.in, y.format);
  if (ids.empty()) return;
  with_type(table.format, [&](auto u) {
    with_type(y.format, [&](auto t) {
      using U = decltype(u);
      using T = decltype(t);
      launch(s, "embed", {.blocks = blocks(y.rows, 1), .threads = kThreads}, embed_kernel<U, T>, ids.data(),
             static_cast<const U*>(table.data), y.cols, matrix<T>(y));
    });
  });
}

void scatter_rows(Stream& s, Rows from, std::span<const std::int32_t> rows, Rows x) {
  if (rows.empty()) return;
  check_rows("scatter_rows", "from", from, static_cast<std::int64_t>(rows.size()), x.cols, x.format);
  check_rows("scatter_rows", "x", x, x.rows, x.cols, x.format);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "scatter_rows", {.blocks = blocks(from.rows, 1), .threads = kThreads}, scatter_rows_kernel<T>,
           matrix<T>(from), rows.data(), x.cols, matrix<T>(x));
  });
}

}  // namespace quire::cuda
