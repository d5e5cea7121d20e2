// BMP of Windows and OS/2: 1, 4, 8, 16, 24 and 32 bits, bit fields, run lengths, top-down.
// Layout: BITMAPFILEHEADER (14 bytes), an info header whose first field is its length, masks, palette,
// pixels.
#include <algorithm>
#include <bit>

#include "io/image/codecs.h"

namespace quire {

namespace {

enum class Compression : std::uint32_t {
  none = 0,
  run_length_8 = 1,
  run_length_4 = 2,
  masks = 3,
  alpha_masks = 6
};

constexpr std::int64_t kFileHeader = 14, kOldInfoHeader = 12, kInfoHeader = 40;

bool is_supported(Compression compression, std::uint32_t bits) {
  switch (compression) {
    case Compression::none:
      return bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32;
    case Compression::run_length_8:
      return bits == 8;
    case Compression::run_length_4:
      return bits == 4;
    case Compression::masks:
    case Compression::alpha_masks:
      return bits == 16 || bits == 32;
  }
  return false;
}

// One colour of a 16- or 32-bit pixel.
struct Field {
  std::uint32_t mask = 0;
  std::uint8_t value(std::uint32_t pixel) const {
    if (mask == 0) return 0;
    const std::uint64_t top = mask >> std::countr_zero(mask), v = (pixel & mask) >> std::countr_zero(mask);
    return static_cast<std::uint8_t>((v * 255 + top / 2) / top);
  }
};

class Bmp {
 public:
  explicit Bmp(const ImageSource& source);
  Image decode() const;

 private:
  std::uint32_t integer(std::int64_t offset, int size) const;
  void read_masks();
  void read_palette(std::int64_t info_header, std::int64_t entry_bytes, std::uint32_t colours);
  void convert_row(const std::uint8_t* row, std::uint8_t* rgb) const;
  Image decode_run_lengths() const;

