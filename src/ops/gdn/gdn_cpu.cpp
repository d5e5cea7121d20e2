// Prompts by the gated delta rule, one thread a value head, all in f32.
//   S <- exp(g) S;  delta = beta (v - S^T k);  S <- S + k delta^T;  o = S^T q        (model-spec 2.4)
// Prefill: chunks of 64 tokens in WY form (model-spec 2.5): within a chunk the corrections U solve
//   (I + A) U = beta (V - e^b K S),  A_ij = beta_i e^(b_i - b_j) k_i . k_j  for i > j,
// then O = e^b Q S + (Q K^T e^(b_i - b_j), i >= j) U and S <- e^b_C S + (e^(b_C - b) K)^T U.
// FLOP a chunk and head: 2 C (C (2 Ek + 1.5 Ev) + 3 Ek Ev); the wall is FMA.
#include "ops/gdn/gdn_cpu.h"

#include <cmath>
#include <utility>

#include "ops/cpu/dot_tile.h"
#include "ops/cpu/entries.h"
#include "ops/gdn/gdn.h"

namespace quire::QUIRE_ISA {
namespace {

constexpr std::int64_t kChunk = 64;

// Scratch of one head's chunk.
struct Chunk {
  float *q, *k;    // [kChunk, Ek], normalised
  float *u, *o;    // [kChunk, Ev]
  float *kk, *qk;  // [kChunk, kChunk]: beta_i e^(b_i - b_j) k_i . k_j below the diagonal; e^(b_i - b_j) q_i .
                   // k_j on it too
  float *b, *decay;  // [kChunk]: log decay since the chunk's start, and e^b

