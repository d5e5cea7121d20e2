#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/gdn/gdn.h"

namespace quire {
namespace {

// The operands of value head h at row t.
struct Token {
  std::vector<float> q, k, v;  // [Ek], [Ek], [Ev]; q and k normalised, q scaled
  float g, beta;
};

std::vector<float> l2_normalised(const Rows& x, std::int64_t t, std::int64_t begin, std::int64_t width,
                                 double scale) {
  double sum = 0;
  for (std::int64_t e = 0; e < width; ++e) {
    const double v = load(x, t, begin + e);
    sum += v * v;
  }
  const double factor = scale / std::sqrt(sum + 1e-6);
  std::vector<float> y(width);
  for (std::int64_t e = 0; e < width; ++e) y[e] = static_cast<float>(load(x, t, begin + e) * factor);
  return y;
}

Token token(const GdnPrefill& a, std::int64_t t, std::int64_t h) {
  const std::int64_t Hk = a.shape.key_heads, Hv = a.shape.value_heads, Ek = a.shape.key_dim,
                     Ev = a.shape.value_dim;
  const std::int64_t key_head = h / (Hv / Hk);
  Token r;
  r.q = l2_normalised(a.qkv, t, key_head * Ek, Ek, 1 / std::sqrt(static_cast<double>(Ek)));
  r.k = l2_normalised(a.qkv, t, (Hk + key_head) * Ek, Ek, 1);
  for (std::int64_t e = 0; e < Ev; ++e) r.v.push_back(load(a.qkv, t, 2 * Hk * Ek + h * Ev + e));
  r.g = a.g[t * Hv + h];
  r.beta = a.beta[t * Hv + h];
  return r;
}

double dot(std::span<const float> x, std::span<const float> y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += double{x[i]} * y[i];
  return sum;
}

// (S^T x)[e] for a state [Ek, Ev].
double read(std::span<const float> S, std::span<const float> x, std::int64_t e) {
  const std::int64_t Ev = static_cast<std::int64_t>(S.size() / x.size());
  double sum = 0;
  for (std::size_t d = 0; d < x.size(); ++d) sum += double{S[d * Ev + e]} * x[d];
  return sum;
}

std::span<float> state_of(const GdnPrefill& a, std::int64_t h) {
  const auto size = static_cast<std::size_t>(a.shape.key_dim) * a.shape.value_dim;
  return a.state.subspan(h * size, size);
}

}  // namespace

void check_gdn_gates(const Rows& a, const Rows& b, std::span<const float> A_log,
                     std::span<const float> dt_bias, std::span<float> g, std::span<float> beta) {
  check_rows("gdn_gates", "a", a, a.rows, a.cols, a.format);
  check_rows("gdn_gates", "b", b, a.rows, a.cols, a.format);
  check_size("gdn_gates", "A_log", A_log.size(), a.cols);
  check_size("gdn_gates", "dt_bias", dt_bias.size(), a.cols);
  check_size("gdn_gates", "g", g.size(), a.rows * a.cols);
  check_size("gdn_gates", "beta", beta.size(), a.rows * a.cols);
}

void check_gdn_shape(const char* op, const GdnShape& s) {
  QUIRE_CHECK(s.key_heads > 0 && s.value_heads > 0 && s.value_heads % s.key_heads == 0,
              "{}: {} value heads are no multiple of {} key heads", op, s.value_heads, s.key_heads);
  QUIRE_CHECK(s.key_dim > 0 && s.value_dim > 0,
              "{}: key heads of {}, value heads of {}, expected positive sizes", op, s.key_dim, s.value_dim);
}

void check_gdn_prefill(const GdnPrefill& a) {
  const GdnShape& s = a.shape;
  const std::int64_t T = a.qkv.rows;
  check_gdn_shape("gdn_prefill", s);
  check_rows("gdn_prefill", "qkv", a.qkv, T, s.conv_cols(), a.qkv.format);
  check_rows("gdn_prefill", "out", a.out, T, s.value_cols(), a.qkv.format);
  check_size("gdn_prefill", "g", a.g.size(), T * s.value_heads);
  check_size("gdn_prefill", "beta", a.beta.size(), T * s.value_heads);
  check_size("gdn_prefill", "state", a.state.size(), s.state_floats());
}

void reference::gdn_gates(Stream&, Rows a, Rows b, std::span<const float> A_log,
                          std::span<const float> dt_bias, std::span<float> g, std::span<float> beta) {
  check_gdn_gates(a, b, A_log, dt_bias, g, beta);
  for (std::int64_t t = 0; t < a.rows; ++t)
    for (std::int64_t h = 0; h < a.cols; ++h) {
      const double x = double{load(a, t, h)} + dt_bias[h];
      const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
      g[t * a.cols + h] = static_cast<float>(-std::exp(double{A_log[h]}) * softplus);
      beta[t * a.cols + h] = static_cast<float>(1 / (1 + std::exp(-double{load(b, t, h)})));
    }
}

// The state is f32 after every token, so that a sequence may be cut anywhere.
void reference::gdn_recurrent(Stream&, const GdnPrefill& a) {
  check_gdn_prefill(a);
  const std::int64_t Ek = a.shape.key_dim, Ev = a.shape.value_dim;
  for (std::int64_t h = 0; h < a.shape.value_heads; ++h) {
    const std::span<float> S = state_of(a, h);
    for (std::int64_t t = 0; t < a.qkv.rows; ++t) {
      const Token x = token(a, t, h);
      const double decay = std::exp(double{x.g});
      for (std::int64_t e = 0; e < Ev; ++e) {
        const double delta = x.beta * (x.v[e] - decay * read(S, x.k, e));
        for (std::int64_t d = 0; d < Ek; ++d)
          S[d * Ev + e] = static_cast<float>(decay * S[d * Ev + e] + x.k[d] * delta);
        store(a.out, t, h * Ev + e, read(S, x.q, e));
      }
    }
  }
}

// With b the running sum of g inside the chunk and D_ij = exp(b_i - b_j):
//   delta_i = beta_i (v_i - e^{b_i} S^T k_i - sum_{j<i} D_ij (k_i . k_j) delta_j)
//   out_i   = e^{b_i} S^T q_i + sum_{j<=i} D_ij (q_i . k_j) delta_j
//   S       = e^{b_last} S + sum_j e^{b_last - b_j} k_j delta_j^T
void reference::gdn_chunked(Stream&, const GdnPrefill& a) {
  check_gdn_prefill(a);
  constexpr std::int64_t kChunk = 64;
  const std::int64_t Ek = a.shape.key_dim, Ev = a.shape.value_dim;
  for (std::int64_t h = 0; h < a.shape.value_heads; ++h) {
    const std::span<float> S = state_of(a, h);
    for (std::int64_t begin = 0; begin < a.qkv.rows; begin += kChunk) {
      const std::int64_t n = std::min(kChunk, a.qkv.rows - begin);
      std::vector<Token> x;
      std::vector<double> b;
      for (std::int64_t i = 0; i < n; ++i) {
        x.push_back(token(a, begin + i, h));
        b.push_back(x[i].g + (i == 0 ? 0 : b[i - 1]));
      }
      std::vector<double> kk(n * n), qk(n * n);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j <= i; ++j) {
          kk[i * n + j] = std::exp(b[i] - b[j]) * dot(x[i].k, x[j].k);
          qk[i * n + j] = std::exp(b[i] - b[j]) * dot(x[i].q, x[j].k);
        }
      std::vector<double> delta(n);
      for (std::int64_t e = 0; e < Ev; ++e) {  // the columns of S are independent
        for (std::int64_t i = 0; i < n; ++i) {
          double old = std::exp(b[i]) * read(S, x[i].k, e);
          for (std::int64_t j = 0; j < i; ++j) old += kk[i * n + j] * delta[j];
          delta[i] = x[i].beta * (x[i].v[e] - old);
          double out = std::exp(b[i]) * read(S, x[i].q, e);
          for (std::int64_t j = 0; j <= i; ++j) out += qk[i * n + j] * delta[j];
          store(a.out, begin + i, h * Ev + e, out);
        }
        for (std::int64_t d = 0; d < Ek; ++d) {
          double s = std::exp(b[n - 1]) * S[d * Ev + e];
          for (std::int64_t j = 0; j < n; ++j) s += std::exp(b[n - 1] - b[j]) * x[j].k[d] * delta[j];
          S[d * Ev + e] = static_cast<float>(s);
        }
      }
    }
  }
}

}  // namespace quire
