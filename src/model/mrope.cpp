#include "model/mrope.h"

#include <algorithm>
#include <cmath>

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

RotaryTables rotary_tables(const TextConfig& config, const std::span<const std::int32_t> (&position)[3],
                           Format format) {
  const int half = config.rotary_dim / 2;
  std::vector<double> frequency(static_cast<std::size_t>(half));
  std::vector<int> stream(static_cast<std::size_t>(half));
  for (int i = 0; i < half; ++i) {
    const auto at = static_cast<std::size_t>(i);
    frequency[at] = std::pow(config.rope_theta, -2.0 * i / config.rotary_dim);
    const int d = i % 3;
    stream[at] = d != 0 && i < 3 * config.mrope_section[d] ? d : 0;
  }
  const std::size_t T = position[0].size();
  const auto round = [&](double x) {
    const auto f = static_cast<float>(x);
    return format == Format::bf16 ? to_float(to_bf16(f)) : f;
  };
  RotaryTables out;
  out.cos.reserve(T * frequency.size());
  out.sin.reserve(T * frequency.size());
  for (std::size_t token = 0; token < T; ++token) {
    for (std::size_t i = 0; i < frequency.size(); ++i) {
      const double angle = position[stream[i]][token] * frequency[i];
      out.cos.push_back(round(std::cos(angle)));
      out.sin.push_back(round(std::sin(angle)));
    }
  }
  return out;
}

}  // namespace quire
