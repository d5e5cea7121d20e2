#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"
#include "ops/elementwise/elementwise.h"

namespace quire::QUIRE_ISA {

void add(Stream& s, Rows x, Rows y) {
  check_add(x, y);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    for_rows(s, x.rows, x.cols, [&](std::int64_t i) {
      T* a = row<T>(x, i);
      const T* b = row<T>(y, i);
      for_lanes(x.cols, [&](std::int64_t j, int n) {
        store_lanes(a + j, QUIRE_ISA::add(load_lanes(a + j, n), load_lanes(b + j, n)), n);
      });
    });
  });
}

void convert(Stream& s, Rows x, Rows y) {
  check_convert(x, y);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    with_type(y.format, [&](auto u) {
      using U = decltype(u);
      for_rows(s, x.rows, x.cols, [&](std::int64_t i) {
        const T* from = row<T>(x, i);
        U* to = row<U>(y, i);
        for_lanes(x.cols, [&](std::int64_t j, int n) { store_lanes(to + j, load_lanes(from + j, n), n); });
      });
    });
  });
}

void swiglu(Stream& s, Rows gate, Rows up, Rows y) {
  check_swiglu(gate, up, y);
  with_type(y.format, [&](auto t) {
    using T = decltype(t);
    for_rows(s, y.rows, 8 * y.cols, [&](std::int64_t i) {
      const T* g = row<T>(gate, i);
      const T* u = row<T>(up, i);
      T* out = row<T>(y, i);
      for_lanes(y.cols, [&](std::int64_t j, int n) {
        const Vf activated = round_to<T>(silu(load_lanes(g + j, n)));
        store_lanes(out + j, mul(activated, load_lanes(u + j, n)), n);
      });
    });
  });
}

void gelu(Stream& s, Rows x, Gelu kind) {
  check_gelu(x);
  const auto apply = [&](auto t, auto activation) {
    using T = decltype(t);
    for_rows(s, x.rows, 8 * x.cols, [&](std::int64_t i) {
      T* a = row<T>(x, i);
      for_lanes(x.cols,
                [&](std::int64_t j, int n) { store_lanes(a + j, activation(load_lanes(a + j, n)), n); });
    });
  };
  with_type(x.format, [&](auto t) {
    if (kind == Gelu::tanh) {
      apply(t, [](Vf v) { return gelu_tanh(v); });
    } else {
      apply(t, [](Vf v) { return gelu_erf(v); });
    }
  });
}

}  // namespace quire::QUIRE_ISA
