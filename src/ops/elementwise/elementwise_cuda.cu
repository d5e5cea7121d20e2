// add, convert, swiglu, gelu: one thread an element.
// Bytes: each operand once; the wall is memory.
#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/elementwise/elementwise.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;

// element(row, column) for every element of a [rows, cols] matrix.
template <typename Element>
__global__ void elementwise_kernel(std::int64_t rows, std::int64_t cols, Element element) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t j = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (j >= cols) return;
  for (std::int64_t i = blockIdx.y; i < rows; i += gridDim.y) element(i, j);
}

template <typename Element>
void for_elements(Stream& s, const Rows& x, const char* op, Element element) {
  if (x.rows == 0 || x.cols == 0) return;
  constexpr std::int64_t kMostRows = 8192;  // of the grid
  const dim3 grid(blocks(x.cols, kThreads), static_cast<unsigned>(x.rows < kMostRows ? x.rows : kMostRows));
  launch(s, op, {.blocks = grid, .threads = kThreads}, elementwise_kernel<Element>, x.rows, x.cols, element);
}

template <typename T>
struct Add {
  Matrix<T> x, y;
  __device__ void operator()(std::int64_t i, std::int64_t j) const {
    x.row(i)[j] = from_f32<T>(__fadd_rn(to_f32(x.row(i)[j]), to_f32(y.row(i)[j])));
  }
};

template <typename T, typename U>
struct Convert {
  Matrix<T> x;
  Matrix<U> y;
  __device__ void operator()(std::int64_t i, std::int64_t j) const {
    y.row(i)[j] = from_f32<U>(to_f32(x.row(i)[j]));
  }
};

// x sigmoid(2u) = x / 2 (1 + tanh u), u = sqrt(2/pi) (x + 0.044715 x^3)
template <typename T>
struct GeluTanh {
  Matrix<T> x;
  __device__ void operator()(std::int64_t i, std::int64_t j) const {
    const float v = to_f32(x.row(i)[j]);
    const float u = __fmul_rn(1.595769122f, __fmaf_rn(0.044715f, __fmul_rn(__fmul_rn(v, v), v), v));
    x.row(i)[j] = from_f32<T>(__fmul_rn(v, sigmoid(u)));
  }
};

// x / 2 erfc(-x / sqrt 2): no cancellation for negative x.
template <typename T>
struct GeluErf {
  Matrix<T> x;
  __device__ void operator()(std::int64_t i, std::int64_t j) const {
    const float v = to_f32(x.row(i)[j]);
    x.row(i)[j] = from_f32<T>(__fmul_rn(__fmul_rn(0.5f, v), erfcf(__fmul_rn(-0.707106781f, v))));
  }
};

// Eight columns a thread, for it runs in every layer of a decode step.
template <typename T>
__global__ void swiglu_kernel(Matrix<T> gate, Matrix<T> up, Matrix<T> y, std::int64_t rows, std::int64_t cols,
                              bool aligned) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t j = 8 * (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x);
  if (j >= cols) return;
  for (std::int64_t i = blockIdx.y; i < rows; i += gridDim.y) {
    Eight<T> a = Eight<T>::load(gate.row(i) + j, cols - j, aligned);
    const Eight<T> b = Eight<T>::load(up.row(i) + j, cols - j, aligned);
#pragma unroll
    for (int k = 0; k < 8; ++k) a.v[k] = swiglu_of<T>(a.v[k], b.v[k]);
    a.store(y.row(i) + j, cols - j, aligned);
  }
}

}  // namespace

void add(Stream& s, Rows x, Rows y) {
  check_add(x, y);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    for_elements(s, x, "add", Add<T>{matrix<T>(x), matrix<T>(y)});
  });
}

void convert(Stream& s, Rows x, Rows y) {
  check_convert(x, y);
  with_type(x.format, [&](auto t) {
    with_type(y.format, [&](auto u) {
      using T = decltype(t);
      using U = decltype(u);
      for_elements(s, x, "convert", Convert<T, U>{matrix<T>(x), matrix<U>(y)});
    });
  });
}

void swiglu(Stream& s, Rows gate, Rows up, Rows y) {
  check_swiglu(gate, up, y);
  if (y.rows == 0 || y.cols == 0) return;
  constexpr unsigned kSwigluThreads = 64;
  constexpr std::int64_t kMostRows = 8192;  // of the grid
  const dim3 grid(blocks(y.cols, 8 * kSwigluThreads), static_cast<unsigned>(y.rows < kMostRows ? y.rows : kMostRows));
  const bool aligned = vectors_of(gate) && vectors_of(up) && vectors_of(y);
  with_type(y.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "swiglu", {.blocks = grid, .threads = kSwigluThreads}, swiglu_kernel<T>, matrix<T>(gate), matrix<T>(up),
           matrix<T>(y), y.rows, y.cols, aligned);
  });
}

void gelu(Stream& s, Rows x, Gelu kind) {
  check_gelu(x);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    if (kind == Gelu::tanh) {
      for_elements(s, x, "gelu", GeluTanh<T>{matrix<T>(x)});
    } else {
      for_elements(s, x, "gelu", GeluErf<T>{matrix<T>(x)});
    }
  });
}

}  // namespace quire::cuda
