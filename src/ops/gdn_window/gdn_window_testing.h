// Runs gdn_window over whole sequences: many requests at once, by schedules of windows and rejections, with
// everything around them as bad as it may be. What comes out must not show any of it.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "ops/gdn/gdn.h"
#include "ops/testing.h"

namespace quire {

using WindowOp = decltype(Ops::gdn_window);

struct GdnLayer {
  GdnShape shape;
  Format a, u;  // of activations and of ring_u
  std::vector<float> conv1d, A_log, dt_bias, norm;
  float eps = 1e-6f;

  static constexpr int kTaps = 4;
  std::int64_t channels() const { return shape.conv_cols(); }
};

// Heads from those that keep everything for long to those that forget within a few tokens.
inline GdnLayer random_layer(Random& random, GdnShape shape, Format a, Format u) {
  GdnLayer layer{shape, a, u, normals(random, shape.conv_cols() * GdnLayer::kTaps, 0.5f), {}, {}, {}};
  for (int h = 0; h < shape.value_heads; ++h) {
    layer.A_log.push_back(std::log(random.uniform(1, 16)));
    layer.dt_bias.push_back(h % 2 ? -1.0f : -6.0f);
  }
  for (int e = 0; e < shape.value_dim; ++e) layer.norm.push_back(random.uniform(0.5, 1.5));
  return layer;
}

// The inputs of consecutive tokens.
struct GdnTokens {
  Matrix qkv, z, a, b;

  GdnTokens(const GdnLayer& l, std::int64_t rows, std::int64_t padding)
      : qkv(l.a, rows, l.channels(), padding),
        z(l.a, rows, l.shape.value_cols(), padding),
        a(l.a, rows, l.shape.value_heads, padding),
        b(l.a, rows, l.shape.value_heads, padding) {}

  void fill(Random& random, std::int64_t row, float scale) {
    for (Matrix* m : {&qkv, &z, &a, &b})
      for (std::int64_t c = 0; c < m->cols(); ++c) m->set(row, c, scale * random.normal());
  }
  void copy(std::int64_t row, const GdnTokens& from, std::int64_t from_row) {
    const auto one = [&](Matrix& to, const Matrix& f) {
      for (std::int64_t c = 0; c < to.cols(); ++c) to.set(row, c, f.get(from_row, c));
    };
    one(qkv, from.qkv), one(z, from.z), one(a, from.a), one(b, from.b);
  }
};

// A prompt's end and the tokens generated after it.
struct GdnSequence {
  std::vector<float> state;  // [Hv, Ek, Ev]
  Matrix prompt;             // [W-1, C]: the last inputs of the convolution
  GdnTokens tokens;
};

inline GdnSequence random_sequence(Random& random, const GdnLayer& l, std::int64_t tokens) {
  GdnSequence s{normals(random, l.shape.state_floats(), 1 / std::sqrt(static_cast<float>(l.shape.key_dim))),
                random_matrix(random, l.a, GdnLayer::kTaps - 1, l.channels()), GdnTokens(l, tokens, 3)};
  for (std::int64_t t = 0; t < tokens; ++t) s.tokens.fill(random, t, 1);
  return s;
}

// The state of a layer [Hv, Ek, Ev] from one order to another.
inline std::vector<float> reordered(const GdnShape& s, std::span<const float> x, StateOrder from,
                                    StateOrder to) {
  std::vector<float> y(x.size());
  const int Ek = s.key_dim, Ev = s.value_dim;
  for (int h = 0; h < s.value_heads; ++h)
    for (int k = 0; k < Ek; ++k)
      for (int v = 0; v < Ev; ++v)
        y[h * Ek * Ev + state_index(to, Ek, Ev, k, v)] = x[h * Ek * Ev + state_index(from, Ek, Ev, k, v)];
  return y;
}

struct Pools {
  std::vector<float> state;
  Matrix conv, k, u, g;

  // Never cleared: NaN from the start.
  Pools(const GdnLayer& l, std::int64_t slots)
      : state(slots * l.shape.state_floats(), std::nanf("")),
        conv(l.a, slots * gdn_conv_rows(GdnLayer::kTaps), l.channels(), 8),
        k(l.a, slots * kGdnRing, l.shape.key_cols(), 8),
        u(l.u, slots * kGdnRing, l.shape.value_cols(), 8),
        g(Format::f32, slots * kGdnRing, l.shape.value_heads, 1) {}

