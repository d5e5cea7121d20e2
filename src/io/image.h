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

// Checked before memory is taken: a few header bytes may promise any size.
struct ImageLimits {
  int max_side = 65500;                                    // pixels, of the picture as stored
  std::int64_t max_pixels = 1'000'000'000;                 // as stored: bounds the time of a decode
  std::int64_t max_decoder_bytes = std::int64_t{2} << 30;  // of one decode, result included
  std::int64_t reduce_above = 64'000'000;  // pixels: only larger pictures are reduced, see `enough_pixels`
};

// Pages in the file: frames of a TIFF, else 1 (of an animation, only the first frame counts). Never fails:
// what is wrong with a file is told when it is decoded.
int image_frames(std::span<const std::byte> file);

// Frame `frame`, from 0, upright (EXIF orientation applied), transparency on white, 16-bit samples scaled to
// 8, grey and palette expanded, CMYK and YCCK converted by the embedded ICC profile or else naively. RGB
// profiles and gamma are ignored, as Pillow ignores them.
//
// A file that is damaged or cut short gives the rows that could be read, the others white, when they are at
// least half of all rows; else it is an error.
//
// `enough_pixels` > 0 lets a picture of more than `limits.reduce_above` pixels be reduced while it is read,
// by the largest integer factor that leaves at least so many pixels: JPEG by 1/2, 1/4 or 1/8 in the inverse
// DCT, the others by averaging boxes of factor x factor pixels, row by row, so that the picture never stands
// in memory as a whole (except where the format forces it: progressive JPEG, interlaced PNG, WebP, RLE BMP,
// GIF).
//
// Throws Error{invalid_input | unsupported | limit_exceeded} with `what` (a file name), format and reason.
Image decode_image(std::span<const std::byte> file, int frame, std::string_view what,
                   const ImageLimits& limits = {}, std::int64_t enough_pixels = 0);

// The picture turned clockwise by 90, 180 or 270 degrees.
Image turn(Image image, int degrees);

// The EXIF orientation, 1..8, of a TIFF structure as it stands after "Exif\0\0"; 1 when there is none.
int exif_orientation(std::span<const std::byte> tiff);

}  // namespace quire
