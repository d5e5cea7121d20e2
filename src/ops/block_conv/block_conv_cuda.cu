// block_conv, add_conv_rms_norm: y[i, c] = sum_t (base[t, c] + chosen[i, t * groups + g]) x[i - t, c] (block_conv.h),
// the second with x += y and the norm behind it.
// Bytes: x, y and chosen once; base, and the rows before a row, from L2. The wall is memory for many rows, the chain of
// latencies for few, so the second saves a launch.
// Plan: a block a row, eight neighbouring channels a thread. Of one or two taps (drafters have two) and groups of eights,
// base is loaded before the kernel before ends, and all rows are on their way before the first product; others go tap by
// tap.
// Precision: f32 from tap 0 on, one round; all give the same bits.
#include <algorithm>

#include "ops/block_conv/block_conv.h"
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/norm/norm_row.cuh"

namespace quire::cuda {
namespace {

constexpr int kFewTaps = 2;
// So few that a multiprocessor has four blocks of 320 threads, and all of 512 rows of 2560 are there at once.
template <typename T, typename Shape>
constexpr int kRegisters = Shape::kWhole && sizeof(T) == 2 ? 48 : 128;

template <typename T>
struct Conv {
  const float* base;
  Matrix<T> chosen;
  const std::int32_t* first_row;
  int requests, taps, groups, width, cols;  // width: channels of a group
  bool base_aligned, few;  // few: taps, and the eights of a thread are of one group

