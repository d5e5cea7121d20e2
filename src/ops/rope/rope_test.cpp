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

// Angle i of a row at positions (t, h, w), in double.
double angle(const std::int32_t (&position)[3], int i, const Rotary& a) {
  const int stream = i % 3 == 1 && i < 3 * a.section_h ? 1 : i % 3 == 2 && i < 3 * a.section_w ? 2 : 0;
  return position[stream] * std::pow(a.theta, -2.0 * i / a.dims);
}

// Far positions too: an angle of 200,000 in f32 would have lost its third digit.
TEST_P(Rope, RotaryMatchesDouble) {
  for (const auto& [dims, section_h, section_w] :
       {std::tuple(64, 11, 10), {2, 0, 0}, {8, 1, 1}, {64, 0, 0}, {0, 0, 0}})
    for (const std::int64_t T : {0, 1, 3, 70}) {
      std::vector<std::int32_t> position;
      for (std::int64_t i = 0; i < 3 * T; ++i)
        position.push_back(i < T ? static_cast<std::int32_t>(i * 3000)
                                 : static_cast<std::int32_t>(random.uniform() * 4000));
      std::vector<float> cos(T * dims / 2, NAN), sin(T * dims / 2, NAN);
      const Rotary a{.position = position.data(),
                     .rows = T,
                     .dims = dims,
                     .theta = 1e7,
                     .section_h = section_h,
                     .section_w = section_w,
                     .format = format(),
                     .cos = cos,
                     .sin = sin};
      ops().rotary(stream(), a);
      for (std::int64_t t = 0; t < T; ++t)
        for (int i = 0; i < dims / 2; ++i) {
          const double x = angle({position[t], position[T + t], position[2 * T + t]}, i, a);
          ASSERT_EQ(cos[t * dims / 2 + i], round_to(format(), std::cos(x))) << "row " << t << ", angle " << i;
          ASSERT_EQ(sin[t * dims / 2 + i], round_to(format(), std::sin(x))) << "row " << t << ", angle " << i;
        }
    }
}

