// embed, scatter_rows: one block a row, eight neighbouring elements a thread. Indices are in device memory and not checked
// here; the host knows them.
#include "ops/check.h"
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 512;  // at most

// to = round(from), by all threads of a block.
template <typename U, typename T>
__device__ void copy_row(const U* from, std::int64_t cols, T* to, bool aligned) {
  for (std::int64_t j = 8 * threadIdx.x; j < cols; j += 8 * blockDim.x) {
    const auto x = Eight<U>::load(from + j, cols - j, aligned);
    Eight<T> y;
#pragma unroll
    for (int i = 0; i < 8; ++i) y.v[i] = x.v[i];
    y.store(to + j, cols - j, aligned);
  }
}

template <typename U, typename T>
__global__ void embed_kernel(const std::int32_t* ids, const U* table, std::int64_t cols, Matrix<T> y, bool aligned) {
  wait_for_predecessor();
  let_successor_start();
  copy_row(table + ids[blockIdx.x] * cols, cols, y.row(blockIdx.x), aligned);
}

template <typename T>
__global__ void scatter_rows_kernel(Matrix<T> from, const std::int32_t* rows, std::int64_t cols, Matrix<T> x,
                                    bool aligned) {
  wait_for_predecessor();
  let_successor_start();
  copy_row(from.row(blockIdx.x), cols, x.row(rows[blockIdx.x]), aligned);
}

// Of a block with a row.
unsigned threads_for(std::int64_t cols) { return cols > 8 * kThreads ? kThreads : cols > 256 ? 32 * blocks(cols, 256) : 32; }

}  // namespace

void embed(Stream& s, std::span<const std::int32_t> ids, const Weight& table, Rows y) {
  check_weight("embed", "table", table);
  check_rows("embed", "y", y, static_cast<std::int64_t>(ids.size()), table.in, y.format);
  if (ids.empty()) return;
  with_type(table.format, [&](auto u) {
    with_type(y.format, [&](auto t) {
      using U = decltype(u);
      using T = decltype(t);
      const auto* rows = static_cast<const U*>(table.data);
      const bool aligned = reinterpret_cast<std::uintptr_t>(rows) % 16 == 0 && y.cols % 8 == 0 && vectors_of(y);
      launch(s, "embed", {.blocks = blocks(y.rows, 1), .threads = threads_for(y.cols)}, embed_kernel<U, T>, ids.data(),
             rows, y.cols, matrix<T>(y), aligned);
    });
  });
}

void scatter_rows(Stream& s, Rows from, std::span<const std::int32_t> rows, Rows x) {
  if (rows.empty()) return;
  check_rows("scatter_rows", "from", from, static_cast<std::int64_t>(rows.size()), x.cols, x.format);
  check_rows("scatter_rows", "x", x, x.rows, x.cols, x.format);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "scatter_rows", {.blocks = blocks(from.rows, 1), .threads = threads_for(x.cols)}, scatter_rows_kernel<T>,
           matrix<T>(from), rows.data(), x.cols, matrix<T>(x), vectors_of(from) && vectors_of(x));
  });
}

}  // namespace quire::cuda