  // How many taps meet a row. Rows of nobody are a request of their own. By whole warps.
  __device__ int taps_of(int t) const {
    int first = 0;
#pragma unroll 1
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

// Eight channels of one group, with at most kFewTaps taps, in whole rows.
template <typename T>
struct FewTaps {
  const Conv<T>& conv;
  int c, group;
  Eight<float> base[kFewTaps];

  __device__ FewTaps(const Conv<T>& of, int channel) : conv(of), c(channel), group(channel / of.width) {
#pragma unroll
    for (int tap = 0; tap < kFewTaps; ++tap) {
      const float* at = conv.base + std::int64_t{tap} * conv.cols + c;
      base[tap] = Eight<float>::of(Packed<float>::load(at, tap < conv.taps && c < conv.cols));
    }
  }
  // As Conv::mix.
  __device__ Eight<T> mix(const Matrix<T>& x, int t, int taps_here) const {
    Packed<T> rows[kFewTaps];
    float own[kFewTaps];
#pragma unroll
    for (int tap = 0; tap < kFewTaps; ++tap) {
      const bool present = tap < taps_here && c < conv.cols;
      rows[tap] = Packed<T>::load(x.row(t - tap) + c, present);
      own[tap] = 0;
      if (present) own[tap] = to_f32(conv.chosen.row(t)[tap * conv.groups + group]);
    }
    Eight<T> sum{};
#pragma unroll
    for (int tap = 0; tap < kFewTaps; ++tap) {
      if (tap >= taps_here) break;
      const auto row = Eight<T>::of(rows[tap]);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum.v[i] = __fmaf_rn(__fadd_rn(base[tap].v[i], own[tap]), row.v[i], sum.v[i]);
    }
    return sum;
  }
};

template <typename T>
Conv<T> conv_for(const BlockConv& a, std::int64_t cols) {
  const auto taps = static_cast<int>(static_cast<std::int64_t>(a.base.size()) / cols);
  const int groups = static_cast<int>(a.chosen.cols) / taps, channels = static_cast<int>(cols);
  const bool base_aligned = aligned_to_vectors(a.base) && cols % 4 == 0;
  return {.base = a.base.data(),
          .chosen = matrix<T>(a.chosen),
          .first_row = a.requests.first_row,
          .requests = a.requests.count,
          .taps = taps,
          .groups = groups,
          .width = channels / groups,
          .cols = channels,
          .base_aligned = base_aligned,
          .few = base_aligned && taps <= kFewTaps && channels / groups % 8 == 0};
}

template <typename T, typename Shape>
__global__ void __maxnreg__((kRegisters<T, Shape>))
    block_conv_kernel(Conv<T> conv, Matrix<T> x, Matrix<T> y, bool aligned) {
  const auto t = static_cast<int>(blockIdx.x);
  const int taps = conv.taps_of(t);
  RowOf<T, Shape> mixed;
  mixed.cols = conv.cols;
  if constexpr (Shape::kWhole) {
    const FewTaps<T> few(conv, mixed.column(0));
    wait_for_predecessor();
    let_successor_start();
    mixed.part[0] = few.mix(x, t, taps);
    mixed.store(y.row(t), aligned);
  } else {
    wait_for_predecessor();
    let_successor_start();
    for (int k = 0; mixed.column(k) < conv.cols; ++k) {
      const int c = mixed.column(k);
      conv.mix(x, t, taps, c, aligned).store(y.row(t) + c, conv.cols - c, aligned);
    }
  }
}

template <typename T, typename Shape>
__global__ void __maxnreg__((kRegisters<T, Shape>))
    add_conv_rms_norm_kernel(Conv<T> conv, Matrix<T> x, Matrix<T> r, const float* w, float eps, Matrix<T> y,
                             bool aligned) {
  const auto t = static_cast<int>(blockIdx.x);
  RowOf<float, Shape> weight;
  RowOf<T, Shape> row, mixed;
  const int taps = conv.taps_of(t);
  if constexpr (Shape::kWhole) {
    const FewTaps<T> few(conv, row.column(0));
    wait_for_predecessor();
    let_successor_start();
    row.load(x.row(t), conv.cols, aligned);
    mixed.part[0] = few.mix(r, t, taps);
    weight.load(w, conv.cols, aligned);  // not before base has gone: registers are short
  } else {
    weight.load(w, conv.cols, aligned);
    wait_for_predecessor();
    let_successor_start();
    row.load(x.row(t), conv.cols, aligned);
#pragma unroll
    for (int k = 0; k < Shape::kEights; ++k) mixed.part[k] = conv.mix(r, t, taps, row.column(k), aligned);
  }
  mixed.round();
  row.each([&](float value, int k, int i) { return __fadd_rn(value, mixed.part[k].v[i]); });
  row.round();
  row.store(x.row(t), aligned);
  rms_normalise(row, weight, eps);
  row.store(y.row(t), aligned);
}

}  // namespace

void block_conv(Stream& s, Rows x, const BlockConv& conv, Rows y) {
  check_block_conv(x, conv, y);
  if (x.rows == 0) return;
  const bool aligned = vectors_of(x) && vectors_of(y);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    const Conv<T> taps = conv_for<T>(conv, x.cols);
    const std::int64_t cols = std::min<std::int64_t>(x.cols, 8 * kRowThreads);  // of a block at once
    with_row_shape(cols, aligned && taps.few && cols == x.cols, [&](auto shape, unsigned threads) {
      launch(s, "block_conv", {.blocks = blocks(x.rows, 1), .threads = threads}, block_conv_kernel<T, decltype(shape)>,
             taps, matrix<T>(x), matrix<T>(y), aligned);
    });
  });
}

void add_conv_rms_norm(Stream& s, Rows x, Rows r, const BlockConv& conv, std::span<const float> w, float eps, Rows y) {
  check_add_conv_rms_norm(x, r, conv, w, y);
  if (x.rows == 0) return;
  const bool aligned = vectors_of(x) && vectors_of(r) && vectors_of(y) && aligned_to_vectors(w);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    const Conv<T> taps = conv_for<T>(conv, x.cols);
    with_row_shape(x.cols, aligned && taps.few, [&](auto shape, unsigned threads) {
      launch(s, "add_conv_rms_norm", {.blocks = blocks(x.rows, 1), .threads = threads},
             add_conv_rms_norm_kernel<T, decltype(shape)>, taps, matrix<T>(x), matrix<T>(r), w.data(), eps, matrix<T>(y),
             aligned);
    });
  });
}

}  // namespace quire::cuda
