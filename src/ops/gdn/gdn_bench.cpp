#include <fmt/format.h>

#include "ops/bench.h"

namespace quire {
namespace {

struct Model {
  const char* name;
  GdnShape shape;
};
constexpr Model kModels[] = {{"mini", {1, 2, 128, 128}}, {"0.8B", {16, 16, 128, 128}}};

// The recurrence is the least work known for a prompt: a token decays the state (1 FLOP an element), reads it
// twice (2 + 2) and writes a rank-1 correction (2). The state moves in and out once a call.
void prefill(benchmark::State& state, const Ops& ops, Stream& stream, const GdnShape& s, std::int64_t T) {
  Random random(1);
  const Matrix qkv = random_matrix(random, Format::bf16, T, s.conv_cols(), 1, 0);
  Matrix out(Format::bf16, T, s.value_cols(), 0);
  std::vector<float> S(static_cast<std::size_t>(s.state_floats()), 0.0f), g, beta;
  for (std::int64_t i = 0; i < T * s.value_heads; ++i) {
    g.push_back(random.uniform(-0.1, 0));
    beta.push_back(random.uniform(0, 1));
  }
  const auto elements = static_cast<double>(S.size()), tokens = static_cast<double>(T);
  const auto row_bytes = static_cast<double>(2 * (qkv.cols() + out.cols()) + 8 * s.value_heads);
  measure(state, {7 * elements * tokens, 8 * elements + row_bytes * tokens}, [&](std::int64_t) {
    ops.gdn_prefill(stream, {s, qkv, g, beta, S, out});
  });
}

// A window of one request in the middle of a block: two products with the checkpoint a token, 4 FLOP an
// element of either of a record, 16 of them read; the checkpoint, the records and the rows once.
void window(benchmark::State& state, const Ops& ops, Stream& stream, const GdnShape& s, std::int64_t T) {
  Random random(1);
  constexpr int kTaps = 4, kStart = kGdnBlock / 2;
  const Matrix qkv = random_matrix(random, Format::bf16, T, s.conv_cols(), 1, 0),
               z = random_matrix(random, Format::bf16, T, s.value_cols(), 1, 0),
               a = random_matrix(random, Format::bf16, T, s.value_heads, 1, 0);
  Matrix out(Format::bf16, T, s.value_cols(), 0),
      conv = random_matrix(random, Format::bf16, gdn_conv_rows(kTaps), s.conv_cols(), 1, 0),
      k = random_matrix(random, Format::bf16, kGdnRing, s.key_cols(), 0.1f, 0),
      u = random_matrix(random, Format::bf16, kGdnRing, s.value_cols(), 1, 0),
      G = random_matrix(random, Format::f32, kGdnRing, s.value_heads, 0, 0);
  std::vector<float> S = normals(random, s.state_floats()), taps = normals(random, s.conv_cols() * kTaps);
  const std::vector<float> ones(static_cast<std::size_t>(s.value_heads), 1.0f),
      norm(static_cast<std::size_t>(s.value_dim), 1.0f);
  const std::int32_t rows[] = {0, static_cast<std::int32_t>(T)}, slot = 0, start = kStart;
  const GdnWindow call{.shape = s,
                       .qkv = qkv,
                       .z = z,
                       .a = a,
                       .b = a,
                       .conv1d = taps,
                       .A_log = ones,
                       .dt_bias = ones,
                       .norm = norm,
                       .eps = 1e-6f,
                       .slots = {S, conv, k, u, G},
                       .requests = {1, kMostWindow, rows, nullptr, &slot},
                       .generated = &start,
                       .previous = &start,
                       .out = out};
  const double record = static_cast<double>(s.key_cols() + s.value_cols()), tokens = static_cast<double>(T);
  const double elements = static_cast<double>(s.state_floats());
  const double row = static_cast<double>(2 * (qkv.cols() + z.cols() + out.cols()));
  measure(state,
          {tokens * (4 * elements + 4 * kStart * record), 4 * elements + 2 * kStart * record + tokens * row},
          [&](std::int64_t) { ops.gdn_window(stream, call); });
}

const bool kRegistered = [] {
  for (const Model& m : kModels) {
    for (std::int64_t T : {64, 512, 832})
      register_for_tables("gdn_prefill", fmt::format("{}/T={}", m.name, T),
                          [=](benchmark::State& state, const Ops& ops, Stream& stream) {
                            prefill(state, ops, stream, m.shape, T);
                          });
    for (std::int64_t T : {1, 4, 16})
      register_for_tables("gdn_window", fmt::format("{}/T={}", m.name, T),
                          [=](benchmark::State& state, const Ops& ops, Stream& stream) {
                            window(state, ops, stream, m.shape, T);
                          });
  }
  return true;
}();

}  // namespace
}  // namespace quire