  const ImageSource& source_;
  std::int64_t width_ = 0, height_ = 0;
  bool top_down_ = false;
  std::uint32_t bits_ = 0;
  Compression compression_ = Compression::none;
  std::int64_t pixels_ = 0;  // offset
  Field red_, green_, blue_, alpha_;
  std::uint8_t palette_[256][3] = {};
};

// Little-endian; 0 past the end.
std::uint32_t Bmp::integer(std::int64_t offset, int size) const {
  if (offset < 0 || offset + size > std::ssize(source_.file)) return 0;
  std::uint32_t value = 0;
  for (int i = size - 1; i >= 0; --i) value = value << 8 | source_.bytes()[offset + i];
  return value;
}

Bmp::Bmp(const ImageSource& source) : source_(source) {
  if (std::ssize(source.file) < kFileHeader + kOldInfoHeader)
    source.reject(ErrorCode::invalid_input, "the header is cut short");
  pixels_ = integer(10, 4);
  const std::int64_t info_header = integer(kFileHeader, 4);
  std::uint32_t colours = 0;
  if (info_header == kOldInfoHeader) {
    width_ = integer(18, 2);
    height_ = integer(20, 2);
    bits_ = integer(24, 2);
  } else if (info_header >= kInfoHeader) {
    width_ = static_cast<std::int32_t>(integer(18, 4));
    height_ = static_cast<std::int32_t>(integer(22, 4));
    bits_ = integer(28, 2);
    compression_ = static_cast<Compression>(integer(30, 4));
    colours = integer(46, 4);
  } else {
    source.reject(ErrorCode::unsupported, fmt::format("a header of {} bytes is unknown", info_header));
  }
  top_down_ = height_ < 0;
  height_ = std::abs(height_);
  source.check_size(width_, height_);

  if (!is_supported(compression_, bits_))
    source.reject(ErrorCode::unsupported, fmt::format("{} bits a pixel with compression {}", bits_,
                                                      static_cast<std::uint32_t>(compression_)));
  if (bits_ == 16) red_.mask = 0x7c00, green_.mask = 0x03e0, blue_.mask = 0x001f;
  if (bits_ == 32) red_.mask = 0xff0000, green_.mask = 0x00ff00, blue_.mask = 0x0000ff;
  if (compression_ == Compression::masks || compression_ == Compression::alpha_masks) read_masks();
  if (bits_ <= 8) read_palette(info_header, info_header == kOldInfoHeader ? 3 : 4, colours);
}

// They follow the 40-byte header, and are part of the longer ones.
void Bmp::read_masks() {
  constexpr std::int64_t kHeaderWithAlphaMask = 56;
  const std::int64_t at = kFileHeader + kInfoHeader;
  red_.mask = integer(at, 4);
  green_.mask = integer(at + 4, 4);
  blue_.mask = integer(at + 8, 4);
  if (compression_ == Compression::alpha_masks || integer(kFileHeader, 4) >= kHeaderWithAlphaMask)
    alpha_.mask = integer(at + 12, 4);
}

void Bmp::read_palette(std::int64_t info_header, std::int64_t entry_bytes, std::uint32_t colours) {
  const std::uint32_t most = 1u << bits_;
  const std::uint32_t count = colours == 0 || colours > most ? most : colours;
  for (std::uint32_t i = 0; i < count; ++i)
    for (int c = 0; c < 3; ++c)  // stored blue, green, red
      palette_[i][c] =
          static_cast<std::uint8_t>(integer(kFileHeader + info_header + entry_bytes * i + 2 - c, 1));
}

void Bmp::convert_row(const std::uint8_t* row, std::uint8_t* rgb) const {
  if (bits_ <= 8) {
    const std::uint32_t per_byte = 8 / bits_, mask = (1u << bits_) - 1;
    for (std::uint32_t x = 0; x < width_; ++x, rgb += 3) {
      const std::uint32_t shift = 8 - bits_ - x % per_byte * bits_;
      std::copy_n(palette_[row[x / per_byte] >> shift & mask], 3, rgb);
    }
    return;
  }
  const std::uint32_t bytes = bits_ / 8;
  for (std::int64_t x = 0; x < width_; ++x, row += bytes, rgb += 3) {
    if (bits_ == 24) {
      rgb[0] = row[2], rgb[1] = row[1], rgb[2] = row[0];
      continue;
    }
    std::uint32_t pixel = static_cast<std::uint32_t>(row[0] | row[1] << 8);
    if (bits_ == 32)
      pixel |= static_cast<std::uint32_t>(row[2]) << 16 | static_cast<std::uint32_t>(row[3]) << 24;
    const int opacity = alpha_.mask ? alpha_.value(pixel) : 255;
    rgb[0] = on_white(red_.value(pixel), opacity);
    rgb[1] = on_white(green_.value(pixel), opacity);
    rgb[2] = on_white(blue_.value(pixel), opacity);
  }
}

Image Bmp::decode() const {
  if (compression_ == Compression::run_length_8 || compression_ == Compression::run_length_4)
    return decode_run_lengths();
  Canvas canvas(source_, width_, height_);
  const std::int64_t used = (width_ * bits_ + 7) / 8, stride = (width_ * bits_ + 31) / 32 * 4;
  std::vector<std::uint8_t> rgb(static_cast<std::size_t>(3 * width_));
  for (std::int64_t y = 0; y < height_; ++y) {
    const std::int64_t offset = pixels_ + stride * (top_down_ ? y : height_ - 1 - y);
    if (offset + used > std::ssize(source_.file)) {
      canvas.skip_row();
      continue;
    }
    convert_row(source_.bytes() + offset, rgb.data());
    canvas.add_row(rgb.data());
  }
  return std::move(canvas).finish("the data ends early");
}

// Pairs of (count, colour), with escapes: 0 end of line, 1 end of picture, 2 move right and up, n >= 3 single
// pixels padded to 16 bits. Pixels that are jumped over have colour 0.
Image Bmp::decode_run_lengths() const {
  Canvas canvas(source_, width_, height_, width_ * height_);
  std::vector<std::uint8_t> indices(static_cast<std::size_t>(width_ * height_));
  const bool nibbles = bits_ == 4;
  std::int64_t x = 0, y = 0, at = pixels_;  // y from the bottom
  const auto put = [&](std::uint32_t index) {
    if (x < width_) indices[static_cast<std::size_t>(y * width_ + x++)] = static_cast<std::uint8_t>(index);
  };
  const auto nibble = [](std::uint32_t byte, std::uint32_t i) { return i % 2 ? byte & 15 : byte >> 4; };
  bool ended = false;
  while (!ended && y < height_ && at + 2 <= std::ssize(source_.file)) {
    const std::uint32_t count = integer(at, 1), value = integer(at + 1, 1);
    at += 2;
    if (count > 0) {
      for (std::uint32_t i = 0; i < count; ++i) put(nibbles ? nibble(value, i) : value);
    } else if (value == 0) {
      x = 0, ++y;
    } else if (value == 1) {
      ended = true;
    } else if (value == 2) {
      x += integer(at, 1), y += integer(at + 1, 1), at += 2;
    } else {
      for (std::uint32_t i = 0; i < value; ++i)
        put(nibbles ? nibble(integer(at + i / 2, 1), i) : integer(at + i, 1));
      const std::int64_t bytes = nibbles ? (value + 1) / 2 : value;
      at += bytes + bytes % 2;
    }
  }
  const std::int64_t rows = ended ? height_ : std::min(height_, y);  // from the bottom
  std::vector<std::uint8_t> rgb(static_cast<std::size_t>(3 * width_));
  for (std::int64_t row = 0; row < height_; ++row) {
    const std::int64_t stored = top_down_ ? row : height_ - 1 - row;
    if (stored >= rows) {
      canvas.skip_row();
      continue;
    }
    for (std::int64_t i = 0; i < width_; ++i)
      std::copy_n(palette_[indices[static_cast<std::size_t>(stored * width_ + i)]], 3, rgb.data() + 3 * i);
    canvas.add_row(rgb.data());
  }
  return std::move(canvas).finish("the data ends early");
}

}  // namespace

DecodedImage decode_bmp(const ImageSource& source) {
  return {.image = Bmp(source).decode()};
}

}  // namespace quire
