// Resampling and patching against Pillow and the executable specification (oracle/make_image_golden.py).
#include <cstring>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/file.h"
#include "io/safetensors.h"
#include "model_directory.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

using testing::ElementsAreArray;
using testing::HasSubstr;

struct Golden {
  MappedFile file{"tests/golden/images/resize.safetensors"};
  std::map<std::string, Tensor> tensors = parse_safetensors(file.bytes(), "resize.safetensors");

  ImageView image(const std::string& name) const {
    const Tensor& tensor = tensors.at(name);
    return {.rgb = reinterpret_cast<const std::uint8_t*>(tensor.data),
            .width = static_cast<int>(tensor.shape[1]),
            .height = static_cast<int>(tensor.shape[0])};
  }
  template <typename T>
  std::span<const T> values(const std::string& name) const {
    const Tensor& tensor = tensors.at(name);
    return {reinterpret_cast<const T*>(tensor.data), static_cast<std::size_t>(tensor.elements())};
  }
};

TEST(Resize, EqualsPillowBitForBit) {
  const Golden golden;
  int cases = 0;
  for (const auto& [name, tensor] : golden.tensors) {
    if (!name.ends_with(".in")) continue;
    SCOPED_TRACE(name);
    const std::string out = name.substr(0, name.size() - 3) + ".out";
    const ImageView expected = golden.image(out);
    const Image actual =
        resize_bicubic(golden.image(name), {.width = expected.width, .height = expected.height});
    EXPECT_TRUE(std::ranges::equal(actual.rgb, golden.values<std::uint8_t>(out)));
    ++cases;
  }
  EXPECT_EQ(cases, 14);
}

TEST(Resize, KeepsAPlainColour) {
  const std::vector<std::uint8_t> grey(3 * 1000 * 37, 200);
  for (const Size to : {Size{32, 32}, Size{1, 1}, Size{1013, 3}}) {
    const Image image = resize_bicubic({.rgb = grey.data(), .width = 1000, .height = 37}, to);
    EXPECT_EQ(image.rgb, std::vector<std::uint8_t>(image.rgb.size(), 200));
  }
}

TEST(SmartResize, EqualsTheReferenceOnATable) {
  const Golden golden;
  const auto table = golden.values<std::int64_t>("smart_resize");
  ASSERT_GE(table.size(), 6u * 100);
  for (std::size_t i = 0; i + 6 <= table.size(); i += 6) {
    PreprocessConfig config;
    config.min_pixels = table[i + 2];
    config.max_pixels = table[i + 3];
    const Size size =
        smart_resize({.width = static_cast<int>(table[i + 1]), .height = static_cast<int>(table[i])}, config);
    EXPECT_EQ(size, (Size{.width = static_cast<int>(table[i + 5]), .height = static_cast<int>(table[i + 4])}))
        << table[i + 1] << "x" << table[i];
  }
}

TEST(SmartResize, EqualsThePublishedExamples) {
  struct Example {
    Size from, to;
  };
  const Example examples[] = {
      {{1654, 2339}, {1664, 2336}}, {{1240, 1754}, {1248, 1760}},
      {{2480, 3508}, {2496, 3520}}, {{4960, 7016}, {3424, 4864}},  // at most max_pixels
      {{100, 100}, {256, 256}},                                    // at least min_pixels
      {{2000, 48}, {1984, 64}}};                                   // 48 / 32 = 1.5: half to even
  for (const auto& [from, to] : examples)
    EXPECT_EQ(smart_resize(from, {}), to) << from.width << "x" << from.height;
}

TEST(SmartResize, RefusesExtremeShapes) {
  EXPECT_THAT(error_of([] { smart_resize({14000, 60}, {}); }), HasSubstr("14000x60"));
  EXPECT_THAT(error_of([] { smart_resize({1, 201}, {}); }), HasSubstr("200 times"));
  EXPECT_NO_THROW(smart_resize({200, 1}, {}));
  EXPECT_THAT(error_of([] { smart_resize({0, 5}, {}); }), HasSubstr("no area"));
}

