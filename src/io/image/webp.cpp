// WebP through libwebp: lossy, lossless, alpha, EXIF, the first frame of an animation.
#include <algorithm>
#include <cstring>
#include <optional>

#include <webp/decode.h>

#include "io/image/codecs.h"

namespace quire {

namespace {

using Bytes = std::span<const std::uint8_t>;

std::uint32_t little_endian(Bytes bytes, std::size_t offset, int size) {
  std::uint32_t value = 0;
  for (int i = size - 1; i >= 0; --i) value = value << 8 | bytes[offset + static_cast<std::size_t>(i)];
  return value;
}

// The chunk at the start of `rest`, which moves past it. A chunk cut off by the end of the file is given as
// far as it goes. None at the end.
struct Chunk {
  std::string_view name;  // four letters
  Bytes whole, body;
};
std::optional<Chunk> next_chunk(Bytes& rest) {
  constexpr std::size_t kHeader = 8;
  if (rest.size() < kHeader) return std::nullopt;
  const std::size_t size = little_endian(rest, 4, 4);
  const std::size_t body = std::min(size, rest.size() - kHeader);
  const std::size_t whole = std::min(kHeader + size + size % 2, rest.size());
  Chunk chunk{.name = {reinterpret_cast<const char*>(rest.data()), 4},
              .whole = rest.first(whole),
              .body = rest.subspan(kHeader, body)};
  rest = rest.subspan(whole);
  return chunk;
}

// What the container says: the canvas of an animation, its first frame, the orientation.
struct Container {
  int orientation = 1;
  int canvas_width = 0, canvas_height = 0;
  int x = 0, y = 0;            // of the first frame on the canvas
  std::optional<Bytes> frame;  // chunks of the first frame; none when the file is a still picture
};

Container read_container(Bytes file) {
  constexpr std::size_t kRiffHeader = 12, kFrameHeader = 16, kExtendedHeader = 10;
  Container container;
  Bytes rest = file.subspan(std::min(kRiffHeader, file.size()));
  while (const std::optional<Chunk> chunk = next_chunk(rest)) {
    const Bytes body = chunk->body;
    if (chunk->name == "VP8X" && body.size() >= kExtendedHeader) {
      container.canvas_width = static_cast<int>(little_endian(body, 4, 3) + 1);
      container.canvas_height = static_cast<int>(little_endian(body, 7, 3) + 1);
    } else if (chunk->name == "ANMF" && !container.frame && body.size() >= kFrameHeader) {
      container.x = static_cast<int>(2 * little_endian(body, 0, 3));
      container.y = static_cast<int>(2 * little_endian(body, 3, 3));
      container.frame = body.subspan(kFrameHeader);
    } else if (chunk->name == "EXIF") {
      // Some writers keep the prefix of a JPEG marker.
      constexpr std::size_t kPrefix = 6;
      const bool prefixed = body.size() >= kPrefix && std::memcmp(body.data(), "Exif\0\0", kPrefix) == 0;
      container.orientation = exif_orientation(std::as_bytes(prefixed ? body.subspan(kPrefix) : body));
    }
  }
  return container;
}

// The chunks of an animation's frame as a file of their own: libwebp alone decodes only still pictures.
std::vector<std::uint8_t> still_picture(const ImageSource& source, Bytes frame) {
  std::vector<std::uint8_t> chunks;
  int width = 0, height = 0;
  bool alpha = false;
  Bytes rest = frame;
  while (const std::optional<Chunk> chunk = next_chunk(rest)) {
    const bool picture = chunk->name == "VP8 " || chunk->name == "VP8L";
    if (!picture && chunk->name != "ALPH") continue;
    if (!picture) alpha = true;
    if (picture && !WebPGetInfo(chunk->whole.data(), chunk->whole.size(), &width, &height))
      source.reject(ErrorCode::invalid_input, "the first frame of the animation has a damaged header");
    chunks.insert(chunks.end(), chunk->whole.begin(), chunk->whole.end());
    if (picture) break;
  }
  if (width == 0) source.reject(ErrorCode::invalid_input, "the first frame of the animation has no picture");

  std::vector<std::uint8_t> file;
  const auto put = [&file](std::string_view name, std::size_t number, int size) {
    file.insert(file.end(), name.begin(), name.end());
    for (int i = 0; i < size; ++i) file.push_back(static_cast<std::uint8_t>(number >> 8 * i));
  };
  constexpr std::size_t kExtendedHeader = 10, kAlphaFlag = 0x10;
  put("RIFF", 4 + 8 + kExtendedHeader + chunks.size(), 4);
  put("WEBP", 0, 0);
  put("VP8X", kExtendedHeader, 4);
  put("", alpha ? kAlphaFlag : 0, 4);
  put("", static_cast<std::size_t>(width - 1), 3);
  put("", static_cast<std::size_t>(height - 1), 3);
  file.insert(file.end(), chunks.begin(), chunks.end());
  return file;
}

struct Config : WebPDecoderConfig {
  Config() { WebPInitDecoderConfig(this); }
  ~Config() { WebPFreeDecBuffer(&output); }
  Config(const Config&) = delete;
  Config& operator=(const Config&) = delete;
};

std::string_view reason_of(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_OUT_OF_MEMORY:
      return "the decoder ran out of memory";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "the data ends early";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "unsupported feature";
    default:
      return "damaged data";
  }
}

// One picture, at most reduced, on white.
Image decode_still(const ImageSource& source, Bytes file) {
  Config config;
  if (const VP8StatusCode status = WebPGetFeatures(file.data(), file.size(), &config.input);
      status != VP8_STATUS_OK)
    source.reject(ErrorCode::invalid_input, reason_of(status));
  const std::int64_t width = config.input.width, height = config.input.height;
  const bool alpha = config.input.has_alpha != 0;
  // Beside the canvas: the output buffer, and four bytes a pixel where the lossless decoder is at work.
  constexpr int kLossy = 1;
  const int pixel_bytes = (alpha ? 4 : 3) + (config.input.format == kLossy && !alpha ? 0 : 4);
  Canvas canvas(source, width, height, width * height * pixel_bytes);

  config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
  const std::unique_ptr<WebPIDecoder, decltype(&WebPIDelete)> decoder(WebPIDecode(nullptr, 0, &config),
                                                                      &WebPIDelete);
  if (!decoder) source.reject(ErrorCode::limit_exceeded, reason_of(VP8_STATUS_OUT_OF_MEMORY));
  const VP8StatusCode status = WebPIUpdate(decoder.get(), file.data(), file.size());
  int rows = 0, stride = 0;
  const std::uint8_t* pixels = WebPIDecGetRGB(decoder.get(), &rows, nullptr, nullptr, &stride);
  if (status == VP8_STATUS_OK) rows = canvas.height();
  std::vector<std::uint8_t> rgb(alpha ? static_cast<std::size_t>(3 * width) : 0);
  for (int y = 0; pixels && y < rows; ++y) {
    const std::uint8_t* row = pixels + std::ptrdiff_t{stride} * y;
    if (alpha) rgba_on_white(row, rgb.data(), canvas.width());
    canvas.add_row(alpha ? rgb.data() : row);
  }
  return std::move(canvas).finish(reason_of(status));
}

}  // namespace

DecodedImage decode_webp(const ImageSource& source) {
  const Bytes file(source.bytes(), source.size());
  const Container container = read_container(file);
  if (!container.frame) return {.image = decode_still(source, file), .orientation = container.orientation};

  // An animation is not reduced: its frame has a place on the canvas.
  ImageSource full = source;
  full.enough_pixels = 0;
  const Image frame = decode_still(full, still_picture(source, *container.frame));
  Canvas canvas(full, container.canvas_width, container.canvas_height, std::ssize(frame.rgb));
  std::vector<std::uint8_t> row(std::size_t{3} * canvas.width());
  const int columns = std::min(frame.width, canvas.width() - container.x);
  for (int y = 0; y < canvas.height(); ++y) {
    std::fill(row.begin(), row.end(), std::uint8_t{255});
    const int frame_y = y - container.y;
    if (frame_y >= 0 && frame_y < frame.height && columns > 0)
      std::memcpy(row.data() + std::ptrdiff_t{3} * container.x,
                  frame.rgb.data() + std::ptrdiff_t{3} * frame.width * frame_y, std::size_t{3} * columns);
    canvas.add_row(row.data());
  }
  return {.image = std::move(canvas).finish(""), .orientation = container.orientation};
}

}  // namespace quire
