// Positions of the three rotary streams: time, height, width.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

}  // namespace quire
