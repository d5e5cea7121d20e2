// add, convert, swiglu: eight neighbouring elements a thread, all operands on their way before the first is looked at;
// gelu: one thread an element.
// Bytes: each operand once; the wall is memory.
#include <string>

#include "ops/cuda/common.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"
#include "ops/elementwise/elementwise.h"

namespace quire::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kFewItems = 32768, kMostItems = std::int64_t{1} << 31;

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

// body(row, column, count) for every eight of a [rows, cols] matrix, of which `count` at most are inside; a row has
// `eights` of them.
template <typename Body>
__global__ void __launch_bounds__(kThreads) eights_kernel(unsigned items, unsigned eights, std::int64_t cols, Body body) {
  const unsigned item = blockIdx.x * blockDim.x + threadIdx.x, row = item / eights;
  const std::int64_t column = 8 * static_cast<std::int64_t>(item - row * eights);
  wait_for_predecessor();
  let_successor_start();
  if (item < items) body(row, column, cols - column);
}

template <typename Body>
void for_eights(Stream& s, const Rows& x, const char* op, Body body) {
  if (x.rows == 0 || x.cols == 0) return;
  const std::int64_t eights = (x.cols + 7) / 8, items = x.rows * eights;
  if (items > kMostItems) {
    throw Error(ErrorCode::unsupported, std::string(op) + ": " + std::to_string(x.rows) + " rows of " +
                                            std::to_string(x.cols) + " columns; at most 2^34 elements on CUDA");
  }
  const unsigned threads = items < kFewItems ? kThreads / 4 : kThreads;  // few: on as many multiprocessors as can be
  launch(s, op, {.blocks = blocks(items, threads), .threads = threads}, eights_kernel<Body>,
         static_cast<unsigned>(items), static_cast<unsigned>(eights), x.cols, body);
}

// Two operands of eights: vectors where aligned, the second on its way before the first is looked at.
template <typename T>
__device__ void load_both(const T* a, const T* b, std::int64_t count, bool aligned, Eight<T>& x, Eight<T>& y) {
  if (aligned && count >= 8) {
    const auto first = Packed<T>::load(a, true), second = Packed<T>::load(b, true);
    x = Eight<T>::of(first), y = Eight<T>::of(second);
  } else {
    x = Eight<T>::load(a, count, false), y = Eight<T>::load(b, count, false);
  }
}

template <typename T>
struct Add {
  Matrix<T> x, y;
  bool aligned;
  __device__ void operator()(unsigned i, std::int64_t j, std::int64_t count) const {
    Eight<T> a, b;
    load_both(x.row(i) + j, y.row(i) + j, count, aligned, a, b);
#pragma unroll
    for (int k = 0; k < 8; ++k) a.v[k] = __fadd_rn(a.v[k], b.v[k]);
    a.store(x.row(i) + j, count, aligned);
  }
};

template <typename T, typename U>
struct Convert {
  Matrix<T> x;
  Matrix<U> y;
  bool aligned;
  __device__ void operator()(unsigned i, std::int64_t j, std::int64_t count) const {
    const auto a = Eight<T>::load(x.row(i) + j, count, aligned);
    Eight<U> b;
#pragma unroll
    for (int k = 0; k < 8; ++k) b.v[k] = a.v[k];
    b.store(y.row(i) + j, count, aligned);
  }
};

template <typename T>
struct Swiglu {
  Matrix<T> gate, up, y;
  bool aligned;
  __device__ void operator()(unsigned i, std::int64_t j, std::int64_t count) const {
    Eight<T> a, b;
    load_both(gate.row(i) + j, up.row(i) + j, count, aligned, a, b);
#pragma unroll
    for (int k = 0; k < 8; ++k) a.v[k] = silu(a.v[k]);
    a = a.rounded();
#pragma unroll
    for (int k = 0; k < 8; ++k) a.v[k] = __fmul_rn(a.v[k], b.v[k]);
    a.store(y.row(i) + j, count, aligned);
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

}  // namespace

void add(Stream& s, Rows x, Rows y) {
  check_add(x, y);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    for_eights(s, x, "add", Add<T>{matrix<T>(x), matrix<T>(y), vectors_of(x) && vectors_of(y)});
  });
}

void convert(Stream& s, Rows x, Rows y) {
  check_convert(x, y);
  with_type(x.format, [&](auto t) {
    with_type(y.format, [&](auto u) {
      using T = decltype(t);
      using U = decltype(u);
      for_eights(s, x, "convert", Convert<T, U>{matrix<T>(x), matrix<U>(y), vectors_of(x) && vectors_of(y)});
    });
  });
}

void swiglu(Stream& s, Rows gate, Rows up, Rows y) {
  check_swiglu(gate, up, y);
  const bool aligned = vectors_of(gate) && vectors_of(up) && vectors_of(y);
  with_type(y.format, [&](auto t) {
    using T = decltype(t);
    for_eights(s, y, "swiglu", Swiglu<T>{matrix<T>(gate), matrix<T>(up), matrix<T>(y), aligned});
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
