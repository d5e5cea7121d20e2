#include "ops/gdn/gdn.h"

#include "ops/gdn_window/gdn_window_testing.h"

namespace quire {
namespace {

// One sequence in one layer.
struct Sequence {
  GdnShape shape;
  Matrix qkv;
  std::vector<float> g, beta, state;
};

// A part `forgetting` of the tokens loses much of the state at once; the others keep nearly all of it.
Sequence random_sequence(Random& random, Format f, GdnShape s, std::int64_t T, double forgetting = 0.2) {
  Sequence x{s,
             random_matrix(random, f, T, 2 * s.key_heads * s.key_dim + s.value_heads * s.value_dim),
             {},
             {},
             normals(random, std::int64_t{s.value_heads} * s.key_dim * s.value_dim,
                     1 / std::sqrt(static_cast<float>(s.key_dim)))};
  for (std::int64_t i = 0; i < T * s.value_heads; ++i) {
    x.g.push_back(random.uniform() < forgetting ? random.uniform(-20, 0) : random.uniform(-0.1, 0));
    x.beta.push_back(random.uniform(0, 1));
  }
  return x;
}

struct Result {
  Matrix out;
  std::vector<float> state;
};

using PrefillOp = decltype(Ops::gdn_prefill);

// `op` over the tokens, in calls of `step` tokens. `order` is that of its table.
Result run(PrefillOp op, StateOrder order, Stream& stream, const Sequence& x, std::int64_t step = 1 << 20) {
  const GdnShape s = x.shape;
  const std::int64_t T = x.qkv.rows();
  std::vector<float> state = reordered(s, x.state, StateOrder::plain, order);
  Result r{Matrix(x.qkv.format(), T, s.value_cols()), {}};
  std::int64_t t = 0;
  do {
    const std::int64_t n = std::min(step, T - t), Hv = s.value_heads;
    op(stream, {.shape = s,
                .qkv = Rows(x.qkv).slice_rows(t, n),
                .g = std::span(x.g).subspan(t * Hv, n * Hv),
                .beta = std::span(x.beta).subspan(t * Hv, n * Hv),
                .state = state,
                .out = Rows(r.out).slice_rows(t, n)});
    t += n;
  } while (t < T);
  r.state = reordered(s, state, order, StateOrder::plain);
  return r;
}

class Gdn : public OpsTest {
 protected:
  Result prefill(Stream& stream, const Sequence& x, std::int64_t step = 1 << 20) const {
    return run(ops().gdn_prefill, ops().state_order, stream, x, step);
  }
  Result run_plain(PrefillOp op, const Sequence& x) { return run(op, StateOrder::plain, stream(), x); }
};
INSTANTIATE_TEST_SUITE_P(, Gdn, each_table_and_format(), case_name);

// A state is carried over T tokens. The delta rule only ever shrinks an error (decay <= 1, the write
// projects), so each token adds one independent rounding of the state to what sums over Ek bring.
testing::AssertionResult close(const Result& actual, const Result& expected, const Sequence& x,
                               double decay_error = 0) {
  const auto length = x.shape.key_dim + x.qkv.rows() + static_cast<std::int64_t>(decay_error * decay_error);
  auto same = matches(actual.out, expected.out, {.a = x.qkv.format(), .length = length});
  if (!same) return same << " (out)";
  same = matches(actual.state, expected.state, {.length = length});
  return same ? same : same << " (state)";
}

// In the chunked form the decay from token j to i is exp(b_i - b_j) with b the sum of g since the chunk's
// start, in f32: an error of u32 |b| in the exponent, in units of u32 here.
double decay_error(const Sequence& x) {
  const std::int64_t T = x.qkv.rows(), Hv = x.shape.value_heads;
  double largest = 0;
  for (std::int64_t h = 0; h < Hv; ++h) {
    double b = 0;
    for (std::int64_t t = 0; t < T; ++t) {
      b = x.g[t * Hv + h] + (t % 64 == 0 ? 0 : b);
      largest = std::max(largest, -b);
    }
  }
  return largest;
}

// One key head of 2, one value head of 2: nothing decays, what is written with strength 1 is read back.
TEST_P(Gdn, StoresAndReadsBack) {
  const float scale = 1 / std::sqrt(2.0f);  // of q
  Sequence x{
      {1, 1, 2, 2},
      matrix(format(), 4, 6, {1, 0, 1, 0, 3, 4,    // write (3, 4) at key 0, read key 0
                              1, 0, 0, 1, 5, 6,    // write (5, 6) at key 1, read key 0
                              0, 7, 1, 0, 8, 9,    // overwrite key 0 by (8, 9), read key 1; q is normalised
                              1, 0, 0, 1, 0, 0}),  // beta 0 writes nothing
      {0, 0, 0, 0},
      {1, 1, 1, 0},
      {0, 0, 0, 0}};
  const Result r = prefill(stream(), x);
  const std::vector<float> expected = {3 * scale, 4 * scale, 3 * scale, 4 * scale,
                                       5 * scale, 6 * scale, 8 * scale, 9 * scale};
  EXPECT_TRUE(compare(r.out, expected, {.relative = 4e-6 + 2 * unit_roundoff(format()), .cosine_gap = 1e-4}));
  EXPECT_TRUE(compare(r.state, std::vector<float>{8, 9, 5, 6}, {.relative = 4e-6, .cosine_gap = 1e-10}));
}

// Decay halves the state before the old value is read: 0.5 * 8 = 4 stands where 6 is written with strength
// 0.5, which leaves 4 + 0.5 (6 - 4) = 5, and that is what the query sees.
TEST_P(Gdn, DecaysThenReadsThenWrites) {
  Sequence x{{1, 1, 1, 1}, matrix(format(), 1, 3, {2, 3, 6}), {-0.69314718f}, {0.5f}, {8}};
  const Result r = prefill(stream(), x);
  EXPECT_NEAR(r.state[0], 5, 1e-5);
  EXPECT_NEAR(r.out.get(0, 0), 5, format() == Format::f32 ? 1e-5 : 0.02);
}

// Value head h reads key head h / (Hv / Hk).
TEST_P(Gdn, ValueHeadsShareKeyHeads) {
  Sequence x{{2, 4, 2, 1},
             matrix(format(), 1, 12, {1, 0, 0, 1, 1, 0, 0, 1, 1, 2, 3, 4}),
             {0, 0, 0, 0},
             {1, 1, 1, 1},
             std::vector<float>(8, 0.0f)};
  EXPECT_TRUE(compare(prefill(stream(), x).state, std::vector<float>{1, 0, 2, 0, 0, 3, 0, 4},
                      {.relative = 4e-6, .cosine_gap = 1e-10}));
}

TEST_P(Gdn, GatesByHand) {
  const std::vector<float> A_log = {0, std::log(3.0f), 0}, dt_bias = {0, 0, 10};
  std::vector<float> g(3), beta(3);
  ops().gdn_gates(stream(), matrix(format(), 1, 3, {0, 0, 40}), matrix(format(), 1, 3, {0, 1, -40}), A_log,
                  dt_bias, g, beta);
  // softplus(0) = log 2, softplus(50) = 50
  EXPECT_TRUE(compare(g, std::vector<float>{-0.6931472f, -3 * 0.6931472f, -50}, rounded_sum(Format::f32, 1)));
  EXPECT_TRUE(
      compare(beta, std::vector<float>{0.5, 0.7310586f, 4.2483543e-18f}, rounded_sum(Format::f32, 1)));
}

TEST_P(Gdn, GatesMatchReference) {
  for (std::int64_t Hv : {1, 2, 7, 16, 33})
    for (std::int64_t T : kRowCounts)
      for (float scale : {1.0f, 30.0f}) {
        const Matrix a = random_matrix(random, format(), T, Hv, scale),
                     b = random_matrix(random, format(), T, Hv, scale);
        const std::vector<float> A_log = normals(random, Hv), dt_bias = normals(random, Hv);
        std::vector<float> g(T * Hv), beta(T * Hv), g_expected(T * Hv), beta_expected(T * Hv);
        ops().gdn_gates(stream(), a, b, A_log, dt_bias, g, beta);
        reference::gdn_gates(stream(), a, b, A_log, dt_bias, g_expected, beta_expected);
        ASSERT_TRUE(matches(g, g_expected, {})) << T << " x " << Hv << ", scale " << scale;
        ASSERT_TRUE(matches(beta, beta_expected, {})) << T << " x " << Hv << ", scale " << scale;
      }
}

TEST_P(Gdn, GateRowsAreIndependent) {
  const Matrix a = random_matrix(random, format(), 40, 18), b = random_matrix(random, format(), 40, 18);
  const std::vector<float> A_log = normals(random, 18), dt_bias = normals(random, 18);
  EXPECT_TRUE(rows_are_independent(40, [&](Stream& s, std::span<const std::int64_t> rows) {
    const std::size_t n = rows.size() * 18;
    std::vector<float> g(n), beta(n);
    ops().gdn_gates(s, gather(a, rows), gather(b, rows), A_log, dt_bias, g, beta);
    g.insert(g.end(), beta.begin(), beta.end());
    Matrix y(Format::f32, static_cast<std::int64_t>(rows.size()), 36);
    for (std::int64_t t = 0; t < y.rows(); ++t)
      for (std::int64_t h = 0; h < 18; ++h) y.set(t, h, g[t * 18 + h]), y.set(t, 18 + h, beta[t * 18 + h]);
    return y;
  }));
}

constexpr GdnShape kShapes[] = {
    {1, 1, 8, 8}, {1, 2, 16, 24}, {2, 2, 33, 17}, {2, 6, 32, 64}, {1, 2, 128, 128}};

TEST_P(Gdn, PrefillMatchesTheRecurrence) {
  for (const GdnShape s : kShapes)
    for (std::int64_t T : kRowCounts) {
      const Sequence x = random_sequence(random, format(), s, T, T % 2 ? 0.2 : 0);
      const Result expected = run_plain(reference::gdn_recurrent, x);
      ASSERT_TRUE(close(prefill(stream(), x), expected, x, decay_error(x)))
          << "prefill, T " << T << ", Ek " << s.key_dim;
    }
}

// Chunks in WY form and token by token are the same function.
TEST_P(Gdn, ChunksAgreeWithTheRecurrence) {
  for (const GdnShape s : kShapes)
    for (std::int64_t T : {1, 2, 63, 64, 65, 130, 200}) {
      const Sequence x = random_sequence(random, format(), s, T);
      ASSERT_TRUE(close(run_plain(reference::gdn_chunked, x), run_plain(reference::gdn_recurrent, x), x))
          << "T " << T << ", Ek " << s.key_dim;
    }
}

// Backends may have kernels of their own for heads of 128.
constexpr GdnShape kHardShapes[] = {{1, 2, 64, 32}, {1, 2, 128, 128}};

// Where the triangular solve is hardest: the same key again and again, written with full strength, never
// forgotten; then everything forgotten at once; then nothing ever written.
TEST_P(Gdn, ExtremeGates) {
  for (const GdnShape s : kHardShapes) {
    const std::int64_t queries_and_keys = 2 * s.key_dim;
    Sequence same_key = random_sequence(random, format(), s, 130);
    for (std::int64_t t = 1; t < 130; ++t)
      for (std::int64_t c = 0; c < queries_and_keys; ++c) same_key.qkv.set(t, c, same_key.qkv.get(0, c));
    same_key.g.assign(260, 0.0f);
    same_key.beta.assign(260, 1.0f);
    Sequence forgetful = random_sequence(random, format(), s, 130);
    forgetful.g.assign(260, -1000.0f);
    Sequence deaf = random_sequence(random, format(), s, 130);
    deaf.beta.assign(260, 0.0f);
    deaf.g.assign(260, 0.0f);
    Sequence zeros = random_sequence(random, format(), s, 130);
    for (std::int64_t t = 0; t < 130; ++t)
      for (std::int64_t c = 0; c < zeros.qkv.cols(); ++c) zeros.qkv.set(t, c, 0);
    const Sequence* cases[] = {&same_key, &forgetful, &deaf, &zeros};
    for (std::size_t i = 0; i < std::size(cases); ++i) {
      const Sequence& x = *cases[i];
      const Result expected = run_plain(reference::gdn_recurrent, x);
      EXPECT_TRUE(close(prefill(stream(), x), expected, x, decay_error(x)))
          << "prefill, case " << i << ", Ek " << s.key_dim;
      EXPECT_TRUE(close(run_plain(reference::gdn_chunked, x), expected, x))
          << "chunked, case " << i << ", Ek " << s.key_dim;
    }
  }
}

TEST_P(Gdn, LargeInputsAreNormalised) {
  for (const GdnShape s : kHardShapes) {
    Sequence x = random_sequence(random, format(), s, 70);
    for (std::int64_t t = 0; t < 70; ++t)
      for (std::int64_t c = 0; c < 2 * s.key_dim; ++c) x.qkv.set(t, c, 1e4f * x.qkv.get(t, c));
    const Result expected = run_plain(reference::gdn_recurrent, x);
    EXPECT_TRUE(close(prefill(stream(), x), expected, x, decay_error(x))) << "Ek " << s.key_dim;
  }
}

testing::AssertionResult same_result(const Result& actual, const Result& expected) {
  const auto out = same_bits(actual.out, expected.out);
  return out ? same_bits(actual.state, expected.state) : out;
}

// Prompts are cut at multiples of 64.
TEST_P(Gdn, PrefillMayBeCutAtChunks) {
  for (const GdnShape s : {GdnShape{1, 2, 128, 128}, {2, 2, 33, 17}}) {
    const Sequence x = random_sequence(random, format(), s, 200);
    const Result expected = prefill(stream(1), x);
    for (int threads : {1, 2, 3})
      for (std::int64_t step : {64, 128, 192})
        EXPECT_TRUE(same_result(prefill(stream(threads), x, step), expected))
            << threads << " threads, calls of " << step;
  }
}

// Rows may lie at any distance; aligned ones may take another path.
TEST_P(Gdn, EveryStrideGivesTheSameBits) {
  const Sequence x = random_sequence(random, format(), {1, 2, 128, 128}, 100);
  const std::vector<float> values = to_floats(x.qkv);
  const Result expected = prefill(stream(), x);
  for (std::int64_t padding : {0, 1, 2, 8}) {
    const Matrix qkv = matrix(format(), 100, x.qkv.cols(), values, padding);
    std::vector<float> state = reordered(x.shape, x.state, StateOrder::plain, ops().state_order);
    Matrix out(format(), 100, x.shape.value_cols(), padding);
    ops().gdn_prefill(stream(), {x.shape, qkv, x.g, x.beta, state, out});
    EXPECT_TRUE(same_bits(out, expected.out) && out.padding_untouched()) << "padding " << padding;
    EXPECT_TRUE(same_bits(reordered(x.shape, state, ops().state_order, StateOrder::plain), expected.state));
  }
}

// So long that a backend may go through it in several parts.
TEST_P(Gdn, LongPromptsMayBeCutAtChunks) {
  const Sequence x = random_sequence(random, format(), {1, 1, 128, 128}, 1100);
  EXPECT_TRUE(same_result(prefill(stream(), x, 512), prefill(stream(), x)));
}

// Tokens that follow, and how many there are, leave no trace in a prompt's rows.
TEST_P(Gdn, LaterTokensDoNotMatter) {
  for (const GdnShape s : kHardShapes) {
    const Sequence x = random_sequence(random, format(), s, 130);
    const Result expected = prefill(stream(), x);
    for (std::int64_t T : {1, 5, 63, 64, 65, 100}) {
      std::vector<std::int64_t> rows(T);
      std::iota(rows.begin(), rows.end(), 0);
      const Sequence head{x.shape, gather(x.qkv, rows), gather(x.g, 2, rows), gather(x.beta, 2, rows),
                          x.state};
      EXPECT_TRUE(same_bits(prefill(stream(), head).out, Rows(expected.out).slice_rows(0, T)))
          << T << ", Ek " << s.key_dim;
    }
  }
}

TEST_P(Gdn, RejectsShapesThatDoNotFit) {
  Sequence x = random_sequence(random, format(), {1, 2, 8, 4}, 3);
  Matrix out(format(), 3, 8);
  const auto prefill_as = [&](const GdnShape& s) {
    ops().gdn_prefill(stream(), {s, x.qkv, x.g, x.beta, x.state, out});
  };
  EXPECT_NO_THROW(prefill_as({1, 2, 8, 4}));
  for (const GdnShape s : {GdnShape{2, 1, 8, 4}, {0, 2, 8, 4}, {1, 2, 8, 5}, {1, 2, 0, 12}})
    EXPECT_THROW(prefill_as(s), Error)
        << s.key_heads << " " << s.value_heads << " " << s.key_dim << " " << s.value_dim;
  std::vector<float> two(2), six(6);
  const Matrix a(format(), 3, 2), narrow(format(), 3, 1);
  EXPECT_NO_THROW(ops().gdn_gates(stream(), a, a, two, two, six, six));
  EXPECT_THROW(ops().gdn_gates(stream(), a, narrow, two, two, six, six), Error);
  EXPECT_THROW(ops().gdn_gates(stream(), a, a, six, two, six, six), Error);
  EXPECT_THROW(ops().gdn_gates(stream(), a, a, two, two, two, six), Error);
}

}  // namespace
}  // namespace quire
