// The rule of gdn.h, token by token. Every record is read back from the ring, also those of the same window.
#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/gdn/gdn.h"
#include "ops/norm/norm.h"

namespace quire {
namespace {

constexpr std::int64_t L = kGdnBlock;

// One request, in one value head.
class Head {
 public:
  Head(const GdnWindow& a, std::int64_t request, std::int64_t head)
      : a_(a),
        request_(request),
        h_(head),
        key_head_(head / (a.shape.value_heads / a.shape.key_heads)),
        slot_(a.requests.slot[request]) {}

  void run() {
    const std::int64_t first = a_.requests.first_row[request_],
                       rows = a_.requests.first_row[request_ + 1] - first;
    if (rows == 0) return;
    const std::int64_t start = a_.generated[request_];
    const std::span<float> stored =
        a_.slots.state.subspan(static_cast<std::size_t>((slot_ * a_.shape.value_heads + h_) * Ek_ * Ev_),
                               static_cast<std::size_t>(Ek_ * Ev_));
    std::vector<float> C(stored.begin(), stored.end());
    std::int64_t block = a_.previous[request_] / L;
    for (std::int64_t t = start; t < start + rows; ++t) {
      for (; block < t / L; ++block) fold(C, block);
      if (t == start) std::copy(C.begin(), C.end(), stored.begin());
      token(C, t, first + t - start);
    }
  }

 private:
  std::int64_t ring(std::int64_t t) const { return slot_ * kGdnRing + t % kGdnRing; }
  float k(std::int64_t t, std::int64_t d) const {
    return load(a_.slots.ring_k, ring(t), key_head_ * Ek_ + d);
  }
  float u(std::int64_t t, std::int64_t e) const { return load(a_.slots.ring_u, ring(t), h_ * Ev_ + e); }
  float G(std::int64_t t) const { return load(a_.slots.ring_g, ring(t), h_); }

  void fold(std::vector<float>& C, std::int64_t block) const {
    const double c = G(block * L + L - 1);
    for (std::int64_t d = 0; d < Ek_; ++d)
      for (std::int64_t e = 0; e < Ev_; ++e) {
        double sum = std::exp(c) * C[d * Ev_ + e];
        for (std::int64_t j = block * L; j < block * L + L; ++j)
          sum += k(j, d) * std::exp(c - G(j)) * u(j, e);
        C[d * Ev_ + e] = static_cast<float>(sum);
      }
  }

  // Channels begin .. begin+n-1 of token t after the convolution; its row before goes to the ring.
  std::vector<float> convolved(std::int64_t t, std::int64_t row, std::int64_t begin, std::int64_t n) const {
    const Rows& conv = a_.slots.conv;
    const std::int64_t W = static_cast<std::int64_t>(a_.conv1d.size()) / conv.cols,
                       size = gdn_conv_rows(static_cast<int>(W));
    std::vector<float> y;
    for (std::int64_t c = begin; c < begin + n; ++c) {
      store(conv, slot_ * size + (t + W - 1) % size, c, load(a_.qkv, row, c));
      double sum = 0;
      for (std::int64_t j = 0; j < W; ++j)
        sum += double{a_.conv1d[c * W + j]} * load(conv, slot_ * size + (t + j) % size, c);
      y.push_back(round_to(conv.format, sum / (1 + std::exp(-sum))));
    }
    return y;
  }

  std::vector<float> normalised(const std::vector<float>& x, double scale) const {
    double squares = 0;
    for (float v : x) squares += double{v} * v;
    std::vector<float> y;
    for (float v : x) y.push_back(round_to(a_.qkv.format, v * (scale / std::sqrt(squares + 1e-6))));
    return y;
  }

  // k_j . x
  double key_dot(std::int64_t j, const std::vector<float>& x) const {
    double sum = 0;
    for (std::int64_t d = 0; d < Ek_; ++d) sum += double{k(j, d)} * x[d];
    return sum;
  }

  void token(const std::vector<float>& C, std::int64_t t, std::int64_t row) const {
    const std::int64_t keys = a_.shape.key_cols();
    const std::vector<float> q =
        normalised(convolved(t, row, key_head_ * Ek_, Ek_), 1 / std::sqrt(double(Ek_)));
    const std::vector<float> key = normalised(convolved(t, row, keys + key_head_ * Ek_, Ek_), 1);
    const std::vector<float> v = convolved(t, row, 2 * keys + h_ * Ev_, Ev_);
    for (std::int64_t d = 0; d < Ek_; ++d) store(a_.slots.ring_k, ring(t), key_head_ * Ek_ + d, key[d]);

    const double x = double{load(a_.a, row, h_)} + a_.dt_bias[h_];
    const auto g = static_cast<float>(-std::exp(double{a_.A_log[h_]}) *
                                      (std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)))));
    const auto beta = static_cast<float>(1 / (1 + std::exp(-double{load(a_.b, row, h_)})));
    store(a_.slots.ring_g, ring(t), h_, t % L == 0 ? g : G(t - 1) + g);