// Two query heads and one key head of 4 dims, of which 2 rotate by 90 degrees: (a, b) becomes (-b, a).
TEST_P(Rope, ComputesQkByHand) {
  const std::vector<float> q_norm = {0, 0, 0, 1}, k_norm = {1, 0, 0, 0}, cos = {0}, sin = {1};
  const std::int32_t kv_row[] = {1};
  Matrix q(format(), 1, 8), pool_k(format(), 3, 4), pool_v(format(), 3, 4);
  ops().qk_norm_rope(stream(),
                     {.q_gate = matrix(format(), 1, 16, {1, 1, -1, 1, 9, 9, 9, 9, 2, -2, 2, 2, 9, 9, 9, 9}),
                      .k = matrix(format(), 1, 4, {1, 1, 1, 1}),
                      .v = matrix(format(), 1, 4, {5, 6, 7, 8}),
                      .q = q,
                      .kv = {.k = pool_k, .v = pool_v},
                      .kv_row = kv_row,
                      .head_dim = 4,
                      .q_norm = q_norm,
                      .k_norm = k_norm,
                      .eps = 0,
                      .cos = cos,
                      .sin = sin});
  EXPECT_TRUE(compare(q, std::vector<float>{-1, 1, -1, 2, 1, 1, 1, 2}, rounded_sum(format(), 4)));
  EXPECT_TRUE(
      compare(Rows(pool_k).slice_rows(1, 1), std::vector<float>{-1, 2, 1, 1}, rounded_sum(format(), 4)));
  EXPECT_TRUE(same_bits(Rows(pool_v).slice_rows(1, 1), matrix(format(), 1, 4, {5, 6, 7, 8})));
  for (const std::int64_t row : {0, 2})
    for (std::int64_t c = 0; c < 4; ++c) {
      EXPECT_TRUE(std::isnan(pool_k.get(row, c)) && std::isnan(pool_v.get(row, c))) << row;
    }
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
  Matrix q_gate, k, v;
  std::vector<float> q_norm, k_norm;
  Angles angles;
};
QkInputs random_inputs(Random& random, Format f, std::int64_t T, QkShape s) {
  return {random_matrix(random, f, T, s.heads * 2 * s.head_dim),
          random_matrix(random, f, T, s.kv_heads * s.head_dim),
          random_matrix(random, f, T, s.kv_heads * s.head_dim),
          normals(random, s.head_dim, 0.3f),
          normals(random, s.head_dim, 0.3f),
          random_angles(random, f, T * s.half)};
}
// The rows of q, of k and of v side by side. Rows go to the cache in reverse; each `dropped`th is not kept.
// Of heads of eights, `padding` 8 aligns what is written.
template <typename Op>
Matrix run(Op op, Stream& stream, const QkInputs& in, QkShape s, std::int64_t dropped = 0,
           std::int64_t padding = 3) {
  const Format f = in.k.format();
  const std::int64_t T = in.k.rows(), q_cols = s.heads * s.head_dim, k_cols = s.kv_heads * s.head_dim;
  Matrix q(f, T, q_cols, padding), k(f, 2 * T + 1, k_cols, padding % 8 ? 5 : 16);
  Matrix v(f, 2 * T + 1, k_cols, padding);
  std::vector<std::int32_t> kv_row;
  for (std::int64_t t = 0; t < T; ++t)
    kv_row.push_back(dropped && t % dropped == 0 ? -1 : static_cast<std::int32_t>(2 * (T - t) - 1));
  op(stream, {.q_gate = in.q_gate,
              .k = in.k,
              .v = in.v,
              .q = q,
              .kv = {.k = k, .v = v},
              .kv_row = kv_row.data(),
              .head_dim = s.head_dim,
              .q_norm = in.q_norm,
              .k_norm = in.k_norm,
              .eps = kEps,
              .cos = in.angles.cos,
              .sin = in.angles.sin});
  EXPECT_TRUE(q.padding_untouched() && k.padding_untouched() && v.padding_untouched());
  Matrix out(f, T, q_cols + 2 * k_cols);
  std::vector<bool> written(2 * T + 1);
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t c = 0; c < q_cols; ++c) out.set(t, c, q.get(t, c));
    if (kv_row[t] < 0) continue;
    written[kv_row[t]] = true;
    for (std::int64_t c = 0; c < k_cols; ++c) {
      out.set(t, q_cols + c, k.get(kv_row[t], c));
      out.set(t, q_cols + k_cols + c, v.get(kv_row[t], c));
    }
  }
  for (std::int64_t row = 0; row < 2 * T + 1; ++row)
    for (std::int64_t c = 0; c < k_cols && !written[row]; ++c)
      EXPECT_TRUE(std::isnan(k.get(row, c)) && std::isnan(v.get(row, c))) << "wrote row " << row;
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
      for (const std::int64_t dropped : {0, 3})
        ASSERT_TRUE(matches(run(ops().qk_norm_rope, stream(), in, s, dropped),
                            run(reference::qk_norm_rope, stream(), in, s, dropped),
                            {.a = format(), .length = s.head_dim, .roundings = 3, .intermediate = 8}))
            << "T " << T << ", E " << s.head_dim << ", " << s.heads << " / " << s.kv_heads
            << " heads, rotated pairs " << s.half << ", dropped " << dropped;
    }
}

// Many heads, and many rows of them: one head a warp, and some.
TEST_P(Rope, AlignedHeadsGiveTheSameBits) {
  for (const QkShape s : {QkShape{256, 16, 4, 32},
                          {256, 3, 1, 128},
                          {128, 32, 8, 64},
                          {128, 3, 2, 64},
                          {72, 4, 2, 16},
                          {64, 1, 1, 0},
                          {8, 5, 1, 0}})
    for (const std::int64_t T : {1, 7, s.heads >= 16 ? 350 : 40}) {
      const QkInputs in = random_inputs(random, format(), T, s);
      const QkInputs vectors{aligned(in.q_gate), aligned(in.k), aligned(in.v),
                             in.q_norm,          in.k_norm,     in.angles};
      for (const std::int64_t dropped : {0, 3})
        ASSERT_TRUE(same_bits(run(ops().qk_norm_rope, stream(), vectors, s, dropped, 8),
                              run(ops().qk_norm_rope, stream(), in, s, dropped)))
            << "T " << T << ", E " << s.head_dim << ", " << s.heads << " / " << s.kv_heads
            << " heads, rotated pairs " << s.half << ", dropped " << dropped;
    }
}

