// A test that cannot fail proves nothing: a second, plain version of gdn_window with a switch for each
// mistake that would be easy to make. Without one it passes the test of the windows, with any of them it does
// not.
#include <cmath>

#include "ops/conv1d/conv1d.h"
#include "ops/gdn_window/gdn_window_testing.h"
#include "ops/norm/norm.h"

namespace quire {
namespace {

enum class Mistake {
  none,
  u_unrounded_within_the_window,
  decay_from_the_windows_start,
  stale_records_times_zero,
  another_product_for_one_token,
};

constexpr std::int64_t L = kGdnBlock;

// One request and value head, a whole window at a time, in f32.
template <Mistake kMistake>
class FaultyHead {
 public:
  FaultyHead(const GdnWindow& a, std::int64_t request, std::int64_t head, Stream& stream)
      : a_(a),
        h_(head),
        key_(head / (a.shape.value_heads / a.shape.key_heads) * Ek_),
        slot_(a.requests.slot[request]),
        start_(a.generated[request]),
        first_(a.requests.first_row[request]),
        n_(a.requests.first_row[request + 1] - first_) {
    const std::int64_t block = a.previous[request] / L;
    float* stored = a.slots.state.data() + (slot_ * a.shape.value_heads + h_) * Ek_ * Ev_;
    load_records();
    load_window(stream);
    if (block < start_ / L) fold(block, stored);
    std::vector<float> C(stored, stored + Ek_ * Ev_);
    for (std::int64_t i = 0; i < n_; ++i) {
      if (i > 0 && (start_ + i) % L == 0) fold((start_ + i) / L - 1, C.data());
      solve(C, i);
    }
  }

  void store_records() const {
    for (std::int64_t i = 0; i < n_; ++i) {
      const std::int64_t row = slot_ * kGdnRing + (start_ + i) % kGdnRing;
      for (std::int64_t d = 0; d < Ek_; ++d) store(a_.slots.ring_k, row, key_ + d, k(start_ + i)[d]);
      for (std::int64_t e = 0; e < Ev_; ++e) store(a_.slots.ring_u, row, h_ * Ev_ + e, u(start_ + i)[e]);
      store(a_.slots.ring_g, row, h_, G(start_ + i));
    }
  }

 private:
  std::vector<float>& k(std::int64_t t) { return k_[t % kGdnRing]; }
  std::vector<float>& u(std::int64_t t) { return u_[t % kGdnRing]; }
  float& G(std::int64_t t) { return g_[t % kGdnRing]; }
  const std::vector<float>& k(std::int64_t t) const { return k_[t % kGdnRing]; }
  const std::vector<float>& u(std::int64_t t) const { return u_[t % kGdnRing]; }
  float G(std::int64_t t) const { return g_[t % kGdnRing]; }

  void load_records() {
    for (std::int64_t r = 0; r < kGdnRing; ++r) {
      const std::int64_t row = slot_ * kGdnRing + r;
      for (std::int64_t d = 0; d < Ek_; ++d) k_[r].push_back(load(a_.slots.ring_k, row, key_ + d));
      for (std::int64_t e = 0; e < Ev_; ++e) u_[r].push_back(load(a_.slots.ring_u, row, h_ * Ev_ + e));
      g_[r] = load(a_.slots.ring_g, row, h_);
    }
  }

