#include <cmath>
#include <cstring>

#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"
#include "ops/rope/rope.h"

namespace quire::QUIRE_ISA {
namespace {

// The head `x` [E], normalised and rotated to `y`.
template <typename T>
void norm_rope_head(const T* x, const float* w, float eps, const float* cos, const float* sin,
                    std::int64_t half, std::int64_t head_dim, T* y) {
  Vf squares = zero();
  for_lanes(head_dim, [&](std::int64_t j, int n) {
    const Vf v = load_lanes(x + j, n);
    squares = fma(v, v, squares);
  });
  const Vf scale = set1(1.0f / std::sqrt(sum(squares) / static_cast<float>(head_dim) + eps));
  for_lanes(head_dim, [&](std::int64_t j, int n) {
    const Vf weight = QUIRE_ISA::add(set1(1.0f), load_lanes(w + j, n));
    store_lanes(y + j, mul(mul(load_lanes(x + j, n), scale), weight), n);
  });
  for_lanes(half, [&](std::int64_t j, int n) {
    const Vf a = load_lanes(y + j, n), b = load_lanes(y + half + j, n);
    const Vf c = load_lanes(cos + j, n), d = load_lanes(sin + j, n);
    store_lanes(y + j, sub(round_to<T>(mul(a, c)), round_to<T>(mul(b, d))), n);
    store_lanes(y + half + j, QUIRE_ISA::add(round_to<T>(mul(b, c)), round_to<T>(mul(a, d))), n);
  });
}

}  // namespace

// In double, a few thousand values a step: the reference is as fast as it needs to be.
void rotary(Stream& s, const Rotary& a) {
  reference::rotary(s, a);
}

void qk_norm_rope(Stream& s, const QkNormRope& a) {
  check_qk_norm_rope(a);
  check_kv_rows(a);
  if (a.q.rows == 0) return;
  const std::int64_t E = a.head_dim;
  const std::int64_t heads = a.q.cols / E, kv_heads = a.k.cols / E, query = a.gated ? 2 * E : E;
  const std::int64_t half = static_cast<std::int64_t>(a.cos.size()) / a.q.rows;
  with_type(a.q.format, [&](auto t) {
    using T = decltype(t);
    for_rows(s, a.q.rows, 4 * (a.q.cols + a.k.cols), [&](std::int64_t i) {
      const float* cos = a.cos.data() + i * half;
      const float* sin = a.sin.data() + i * half;
      for (std::int64_t h = 0; h < heads; ++h) {
        norm_rope_head(row<const T>(a.q_gate, i) + h * query, a.q_norm.data(), a.eps, cos, sin, half, E,
                       row<T>(a.q, i) + h * E);
      }
      const std::int64_t kept = a.kv_row[i];
      if (kept < 0) return;
      for (std::int64_t h = 0; h < kv_heads; ++h) {
        norm_rope_head(row<const T>(a.k, i) + h * E, a.k_norm.data(), a.eps, cos, sin, half, E,
                       row<T>(a.kv.k, kept) + h * E);
      }
      std::memcpy(row<T>(a.kv.v, kept), row<const T>(a.v, i), static_cast<std::size_t>(a.v.cols) * sizeof(T));
    });
  });
}

void join_kv(Stream& s, const JoinKv& a) {
  check_join_kv(a);
  for (const JoinKv::Layer& l : a.layers) qk_norm_rope(s, keys_alone(a, l));
}

void vision_rope(Stream& s, Rows qkv, int heads, std::span<const float> cos, std::span<const float> sin) {
  check_vision_rope(qkv, heads, cos, sin);
  const std::int64_t D = qkv.cols / 3, E = D / heads, half = E / 2;
  with_type(qkv.format, [&](auto t) {
    using T = decltype(t);
    for_rows(s, qkv.rows, 3 * D, [&](std::int64_t i) {
      const float* c = cos.data() + i * half;
      const float* d = sin.data() + i * half;
      for (std::int64_t h = 0; h < 2 * heads; ++h) {  // q, then k
        T* x = row<T>(qkv, i) + h * E;
        for_lanes(half, [&](std::int64_t j, int n) {
          const Vf a = load_lanes(x + j, n), b = load_lanes(x + half + j, n);
          const Vf vc = load_lanes(c + j, n), vd = load_lanes(d + j, n);
          store_lanes(x + j, fnma(b, vd, mul(a, vc)), n);
          store_lanes(x + half + j, fma(a, vd, mul(b, vc)), n);
        });
      }
    });
  });
}

}  // namespace quire::QUIRE_ISA
