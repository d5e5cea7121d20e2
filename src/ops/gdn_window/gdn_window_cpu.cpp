// The rule of gdn.h, one thread a request and value head.
// Bytes of a token alone: the checkpoint once (64 KB a head at 128 x 128) and up to 31 records; FLOP: 4 Ek Ev
// and 4 (Ek + Ev) a record. The wall is memory. Plan: the window's q, k, v and the records that it may read
// lie in scratch as f32; both products with the checkpoint are one pass over it, value dim as lanes; the
// substitution goes token by token, value dim as lanes. Precision: everything f32 between the rounding points
// of the rule. A sum over Ek is one chain in order (the products, the fold) or the tree of dot_tile.h (the
// dots), whatever the window.
#include <cmath>
#include <utility>

#include "ops/cpu/dot_tile.h"
#include "ops/cpu/entries.h"
#include "ops/gdn/gdn.h"
#include "ops/gdn/gdn_cpu.h"

namespace quire::QUIRE_ISA {
namespace {

constexpr std::int64_t L = kGdnBlock;

std::int64_t ring_row(std::int64_t t) {
  return t % kGdnRing;
}

// Scratch of one request and head. Records are held by ring row.
struct Window {
  float *k, *u, *G;  // [kGdnRing] records: Ek, Ev, 1
  float *x, *h;    // [2 kMostWindow]: keys of the window and its queries, Ek; what the state says to them, Ev
  float *v, *o;    // [kMostWindow]: Ev
  float *kk, *qk;  // [kMostWindow, L]: dots with the records of the block
  float *y, *crossed;  // [L, Ev] of a fold; the state of a window's second block, [Ek, Ev]
  float *taps, *conv;  // [W] and 1 row of the widest head

  static std::int64_t floats(const GdnShape& s, std::int64_t W) {
    const std::int64_t widest = std::max(s.key_dim, s.value_dim);
    return kGdnRing * (s.key_dim + s.value_dim + 1) +
           2 * kMostWindow * (s.key_dim + s.value_dim + s.value_dim + L) + L * s.value_dim +
           s.key_dim * s.value_dim + (W + 1) * widest;
  }
  Window(float* p, const GdnShape& s, std::int64_t W) {
    const auto take = [&p](std::int64_t n) { return std::exchange(p, p + n); };
    k = take(kGdnRing * s.key_dim), u = take(kGdnRing * s.value_dim), G = take(kGdnRing);
    x = take(2 * kMostWindow * s.key_dim), h = take(2 * kMostWindow * s.value_dim);
    v = take(kMostWindow * s.value_dim), o = take(kMostWindow * s.value_dim);
    kk = take(kMostWindow * L), qk = take(kMostWindow * L);
    y = take(L * s.value_dim), crossed = take(s.key_dim * s.value_dim);
    taps = take(W * std::max(s.key_dim, s.value_dim)), conv = take(std::max(s.key_dim, s.value_dim));
  }
};

// One request in one value head. A: activations and k, U: ring_u.
template <typename A, typename U>
class Head {
 public:
  Head(const GdnWindow& a, const float* g, const float* beta, std::int64_t request, std::int64_t head,
       const Window& w)
      : a_(a),
        w_(w),
        columns_(a.shape, head),
        h_(head),
        slot_(a.requests.slot[request]),
        start_(a.generated[request]),
        previous_(a.previous[request]),
        first_row_(a.requests.first_row[request]),
        n_(a.requests.first_row[request + 1] - first_row_),
        g_(g),
        beta_(beta) {}

  void run() {
    float* C = a_.slots.state.data() + (slot_ * Hv_ + h_) * Ek_ * Ev_;
    load_records();
    load_tokens();
    if (previous_ / L < start_ / L) fold(previous_ / L, C);
    const std::int64_t boundary = std::min(start_ + n_, (start_ / L + 1) * L);
    solve(C, start_, boundary);
    if (boundary < start_ + n_) {
      std::copy(C, C + Ek_ * Ev_, w_.crossed);
      fold(start_ / L, w_.crossed);
      solve(w_.crossed, boundary, start_ + n_);
    }
    store_results();
  }

