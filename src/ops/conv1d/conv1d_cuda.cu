// y[t] = silu(sum_j w[:, j] x[t - (W-1) + j]), x, y [T, C] and state [W-1, C] bf16 or f32, w [C, W] f32.
// Bytes: x and y once, w and state; five instructions an element for silu. The wall is memory.
// Plan: a thread is one channel and a run of rows, so that an element is loaded once and w once a run; the
// thread of a channel's first run reads all of its state, and is the only one: runs have at least W-1 rows.
// Precision: f32, taps in order 0 .. W-1, one round.
#include "ops/conv1d/conv1d.h"
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kRun = 16;  // rows

template <typename T>
struct Conv1d {
  Matrix<T> x, y, state;
  const float* w;
  std::int64_t rows, channels, taps, run;

  // Row t of channel c; rows before the first come from the state.
  __device__ float sample(std::int64_t t, std::int64_t c) const {
    return to_f32(t < 0 ? state.row(t + taps - 1)[c] : x.row(t)[c]);
  }
};

// Rows begin .. end-1 of channel c, the taps in registers, kAhead rows loaded before the first is needed.
template <int kTaps, typename T>
__device__ void convolve_fixed(const Conv1d<T>& a, std::int64_t c, std::int64_t begin, std::int64_t end) {
  constexpr int kAhead = 8, kOld = kTaps - 1;
  float w[kTaps], samples[kOld + kAhead];
#pragma unroll
  for (int j = 0; j < kTaps; ++j) w[j] = a.w[c * kTaps + j];
#pragma unroll
  for (int j = 0; j < kOld; ++j) samples[j] = a.sample(begin - kOld + j, c);
  for (std::int64_t t = begin; t < end; t += kAhead) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) samples[kOld + i] = t + i < end ? to_f32(a.x.row(t + i)[c]) : 0.0f;
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      float sum = 0;
#pragma unroll
      for (int j = 0; j < kTaps; ++j) sum = __fmaf_rn(w[j], samples[i + j], sum);
      if (t + i < end) a.y.row(t + i)[c] = from_f32<T>(silu(sum));
    }
#pragma unroll
    for (int j = 0; j < kOld; ++j) samples[j] = samples[kAhead + j];
  }
}

template <typename T>
__device__ void convolve_any(const Conv1d<T>& a, std::int64_t c, std::int64_t begin, std::int64_t end) {
  for (std::int64_t t = begin; t < end; ++t) {
    float sum = 0;
    for (std::int64_t j = 0; j < a.taps; ++j) {
      sum = __fmaf_rn(a.w[c * a.taps + j], a.sample(t - (a.taps - 1) + j, c), sum);
    }
    a.y.row(t)[c] = from_f32<T>(silu(sum));
  }
}

template <typename T, int kTaps>  // 0: any number of taps
__global__ void __launch_bounds__(kThreads) conv1d_kernel(Conv1d<T> a) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t c = std::int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (c >= a.channels) return;
  const std::int64_t begin = blockIdx.x * a.run;
  const std::int64_t end = begin + a.run < a.rows ? begin + a.run : a.rows;
  if constexpr (kTaps > 0) {
    convolve_fixed<kTaps>(a, c, begin, end);
  } else {
    convolve_any(a, c, begin, end);
  }
  if (begin > 0) return;
  // Row j takes the place of row j + rows: upwards, what is still to be read has not been overwritten.
  for (std::int64_t j = 0; j < a.taps - 1; ++j) {
    a.state.row(j)[c] = from_f32<T>(a.sample(a.rows - (a.taps - 1) + j, c));
  }
}

}  // namespace

void conv1d_silu(Stream& s, Rows x, std::span<const float> w, Rows state, Rows y) {
  check_conv1d_silu(x, w, state, y);
  if (x.rows == 0) return;
  const std::int64_t taps = static_cast<std::int64_t>(w.size()) / x.cols;
  const std::int64_t run = taps - 1 > kRun ? taps - 1 : kRun;
  const dim3 grid(blocks(x.rows, run), blocks(x.cols, kThreads));
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    const Conv1d<T> a{matrix<T>(x), matrix<T>(y), matrix<T>(state), w.data(), x.rows, x.cols, taps, run};
    launch(s, "conv1d_silu", {.blocks = grid, .threads = kThreads}, taps == 4 ? conv1d_kernel<T, 4> : conv1d_kernel<T, 0>,
           a);
  });
}

}  // namespace quire::cuda
