// What one forward pass works on. Passed to the model, never ambient.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

#include "cache/sequence_cache.h"
#include "ops/ops.h"

namespace quire {

// Sees named intermediate values, for comparing with a reference: "layers.3.mixer". The names are those of
// oracle/.
using Probe = std::function<void(std::string_view name, const Rows& value)>;

// Which of the two paths a step takes (DESIGN: they need not agree bit for bit, so one token never takes
// both).
enum class Path {
  prefill,  // prompt tokens
  window,   // generated tokens
};

// Vision features in place of the embeddings of some rows of a step.
struct ImageRows {
  Rows features;                       // [n, D]
  std::span<const std::int32_t> rows;  // [n], rows of the step
};

// T consecutive tokens of one sequence.
struct Step {
  Path path = Path::prefill;
  std::span<const std::int32_t> tokens;       // [T]
  std::span<const std::int32_t> position[3];  // t, h, w, each [T] (mRoPE)
  ImageRows images;
  SequenceCache* cache = nullptr;  // holds the tokens before; appended to
  const Probe* probe = nullptr;
};

}  // namespace quire