TEST(Preprocess, EqualsTheSpecification) {
  const Golden golden;
  PreprocessConfig config{
      .patch_size = 4, .temporal_patch_size = 2, .merge_size = 2, .min_pixels = 64, .max_pixels = 400};
  std::ranges::copy(std::initializer_list<float>{0.5f, 0.25f, 0.4f}, config.mean);
  std::ranges::copy(std::initializer_list<float>{0.5f, 0.3f, 0.2f}, config.std);
  const Patches patches = preprocess(golden.image("patches.image"), config);
  EXPECT_EQ(patches.grid_height, 4);
  EXPECT_EQ(patches.grid_width, 6);
  EXPECT_THAT(patches.rows, ElementsAreArray(golden.values<float>("patches.rows")));
}

TEST(Preprocess, DoesNotResizeAPictureOfTheRightSize) {
  std::vector<std::uint8_t> pixels(3 * 256 * 256);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i * 7 % 251);
  const Patches patches = preprocess({.rgb = pixels.data(), .width = 256, .height = 256}, {});
  EXPECT_EQ(patches.count(), 256);
  EXPECT_EQ(patches.rows[0], (static_cast<float>(pixels[0]) / 255.0f - 0.5f) / 0.5f);
  EXPECT_EQ(patches.rows[1], (static_cast<float>(pixels[3]) / 255.0f - 0.5f) / 0.5f)
      << "next pixel, same channel";
  EXPECT_EQ(patches.rows[512], (static_cast<float>(pixels[1]) / 255.0f - 0.5f) / 0.5f) << "second channel";
}

PreprocessConfig config_of(const std::string& json) {
  const TemporaryDirectory folder;
  folder.write("preprocessor_config.json", json);
  return PreprocessConfig::from_directory(folder.path());
}

TEST(PreprocessConfig, ReadsThePublishedFile) {
  const PreprocessConfig config = config_of(R"({"patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
    "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6],
    "size": {"shortest_edge": 3136, "longest_edge": 1000000}})");
  EXPECT_EQ(config.patch_size, 14);
  EXPECT_EQ(config.min_pixels, 3136);
  EXPECT_EQ(config.max_pixels, 1000000);
  EXPECT_EQ(config.mean[2], 0.3f);
  EXPECT_EQ(config.std[0], 0.4f);
}

TEST(PreprocessConfig, ReadsOlderFilesAndDefaults) {
  const PreprocessConfig config = config_of(R"({"min_pixels": 5000, "max_pixels": 6000})");
  EXPECT_EQ(config.min_pixels, 5000);
  EXPECT_EQ(config.max_pixels, 6000);
  EXPECT_EQ(config.patch_size, 16);
}

TEST(PreprocessConfig, RefusesWhatItCannotUse) {
  const auto error = [](const std::string& json) { return error_of([&] { config_of(json); }); };
  EXPECT_THAT(error(R"({"patch_size": 0})"), HasSubstr("patch_size is 0"));
  EXPECT_THAT(error(R"({"patch_size": "16"})"), HasSubstr("patch_size"));
  EXPECT_THAT(error(R"({"image_mean": [1, 2]})"), HasSubstr("image_mean"));
  EXPECT_THAT(error(R"({"image_std": [1, 0, 1]})"), HasSubstr("image_std"));
  EXPECT_THAT(error(R"({"size": {"height": 224, "width": 224}})"), HasSubstr("shortest_edge"));
  EXPECT_THAT(error(R"({"min_pixels": 500, "max_pixels": 100})"), HasSubstr("500 to 100"));
  EXPECT_THAT(error("[]"), HasSubstr("JSON object"));
  EXPECT_THAT(error_of([] { PreprocessConfig::from_directory("/no/such/model"); }),
              HasSubstr("/no/such/model"));
}

}  // namespace
}  // namespace quire