  // The W-1 inputs before the window, then those of the window through conv1d_silu, gdn_gates and the norms.
  void load_window(Stream& stream) {
    const std::int64_t C = a_.qkv.cols, Hv = a_.shape.value_heads;
    const std::int64_t W = static_cast<std::int64_t>(a_.conv1d.size()) / C,
                       size = gdn_conv_rows(static_cast<int>(W));
    Matrix past(a_.qkv.format, W - 1, C), x(a_.qkv.format, n_, C);
    const auto ring = [&](std::int64_t t) { return slot_ * size + (t + W - 1) % size; };
    for (std::int64_t j = 0; j < W - 1; ++j)
      for (std::int64_t c = 0; c < C; ++c) past.set(j, c, load(a_.slots.conv, ring(start_ - (W - 1) + j), c));
    for (std::int64_t i = 0; i < n_; ++i)
      for (std::int64_t c = 0; c < C; ++c)
        store(a_.slots.conv, ring(start_ + i), c, load(a_.qkv, first_ + i, c));
    reference::conv1d_silu(stream, a_.qkv.slice_rows(first_, n_), a_.conv1d, past, x);
    std::vector<float> g(n_ * Hv), beta(n_ * Hv);
    reference::gdn_gates(stream, a_.a.slice_rows(first_, n_), a_.b.slice_rows(first_, n_), a_.A_log,
                         a_.dt_bias, g, beta);
    for (std::int64_t i = 0; i < n_; ++i) {
      const std::int64_t t = start_ + i;
      k(t) = normalised(x, i, a_.shape.key_cols() + key_, 1);
      q_.push_back(normalised(x, i, key_, 1 / std::sqrt(static_cast<float>(Ek_))));
      v_.emplace_back();
      for (std::int64_t e = 0; e < Ev_; ++e)
        v_.back().push_back(x.get(i, 2 * a_.shape.key_cols() + h_ * Ev_ + e));
      beta_.push_back(beta[i * Hv + h_]);
      const bool from_zero = t % L == 0 || (kMistake == Mistake::decay_from_the_windows_start && i == 0);
      G(t) = from_zero ? g[i * Hv + h_] : G(t - 1) + g[i * Hv + h_];
    }
  }

  std::vector<float> normalised(const Matrix& x, std::int64_t row, std::int64_t begin, float scale) const {
    float squares = 1e-6f;
    for (std::int64_t d = 0; d < Ek_; ++d) squares += x.get(row, begin + d) * x.get(row, begin + d);
    std::vector<float> y;
    for (std::int64_t d = 0; d < Ek_; ++d)
      y.push_back(round_to(x.format(), x.get(row, begin + d) * (scale / std::sqrt(squares))));
    return y;
  }

  void fold(std::int64_t block, float* C) const {
    const float last = G(block * L + L - 1);
    for (std::int64_t d = 0; d < Ek_; ++d)
      for (std::int64_t e = 0; e < Ev_; ++e) {
        float sum = std::exp(last) * C[d * Ev_ + e];
        for (std::int64_t j = block * L; j < block * L + L; ++j)
          sum += k(j)[d] * (std::exp(last - G(j)) * round_to(a_.slots.ring_u.format, u(j)[e]));
        C[d * Ev_ + e] = sum;
      }
  }

  float dot(const std::vector<float>& x, const std::vector<float>& y) const {
    float sum = 0;
    for (std::int64_t d = 0; d < Ek_; ++d) sum += x[d] * y[d];
    return sum;
  }

  // (C^T x)[e]
  float read(const std::vector<float>& C, const std::vector<float>& x, std::int64_t e) const {
    if (kMistake == Mistake::another_product_for_one_token && n_ == 1) {
      float sums[2] = {};
      for (std::int64_t d = 0; d < Ek_; ++d) sums[d % 2] += C[d * Ev_ + e] * x[d];
      return sums[0] + sums[1];
    }
    float sum = 0;
    for (std::int64_t d = 0; d < Ek_; ++d) sum += C[d * Ev_ + e] * x[d];
    return sum;
  }