 private:
  A* ring_k(std::int64_t t) const {
    return row<A>(a_.slots.ring_k, slot_ * kGdnRing + ring_row(t)) + columns_.q;
  }
  U* ring_u(std::int64_t t) const {
    return row<U>(a_.slots.ring_u, slot_ * kGdnRing + ring_row(t)) + h_ * Ev_;
  }
  float& ring_g(std::int64_t t) const {
    return row<float>(a_.slots.ring_g, slot_ * kGdnRing + ring_row(t))[h_];
  }
  float* k(std::int64_t t) const { return w_.k + ring_row(t) * Ek_; }
  float* u(std::int64_t t) const { return w_.u + ring_row(t) * Ev_; }
  float G(std::int64_t t) const { return w_.G[ring_row(t)]; }

  void load_records() {
    for (std::int64_t t = previous_ / L * L; t < start_; ++t) {
      widen_row(ring_k(t), Ek_, k(t));
      widen_row(ring_u(t), Ev_, u(t));
      w_.G[ring_row(t)] = ring_g(t);
    }
  }

  // Columns begin .. begin+n-1 of every token after the convolution: use(i, y) with y in A. `keep`: this head
  // writes the rows before it to the ring; the heads of one key head share those of q and k.
  template <typename Use>
  void convolve(std::int64_t begin, std::int64_t n, bool keep, Use use) {
    const std::int64_t W = static_cast<std::int64_t>(a_.conv1d.size()) / a_.qkv.cols;
    const std::int64_t size = gdn_conv_rows(static_cast<int>(W));
    for (std::int64_t c = 0; c < n; ++c) {
      for (std::int64_t j = 0; j < W; ++j) {
        w_.taps[j * n + c] = a_.conv1d[static_cast<std::size_t>((begin + c) * W + j)];
      }
    }
    const auto kept = [&](std::int64_t t) {
      return row<A>(a_.slots.conv, slot_ * size + (t + W - 1) % size) + begin;
    };
    const auto given = [&](std::int64_t i) { return row<const A>(a_.qkv, first_row_ + i) + begin; };
    A* y = reinterpret_cast<A*>(w_.conv);
    for (std::int64_t i = 0; i < n_; ++i) {
      for_lanes(n, [&](std::int64_t c, int lanes) {
        Vf sum = zero();
        for (std::int64_t j = 0; j < W; ++j) {
          const std::int64_t from = i - (W - 1) + j;
          const A* x = from < 0 ? kept(start_ + from) : given(from);
          sum = fma(load_lanes(w_.taps + j * n + c, lanes), load_lanes(x + c, lanes), sum);
        }
        store_lanes(y + c, silu(sum), lanes);
      });
      use(i, y);
      if (keep) std::copy(given(i), given(i) + n, kept(start_ + i));
    }
  }

  void load_tokens() {
    const bool first = h_ % (Hv_ / a_.shape.key_heads) == 0;
    const auto rounded = [&](float* x) {
      for_lanes(Ek_,
                [&](std::int64_t c, int n) { store_lanes(x + c, round_to<A>(load_lanes(x + c, n)), n); });
    };
    convolve(columns_.k, Ek_, first, [&](std::int64_t i, const A* y) {
      l2_normalise(y, Ek_, 1.0f, w_.x + i * Ek_);
      rounded(w_.x + i * Ek_);
      std::copy(w_.x + i * Ek_, w_.x + (i + 1) * Ek_, k(start_ + i));
    });
    convolve(columns_.q, Ek_, first, [&](std::int64_t i, const A* y) {
      l2_normalise(y, Ek_, 1.0f / std::sqrt(static_cast<float>(Ek_)), w_.x + (n_ + i) * Ek_);
      rounded(w_.x + (n_ + i) * Ek_);
    });
    convolve(columns_.v, Ev_, true, [&](std::int64_t i, const A* y) { widen_row(y, Ev_, w_.v + i * Ev_); });
    for (std::int64_t t = start_; t < start_ + n_; ++t) {
      const float g = g_[(t - start_) * Hv_ + h_];
      w_.G[ring_row(t)] = t % L == 0 ? g : G(t - 1) + g;
    }
  }

