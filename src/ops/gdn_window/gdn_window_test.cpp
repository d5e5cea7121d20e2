#include "ops/conv1d/conv1d.h"
#include "ops/gdn_window/gdn_window_testing.h"
#include "ops/norm/norm.h"

namespace quire {
namespace {

constexpr GdnShape kModel{1, 2, 128, 128};

class GdnWindows : public OpsTest {
 protected:
  bool on_cuda() const { return ops().state_order == StateOrder::fragments; }
  // Odd shapes too, where the table takes them; the reference computes all of this in double, and slowly.
  std::vector<GdnShape> shapes() const {
    if (on_cuda()) return {kModel, {2, 6, 128, 128}};
    if (&ops() == &reference_ops()) return {{1, 2, 16, 24}};
    return {{1, 2, 16, 24}, {2, 2, 33, 17}, kModel};
  }
  std::vector<Format> update_formats() const {
    return format() == Format::f32 ? std::vector{Format::f32} : std::vector{Format::bf16, Format::f32};
  }
  Trace alone(const GdnLayer& l, const GdnSequence& s) {
    return one_by_one(ops().gdn_window, ops().state_order, stream(), l, s);
  }
};
INSTANTIATE_TEST_SUITE_P(, GdnWindows, each_table_and_format(), case_name);

TEST(StateIndex, IsAPermutation) {
  for (const auto& [Ek, Ev] : {std::pair{128, 128}, {16, 48}, {33, 17}})
    for (StateOrder order : {StateOrder::plain, StateOrder::fragments}) {
      std::vector<int> seen(Ek * Ev);
      for (int k = 0; k < Ek; ++k)
        for (int v = 0; v < Ev; ++v) ++seen[state_index(order, Ek, Ev, k, v)];
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), Ek * Ev);
    }
  EXPECT_EQ(state_index(StateOrder::fragments, 128, 128, 1, 0), 1);
  EXPECT_EQ(state_index(StateOrder::fragments, 128, 128, 8, 0), 2);
  EXPECT_EQ(state_index(StateOrder::fragments, 128, 128, 2, 1), 4 * 4 + 4);
  EXPECT_EQ(state_index(StateOrder::fragments, 128, 128, 16, 24), 8 * 256 + 256 + 128);
}

// The promise: however tokens are cut into windows, and whatever is around them, the same bits of everything.
TEST_P(GdnWindows, BitsDoNotDependOnTheWindows) {
  for (const GdnShape& shape : shapes())
    for (Format u : update_formats()) {
      const GdnLayer layer = random_layer(random, shape, format(), u);
      const GdnSequence sequences[] = {random_sequence(random, layer, 100),
                                       random_sequence(random, layer, 67)};
      std::vector<Job> jobs;
      for (const Schedule& s : schedules(random))
        for (const GdnSequence& sequence : sequences) jobs.push_back({&sequence, s});
      const WindowRun run(ops().gdn_window, ops().state_order, stream(3), layer, jobs, 24, 7);
      EXPECT_TRUE(run.faults.empty()) << run.faults.size() << " faults: " << run.faults.front();
      const Trace expected[] = {alone(layer, sequences[0]), alone(layer, sequences[1])};
      for (std::size_t i = 0; i < jobs.size(); ++i)
        ASSERT_TRUE(same_trace(run.traces[i], expected[i % 2]))
            << "schedule " << i / 2 << ", Ek " << shape.key_dim << ", u of " << size_of(u) << " bytes";
    }
}

