#include "ops/rope/rope.h"

#include "ops/testing.h"

namespace quire {
namespace {

constexpr float kEps = 1e-6f;

// cos and sin of random angles, rounded to `f`.
struct Angles {
  std::vector<float> cos, sin;
};
Angles random_angles(Random& random, Format f, std::int64_t n) {
  Angles a;
  for (std::int64_t i = 0; i < n; ++i) {
    const float angle = random.uniform(-3.2, 3.2);
    a.cos.push_back(round_to(f, std::cos(angle)));
    a.sin.push_back(round_to(f, std::sin(angle)));
  }
  return a;
}

class Rope : public OpsTest {};
INSTANTIATE_TEST_SUITE_P(, Rope, each_table_and_format(), case_name);

// Two query heads and one key head of 4 dims, of which 2 rotate by 90 degrees: (a, b) becomes (-b, a).
TEST_P(Rope, ComputesQkByHand) {
  const std::vector<float> q_norm = {0, 0, 0, 1}, k_norm = {1, 0, 0, 0}, cos = {0}, sin = {1};
  Matrix q(format(), 1, 8), k = matrix(format(), 1, 4, {1, 1, 1, 1});
  ops().qk_norm_rope(stream(),
                     {.q_gate = matrix(format(), 1, 16, {1, 1, -1, 1, 9, 9, 9, 9, 2, -2, 2, 2, 9, 9, 9, 9}),
                      .k = k,
                      .q = q,
                      .head_dim = 4,
                      .q_norm = q_norm,
                      .k_norm = k_norm,
                      .eps = 0,
                      .cos = cos,
                      .sin = sin});
  EXPECT_TRUE(compare(q, std::vector<float>{-1, 1, -1, 2, 1, 1, 1, 2}, rounded_sum(format(), 4)));
  EXPECT_TRUE(compare(k, std::vector<float>{-1, 2, 1, 1}, rounded_sum(format(), 4)));
}

// One patch, two heads of 4 dims, pairs (0, 2) by 90 and (1, 3) by 180 degrees; v stays.
TEST_P(Rope, ComputesVisionByHand) {
  const std::vector<float> cos = {0, -1}, sin = {1, 0};
  Matrix qkv(format(), 1, 24);
  for (std::int64_t c = 0; c < 24; ++c) qkv.set(0, c, static_cast<float>(c + 1));
  ops().vision_rope(stream(), qkv, 2, cos, sin);
  EXPECT_TRUE(same_bits(qkv, matrix(format(), 1, 24, {-3,  -2,  1,  -4,  -7, -6, 5,  -8, -11, -10, 9,  -12,
                                                      -15, -14, 13, -16, 17, 18, 19, 20, 21,  22,  23, 24})));
}

struct QkShape {
  int head_dim;
  std::int64_t heads, kv_heads, half;
};

struct QkInputs {
  Matrix q_gate, k;
  std::vector<float> q_norm, k_norm;
  Angles angles;
};
QkInputs random_inputs(Random& random, Format f, std::int64_t T, QkShape s) {
  return {random_matrix(random, f, T, s.heads * 2 * s.head_dim),
          random_matrix(random, f, T, s.kv_heads * s.head_dim), normals(random, s.head_dim, 0.3f),
          normals(random, s.head_dim, 0.3f), random_angles(random, f, T * s.half)};
}
// The rows of q, then of k, side by side.
Matrix run(decltype(Ops::qk_norm_rope) op, Stream& stream, const QkInputs& in, QkShape s) {
  const Format f = in.k.format();
  const std::int64_t T = in.k.rows(), q_cols = s.heads * s.head_dim, k_cols = s.kv_heads * s.head_dim;
  Matrix out(f, T, q_cols + k_cols);
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t c = 0; c < k_cols; ++c) out.set(t, q_cols + c, in.k.get(t, c));
  op(stream, {.q_gate = in.q_gate,
              .k = Rows(out).slice_cols(q_cols, k_cols),
              .q = Rows(out).slice_cols(0, q_cols),
              .head_dim = s.head_dim,
              .q_norm = in.q_norm,
              .k_norm = in.k_norm,
              .eps = kEps,
              .cos = in.angles.cos,
              .sin = in.angles.sin});
  return out;
}

// n and the products are rounded before they are added: up to 4 typical values, two of them.
TEST_P(Rope, QkMatchesReference) {
  for (const QkShape s : {QkShape{2, 1, 1, 1},
                          {8, 2, 1, 1},
                          {24, 1, 1, 5},
                          {64, 3, 3, 32},
                          {72, 4, 2, 9},
                          {128, 3, 1, 16},
                          {256, 2, 1, 32},
                          {64, 1, 1, 0}})
    for (std::int64_t T : kRowCounts) {
      const QkInputs in = random_inputs(random, format(), T, s);
      ASSERT_TRUE(matches(run(ops().qk_norm_rope, stream(), in, s),
                          run(reference::qk_norm_rope, stream(), in, s),
                          {.a = format(), .length = s.head_dim, .roundings = 3, .intermediate = 8}))
          << "T " << T << ", E " << s.head_dim << ", " << s.heads << " / " << s.kv_heads
          << " heads, rotated pairs " << s.half;
    }
}

TEST_P(Rope, VisionMatchesReference) {
  for (const auto& [heads, E] : {std::pair(1, 2), {3, 10}, {2, 64}, {4, 72}, {1, 128}})
    for (std::int64_t T : kRowCounts) {
      Matrix x = random_matrix(random, format(), T, 3 * heads * E), expected = x;
      const Angles a = random_angles(random, Format::f32, T * E / 2);
      ops().vision_rope(stream(), x, heads, a.cos, a.sin);
      reference::vision_rope(stream(), expected, heads, a.cos, a.sin);
      ASSERT_TRUE(matches(x, expected, {.a = format(), .length = 2}))
          << T << " rows, " << heads << " x " << E;
    }
}

TEST_P(Rope, RowsAreIndependent) {
  const QkShape s{72, 4, 2, 18};
  const QkInputs all = random_inputs(random, format(), 40, s);
  EXPECT_TRUE(rows_are_independent(40, [&](Stream& stream, std::span<const std::int64_t> rows) {
    const QkInputs in{gather(all.q_gate, rows),
                      gather(all.k, rows),
                      all.q_norm,
                      all.k_norm,
                      {gather(all.angles.cos, s.half, rows), gather(all.angles.sin, s.half, rows)}};
    return run(ops().qk_norm_rope, stream, in, s);
  }));
  const Matrix qkv = random_matrix(random, format(), 40, 3 * 2 * 72);
  const Angles a = random_angles(random, Format::f32, 40 * 36);
  EXPECT_TRUE(rows_are_independent(40, [&](Stream& stream, std::span<const std::int64_t> rows) {
    Matrix x = gather(qkv, rows);
    ops().vision_rope(stream, x, 2, gather(a.cos, 36, rows), gather(a.sin, 36, rows));
    return x;
  }));
}

TEST_P(Rope, RejectsShapesThatDoNotFit) {
  Matrix q(format(), 2, 16), k(format(), 2, 8), q_gate(format(), 2, 32), narrow(format(), 2, 31);
  const std::vector<float> norm(8), angles(4), odd(5), many(10);
  const auto call = [&](const Matrix& gate, const std::vector<float>& cos, const std::vector<float>& k_norm) {
    ops().qk_norm_rope(stream(), {.q_gate = gate,
                                  .k = k,
                                  .q = q,
                                  .head_dim = 8,
                                  .q_norm = norm,
                                  .k_norm = k_norm,
                                  .eps = kEps,
                                  .cos = cos,
                                  .sin = cos});
  };
  EXPECT_NO_THROW(call(q_gate, angles, norm));
  EXPECT_THROW(call(narrow, angles, norm), Error);
  EXPECT_THROW(call(q_gate, odd, norm), Error);
  EXPECT_THROW(call(q_gate, many, norm), Error);  // 10 rotated dims of 8
  EXPECT_THROW(call(q_gate, angles, angles), Error);
  Matrix qkv(format(), 2, 24);
  EXPECT_THROW(ops().vision_rope(stream(), qkv, 3, angles, angles), Error);
  EXPECT_THROW(ops().vision_rope(stream(), qkv, 2, angles, odd), Error);
  EXPECT_THROW(ops().vision_rope(stream(), qkv, 0, {}, {}), Error);
}

}  // namespace
}  // namespace quire