  // C becomes the checkpoint of the block after `block`.
  void fold(std::int64_t block, float* C) const {
    const float c = G(block * L + L - 1);
    const Vf decay = set1(std::exp(c));
    for_lanes(Ek_ * Ev_,
              [&](std::int64_t j, int n) { store_lanes(C + j, mul(decay, load_lanes(C + j, n)), n); });
    for (std::int64_t j = 0; j < L; ++j) {
      const Vf to_end = set1(std::exp(c - G(block * L + j)));
      const float* from = u(block * L + j);
      for_lanes(Ev_, [&](std::int64_t e, int n) {
        store_lanes(w_.y + j * Ev_ + e, mul(to_end, load_lanes(from + e, n)), n);
      });
    }
    const float* keys = k(block * L);
    multiply_add(
        Ek_, [&](std::int64_t d, std::int64_t j) { return keys[j * Ek_ + d]; },
        [](std::int64_t) { return L; }, w_.y, Ev_, C);
  }

  // Tokens begin .. end-1, which are of one block, whose checkpoint is C.
  void solve(const float* C, std::int64_t begin, std::int64_t end) {
    const std::int64_t n = end - begin, at = begin - start_, block = begin / L * L;
    const auto x = [&](std::int64_t i) {
      return w_.x + (i < n ? at + i : n_ + at + i - n) * Ek_;
    };  // keys, queries
    std::fill(w_.h, w_.h + 2 * n * Ev_, 0.0f);
    multiply_state(2 * n, x, C);
    const auto dots = [&](const float* left, float* out) {
      dot_block(
          left, Ek_, n, k(block), Ek_, end - block, Ek_, {},
          [&](std::int64_t i, std::int64_t j, __m128 sums, int m) { store4(out + i * L + j, sums, m); });
    };
    dots(x(0), w_.kk);
    dots(x(n), w_.qk);
    for (std::int64_t i = 0; i < n; ++i)
      token(begin + i, w_.h + i * Ev_, w_.h + (n + i) * Ev_, w_.kk + i * L, w_.qk + i * L);
  }

  // h[i] += C^T x(i) in order of Ek, as many accumulators as the chain of one needs to keep the multipliers
  // busy.
  template <typename GetX>
  void multiply_state(std::int64_t rows, GetX x, const float* C) {
    std::int64_t i = 0;
    for (; i + 8 <= rows; i += 8) {
      multiply_rows<8>(
          i, [&](std::int64_t r, std::int64_t d) { return x(r)[d]; }, [&](std::int64_t) { return Ek_; }, C,
          Ev_, w_.h);
    }
    for (; i < rows; i += 2) multiply_pair(x(i), x(i + 1), C, w_.h + i * Ev_);
  }
  void multiply_pair(const float* x0, const float* x1, const float* C, float* h) const {
    constexpr int kWide = 4;
    std::int64_t e = 0;
    for (; e + kWide * kLanes <= Ev_; e += kWide * kLanes) {
      Vf acc[2][kWide];
      for (auto& a : acc) {
        for (Vf& v : a) v = zero();
      }
      for (std::int64_t d = 0; d < Ek_; ++d) {
        const Vf a = set1(x0[d]), b = set1(x1[d]);
        for (int j = 0; j < kWide; ++j) {
          const Vf c = load(C + d * Ev_ + e + j * kLanes);
          acc[0][j] = fma(a, c, acc[0][j]);
          acc[1][j] = fma(b, c, acc[1][j]);
        }
      }
      for (int j = 0; j < kWide; ++j) {
        store(h + e + j * kLanes, acc[0][j]);
        store(h + Ev_ + e + j * kLanes, acc[1][j]);
      }
    }
    for_lanes(Ev_ - e, [&](std::int64_t j, int n) {
      Vf a = zero(), b = zero();
      for (std::int64_t d = 0; d < Ek_; ++d) {
        const Vf c = load_lanes(C + d * Ev_ + e + j, n);
        a = fma(set1(x0[d]), c, a);
        b = fma(set1(x1[d]), c, b);
      }
      store_lanes(h + e + j, a, n);
      store_lanes(h + Ev_ + e + j, b, n);
    });
  }