    std::vector<double> f;  // of the records of the block, this one too
    std::vector<double> a;
    for (std::int64_t j = t / L * L; j <= t; ++j) {
      const double decay = std::exp(double{G(t)} - G(j));
      f.push_back(decay * key_dot(j, q));
      a.push_back(beta * decay * key_dot(j, key));
    }
    std::vector<float> out(Ev_);
    for (std::int64_t e = 0; e < Ev_; ++e) {
      double hk = 0, hq = 0;
      for (std::int64_t d = 0; d < Ek_; ++d) {
        hk += double{C[d * Ev_ + e]} * key[d];
        hq += double{C[d * Ev_ + e]} * q[d];
      }
      double update = beta * (v[e] - std::exp(double{G(t)}) * hk), o = std::exp(double{G(t)}) * hq;
      for (std::int64_t j = t / L * L; j < t; ++j) {
        update -= a[j % L] * u(j, e);
        o += f[j % L] * u(j, e);
      }
      store(a_.slots.ring_u, ring(t), h_ * Ev_ + e, update);
      store(a_.out, row, h_ * Ev_ + e, o + f[t % L] * u(t, e));
    }
  }

  const GdnWindow& a_;
  const std::int64_t request_, h_, key_head_, slot_;
  const std::int64_t Ek_ = a_.shape.key_dim, Ev_ = a_.shape.value_dim;
};

}  // namespace

void check_gdn_window(const GdnWindow& a) {
  const GdnShape& s = a.shape;
  const std::int64_t T = a.qkv.rows, C = s.conv_cols(), Hv = s.value_heads;
  const Format A = a.qkv.format;
  check_gdn_shape("gdn_window", s);
  check_rows("gdn_window", "qkv", a.qkv, T, C, A);
  check_rows("gdn_window", "z", a.z, T, s.value_cols(), A);
  check_rows("gdn_window", "a", a.a, T, Hv, A);
  check_rows("gdn_window", "b", a.b, T, Hv, A);
  check_rows("gdn_window", "out", a.out, T, s.value_cols(), A);
  const std::int64_t taps = static_cast<std::int64_t>(a.conv1d.size()) / C;
  QUIRE_CHECK(taps > 0,
              "gdn_window: {} weights of the convolution for {} channels, expected a positive multiple",
              a.conv1d.size(), C);
  check_size("gdn_window", "conv1d", a.conv1d.size(), C * taps);
  check_size("gdn_window", "A_log", a.A_log.size(), Hv);
  check_size("gdn_window", "dt_bias", a.dt_bias.size(), Hv);
  check_size("gdn_window", "norm", a.norm.size(), s.value_dim);
  const std::int64_t slots = a.slots.ring_k.rows / kGdnRing;
  check_size("gdn_window", "state", a.slots.state.size(), slots * s.state_floats());
  check_rows("gdn_window", "conv", a.slots.conv, slots * gdn_conv_rows(static_cast<int>(taps)), C, A);
  check_rows("gdn_window", "ring_k", a.slots.ring_k, slots * kGdnRing, s.key_cols(), A);
  check_rows("gdn_window", "ring_u", a.slots.ring_u, slots * kGdnRing, s.value_cols(),
             A == Format::f32 ? A : a.slots.ring_u.format);
  check_rows("gdn_window", "ring_g", a.slots.ring_g, slots * kGdnRing, Hv, Format::f32);
  const Requests& r = a.requests;
  QUIRE_CHECK(r.count >= 0 && r.longest >= 0 && r.longest <= kMostWindow,
              "gdn_window: {} requests of up to {} rows, expected at most {} rows", r.count, r.longest,
              kMostWindow);
  QUIRE_CHECK(r.count == 0 || (r.first_row && r.slot && a.generated && a.previous),
              "gdn_window: {} requests without first_row, slot, generated or previous", r.count);
}

void check_gdn_requests(const GdnWindow& a) {
  const Requests& r = a.requests;
  const std::int64_t slots = a.slots.ring_k.rows / kGdnRing;
  std::vector<bool> taken(slots);
  for (std::int32_t i = 0; i < r.count; ++i) {
    const std::int32_t rows = r.first_row[i + 1] - r.first_row[i];
    QUIRE_CHECK(r.first_row[i] >= 0 && rows >= 0 && rows <= r.longest && r.first_row[i + 1] <= a.qkv.rows,
                "gdn_window: request {} has rows {} .. {} of {}, expected at most {}", i, r.first_row[i],
                r.first_row[i + 1], a.qkv.rows, r.longest);
    if (rows == 0) continue;
    QUIRE_CHECK(r.slot[i] >= 0 && r.slot[i] < slots && !taken[r.slot[i]],
                "gdn_window: request {} has slot {}, expected one of {} that no other request has", i,
                r.slot[i], slots);
    taken[r.slot[i]] = true;
    QUIRE_CHECK(a.previous[i] >= 0 && a.generated[i] >= a.previous[i] &&
                    a.generated[i] / kGdnBlock - a.previous[i] / kGdnBlock <= 1,
                "gdn_window: request {} is at token {} after {}, expected the same block of {} or the next",
                i, a.generated[i], a.previous[i], kGdnBlock);
  }
}

void reference::gdn_window(Stream& s, const GdnWindow& a) {
  check_gdn_window(a);
  check_gdn_requests(a);
  for (std::int64_t r = 0; r < a.requests.count; ++r)
    for (std::int64_t h = 0; h < a.shape.value_heads; ++h) Head(a, r, h).run();
  if (a.requests.count == 0) return;
  const std::int64_t first = a.requests.first_row[0], rows = a.requests.first_row[a.requests.count] - first;
  const Rows out = a.out.slice_rows(first, rows);
  reference::gated_rms_norm(s, out, a.z.slice_rows(first, rows), a.norm, a.eps, out);
}

}  // namespace quire