  static std::int64_t floats(const GdnPrefill& a) {
    return kChunk * (2 * a.shape.key_dim + 2 * a.shape.value_dim + 2 * kChunk + 2);
  }
  Chunk(float* p, const GdnPrefill& a) {
    const auto take = [&p](std::int64_t n) { return std::exchange(p, p + n); };
    q = take(kChunk * a.shape.key_dim), k = take(kChunk * a.shape.key_dim);
    u = take(kChunk * a.shape.value_dim), o = take(kChunk * a.shape.value_dim);
    kk = take(kChunk * kChunk), qk = take(kChunk * kChunk);
    b = take(kChunk), decay = take(kChunk);
  }
};

// Tokens t0 .. t0+C-1 of value head h: loads, then the two decayed Gram matrices.
template <typename A>
void load_chunk(const GdnPrefill& a, std::int64_t h, std::int64_t t0, std::int64_t C, const Chunk& c) {
  const HeadColumns head(a.shape, h);
  const std::int64_t Ek = a.shape.key_dim;
  const float scale = 1.0f / std::sqrt(static_cast<float>(Ek));
  float b = 0;
  for (std::int64_t i = 0; i < C; ++i) {
    const A* x = row<const A>(a.qkv, t0 + i);
    l2_normalise(x + head.q, Ek, scale, c.q + i * Ek);
    l2_normalise(x + head.k, Ek, 1.0f, c.k + i * Ek);
    b += a.g[static_cast<std::size_t>((t0 + i) * a.shape.value_heads + h)];
    c.b[i] = b;
    c.decay[i] = std::exp(b);
  }
  const auto gram = [&](const float* left, float* out) {
    dot_block(left, Ek, C, c.k, Ek, C, Ek, {}, [&](std::int64_t i, std::int64_t j, __m128 sums, int n) {
      store4(out + i * kChunk + j, sums, n);
    });
  };
  gram(c.k, c.kk);
  gram(c.q, c.qk);
  for (std::int64_t i = 0; i < C; ++i) {
    const float beta = a.beta[static_cast<std::size_t>((t0 + i) * a.shape.value_heads + h)];
    for (std::int64_t j = 0; j <= i; ++j) {
      const float decay = std::exp(c.b[i] - c.b[j]);
      c.kk[i * kChunk + j] *= beta * decay;
      c.qk[i * kChunk + j] *= decay;
    }
  }
}

template <typename A>
void prefill_chunk(const GdnPrefill& a, std::int64_t h, std::int64_t t0, std::int64_t C, const Chunk& c) {
  load_chunk<A>(a, h, t0, C, c);
  const std::int64_t Ek = a.shape.key_dim, Ev = a.shape.value_dim;
  float* S = a.state.data() + h * Ek * Ev;
  const auto whole = [](std::int64_t n) { return [n](std::int64_t) { return n; }; };

  // U = beta (V - e^b K S), O = e^b Q S
  std::fill(c.u, c.u + C * Ev, 0.0f);
  std::fill(c.o, c.o + C * Ev, 0.0f);
  multiply_add(
      C, [&](std::int64_t i, std::int64_t k) { return c.k[i * Ek + k]; }, whole(Ek), S, Ev, c.u);
  multiply_add(
      C, [&](std::int64_t i, std::int64_t k) { return c.q[i * Ek + k]; }, whole(Ek), S, Ev, c.o);
  const std::int64_t v_column = HeadColumns(a.shape, h).v;
  for (std::int64_t i = 0; i < C; ++i) {
    const Vf decay = set1(c.decay[i]);
    const Vf beta = set1(a.beta[static_cast<std::size_t>((t0 + i) * a.shape.value_heads + h)]);
    const A* v = row<const A>(a.qkv, t0 + i) + v_column;
    for_lanes(Ev, [&](std::int64_t j, int n) {
      float *u = c.u + i * Ev + j, *o = c.o + i * Ev + j;
      store_lanes(u, mul(beta, fnma(decay, load_lanes(u, n), load_lanes(v + j, n))), n);
      store_lanes(o, mul(decay, load_lanes(o, n)), n);
    });
  }
  // Forward substitution: row i takes what the rows before it corrected.
  for (std::int64_t i = 1; i < C; ++i) {
    multiply_rows<1>(
        i, [&](std::int64_t r, std::int64_t j) { return -c.kk[r * kChunk + j]; }, whole(i), c.u, Ev, c.u);
  }
  multiply_add(
      C, [&](std::int64_t i, std::int64_t j) { return c.qk[i * kChunk + j]; },
      [](std::int64_t i) { return i + 1; }, c.u, Ev, c.o);
  for (std::int64_t i = 0; i < C; ++i) {
    A* out = row<A>(a.out, t0 + i) + h * Ev;
    for_lanes(Ev, [&](std::int64_t j, int n) { store_lanes(out + j, load_lanes(c.o + i * Ev + j, n), n); });
  }
  // S <- e^b_C S + (e^(b_C - b) K)^T U
  const Vf last = set1(c.decay[C - 1]);
  for_lanes(Ek * Ev, [&](std::int64_t j, int n) { store_lanes(S + j, mul(last, load_lanes(S + j, n)), n); });
  for (std::int64_t i = 0; i < C; ++i) {
    const Vf to_end = set1(std::exp(c.b[C - 1] - c.b[i]));
    for_lanes(Ek, [&](std::int64_t j, int n) {
      store_lanes(c.k + i * Ek + j, mul(to_end, load_lanes(c.k + i * Ek + j, n)), n);
    });
  }
  multiply_add(
      Ek, [&](std::int64_t k, std::int64_t i) { return c.k[i * Ek + k]; }, whole(C), c.u, Ev, S);
}

}  // namespace

void gdn_gates(Stream& s, Rows a, Rows b, std::span<const float> A_log, std::span<const float> dt_bias,
               std::span<float> g, std::span<float> beta) {
  check_gdn_gates(a, b, A_log, dt_bias, g, beta);
  with_type(a.format, [&](auto t) {
    using A = decltype(t);
    for_rows(s, a.rows, 64 * a.cols, [&](std::int64_t i) {
      for (std::int64_t h = 0; h < a.cols; ++h) {
        const auto at = static_cast<std::size_t>(i * a.cols + h), head = static_cast<std::size_t>(h);
        const float x = to_float(row<const A>(a, i)[h]) + dt_bias[head];
        const float softplus = x > 20.0f ? x : std::log1p(std::exp(x));
        g[at] = -std::exp(A_log[head]) * softplus;
        beta[at] = 1.0f / (1.0f + std::exp(-to_float(row<const A>(b, i)[h])));
      }
    });
  });
}

void gdn_prefill(Stream& s, const GdnPrefill& a) {
  check_gdn_prefill(a);
  const std::int64_t floats = Chunk::floats(a);
  float* scratch = reinterpret_cast<float*>(
      s.scratch_bytes(static_cast<std::size_t>(floats * s.threads->size()) * sizeof(float)));
  with_type(a.qkv.format, [&](auto t) {
    s.threads->parallel_for(a.shape.value_heads, [&](std::int64_t h, int worker) {
      const Chunk chunk(scratch + floats * worker, a);
      for (std::int64_t t0 = 0; t0 < a.qkv.rows; t0 += kChunk) {
        prefill_chunk<decltype(t)>(a, h, t0, std::min(kChunk, a.qkv.rows - t0), chunk);
      }
    });
  });
}

}  // namespace quire::QUIRE_ISA