  // The substitution of token t: its update and its output. kk and qk become a_j and f_j.
  void token(std::int64_t t, const float* hk, const float* hq, float* kk, float* qk) {
    const std::int64_t i = t - start_, block = t / L * L, n = t - block;
    const float beta = beta_[i * Hv_ + h_];
    for (std::int64_t j = 0; j <= n; ++j) {
      const float decay = std::exp(G(t) - G(block + j));
      kk[j] *= beta * decay;
      qk[j] *= decay;
    }
    const Vf decay = set1(std::exp(G(t)));
    for_lanes(Ev_, [&](std::int64_t e, int m) {
      Vf update = mul(set1(beta), fnma(decay, load_lanes(hk + e, m), load_lanes(w_.v + i * Ev_ + e, m)));
      Vf o = mul(decay, load_lanes(hq + e, m));
      for (std::int64_t j = 0; j < n; ++j) {
        const Vf past = load_lanes(u(block + j) + e, m);
        update = fnma(set1(kk[j]), past, update);
        o = fma(set1(qk[j]), past, o);
      }
      update = round_to<U>(update);
      store_lanes(u(t) + e, update, m);
      store_lanes(w_.o + i * Ev_ + e, fma(set1(qk[n]), update, o), m);
    });
  }

  void store_results() const {
    const bool first = h_ % (Hv_ / a_.shape.key_heads) == 0;
    const auto copy = [](const float* from, std::int64_t cols, auto* to) {
      for_lanes(cols, [&](std::int64_t j, int n) { store_lanes(to + j, load_lanes(from + j, n), n); });
    };
    for (std::int64_t i = 0; i < n_; ++i) {
      const std::int64_t t = start_ + i;
      if (first) copy(k(t), Ek_, ring_k(t));
      copy(u(t), Ev_, ring_u(t));
      ring_g(t) = G(t);
      copy(w_.o + i * Ev_, Ev_, row<A>(a_.out, first_row_ + i) + h_ * Ev_);
    }
  }

  const GdnWindow& a_;
  const Window& w_;
  const HeadColumns columns_;
  const std::int64_t h_, slot_, start_, previous_, first_row_, n_;
  const float *g_, *beta_;  // from the request's first row on, [n, Hv]
  const std::int64_t Hv_ = a_.shape.value_heads, Ek_ = a_.shape.key_dim, Ev_ = a_.shape.value_dim;
};

}  // namespace

void gdn_window(Stream& s, const GdnWindow& a) {
  check_gdn_window(a);
  check_gdn_requests(a);
  const Requests& r = a.requests;
  if (r.count == 0) return;
  const std::int64_t T = a.qkv.rows, Hv = a.shape.value_heads;
  const auto W = static_cast<std::int64_t>(a.conv1d.size()) / a.qkv.cols;
  const std::int64_t gates = T * Hv, floats = Window::floats(a.shape, W);
  float* g = reinterpret_cast<float*>(
      s.scratch_bytes(static_cast<std::size_t>(2 * gates + floats * s.threads->size()) * sizeof(float)));
  float *beta = g + gates, *scratch = beta + gates;
  const auto size = static_cast<std::size_t>(gates);
  gdn_gates(s, a.a, a.b, a.A_log, a.dt_bias, {g, size}, {beta, size});
  with_type(a.qkv.format, [&](auto t) {
    with_type(a.slots.ring_u.format, [&](auto u) {
      s.threads->parallel_for(r.count * Hv, [&](std::int64_t task, int worker) {
        const std::int64_t request = task / Hv, first = r.first_row[request] * Hv;
        if (r.first_row[request + 1] == r.first_row[request]) return;
        const Window window(scratch + floats * worker, a.shape, W);
        Head<decltype(t), decltype(u)>(a, g + first, beta + first, request, task % Hv, window).run();
      });
    });
  });
  const std::int64_t begin = r.first_row[0], rows = r.first_row[r.count] - begin;
  const Rows out = a.out.slice_rows(begin, rows);
  gated_rms_norm(s, out, a.z.slice_rows(begin, rows), a.norm, a.eps, out);
}

}  // namespace quire::QUIRE_ISA