  GdnSlots view() { return {state, conv, k, u, g}; }

  void admit(StateOrder order, const GdnLayer& l, std::int64_t slot, const GdnSequence& s) {
    const std::vector<float> ordered = reordered(l.shape, s.state, StateOrder::plain, order);
    std::copy(ordered.begin(), ordered.end(), state.begin() + slot * l.shape.state_floats());
    for (std::int64_t j = 0; j < s.prompt.rows(); ++j)
      for (std::int64_t c = 0; c < s.prompt.cols(); ++c)
        conv.set(slot * gdn_conv_rows(GdnLayer::kTaps) + j, c, s.prompt.get(j, c));
  }

  // The bytes of one slot.
  std::vector<std::byte> slot(const GdnLayer& l, std::int64_t index) const {
    std::vector<std::byte> bytes(sizeof(float) * l.shape.state_floats());
    std::memcpy(bytes.data(), state.data() + index * l.shape.state_floats(), bytes.size());
    const auto append = [&](const Rows& m, std::int64_t rows) {
      for (std::int64_t r = index * rows; r < (index + 1) * rows; ++r) {
        const auto* row = static_cast<const std::byte*>(m.data) + r * m.stride * size_of(m.format);
        bytes.insert(bytes.end(), row, row + m.cols * size_of(m.format));
      }
    };
    append(conv, gdn_conv_rows(GdnLayer::kTaps)), append(k, kGdnRing), append(u, kGdnRing),
        append(g, kGdnRing);
    return bytes;
  }
};

struct WindowStep {
  int proposed, accepted;
};
using Schedule = std::vector<WindowStep>;

struct Job {
  const GdnSequence* sequence;
  Schedule schedule;  // repeated until the sequence is at its end
};

// What became of the tokens of one job.
struct Trace {
  Matrix out, k, u, g;                                     // [N, ..]
  std::map<std::int64_t, std::vector<float>> checkpoints;  // by block

  Trace(const GdnLayer& l, std::int64_t N)
      : out(l.a, N, l.shape.value_cols()),
        k(l.a, N, l.shape.key_cols()),
        u(l.u, N, l.shape.value_cols()),
        g(Format::f32, N, l.shape.value_heads) {}
};

inline testing::AssertionResult same_trace(const Trace& actual, const Trace& expected) {
  const auto named = [](const char* name, testing::AssertionResult r) {
    return r ? r : r << " (" << name << ")";
  };
  for (auto r :
       {named("out", same_bits(actual.out, expected.out)), named("k", same_bits(actual.k, expected.k)),
        named("u", same_bits(actual.u, expected.u)), named("G", same_bits(actual.g, expected.g))})
    if (!r) return r;
  for (const auto& [block, state] : actual.checkpoints) {
    const auto other = expected.checkpoints.find(block);
    if (other == expected.checkpoints.end()) continue;
    if (const auto r = same_bits(state, other->second); !r) return named("checkpoint", r);
  }
  return testing::AssertionSuccess();
}

// Jobs one after the other in each of a few slots.
class WindowRun {
 public:
  WindowRun(WindowOp op, StateOrder order, Stream& stream, const GdnLayer& layer, std::span<const Job> jobs,
            std::int64_t slots, std::uint64_t seed)
      : op_(op),
        order_(order),
        stream_(stream),
        layer_(layer),
        jobs_(jobs),
        pools_(layer, slots),
        active_(slots),
        random_(seed) {
    for (const Job& job : jobs) traces.emplace_back(layer, job.sequence->tokens.qkv.rows());
    for (std::int64_t s = 0; s < slots; ++s) admit(s);
    while (std::any_of(active_.begin(), active_.end(), [](const Active& a) { return a.job >= 0; })) step();
  }

  std::vector<Trace> traces;  // of each job
  std::vector<std::string> faults;

 private:
  struct Active {
    std::int64_t job = -1;
    std::int32_t start = 0, previous = 0;
    std::size_t at = 0;  // in the schedule
  };
  // One request of a step.
  struct Row {
    std::int64_t slot;
    int proposed, accepted;  // 0, 0: padding
  };

  int below(int n) { return static_cast<int>(random_.uniform() * n); }

