// A row is read twice, from L1 the second time. Bound by memory; not worth more.
#include <cmath>

#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"
#include "ops/norm/norm.h"

namespace quire::QUIRE_ISA {
namespace {

template <typename T>
float mean_square(const T* x, std::int64_t cols) {
  Vf squares = zero();
  for_lanes(cols, [&](std::int64_t j, int n) {
    const Vf v = load_lanes(x + j, n);
    squares = fma(v, v, squares);
  });
  return sum(squares) / static_cast<float>(cols);
}

template <typename T>
void rms_norm_row(const T* x, const float* w, float eps, std::int64_t cols, T* y) {
  const Vf scale = set1(1.0f / std::sqrt(mean_square(x, cols) + eps));
  for_lanes(cols, [&](std::int64_t j, int n) {
    const Vf weight = QUIRE_ISA::add(set1(1.0f), load_lanes(w + j, n));
    store_lanes(y + j, mul(mul(load_lanes(x + j, n), scale), weight), n);
  });
}

}  // namespace

void rms_norm(Stream& s, Rows x, std::span<const float> w, float eps, Rows y) {
  check_rms_norm(x, w, y);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    for_rows(s, x.rows, 2 * x.cols,
             [&](std::int64_t i) { rms_norm_row(row<T>(x, i), w.data(), eps, x.cols, row<T>(y, i)); });
  });
}

void add_rms_norm(Stream& s, Rows x, Rows r, Rows sum, std::span<const float> w, float eps, Rows y) {
  check_add_rms_norm(x, r, sum, w, y);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    for_rows(s, x.rows, 3 * x.cols, [&](std::int64_t i) {
      const T *a = row<T>(x, i), *b = row<T>(r, i);
      T* added = row<T>(sum, i);
      for_lanes(x.cols, [&](std::int64_t j, int n) {
        store_lanes(added + j, QUIRE_ISA::add(load_lanes(a + j, n), load_lanes(b + j, n)), n);
      });
      rms_norm_row(added, w.data(), eps, x.cols, row<T>(y, i));
    });
  });
}

void gated_rms_norm(Stream& s, Rows x, Rows z, std::span<const float> w, float eps, Rows y) {
  check_gated_rms_norm(x, z, w, y);
  const auto head = static_cast<std::int64_t>(w.size());
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    for_rows(s, x.rows, 8 * x.cols, [&](std::int64_t i) {
      for (std::int64_t h = 0; h < x.cols; h += head) {
        const T* a = row<T>(x, i) + h;
        const T* gate = row<T>(z, i) + h;
        T* out = row<T>(y, i) + h;
        const Vf scale = set1(1.0f / std::sqrt(mean_square(a, head) + eps));
        for_lanes(head, [&](std::int64_t j, int n) {
          const Vf normed = mul(load_lanes(w.data() + j, n), mul(load_lanes(a + j, n), scale));
          store_lanes(out + j, mul(normed, silu(load_lanes(gate + j, n))), n);
        });
      }
    });
  });
}

void layer_norm(Stream& s, Rows x, std::span<const float> w, std::span<const float> b, float eps, Rows y) {
  check_layer_norm(x, w, b, y);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    for_rows(s, x.rows, 3 * x.cols, [&](std::int64_t i) {
      const T* a = row<T>(x, i);
      T* out = row<T>(y, i);
      Vf total = zero();
      for_lanes(x.cols, [&](std::int64_t j, int n) { total = QUIRE_ISA::add(total, load_lanes(a + j, n)); });
      const float mean = sum(total) / static_cast<float>(x.cols);
      Vf squares = zero();
      for_lanes(x.cols, [&](std::int64_t j, int n) {
        // Lanes beyond the row must add nothing: they load 0, and the mean is loaded by the same mask.
        const Vf centre = n == kLanes ? set1(mean) : masked(set1(mean), n);
        const Vf d = sub(load_lanes(a + j, n), centre);
        squares = fma(d, d, squares);
      });
      const float scale = 1.0f / std::sqrt(sum(squares) / static_cast<float>(x.cols) + eps);
      for_lanes(x.cols, [&](std::int64_t j, int n) {
        const Vf normed = mul(sub(load_lanes(a + j, n), set1(mean)), set1(scale));
        store_lanes(out + j, fma(normed, load_lanes(w.data() + j, n), load_lanes(b.data() + j, n)), n);
      });
    });
  });
}

}  // namespace quire::QUIRE_ISA
