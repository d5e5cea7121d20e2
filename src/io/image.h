// Decoding of picture files: PNG, JPEG, WebP, TIFF, BMP, GIF, recognised by content and never by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// 8-bit RGB, row-major [height, width, 3].
struct Image {
  int width = 0;
  int height = 0;
  std::vector<std::uint8_t> rgb;
};

enum class ImageFormat { unknown, png, jpeg, webp, tiff, bmp, gif };
std::string_view to_string(ImageFormat format);

// By the first bytes.
ImageFormat image_format(std::span<const std::byte> file);

// Refused before memory is taken: a few header bytes may promise any size.
struct ImageLimits {
  int max_side = 65500;  // pixels
  std::int64_t max_pixels = 400'000'000;
  std::int64_t max_decoder_bytes = std::int64_t{2} << 30;  // of one decode, result included
};

// Pages in the file: frames of a TIFF, else 1 (of a GIF, only the first frame counts).
int image_frames(std::span<const std::byte> file);

// Frame `frame`, upright (EXIF orientation applied), transparency on white, 16-bit samples scaled to 8,
// grey and palette expanded, CMYK and YCCK converted by the embedded ICC profile or else naively (Adobe
// inversion respected). A file cut short gives the rows that are there when most of it could be read.
// `max_output_pixels` lets a decoder that can (JPEG, by 1/2, 1/4, 1/8) decode straight to a smaller size that
// still has at least so many pixels; 0: full size. Throws Error{invalid_input | unsupported | limit_exceeded}
// with format, reason and `what` (a file name).
Image decode_image(std::span<const std::byte> file, int frame, std::string_view what,
                   const ImageLimits& limits = {}, std::int64_t max_output_pixels = 0);

// The EXIF orientation, 1..8, of a TIFF structure as it stands after "Exif\0\0"; 1 when there is none.
int exif_orientation(std::span<const std::byte> tiff);

}  // namespace quire
