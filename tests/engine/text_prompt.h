// A prompt without a picture.
#pragma once

#include <cstdint>
#include <numeric>
#include <span>

#include "engine/decoder.h"
#include "model/config.h"

namespace quire {

// Runs it in a slot that is open; one result.
inline void prefill_text(Decoder& decoder, const ModelConfig& config, int slot,
                         std::span<const std::int32_t> tokens) {
  MropePositions positions;
  positions.t.resize(tokens.size());
  std::iota(positions.t.begin(), positions.t.end(), 0);
  positions.h = positions.w = positions.t;
  const Rows none{.format = Format::bf16, .cols = config.text.hidden_size, .stride = config.text.hidden_size};
  decoder.prefill(slot, {tokens, positions, config.image_token_id, none});
}

}  // namespace quire
