#include "model/mrope.h"

#include <algorithm>

#include "core/error.h"

namespace quire {

MropePositions mrope_positions(std::span<const std::int32_t> tokens, std::int32_t image_token_id,
                               std::span<const ImageGrid> images, int merge) {
  MropePositions out;
  std::int32_t p = 0;
  std::size_t image = 0;
  for (std::size_t i = 0; i < tokens.size();) {
    if (tokens[i] != image_token_id) {
      out.t.push_back(p), out.h.push_back(p), out.w.push_back(p);
      ++p, ++i;
      continue;
    }
    const auto run =
        static_cast<std::size_t>(std::find_if(tokens.begin() + static_cast<std::ptrdiff_t>(i), tokens.end(),
                                              [&](std::int32_t t) { return t != image_token_id; }) -
                                 tokens.begin()) -
        i;
    std::size_t used = 0;
    while (used < run) {  // images may follow each other without text between
      const ImageGrid grid = image < images.size() ? images[image++] : ImageGrid{};
      const std::int32_t rows = grid.height / merge, cols = grid.width / merge;
      const auto count = static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
      if (count == 0 || used + count > run) {
        fail(ErrorCode::invalid_input, "the prompt has {} image tokens in a row; the images it shows need {}",
             run, used + count);
      }
      for (std::int32_t r = 0; r < rows; ++r) {
        for (std::int32_t c = 0; c < cols; ++c)
          out.t.push_back(p), out.h.push_back(p + r), out.w.push_back(p + c);
      }
      p += std::max(rows, cols);
      used += count;
    }
    i += run;
  }
  if (image != images.size()) {
    fail(ErrorCode::invalid_input, "the prompt has place for {} of {} images", image, images.size());
  }
  out.delta = p - static_cast<std::int32_t>(tokens.size());
  return out;
}

}  // namespace quire
