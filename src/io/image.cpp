#include "io/image.h"

#include <algorithm>
#include <cstring>

#include "io/image/codecs.h"

namespace quire {

namespace {

// True when the file has `text` at `offset`; '?' stands for any byte.
bool has(std::span<const std::byte> file, std::size_t offset, std::string_view text) {
  if (file.size() < offset + text.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] != '?' && file[offset + i] != static_cast<std::byte>(text[i])) return false;
  return true;
}

// Whether the orientation exchanges width and height, and which way the axes of the result then run.
struct Turn {
  bool transpose, flip_x, flip_y;
};
constexpr Turn kTurns[9] = {{},
                            {false, false, false},
                            {false, true, false},
                            {false, true, true},
                            {false, false, true},
                            {true, false, false},
                            {true, true, false},
                            {true, true, true},
                            {true, false, true}};

Image upright(Image stored, int orientation) {
  if (orientation <= 1 || orientation > 8) return stored;
  const Turn turn = kTurns[orientation];
  Image out{.width = turn.transpose ? stored.height : stored.width,
            .height = turn.transpose ? stored.width : stored.height,
            .rgb = std::vector<std::uint8_t>(stored.rgb.size())};
  // Stored pixel of out (x, y): its offset is linear in x and y.
  const std::ptrdiff_t column = 3, row = std::ptrdiff_t{3} * stored.width;
  std::ptrdiff_t step_x = turn.transpose ? row : column, step_y = turn.transpose ? column : row;
  std::ptrdiff_t start = 0;
  if (turn.flip_x) start += step_x * (out.width - 1), step_x = -step_x;
  if (turn.flip_y) start += step_y * (out.height - 1), step_y = -step_y;
  // In tiles, because a transposed copy reads one cache line a pixel.
  constexpr int kTile = 32;
  for (int y0 = 0; y0 < out.height; y0 += kTile) {
    for (int x0 = 0; x0 < out.width; x0 += kTile) {
      const int x1 = std::min(x0 + kTile, out.width);
      for (int y = y0; y < std::min(y0 + kTile, out.height); ++y) {
        const std::uint8_t* from = stored.rgb.data() + start + step_y * y + step_x * x0;
        std::uint8_t* to = out.rgb.data() + (std::ptrdiff_t{out.width} * y + x0) * 3;
        for (int x = x0; x < x1; ++x, from += step_x, to += 3) std::memcpy(to, from, 3);
      }
    }
  }
  return out;
}

DecodedImage decode(const ImageSource& source, int frame) {
  switch (source.format) {
    case ImageFormat::png:
      return decode_png(source);
    case ImageFormat::jpeg:
      return decode_jpeg(source);
    case ImageFormat::webp:
      return decode_webp(source);
    case ImageFormat::tiff:
      return decode_tiff(source, frame);
    case ImageFormat::bmp:
      return decode_bmp(source);
    case ImageFormat::gif:
      return decode_gif(source);
    case ImageFormat::unknown:
      break;
  }
  fail(ErrorCode::unsupported,
       "{}: not a picture that Quire reads; expected PNG, JPEG, WebP, TIFF, BMP or GIF (told by content)",
       source.what);
}

}  // namespace

std::string_view to_string(ImageFormat format) {
  switch (format) {
    case ImageFormat::png:
      return "PNG";
    case ImageFormat::jpeg:
      return "JPEG";
    case ImageFormat::webp:
      return "WebP";
    case ImageFormat::tiff:
      return "TIFF";
    case ImageFormat::bmp:
      return "BMP";
    case ImageFormat::gif:
      return "GIF";
    case ImageFormat::unknown:
      break;
  }
  return "unknown";
}

ImageFormat image_format(std::span<const std::byte> file) {
  using namespace std::string_view_literals;
  if (has(file, 0, "\x89PNG\r\n\x1a\n")) return ImageFormat::png;
  if (has(file, 0, "\xff\xd8\xff")) return ImageFormat::jpeg;
  if (has(file, 0, "RIFF????WEBP")) return ImageFormat::webp;
  if (has(file, 0, "II*\0"sv) || has(file, 0, "MM\0*"sv)) return ImageFormat::tiff;
  if (has(file, 0, "II+\0"sv) || has(file, 0, "MM\0+"sv)) return ImageFormat::tiff;  // BigTIFF
  if (has(file, 0, "GIF87a") || has(file, 0, "GIF89a")) return ImageFormat::gif;
  // "BM" alone is how English texts begin, too: the header length, at 14, decides.
  if (has(file, 0, "BM") && has(file, 15, "\0\0\0"sv)) return ImageFormat::bmp;
  return ImageFormat::unknown;
}

Image turn(Image image, int degrees) {
  QUIRE_CHECK(degrees == 90 || degrees == 180 || degrees == 270, "turn: {} degrees", degrees);
  return upright(std::move(image), degrees == 90 ? 6 : degrees == 180 ? 3 : 8);
}

int image_frames(std::span<const std::byte> file) {
  return image_format(file) == ImageFormat::tiff ? tiff_frames(file) : 1;
}

Image decode_image(std::span<const std::byte> file, int frame, std::string_view what,
                   const ImageLimits& limits, std::int64_t enough_pixels) {
  const ImageSource source{.file = file,
                           .what = what,
                           .format = image_format(file),
                           .limits = limits,
                           .enough_pixels = enough_pixels};
  if (file.empty()) fail(ErrorCode::invalid_input, "{}: the file is empty", what);
  if (frame != 0 && source.format != ImageFormat::tiff)
    source.reject(ErrorCode::invalid_input,
                  fmt::format("frame {} does not exist: only TIFF has several", frame));
  DecodedImage decoded = decode(source, frame);
  return upright(std::move(decoded.image), decoded.orientation);
}

}  // namespace quire