// More requests and heads than a GPU has room for at once, so that blocks go from one to the next.
TEST_P(GdnWindows, BitsDoNotDependOnTheLoad) {
  const GdnShape shape = on_cuda() ? GdnShape{1, 8, 128, 128} : GdnShape{1, 8, 16, 24};
  const GdnLayer layer = random_layer(random, shape, format(), format());
  const GdnSequence sequence = random_sequence(random, layer, 45);
  std::vector<Job> jobs;
  for (const Schedule& s : schedules(random)) jobs.push_back({&sequence, s});
  const WindowRun run(ops().gdn_window, ops().state_order, stream(3), layer, jobs, 44, 9);
  EXPECT_TRUE(run.faults.empty()) << run.faults.size() << " faults: " << run.faults.front();
  const Trace expected = alone(layer, sequence);
  for (std::size_t i = 0; i < jobs.size(); ++i)
    ASSERT_TRUE(same_trace(run.traces[i], expected)) << "schedule " << i;
}

TEST_P(GdnWindows, MatchReference) {
  for (const GdnShape& shape : shapes())
    for (Format u : update_formats()) {
      const GdnLayer layer = random_layer(random, shape, format(), u);
      const GdnSequence sequence = random_sequence(random, layer, 70);
      const Trace actual = alone(layer, sequence);
      const Trace expected = one_by_one(reference::gdn_window, StateOrder::plain, stream(), layer, sequence);
      // Rounded one after the other: v and k; u, which reads up to 31 of itself; o and out.
      const std::int64_t length = shape.key_dim + 2 * kGdnBlock;
      const auto near = [&](const Matrix& x, const Matrix& y, int roundings) {
        return compare(x, y, rounded_chain(format(), length, format() == Format::f32 ? 1 : roundings));
      };
      EXPECT_TRUE(near(actual.k, expected.k, 2)) << "k, Ek " << shape.key_dim;
      EXPECT_TRUE(near(actual.u, expected.u, 3)) << "u, Ek " << shape.key_dim;
      EXPECT_TRUE(near(actual.out, expected.out, 5)) << "out, Ek " << shape.key_dim;
      EXPECT_TRUE(compare(to_floats(actual.g), to_floats(expected.g), rounded_sum(Format::f32, kGdnBlock)));
    }
}

// A prompt by gdn_prefill, then windows: the recurrence from the first token to the last. With f32 only the
// order of sums is another.
TEST_P(GdnWindows, ContinueThePrompt) {
  if (format() == Format::bf16) return;
  for (const GdnShape& shape : shapes()) {
    constexpr std::int64_t kPrompt = 70, kTokens = 75, T = kPrompt + kTokens;
    const GdnLayer layer = random_layer(random, shape, format(), Format::f32);
    const std::int64_t Hv = shape.value_heads;
    const GdnSequence all = random_sequence(random, layer, T);
    Matrix conv(format(), GdnLayer::kTaps - 1, layer.channels()), x(format(), T, layer.channels()),
        expected(format(), T, shape.value_cols());
    for (std::int64_t j = 0; j < conv.rows(); ++j)
      for (std::int64_t c = 0; c < conv.cols(); ++c) conv.set(j, c, 0);
    Matrix prompt_conv = conv;
    std::vector<float> g(T * Hv), beta(T * Hv), state = all.state;
    reference::conv1d_silu(stream(), all.tokens.qkv, layer.conv1d, conv, x);
    reference::gdn_gates(stream(), all.tokens.a, all.tokens.b, layer.A_log, layer.dt_bias, g, beta);
    reference::gdn_recurrent(stream(), {shape, x, g, beta, state, expected});
    reference::gated_rms_norm(stream(), expected, all.tokens.z, layer.norm, layer.eps, expected);

    Matrix prompt(format(), kPrompt, layer.channels()), unused(format(), kPrompt, shape.value_cols());
    GdnSequence rest{{}, std::move(prompt_conv), GdnTokens(layer, kTokens, 3)};
    ops().conv1d_silu(stream(), Rows(all.tokens.qkv).slice_rows(0, kPrompt), layer.conv1d, rest.prompt,
                      prompt);
    std::vector<float> ordered = reordered(shape, all.state, StateOrder::plain, ops().state_order);
    ops().gdn_prefill(stream(), {shape, prompt, std::span(g).first(kPrompt * Hv),
                                 std::span(beta).first(kPrompt * Hv), ordered, unused});
    rest.state = reordered(shape, ordered, ops().state_order, StateOrder::plain);
    for (std::int64_t t = 0; t < kTokens; ++t) rest.tokens.copy(t, all.tokens, kPrompt + t);
    const Trace actual = alone(layer, rest);
    // Decays are exponentials of sums of g, off by 2^-24 of the sum.
    double largest = 0;
    for (std::int64_t h = 0; h < Hv; ++h) {
      double sum = 0;
      for (std::int64_t t = 0; t < T; ++t)
        largest = std::max(largest, -(sum = t % 32 ? sum + g[t * Hv + h] : 0));
    }
    const std::int64_t length = shape.key_dim + T + static_cast<std::int64_t>(largest * largest);
    EXPECT_TRUE(matches(to_floats(actual.out), to_floats(Rows(expected).slice_rows(kPrompt, kTokens)),
                        {.length = length}))
        << "Ek " << shape.key_dim;
  }
}

