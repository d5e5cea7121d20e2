#include <fmt/format.h>

#include "ops/bench.h"

namespace quire {
namespace {

struct Heads {
  const char* name;
  std::int64_t H, G;
  int E;
};
constexpr Heads kText[] = {{"mini", 2, 1, 256}, {"0.8B", 8, 2, 256}};
constexpr Heads kVision[] = {{"mini", 4, 4, 64}, {"0.8B", 12, 12, 64}};

// T queries after `start` cached rows, in pages in reverse order. A query meets each earlier key twice
// (scores, values): 4 E FLOP.
void run_text(benchmark::State& state, const Ops& ops, Stream& stream, Heads m, std::int32_t T,
              std::int32_t start) {
  constexpr std::int32_t kPage = 64;
  Random random(1);
  const std::int32_t pages = (start + T + kPage - 1) / kPage;
  const Matrix q = random_matrix(random, Format::bf16, T, m.H * m.E, 1, 0);
  const Matrix k = random_matrix(random, Format::bf16, pages * kPage, m.G * m.E, 1, 0);
  const Matrix v = random_matrix(random, Format::bf16, pages * kPage, m.G * m.E, 1, 0);
  Matrix out(Format::bf16, T, m.H * m.E, 0);
  std::vector<std::int32_t> table;
  for (std::int32_t i = 0; i < pages; ++i) table.push_back(pages - 1 - i);
  const std::int32_t first_row[] = {0, T}, slot = 0;
  const Attention call{.q = q,
                       .kv = {k, v, kPage, table.data(), pages},
                       .requests = {1, T, first_row, &start, &slot},
                       .head_dim = m.E,
                       .out = out};
  const double pairs = 1.0 * T * start + 0.5 * T * (T + 1);
  const auto elements = static_cast<double>(2 * (start + T) * m.G * m.E + 2 * T * m.H * m.E);
  const auto op = T > 16 ? ops.attention_prefill : ops.attention_window;
  measure(state, {4.0 * m.E * static_cast<double>(m.H) * pairs, 2 * elements},
          [&](std::int64_t) { op(stream, call); });
}

void run_vision(benchmark::State& state, const Ops& ops, Stream& stream, Heads m, std::int64_t N) {
  Random random(1);
  const std::int64_t D = m.H * m.E;
  const Matrix qkv = random_matrix(random, Format::bf16, N, 3 * D, 1, 0);
  Matrix out(Format::bf16, N, D, 0);
  measure(state, {4.0 * static_cast<double>(D * N * N), 2.0 * 4 * static_cast<double>(N * D)},
          [&](std::int64_t) {
            ops.vision_attention(stream, {.qkv = qkv, .heads = static_cast<int>(m.H), .out = out});
          });
}

struct Span {
  std::int32_t T, start;
};

const bool kRegistered = [] {
  for (const Heads& m : kText)
    for (const Span s : {Span{1, 800}, {1, 3000}, {8, 800}, {512, 0}, {512, 512}})
      register_for_tables("attention", fmt::format("{}/T={}/start={}", m.name, s.T, s.start),
                          [=](benchmark::State& state, const Ops& ops, Stream& stream) {
                            run_text(state, ops, stream, m, s.T, s.start);
                          });
  for (const Heads& m : kVision)
    for (std::int64_t N : {768, 3072})  // pages of 384 x 512 and 768 x 1024 pixels
      register_for_tables("vision_attention", fmt::format("{}/N={}", m.name, N),
                          [=](benchmark::State& state, const Ops& ops, Stream& stream) {
                            run_vision(state, ops, stream, m, N);
                          });
  return true;
}();

}  // namespace
}  // namespace quire