  void admit(std::int64_t slot) {
    active_[slot] = {};
    if (next_ == jobs_.size()) return;
    active_[slot].job = static_cast<std::int64_t>(next_++);
    pools_.admit(order_, layer_, slot, *jobs_[active_[slot].job].sequence);
  }

  std::vector<Row> plan() {
    std::vector<Row> rows;
    for (std::int64_t s = 0; s < std::ssize(active_); ++s) {
      const Active& a = active_[s];
      if (a.job < 0 || (active_.size() > 1 && below(8) == 0)) continue;  // nothing there, or it sits out
      const Job& job = jobs_[a.job];
      const auto left = static_cast<int>(job.sequence->tokens.qkv.rows() - a.start);
      const WindowStep w = job.schedule[a.at % job.schedule.size()];
      rows.push_back({s, w.proposed, std::min(w.accepted, left)});
    }
    if (active_.size() > 1) rows.insert(rows.begin() + below(static_cast<int>(rows.size() + 1)), {0, 0, 0});
    for (std::size_t i = rows.size(); i > 1; --i) std::swap(rows[i - 1], rows[below(static_cast<int>(i))]);
    return rows;
  }

  void step() {
    const std::vector<Row> rows = plan();
    std::vector<std::int32_t> first = {0}, slot, generated, previous;
    int longest = 1;
    for (const Row& r : rows) {
      first.push_back(first.back() + r.proposed);
      slot.push_back(static_cast<std::int32_t>(r.slot));
      generated.push_back(active_[r.slot].start), previous.push_back(active_[r.slot].previous);
      longest = std::max(longest, r.proposed);
    }
    longest += below(2) * (kMostWindow - longest);
    const std::int64_t T = first.back() + below(3), padding = below(2) ? 3 : 8;
    GdnTokens tokens(layer_, T, padding);  // NaN, behind the last request too
    Matrix out(layer_.a, T, layer_.shape.value_cols(), padding);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      for (int j = 0; j < rows[i].proposed; ++j) draft(tokens, first[i] + j, rows[i], j);
    }
    std::vector<std::vector<std::byte>> before;
    for (std::int64_t s = 0; s < std::ssize(active_); ++s) before.push_back(pools_.slot(layer_, s));
    op_(stream_, {.shape = layer_.shape,
                  .qkv = tokens.qkv,
                  .z = tokens.z,
                  .a = tokens.a,
                  .b = tokens.b,
                  .conv1d = layer_.conv1d,
                  .A_log = layer_.A_log,
                  .dt_bias = layer_.dt_bias,
                  .norm = layer_.norm,
                  .eps = layer_.eps,
                  .slots = pools_.view(),
                  .requests = {.count = static_cast<std::int32_t>(rows.size()),
                               .longest = longest,
                               .first_row = first.data(),
                               .start = nullptr,
                               .slot = slot.data()},
                  .generated = generated.data(),
                  .previous = previous.data(),
                  .out = out});
    if (!out.padding_untouched()) faults.push_back("wrote between the rows of out");
    std::vector<bool> stepped(active_.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].proposed == 0) continue;
      stepped[rows[i].slot] = true;
      commit(rows[i], out, first[i]);
    }
    for (std::size_t s = 0; s < active_.size(); ++s)
      if (!stepped[s] && pools_.slot(layer_, static_cast<std::int64_t>(s)) != before[s])
        faults.push_back("wrote to a slot that is not in the step");
    for (const Row& r : rows)
      if (r.proposed > 0 && active_[r.slot].start == jobs_[active_[r.slot].job].sequence->tokens.qkv.rows())
        admit(r.slot);
  }

  // Token j of the window: true while it will be accepted, then a draft that will not be.
  void draft(GdnTokens& tokens, std::int64_t row, const Row& r, int j) {
    const Active& a = active_[r.slot];
    if (j < r.accepted) return tokens.copy(row, jobs_[a.job].sequence->tokens, a.start + j);
    const int kind = below(3);
    if (kind < 2) tokens.fill(random_, row, kind == 0 ? 1.0f : 1e4f);  // else NaN
  }

  void commit(const Row& r, const Matrix& out, std::int64_t first) {
    Active& a = active_[r.slot];
    Trace& trace = traces[a.job];
    const GdnSequence& sequence = *jobs_[a.job].sequence;
    const auto copy = [](Matrix& to, std::int64_t row, const Matrix& from, std::int64_t from_row) {
      for (std::int64_t c = 0; c < to.cols(); ++c) to.set(row, c, from.get(from_row, c));
    };
    const auto ring = [&](std::int64_t t) { return r.slot * kGdnRing + t % kGdnRing; };
    for (int j = 0; j < r.accepted; ++j) {
      const std::int64_t t = a.start + j;
      copy(trace.out, t, out, first + j);
      copy(trace.k, t, pools_.k, ring(t)), copy(trace.u, t, pools_.u, ring(t)),
          copy(trace.g, t, pools_.g, ring(t));
    }
    const std::int64_t base = a.start / kGdnBlock, size = layer_.shape.state_floats();
    const auto begin = pools_.state.begin() + r.slot * size;
    const std::vector<float> state(begin, begin + size);
    const auto [known, is_new] = trace.checkpoints.try_emplace(base, state);
    if (!is_new && !same_bits(known->second, state))
      faults.push_back("a checkpoint changed within its block");
    a.previous = a.start;
    a.start += r.accepted;
    ++a.at;
    const auto same_row = [&](const Matrix& x, std::int64_t row, const Matrix& y, std::int64_t other) {
      return bool(same_bits(Rows(x).slice_rows(row, 1), Rows(y).slice_rows(other, 1)));
    };
    for (std::int64_t t = base * kGdnBlock; t < a.start; ++t)  // the rows that later steps read
      if (!same_row(pools_.k, ring(t), trace.k, t) || !same_row(pools_.u, ring(t), trace.u, t) ||
          !same_row(pools_.g, ring(t), trace.g, t))
        faults.push_back("a live record changed");
    for (std::int64_t t = a.start - (GdnLayer::kTaps - 1); t < a.start; ++t) {
      const std::int64_t size_conv = gdn_conv_rows(GdnLayer::kTaps);
      const std::int64_t row = r.slot * size_conv + (t + GdnLayer::kTaps - 1) % size_conv;
      if (t < 0 ? !same_row(pools_.conv, row, sequence.prompt, t + GdnLayer::kTaps - 1)
                : !same_row(pools_.conv, row, sequence.tokens.qkv, t))
        faults.push_back("an input of the convolution is not what was given");
    }
  }

  WindowOp op_;
  StateOrder order_;
  Stream& stream_;
  const GdnLayer& layer_;
  std::span<const Job> jobs_;
  Pools pools_;
  std::vector<Active> active_;
  std::size_t next_ = 0;
  Random random_;
};

