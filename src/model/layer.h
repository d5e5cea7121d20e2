// What the layers of the text model, of its multi-token-prediction head and of a drafter have in common: the
// rows of a pass, attention, MLP (equations: MODEL.md).
#pragma once

#include "core/arena.h"
#include "model/step.h"
#include "model/weights.h"

namespace quire {

// Memory of the arena as rows, uninitialised.
inline Rows take_rows(Arena& arena, std::int64_t rows, std::int64_t cols, Format format) {
  std::byte* data = arena.take(static_cast<std::size_t>(rows * cols * size_of(format)));
  return {.data = data, .format = format, .rows = rows, .cols = cols, .stride = cols};
}

// The rows of a step, or the first of them, on their way through layers.
struct Pass {
  Stream& stream;
  const Ops& ops;
  Arena& arena;
  const Step& step;
  Format format;
  float eps;  // of norms
  std::int64_t T;
  std::span<const float> cos{}, sin{};  // [T, R/2] of the rotary angles
  Rows x{};                             // [T, D] the residual stream
  Rows h{};                             // [T, D] input of a mixer or MLP, normed
  Rows y{};                             // [T, D] its output

  Rows rows(std::int64_t cols) { return rows(cols, format); }
  Rows rows(std::int64_t cols, Format f) { return take_rows(arena, T, cols, f); }
  std::span<float> floats(std::int64_t n) {
    return {reinterpret_cast<float*>(arena.take(static_cast<std::size_t>(n) * sizeof(float))),
            static_cast<std::size_t>(n)};
  }
  // Makes cos and sin: `r` says positions, dims and frequencies. It may be of more rows than the pass.
  void rotary(Rotary r);
};

// The text model's angles, at positions [3, rows].
Rotary mrope(const TextConfig& c, const std::int32_t* position, std::int64_t rows);

// y = attention of h. Keys and values of the rows join those in `kv` first. The shapes, and whether there are
// gates, are those of the weights.
void attention(Pass& p, const AttentionWeights& w, const KvPages& kv, bool causal = true,
               std::int32_t sliding_window = 0);
// That for keys and values alone, in at most kMostJoined layers.
void join(Pass& p, std::span<const JoinKv::Layer> layers);

// y = MLP of h.
void mlp(Pass& p, const MlpWeights& w);

}  // namespace quire