// Queries without gates give what the same queries between gates give, and there may be none.
TEST_P(Rope, QueriesWithoutGates) {
  constexpr std::int64_t kRows = 5;
  const QkShape s{64, 3, 1, 32};
  const QkInputs in = random_inputs(random, format(), kRows, s);
  Matrix bare(format(), kRows, s.heads * s.head_dim);
  for (std::int64_t t = 0; t < kRows; ++t)
    for (std::int64_t c = 0; c < bare.cols(); ++c)
      bare.set(t, c, in.q_gate.get(t, c / s.head_dim * 2 * s.head_dim + c % s.head_dim));
  const Matrix expected = run(ops().qk_norm_rope, stream(), in, s);
  const auto ungated = [&](Stream& stream, const QkNormRope& gated) {
    QkNormRope a = gated;
    a.q_gate = bare;
    a.gated = false;
    ops().qk_norm_rope(stream, a);
    a.q_gate = a.q_gate.slice_cols(0, 0);
    a.q = a.q.slice_cols(0, 0);
    ops().qk_norm_rope(stream, a);
  };
  EXPECT_TRUE(same_bits(run(ungated, stream(), in, s), expected));
}

// Layers joined together get what each gets alone, whether or not they are aligned, or only some.
TEST_P(Rope, JoinedLayersGiveTheBitsOfEach) {
  for (const QkShape s : {QkShape{128, 0, 8, 64}, {256, 0, 2, 32}, {72, 0, 2, 9}, {64, 0, 3, 0}})
    for (const std::int64_t T : {0, 1, 7, 40})
      for (const int padded : {0, 1, 2})  // rows: aligned, of the first layer not, of none
        for (std::size_t count = 0; count <= kMostJoined; ++count) {
          const Angles angles = random_angles(random, format(), T * s.half);
          std::vector<std::int32_t> kv_row;
          for (std::int64_t t = 0; t < T; ++t)
            kv_row.push_back(t % 3 == 2 ? -1 : static_cast<std::int32_t>(2 * (T - t) - 1));
          std::vector<Matrix> k, v, pool_k, pool_v, expected_k, expected_v;
          std::vector<std::vector<float>> norms;
          for (std::size_t i = 0; i < count; ++i) {
            const std::int64_t cols = s.kv_heads * s.head_dim, padding = padded > (i > 0) ? 3 : 8;
            k.push_back(random_matrix(random, format(), T, cols, 1, padding));
            v.push_back(random_matrix(random, format(), T, cols, 1, padding));
            norms.push_back(normals(random, s.head_dim, 0.3f));
            for (auto* pools : {&pool_k, &pool_v, &expected_k, &expected_v})
              pools->emplace_back(format(), 2 * T + 1, cols, padding);
          }
          const auto layers = [&](std::vector<Matrix>& to_k, std::vector<Matrix>& to_v) {
            std::vector<JoinKv::Layer> all;
            for (std::size_t i = 0; i < count; ++i)
              all.push_back({k[i], v[i], {.k = to_k[i], .v = to_v[i]}, norms[i]});
            return all;
          };
          const auto join = [&](std::span<const JoinKv::Layer> some) {
            return JoinKv{.layers = some,
                          .kv_row = kv_row.data(),
                          .head_dim = s.head_dim,
                          .eps = kEps,
                          .cos = angles.cos,
                          .sin = angles.sin};
          };
          const std::vector<JoinKv::Layer> joined = layers(pool_k, pool_v);
          ops().join_kv(stream(), join(joined));
          for (const JoinKv::Layer& l : layers(expected_k, expected_v))
            ops().qk_norm_rope(stream(), keys_alone(join(joined), l));
          for (std::size_t i = 0; i < count; ++i) {
            ASSERT_TRUE(same_bits(pool_k[i], expected_k[i]) && same_bits(pool_v[i], expected_v[i]))
                << "layer " << i << " of " << count << ", T " << T << ", E " << s.head_dim;
            EXPECT_TRUE(pool_k[i].padding_untouched() && pool_v[i].padding_untouched());
          }
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
                      gather(all.v, rows),
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
  Matrix q(format(), 2, 16), k(format(), 2, 8), v(format(), 2, 8), q_gate(format(), 2, 32),
      narrow(format(), 2, 31), seven(format(), 2, 7), pool_k(format(), 4, 8), pool_v(format(), 4, 8);
  const std::vector<float> norm(8), angles(4), odd(5), many(10);
  const std::int32_t kv_row[] = {3, -1}, past[] = {4, 0}, negative[] = {-2, 0};
  const QkNormRope fits{.q_gate = q_gate,
                        .k = k,
                        .v = v,
                        .q = q,
                        .kv = {.k = pool_k, .v = pool_v},
                        .kv_row = kv_row,
                        .head_dim = 8,
                        .q_norm = norm,
                        .k_norm = norm,
                        .eps = kEps,
                        .cos = angles,
                        .sin = angles};
  const auto call = [&](auto change) {
    QkNormRope a = fits;
    change(a);
    ops().qk_norm_rope(stream(), a);
  };
  EXPECT_NO_THROW(call([](QkNormRope&) {}));
  EXPECT_THROW(call([&](QkNormRope& a) { a.q_gate = narrow; }), Error);
  EXPECT_THROW(call([&](QkNormRope& a) { a.v = seven; }), Error);
  EXPECT_THROW(call([&](QkNormRope& a) { a.kv.v = k; }), Error);
  EXPECT_THROW(call([&](QkNormRope& a) { a.cos = a.sin = odd; }), Error);
  EXPECT_THROW(call([&](QkNormRope& a) { a.cos = a.sin = many; }), Error) << "10 rotated dims of 8";
  EXPECT_THROW(call([&](QkNormRope& a) { a.k_norm = angles; }), Error);
  EXPECT_THROW(call([](QkNormRope& a) { a.kv_row = nullptr; }), Error);
  EXPECT_THROW(call([&](QkNormRope& a) { a.kv_row = past; }), Error);
  EXPECT_THROW(call([&](QkNormRope& a) { a.kv_row = negative; }), Error);
  const JoinKv::Layer layer{k, v, {.k = pool_k, .v = pool_v}, norm}, other{seven, seven, layer.kv, norm};
  const auto join = [&](const std::vector<JoinKv::Layer>& layers, const std::int32_t* rows) {
    ops().join_kv(
        stream(),
        {.layers = layers, .kv_row = rows, .head_dim = 8, .eps = kEps, .cos = angles, .sin = angles});
  };
  EXPECT_NO_THROW(join({layer}, kv_row));
  EXPECT_THROW(join({layer, other}, kv_row), Error);
  EXPECT_THROW(join({layer, layer}, past), Error);
  EXPECT_THROW(join(std::vector(kMostJoined + 1, layer), kv_row), Error);
  std::vector<float> cos(4), sin(4);
  const std::int32_t position[6] = {};
  EXPECT_NO_THROW(ops().rotary(
      stream(), {.position = position, .rows = 2, .dims = 4, .theta = 1, .cos = cos, .sin = sin}));
  EXPECT_THROW(ops().rotary(stream(),
                            {.position = position, .rows = 2, .dims = 3, .theta = 1, .cos = cos, .sin = sin}),
               Error);
  EXPECT_THROW(ops().rotary(stream(),
                            {.position = position, .rows = 3, .dims = 4, .theta = 1, .cos = cos, .sin = sin}),
               Error);
  EXPECT_THROW(ops().rotary(stream(), {.rows = 2, .dims = 4, .theta = 1, .cos = cos, .sin = sin}), Error);
  Matrix qkv(format(), 2, 24);
  EXPECT_THROW(ops().vision_rope(stream(), qkv, 3, angles, angles), Error);
  EXPECT_THROW(ops().vision_rope(stream(), qkv, 2, angles, odd), Error);
  EXPECT_THROW(ops().vision_rope(stream(), qkv, 0, {}, {}), Error);
}

}  // namespace
}  // namespace quire
