// Page image to patches, as the family's image processor (Qwen2VLImageProcessorFast) does it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "io/image.h"
#include "quire/quire.h"

namespace quire {

// From preprocessor_config.json; the "edges" of its `size` are pixel counts. Also read: min_pixels,
// max_pixels at top level (older files).
struct PreprocessConfig {
  int patch_size = 16;
  int temporal_patch_size = 2;
  int merge_size = 2;
  std::int64_t min_pixels = 65536;
  std::int64_t max_pixels = 16777216;
  float mean[3] = {0.5f, 0.5f, 0.5f};
  float std[3] = {0.5f, 0.5f, 0.5f};

  // Throws Error{not_found | invalid_input | unsupported} naming file and field.
  static PreprocessConfig from_directory(const std::filesystem::path& model);
};

struct Size {
  int width = 0;
  int height = 0;
  bool operator==(const Size&) const = default;
};

// Both sides to multiples of patch_size * merge_size, the area inside [min_pixels, max_pixels].
// Throws Error{invalid_input} when one side is more than 200 times the other.
Size smart_resize(Size image, const PreprocessConfig& config);

// Bicubic (a = -0.5) with antialiasing, rounded to 8 bits after each pass, horizontal first: Pillow's
// BICUBIC.
Image resize_bicubic(const ImageView& image, Size to);

// rows [grid_height * grid_width, 3 * temporal_patch_size * patch_size^2] f32, (x / 255 - mean) / std.
// Row order: merge blocks in raster order, inside one its patches in raster order; column order: channel,
// frame (equal copies), y, x.
struct Patches {
  int grid_height = 0;  // in patches
  int grid_width = 0;
  std::vector<float> rows;

  int count() const { return grid_height * grid_width; }
};
Patches preprocess(const ImageView& image, const PreprocessConfig& config);

}  // namespace quire