// Every token alone: the schedule that all others are compared with.
inline Trace one_by_one(WindowOp op, StateOrder order, Stream& stream, const GdnLayer& layer,
                        const GdnSequence& s) {
  const Job job{&s, {{1, 1}}};
  WindowRun run(op, order, stream, layer, {&job, 1}, 1, 1);
  EXPECT_TRUE(run.faults.empty()) << run.faults.front();
  return std::move(run.traces[0]);
}

// Windows of every size, full acceptance and little of it, every offset to a block's boundary, up to one
// before it, to it and one past it; the rest at random.
inline std::vector<Schedule> schedules(Random& random) {
  std::vector<Schedule> all = {{{16, 16}}, {{16, 1}}, {{16, 15}}, {{15, 15}, {1, 1}}, {{1, 1}, {15, 15}}};
  for (int T = 2; T < 16; ++T) all.push_back({{T, T}});
  for (int T = 1; T <= 16; ++T) {
    Schedule s = {{T, T}};
    s.resize(20, {16, 16});
    all.push_back(s);
  }
  for (int past : {-1, 0, 1}) {
    Schedule s;
    for (int t = 0; t < 96;) {
      const int target = (t - past + kGdnBlock) / kGdnBlock * kGdnBlock + past, n = std::min(16, target - t);
      s.push_back({16, n});
      t += n;
    }
    all.push_back(s);
  }
  for (int i = 0; i < 8; ++i) {
    Schedule s;
    for (int j = 0; j < 40; ++j) {
      const int proposed = 1 + static_cast<int>(random.uniform() * 16);
      s.push_back({proposed, 1 + static_cast<int>(random.uniform() * proposed)});
    }
    all.push_back(s);
  }
  return all;
}

}  // namespace quire
