// Positions of the three rotary streams (time, height, width) and their cosines and sines.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/config.h"
#include "ops/ops.h"

namespace quire {

// An image in the prompt, in patches; it takes (height / merge) * (width / merge) tokens.
struct ImageGrid {
  int height = 0;
  int width = 0;
};

struct MropePositions {
  std::vector<std::int32_t> t, h, w;  // of each prompt token
  std::int32_t delta = 0;             // position of the token at sequence index m >= prompt length: m + delta
};

// Text counts up on all streams. An image at p gives its token in merged row r, column c (t, h, w) = (p, p +
// r, p + c), then p advances by the larger side. Throws Error{invalid_input} when the runs of image tokens do
// not fit the grids.
MropePositions mrope_positions(std::span<const std::int32_t> tokens, std::int32_t image_token_id,
                               std::span<const ImageGrid> images, int merge);

// cos and sin [T, R/2] of the rotary angles, rounded to `format`. Frequency i is theta^(-2i/R); it turns by
// the h stream if i % 3 == 1 and i < 3 * section[1], by w if i % 3 == 2 and i < 3 * section[2], else by t.
struct RotaryTables {
  std::vector<float> cos, sin;
};
RotaryTables rotary_tables(const TextConfig& config, const std::span<const std::int32_t> (&position)[3],
                           Format format);

}  // namespace quire