  void solve(const std::vector<float>& C, std::int64_t i) {
    const std::int64_t t = start_ + i, block = t / L * L;
    // All records of the block, those to come at weight zero: one loop without a condition.
    const std::int64_t end = kMistake == Mistake::stale_records_times_zero ? block + L : t;
    std::vector<float> a, f;
    for (std::int64_t j = block; j < end; ++j) {
      const float decay = std::exp(G(t) - G(j));
      a.push_back(j < t ? beta_[i] * decay * dot(k(t), k(j)) : 0);
      f.push_back(j < t ? decay * dot(q_[i], k(j)) : 0);
    }
    std::vector<float> update(Ev_), o(Ev_);
    for (std::int64_t e = 0; e < Ev_; ++e) {
      const float decay = std::exp(G(t));
      update[e] = beta_[i] * (v_[i][e] - decay * read(C, k(t), e));
      o[e] = decay * read(C, q_[i], e);
      for (std::int64_t j = block; j < end; ++j) {
        update[e] -= a[j - block] * u(j)[e];
        o[e] += f[j - block] * u(j)[e];
      }
      if (kMistake != Mistake::u_unrounded_within_the_window)
        update[e] = round_to(a_.slots.ring_u.format, update[e]);
      store(a_.out, first_ + i, h_ * Ev_ + e, o[e] + dot(q_[i], k(t)) * update[e]);
    }
    u(t) = update;
  }

  const GdnWindow& a_;
  const std::int64_t Ek_ = a_.shape.key_dim, Ev_ = a_.shape.value_dim;
  const std::int64_t h_, key_, slot_, start_, first_, n_;
  std::vector<float> k_[kGdnRing], u_[kGdnRing];
  float g_[kGdnRing];
  std::vector<std::vector<float>> q_, v_;
  std::vector<float> beta_;
};

template <Mistake kMistake>
void faulty_window(Stream& s, const GdnWindow& a) {
  for (std::int64_t r = 0; r < a.requests.count; ++r) {
    if (a.requests.first_row[r + 1] == a.requests.first_row[r]) continue;
    std::vector<FaultyHead<kMistake>> heads;
    for (std::int64_t h = 0; h < a.shape.value_heads; ++h) heads.emplace_back(a, r, h, s);
    for (const auto& head : heads) head.store_records();
  }
  const std::int64_t rows = a.requests.first_row[a.requests.count];
  const Rows out = a.out.slice_rows(0, rows);
  reference::gated_rms_norm(s, out, a.z.slice_rows(0, rows), a.norm, a.eps, out);
}

class GdnMistakes : public testing::Test {
 protected:
  // Whether windows with the mistake give the bits of tokens that went alone, without it.
  template <Mistake kMistake>
  testing::AssertionResult windows_agree(Format u) {
    Random random(3);
    const GdnLayer layer = random_layer(random, {1, 2, 16, 8}, Format::bf16, u);
    const GdnSequence sequence = random_sequence(random, layer, 80);
    std::vector<Job> jobs;
    for (const Schedule& s : schedules(random)) jobs.push_back({&sequence, s});
    const WindowRun run(faulty_window<kMistake>, StateOrder::plain, stream_, layer, jobs, 8, 5);
    const Trace expected =
        one_by_one(faulty_window<Mistake::none>, StateOrder::plain, stream_, layer, sequence);
    if (!run.faults.empty()) return testing::AssertionFailure() << run.faults.front();
    for (const Trace& trace : run.traces)
      if (const auto same = same_trace(trace, expected); !same) return same;
    return testing::AssertionSuccess();
  }

 private:
  Stream stream_;
};

TEST_F(GdnMistakes, AreSeen) {
  for (Format u : {Format::bf16, Format::f32}) EXPECT_TRUE(windows_agree<Mistake::none>(u));
  EXPECT_FALSE(windows_agree<Mistake::u_unrounded_within_the_window>(Format::bf16));
  for (Format u : {Format::bf16, Format::f32}) {
    EXPECT_FALSE(windows_agree<Mistake::decay_from_the_windows_start>(u));
    EXPECT_FALSE(windows_agree<Mistake::stale_records_times_zero>(u));
  }
  // The last bit of a product seldom survives the rounding to bf16.
  EXPECT_FALSE(windows_agree<Mistake::another_product_for_one_token>(Format::f32));
}

}  // namespace
}  // namespace quire
