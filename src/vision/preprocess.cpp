#include "vision/preprocess.h"

#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "io/json.h"

namespace quire {

namespace {

int positive_int(const Json& config, const char* field, int missing, const std::string& what) {
  if (!config.contains(field)) return missing;
  const Json& value = config[field];
  constexpr int kMax = 1024;
  if (!value.is_number_integer() || value < 1 || value > kMax)
    fail(ErrorCode::invalid_input, "{}: {} is {}; expected an integer from 1 to {}", what, field,
         value.dump(), kMax);
  return value.get<int>();
}

std::int64_t pixel_count(const Json& value, const char* field, const std::string& what) {
  constexpr std::int64_t kMax = std::int64_t{1} << 40;
  if (!value.is_number_integer() || value < 1 || value > kMax)
    fail(ErrorCode::invalid_input, "{}: {} is {}; expected a number of pixels", what, field, value.dump());
  return value.get<std::int64_t>();
}

void read_channels(const Json& config, const char* field, float (&out)[3], const std::string& what) {
  if (!config.contains(field)) return;
  const Json& values = config[field];
  bool valid = values.is_array() && values.size() == 3;
  for (std::size_t c = 0; valid && c < 3; ++c) {
    valid = values[c].is_number();
    if (valid) out[c] = values[c].get<float>();
  }
  if (!valid)
    fail(ErrorCode::invalid_input, "{}: {} is {}; expected three numbers", what, field, values.dump());
}

// Python's round: half to even.
std::int64_t round_to_multiple(std::int64_t x, std::int64_t factor) {
  const std::int64_t quotient = x / factor, rest = 2 * (x % factor);
  const bool up = rest > factor || (rest == factor && quotient % 2 != 0);
  return (quotient + (up ? 1 : 0)) * factor;
}

}  // namespace

PreprocessConfig PreprocessConfig::from_directory(const std::filesystem::path& model) {
  const std::filesystem::path path = model / "preprocessor_config.json";
  const std::string what = path.string();
  const Json json = read_json(path);
  if (!json.is_object()) fail(ErrorCode::invalid_input, "{}: expected a JSON object", what);
  PreprocessConfig config;
  config.patch_size = positive_int(json, "patch_size", config.patch_size, what);
  config.temporal_patch_size = positive_int(json, "temporal_patch_size", config.temporal_patch_size, what);
  config.merge_size = positive_int(json, "merge_size", config.merge_size, what);
  if (json.contains("min_pixels")) config.min_pixels = pixel_count(json["min_pixels"], "min_pixels", what);
  if (json.contains("max_pixels")) config.max_pixels = pixel_count(json["max_pixels"], "max_pixels", what);
  if (json.contains("size")) {
    const Json& size = json["size"];
    if (!size.is_object() || !size.contains("shortest_edge") || !size.contains("longest_edge"))
      fail(ErrorCode::unsupported,
           "{}: size is {}; expected shortest_edge and longest_edge (numbers of pixels)", what, size.dump());
    config.min_pixels = pixel_count(size["shortest_edge"], "size.shortest_edge", what);
    config.max_pixels = pixel_count(size["longest_edge"], "size.longest_edge", what);
  }
  const std::int64_t side = std::int64_t{config.patch_size} * config.merge_size;
  if (config.min_pixels > config.max_pixels || config.max_pixels < side * side)
    fail(ErrorCode::invalid_input, "{}: {} to {} pixels; expected a range that holds {}x{}", what,
         config.min_pixels, config.max_pixels, side, side);
  read_channels(json, "image_mean", config.mean, what);
  read_channels(json, "image_std", config.std, what);
  for (const float s : config.std)
    if (!(s > 0))
      fail(ErrorCode::invalid_input, "{}: image_std holds {}; expected positive numbers", what, s);
  return config;
}

Size smart_resize(Size image, const PreprocessConfig& config) {
  constexpr int kMaxAspect = 200;
  if (image.width < 1 || image.height < 1)
    fail(ErrorCode::invalid_input, "a picture of {}x{} pixels has no area", image.width, image.height);
  const std::int64_t w = image.width, h = image.height;
  if (std::max(w, h) > kMaxAspect * std::min(w, h))
    fail(ErrorCode::invalid_input,
         "a picture of {}x{} pixels is too long: one side may be at most {} times the other", w, h,
         kMaxAspect);
  const std::int64_t factor = std::int64_t{config.patch_size} * config.merge_size;
  std::int64_t width = round_to_multiple(w, factor), height = round_to_multiple(h, factor);
  // In double, in this order, as the reference rounds.
  const double dw = static_cast<double>(w), dh = static_cast<double>(h), df = static_cast<double>(factor);
  if (width * height > config.max_pixels) {
    const double scale = std::sqrt(dh * dw / static_cast<double>(config.max_pixels));
    width = std::max(factor, static_cast<std::int64_t>(std::floor(dw / scale / df)) * factor);
    height = std::max(factor, static_cast<std::int64_t>(std::floor(dh / scale / df)) * factor);
  } else if (width * height < config.min_pixels) {
    const double scale = std::sqrt(static_cast<double>(config.min_pixels) / (dh * dw));
    width = static_cast<std::int64_t>(std::ceil(dw * scale / df)) * factor;
    height = static_cast<std::int64_t>(std::ceil(dh * scale / df)) * factor;
  }
  return {.width = static_cast<int>(width), .height = static_cast<int>(height)};
}

Patches preprocess(const ImageView& image, const PreprocessConfig& config) {
  const Size size = smart_resize({.width = image.width, .height = image.height}, config);
  Image resized;
  ImageView view = image;
  if (size != Size{.width = image.width, .height = image.height}) {
    resized = resize_bicubic(image, size);
    view = {.rgb = resized.rgb.data(), .width = resized.width, .height = resized.height};
  }

  float normalised[3][256];
  for (int c = 0; c < 3; ++c)
    for (int v = 0; v < 256; ++v)
      normalised[c][v] = (static_cast<float>(v) / 255.0f - config.mean[c]) / config.std[c];

  const int P = config.patch_size, M = config.merge_size;
  const std::size_t frame = static_cast<std::size_t>(P) * P, channel = frame * config.temporal_patch_size;
  Patches patches{.grid_height = size.height / P, .grid_width = size.width / P, .rows = {}};
  patches.rows.resize(channel * 3 * patches.count());
  float* row = patches.rows.data();
  for (int block_y = 0; block_y < patches.grid_height; block_y += M) {
    for (int block_x = 0; block_x < patches.grid_width; block_x += M) {
      for (int patch = 0; patch < M * M; ++patch, row += 3 * channel) {
        const std::ptrdiff_t top = std::ptrdiff_t{P} * (block_y + patch / M),
                             left = std::ptrdiff_t{P} * (block_x + patch % M);
        for (int y = 0; y < P; ++y) {
          const std::uint8_t* pixel = view.rgb + ((top + y) * view.width + left) * 3;
          float* out = row + y * P;
          for (int x = 0; x < P; ++x, pixel += 3)
            for (std::size_t c = 0; c < 3; ++c) out[c * channel + x] = normalised[c][pixel[c]];
        }
        for (std::size_t c = 0; c < 3; ++c)
          for (int t = 1; t < config.temporal_patch_size; ++t)
            std::copy_n(row + c * channel, frame, row + c * channel + t * frame);
      }
    }
  }
  return patches;
}

}  // namespace quire
