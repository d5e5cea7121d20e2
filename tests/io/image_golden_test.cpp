// Every format and kind of pixel against what Pillow shows (oracle/make_image_golden.py).
#include <algorithm>
#include <cctype>
#include <cstdlib>

#include <gtest/gtest.h>

#include "io/file.h"
#include "io/image.h"
#include "io/safetensors.h"
#include "quire/quire.h"

namespace quire {
namespace {

struct Golden {
  MappedFile file{"tests/golden/images/decode.safetensors"};
  std::map<std::string, Tensor> tensors = parse_safetensors(file.bytes(), "decode.safetensors");

  std::span<const std::byte> bytes(const std::string& name) const {
    const Tensor& tensor = tensors.at(name);
    return {tensor.data, static_cast<std::size_t>(tensor.elements())};
  }
};

TEST(ImageGolden, EveryVariantDecodesAsPillowDoes) {
  const Golden golden;
  int variants = 0;
  for (const auto& [name, tensor] : golden.tensors) {
    if (name.find('.') != std::string::npos) continue;
    SCOPED_TRACE(name);
    ++variants;
    const Image image = decode_image(golden.bytes(name), 0, name);
    const Tensor& expected = golden.tensors.at(name + ".rgb");
    ASSERT_EQ((std::vector<std::int64_t>{image.height, image.width, 3}), expected.shape);
    const auto pixels = golden.bytes(name + ".rgb");
    ASSERT_EQ(image.rgb.size(), pixels.size());
    int worst = 0;
    for (std::size_t i = 0; i < pixels.size(); ++i)
      worst = std::max(worst, std::abs(image.rgb[i] - static_cast<int>(pixels[i])));
    EXPECT_LE(worst, static_cast<int>(golden.bytes(name + ".tolerance")[0]));
  }
  EXPECT_GE(variants, 70);
}

// The name of a golden starts with its format.
TEST(ImageGolden, FormatsAreToldByContent) {
  const Golden golden;
  for (const auto& [name, tensor] : golden.tensors) {
    if (name.find('.') != std::string::npos) continue;
    std::string format(to_string(image_format(golden.bytes(name))));
    std::ranges::transform(format, format.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    EXPECT_EQ(format, name.substr(0, name.find('_')));
  }
}

// What is cut off anywhere gives a picture of the right size or an error, and never a picture from less than
// half of the data that a raw format needs.
TEST(ImageGolden, EveryFileCutAnywhereGivesAPictureOrAnError) {
  const Golden golden;
  for (const auto& [name, tensor] : golden.tensors) {
    if (name.find('.') != std::string::npos) continue;
    SCOPED_TRACE(name);
    const auto file = golden.bytes(name);
    const Image whole = decode_image(file, 0, name);
    int pictures = 0;
    for (std::size_t size = 0; size < file.size(); size += 1 + file.size() / 40) {
      try {
        const Image part = decode_image(file.first(size), 0, name);
        // The orientation may have been cut off with the rest.
        EXPECT_EQ(std::minmax(part.width, part.height), std::minmax(whole.width, whole.height));
        ++pictures;
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::invalid_input || error.code() == ErrorCode::unsupported)
            << error.what();
      }
    }
    EXPECT_LT(pictures, 40) << "at least the first bytes alone must not give a picture";
  }
}

}  // namespace
}  // namespace quire