// The recurrence in float64 on the k that the ring has: u of every token.
std::vector<float> updates_in_double(const GdnLayer& l, const GdnSequence& s, const Trace& trace,
                                     Stream& stream) {
  const std::int64_t T = s.tokens.qkv.rows(), Ek = l.shape.key_dim, Ev = l.shape.value_dim,
                     Hv = l.shape.value_heads;
  Matrix x(l.a, T, l.channels()), past = s.prompt;
  std::vector<float> g(T * Hv), beta(T * Hv), u(T * Hv * Ev);
  reference::conv1d_silu(stream, s.tokens.qkv, l.conv1d, past, x);
  reference::gdn_gates(stream, s.tokens.a, s.tokens.b, l.A_log, l.dt_bias, g, beta);
  for (std::int64_t h = 0; h < Hv; ++h) {
    std::vector<double> S(s.state.begin() + h * Ek * Ev, s.state.begin() + (h + 1) * Ek * Ev);
    for (std::int64_t t = 0; t < T; ++t) {
      const double decay = std::exp(double{g[t * Hv + h]});
      std::vector<double> read(Ev);
      std::vector<float> k;
      for (std::int64_t d = 0; d < Ek; ++d) {
        k.push_back(trace.k.get(t, h / (Hv / l.shape.key_heads) * Ek + d));
        for (std::int64_t e = 0; e < Ev; ++e) read[e] += (S[d * Ev + e] *= decay) * k.back();
      }
      for (std::int64_t e = 0; e < Ev; ++e) {
        const double v = x.get(t, 2 * l.shape.key_cols() + h * Ev + e),
                     update = beta[t * Hv + h] * (v - read[e]);
        u[(t * Hv + h) * Ev + e] = static_cast<float>(update);
        for (std::int64_t d = 0; d < Ek; ++d) S[d * Ev + e] += k[d] * update;
      }
    }
  }
  return u;
}

// Over 2,048 tokens errors do not add up. With u in f32 nothing is left but the products' precision (hi and
// lo of bf16: 4e-6 measured on a model of it) and, with bf16 activations, the few v that round to the other
// side: 1 in 10^4 by one unit, 5e-5 of the whole. u in bf16 is a rounding of 2^-9, uniform: 1.6e-3 with what
// it brings about.
TEST_P(GdnWindows, StayCloseToTheRecurrenceInDouble) {
  const GdnShape shape = &ops() == &reference_ops() ? GdnShape{1, 2, 16, 24} : kModel;
  for (Format u : update_formats()) {
    const GdnLayer layer = random_layer(random, shape, format(), u);
    const GdnSequence sequence = random_sequence(random, layer, 2048);
    const Job job{&sequence, {{16, 16}}};
    const WindowRun run(ops().gdn_window, ops().state_order, stream(), layer, {&job, 1}, 1, 1);
    const std::vector<float> actual = to_floats(run.traces[0].u),
                             expected = updates_in_double(layer, sequence, run.traces[0], stream());
    double error = 0, size = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      error += (double{actual[i]} - expected[i]) * (double{actual[i]} - expected[i]);
      size += double{expected[i]} * expected[i];
    }
    EXPECT_LT(std::sqrt(error / size), u == Format::bf16 ? 5e-3 : format() == Format::bf16 ? 1e-4 : 1e-5);
  }
}

