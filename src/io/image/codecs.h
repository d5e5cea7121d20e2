// What the picture decoders share. Private to io/image.
//
// A decoder finds the size, makes a Canvas (which checks the limits) and hands it rows from top to bottom.
// The C libraries report errors by longjmp, which must not skip a destructor: in each decoder the calls that
// may jump stand in a function whose own variables are all trivial.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "io/image.h"

namespace quire {

// One file to decode, with what decode_image was given.
struct ImageSource {
  std::span<const std::byte> file;
  std::string_view what;
  ImageFormat format = ImageFormat::unknown;
  ImageLimits limits;
  std::int64_t enough_pixels = 0;

  const std::uint8_t* bytes() const { return reinterpret_cast<const std::uint8_t*>(file.data()); }
  std::size_t size() const { return file.size(); }

  // Throws Error{code}: "scan.png: PNG: <reason>".
  [[noreturn]] void reject(ErrorCode code, std::string_view reason) const;
  // Throws Error{invalid_input | limit_exceeded} for a picture of no or too large an area.
  void check_size(std::int64_t width, std::int64_t height) const;
  // Throws Error{limit_exceeded} when decoding takes more memory than is allowed.
  void check_memory(std::int64_t width, std::int64_t height, std::int64_t bytes) const;
  // By how much the sides of a picture of this size may be divided; 1: not at all.
  int reduction(std::int64_t width, std::int64_t height) const;
};

struct DecodedImage {
  Image image;
  int orientation = 1;  // EXIF, not yet applied
};

DecodedImage decode_bmp(const ImageSource& source);
DecodedImage decode_gif(const ImageSource& source);
DecodedImage decode_jpeg(const ImageSource& source);
DecodedImage decode_png(const ImageSource& source);
DecodedImage decode_tiff(const ImageSource& source, int frame);
DecodedImage decode_webp(const ImageSource& source);

int tiff_frames(std::span<const std::byte> file);

// The picture under construction: takes its rows in order and averages boxes of pixels when it is reduced.
class Canvas {
 public:
  // `decoder_bytes`: what the decoder takes beside the canvas. Throws as check_size and check_memory.
  Canvas(const ImageSource& source, std::int64_t width, std::int64_t height, std::int64_t decoder_bytes = 0);

  int width() const { return width_; }    // of a row, in pixels
  int height() const { return height_; }  // rows expected
  int rows() const { return rows_; }      // rows added and skipped

  void add_row(const std::uint8_t* rgb);
  void skip_row();  // a row that could not be read: white

  // The picture. Rows that never came are white; throws Error{invalid_input} with `reason` when fewer than
  // half were added.
  Image finish(std::string_view reason) &&;

 private:
  void store_reduced_row();

  const ImageSource& source_;
  int width_ = 0, height_ = 0, factor_ = 1;
  int rows_ = 0, added_ = 0;
  Image image_;
  std::vector<std::uint32_t> sums_;  // [image_.width, 3], of the boxes being filled; empty when factor_ is 1
  int rows_in_sums_ = 0;
};

// `colour` with opacity `alpha` on white, rounded to nearest.
constexpr std::uint8_t on_white(int colour, int alpha) {
  return static_cast<std::uint8_t>((colour * alpha + 255 * (255 - alpha) + 127) / 255);
}
// [pixels, 4] to [pixels, 3].
void rgba_on_white(const std::uint8_t* rgba, std::uint8_t* rgb, int pixels);

// CMYK (255: full ink) to sRGB, by an ICC profile or, without a usable one, by (255 - ink) (255 - k) / 255.
class CmykToRgb {
 public:
  explicit CmykToRgb(std::span<const std::uint8_t> icc_profile);
  ~CmykToRgb();
  CmykToRgb(const CmykToRgb&) = delete;
  CmykToRgb& operator=(const CmykToRgb&) = delete;

  void convert(const std::uint8_t* cmyk, std::uint8_t* rgb, int pixels) const;

 private:
  void* context_ = nullptr;    // cmsContext
  void* transform_ = nullptr;  // cmsHTRANSFORM
};

}  // namespace quire
