// Walking rows of either format on all threads. Included only by *_cpu.cpp files (see simd.h).
#pragma once

#include <algorithm>

#include "core/thread_pool.h"
#include "ops/cpu/simd.h"
#include "ops/ops.h"

namespace quire::QUIRE_ISA {

// Calls body with a value of the element type: with_type(x.format, [&](auto t) { using T = decltype(t); ...
// }).
template <typename Body>
void with_type(Format format, Body body) {
  if (format == Format::bf16) {
    body(bf16{});
  } else {
    body(float{});
  }
}

template <typename T>
T* row(const Rows& x, std::int64_t i) {
  return static_cast<T*>(x.data) + i * x.stride;
}

// body(i) for each i in [0, rows), a row costing about `elements`: so many rows to a task that a task is
// worth its hand-over.
template <typename Body>
void for_rows(Stream& s, std::int64_t rows, std::int64_t elements, Body body) {
  constexpr std::int64_t kTask = 16384;  // elements
  const std::int64_t grain = std::max<std::int64_t>(1, kTask / std::max<std::int64_t>(1, elements));
  s.threads->parallel_for((rows + grain - 1) / grain, [&](std::int64_t task, int) {
    const std::int64_t end = std::min(rows, (task + 1) * grain);
    for (std::int64_t i = task * grain; i < end; ++i) body(i);
  });
}

// body(j, n): the lanes of [0, cols), n = kLanes but for the last. `load(p + j, n)` and `store` take such n.
template <typename Body>
inline void for_lanes(std::int64_t cols, Body body) {
  std::int64_t j = 0;
  for (; j + kLanes <= cols; j += kLanes) body(j, kLanes);
  if (j < cols) body(j, static_cast<int>(cols - j));
}

template <typename T>
inline Vf load_lanes(const T* p, int n) {
  return n == kLanes ? load(p) : load(p, n);
}
template <typename T>
inline void store_lanes(T* p, Vf x, int n) {
  if (n == kLanes) {
    store(p, x);
  } else {
    store(p, x, n);
  }
}

// x[0..cols) as f32.
template <typename T>
inline void widen_row(const T* x, std::int64_t cols, float* y) {
  for_lanes(cols, [&](std::int64_t j, int n) { store_lanes(y + j, load_lanes(x + j, n), n); });
}

}  // namespace quire::QUIRE_ISA