TEST_P(GdnWindows, RejectWhatDoesNotFit) {
  const GdnShape shape = shapes().front();
  const GdnLayer layer = random_layer(random, shape, format(), format());
  GdnTokens tokens(layer, 17, 0);
  for (std::int64_t t = 0; t < 17; ++t) tokens.fill(random, t, 1);
  Matrix out(format(), 17, shape.value_cols(), 0), narrow(format(), 17, shape.value_cols() - 1, 0),
      other(format() == Format::f32 ? Format::bf16 : Format::f32, 2 * kGdnRing, shape.value_cols(), 8);
  Pools pools(layer, 2);
  const std::int32_t first[] = {0, 3, 3, 17}, slot[] = {0, 0, 1}, zeros[] = {0, 0, 0};
  const GdnWindow good{
      .shape = shape,
      .qkv = tokens.qkv,
      .z = tokens.z,
      .a = tokens.a,
      .b = tokens.b,
      .conv1d = layer.conv1d,
      .A_log = layer.A_log,
      .dt_bias = layer.dt_bias,
      .norm = layer.norm,
      .eps = layer.eps,
      .slots = pools.view(),
      .requests = {.count = 3, .longest = 16, .first_row = first, .start = nullptr, .slot = slot},
      .generated = zeros,
      .previous = zeros,
      .out = out};
  EXPECT_NO_THROW(ops().gdn_window(stream(), good));
  const auto rejects = [&](const char* what, auto change) {
    GdnWindow bad = good;
    change(bad);
    EXPECT_THROW(ops().gdn_window(stream(), bad), Error) << what;
  };
  const std::int32_t backwards[] = {0, 3, 2, 17}, long_window[] = {0, 0, 0, 17}, twice[] = {0, 1, 0},
                     outside[] = {0, 0, 2}, far[] = {64, 0, 0}, ahead[] = {1, 0, 0};
  rejects("out", [&](GdnWindow& w) { w.out = narrow; });
  rejects("z", [&](GdnWindow& w) { w.z = narrow; });
  rejects("heads", [&](GdnWindow& w) { w.shape.key_heads = 3; });
  rejects("conv1d", [&](GdnWindow& w) { w.conv1d = w.conv1d.first(w.conv1d.size() - 1); });
  rejects("norm", [&](GdnWindow& w) { w.norm = w.norm.first(1); });
  rejects("state", [&](GdnWindow& w) { w.slots.state = w.slots.state.first(w.slots.state.size() / 2); });
  rejects("conv", [&](GdnWindow& w) { w.slots.conv.rows -= 1; });
  rejects("ring_k", [&](GdnWindow& w) { w.slots.ring_k.rows -= kGdnRing; });
  if (format() == Format::f32) rejects("ring_u", [&](GdnWindow& w) { w.slots.ring_u = other; });
  rejects("longest", [&](GdnWindow& w) { w.requests.longest = 17; });
  rejects("no arrays", [&](GdnWindow& w) { w.previous = nullptr; });
  rejects("rows backwards", [&](GdnWindow& w) { w.requests.first_row = backwards; });
  rejects("a window of 17", [&](GdnWindow& w) { w.requests.first_row = long_window; });
  rejects("a slot twice", [&](GdnWindow& w) { w.requests.slot = twice; });
  rejects("no such slot", [&](GdnWindow& w) { w.requests.slot = outside; });
  rejects("two blocks ahead", [&](GdnWindow& w) { w.generated = far; });
  rejects("backwards", [&](GdnWindow& w) { w.previous = ahead; });
}

}  // namespace
}  // namespace quire
