// block_conv, add_conv_rms_norm: y[i, c] = sum_t (base[t, c] + chosen[i, t * groups + g]) x[i - t, c] (block_conv.h),
// the second with x += y and the norm behind it.
// Bytes: x, y and chosen once; base, and the rows before a row, from L2. Blocks are a few rows: the wall is the chain
// of latencies, so the second saves a launch.
// Plan: a thread has eight neighbouring channels of a row; block_conv: three blocks a row at D = 2560; the other: one.
// Precision: f32 from tap 0 on, one round; both give the same bits.
#include "ops/block_conv/block_conv.h"
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/norm/norm_row.cuh"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;

template <typename T>
struct Conv {
  const float* base;
  Matrix<T> chosen;
  const std::int32_t* first_row;
  int requests, taps, groups, width, cols;  // width: channels of a group
  bool base_aligned;

  // How many taps meet a row. Rows of nobody are a request of their own. By whole warps.
  __device__ int taps_of(int t) const {
    int first = 0;
    for (int r = threadIdx.x % 32; r <= requests; r += 32) {
      if (first_row[r] <= t) first = max(first, first_row[r]);
    }
    return min(taps, t - __reduce_max_sync(~0u, first) + 1);
  }

  // Channels c .. c + 7 of row t, not rounded.
  __device__ Eight<T> mix(const Matrix<T>& x, int t, int taps_here, int c, bool aligned) const {
    Eight<T> sum{};
    for (int tap = 0; tap < taps_here; ++tap) {
      const auto rows = Eight<T>::load(x.row(t - tap) + c, cols - c, aligned);
      const auto kernel = Eight<float>::load(base + std::int64_t{tap} * cols + c, cols - c, base_aligned);
      const T* own = chosen.row(t) + tap * groups;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (c + i >= cols) continue;
        const float weight = __fadd_rn(kernel.v[i], to_f32(own[(c + i) / width]));
        sum.v[i] = __fmaf_rn(weight, rows.v[i], sum.v[i]);
      }
    }
    return sum;
  }
};

template <typename T>
Conv<T> conv_for(const BlockConv& a, std::int64_t cols) {
  const auto taps = static_cast<int>(static_cast<std::int64_t>(a.base.size()) / cols);
  const int groups = static_cast<int>(a.chosen.cols) / taps, channels = static_cast<int>(cols);
  return {.base = a.base.data(),
          .chosen = matrix<T>(a.chosen),
          .first_row = a.requests.first_row,
          .requests = a.requests.count,
          .taps = taps,
          .groups = groups,
          .width = channels / groups,
          .cols = channels,
          .base_aligned = reinterpret_cast<std::uintptr_t>(a.base.data()) % 16 == 0 && cols % 4 == 0};
}

template <typename T>
__global__ void __launch_bounds__(kThreads) block_conv_kernel(Conv<T> conv, Matrix<T> x, Matrix<T> y, bool aligned) {
  const auto t = static_cast<int>(blockIdx.x), c = static_cast<int>(8 * (blockIdx.y * kThreads + threadIdx.x));
  const int taps = conv.taps_of(t);
  wait_for_predecessor();
  let_successor_start();
  if (c < conv.cols) conv.mix(x, t, taps, c, aligned).store(y.row(t) + c, conv.cols - c, aligned);
}

template <typename T, int kEights>
__global__ void __launch_bounds__(kRowThreads)
    add_conv_rms_norm_kernel(Conv<T> conv, Matrix<T> x, Matrix<T> r, const float* w, float eps, Matrix<T> y,
                             bool aligned) {
  const auto t = static_cast<int>(blockIdx.x);
  RowOf<float, kEights> weight;
  weight.load(w, conv.cols, reinterpret_cast<std::uintptr_t>(w) % 16 == 0);
  const int taps = conv.taps_of(t);
  wait_for_predecessor();
  let_successor_start();
  RowOf<T, kEights> row, mixed;
  row.load(x.row(t), conv.cols, aligned);
#pragma unroll
  for (int k = 0; k < kEights; ++k) {
    mixed.part[k] = conv.mix(r, t, taps, static_cast<int>(row.column(k)), aligned);
  }
  row.each([&](float value, int k, int i) {
    return round_to<T>(__fadd_rn(value, round_to<T>(mixed.part[k].v[i])));
  });
  row.store(x.row(t), aligned);
  rms_normalise(row, weight, eps);
  row.store(y.row(t), aligned);
}

}  // namespace

void block_conv(Stream& s, Rows x, const BlockConv& conv, Rows y) {
  check_block_conv(x, conv, y);
  if (x.rows == 0) return;
  const bool aligned = vectors_of(x) && vectors_of(y);
  const Grid grid{.blocks = dim3(static_cast<unsigned>(x.rows), blocks(x.cols, 8 * kThreads)), .threads = kThreads};
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "block_conv", grid, block_conv_kernel<T>, conv_for<T>(conv, x.cols), matrix<T>(x), matrix<T>(y), aligned);
  });
}

void add_conv_rms_norm(Stream& s, Rows x, Rows r, const BlockConv& conv, std::span<const float> w, float eps, Rows y) {
  check_add_conv_rms_norm(x, r, conv, w, y);
  if (x.rows == 0) return;
  const bool aligned = vectors_of(x) && vectors_of(r) && vectors_of(y);
  with_type(x.format, [&](auto t) {
    with_eights(x.cols, [&](auto eights) {
      using T = decltype(t);
      launch(s, "add_conv_rms_norm", {.blocks = blocks(x.rows, 1), .threads = kRowThreads},
             add_conv_rms_norm_kernel<T, eights()>, conv_for<T>(conv, x.cols), matrix<T>(x), matrix<T>(r), w.data(),
             eps, matrix<T>(y), aligned);
    });
  });
}

}  // namespace quire::cuda
