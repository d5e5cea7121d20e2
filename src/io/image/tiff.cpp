// TIFF through libtiff: all frames, strips and tiles, every compression that libtiff was built with.
//
// Grey, palette, RGB and CMYK in interleaved samples are read here, row by row, so that 16 bits, alpha and
// profiles come out right and a large scan never stands in memory as a whole. The rest (separate planes,
// YCbCr, Lab, odd depths) goes through libtiff's RGBA interface, a band of strips or tiles at a time.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include <tiffio.h>

#include "io/image/codecs.h"

namespace quire {

namespace {

// The file in memory, as libtiff reads it, and the last error. libtiff never prints here.
struct MemoryFile {
  std::span<const std::byte> bytes;
  std::uint64_t position = 0;
  char message[200] = "the data ends early";
};

MemoryFile& memory(thandle_t handle) {
  return *static_cast<MemoryFile*>(handle);
}

tmsize_t on_read(thandle_t handle, void* to, tmsize_t size) {
  MemoryFile& file = memory(handle);
  if (size < 0 || file.position > file.bytes.size()) return 0;
  const std::size_t n =
      std::min<std::size_t>(static_cast<std::size_t>(size), file.bytes.size() - file.position);
  std::memcpy(to, file.bytes.data() + file.position, n);
  file.position += n;
  return static_cast<tmsize_t>(n);
}

tmsize_t on_write(thandle_t, void*, tmsize_t) {
  return 0;
}

toff_t on_seek(thandle_t handle, toff_t offset, int whence) {
  MemoryFile& file = memory(handle);
  file.position = offset + (whence == SEEK_CUR ? file.position : whence == SEEK_END ? file.bytes.size() : 0);
  return file.position;
}

int on_close(thandle_t) {
  return 0;
}

toff_t on_size(thandle_t handle) {
  return memory(handle).bytes.size();
}

int on_error(TIFF*, void* user, const char*, const char* format, va_list arguments) {
  MemoryFile& file = *static_cast<MemoryFile*>(user);
  std::vsnprintf(file.message, sizeof file.message, format, arguments);
  return 1;  // handled: the process-wide handler is not called
}

int on_warning(TIFF*, void*, const char*, const char*, va_list) {
  return 1;
}

using TiffHandle = std::unique_ptr<TIFF, decltype(&TIFFClose)>;

TiffHandle open(MemoryFile& file, std::int64_t max_allocation) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                 &TIFFOpenOptionsFree);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), max_allocation);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), on_error, &file);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), on_warning, &file);
  // "m": without mapping; all reads go through on_read, which checks them.
  return {TIFFClientOpenExt("", "rm", &file, on_read, on_write, on_seek, on_close, on_size, nullptr, nullptr,
                            options.get()),
          &TIFFClose};
}

template <typename T>
T field(TIFF* tiff, std::uint32_t tag, T missing = {}) {
  T value{};
  return TIFFGetFieldDefaulted(tiff, tag, &value) == 1 ? value : missing;
}

// How the pixels of one frame are stored.
struct Layout {
  std::int64_t width = 0, height = 0;
  int bits = 0, samples = 0, photometric = 0, alpha = -1;  // alpha: index of the sample that holds it
  bool premultiplied = false;
  bool tiled = false;

  std::int64_t row_bytes() const { return (width * samples * bits + 7) / 8; }
  bool cmyk() const { return photometric == PHOTOMETRIC_SEPARATED; }
  int colours() const { return photometric == PHOTOMETRIC_RGB ? 3 : cmyk() ? 4 : 1; }
};

Layout read_layout(TIFF* tiff) {
  Layout layout{.width = field<std::uint32_t>(tiff, TIFFTAG_IMAGEWIDTH),
                .height = field<std::uint32_t>(tiff, TIFFTAG_IMAGELENGTH),
                .bits = field<std::uint16_t>(tiff, TIFFTAG_BITSPERSAMPLE),
                .samples = field<std::uint16_t>(tiff, TIFFTAG_SAMPLESPERPIXEL),
                // Fax files often leave it out; then 0 is white.
                .photometric = field<std::uint16_t>(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISWHITE),
                .tiled = TIFFIsTiled(tiff) != 0};
  if (layout.photometric == PHOTOMETRIC_YCBCR &&
      field<std::uint16_t>(tiff, TIFFTAG_COMPRESSION) == COMPRESSION_JPEG) {
    TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    layout.photometric = PHOTOMETRIC_RGB;
  }
  std::uint16_t extra_count = 0;
  std::uint16_t* extra = nullptr;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_EXTRASAMPLES, &extra_count, &extra);
  for (int i = 0; i < extra_count && layout.alpha < 0; ++i) {
    if (extra[i] == EXTRASAMPLE_UNSPECIFIED) continue;
    layout.alpha = layout.samples - extra_count + i;
    layout.premultiplied = extra[i] == EXTRASAMPLE_ASSOCALPHA;
  }
  return layout;
}

// True for what RowConverter converts.
bool reads_directly(TIFF* tiff, const Layout& layout) {
  const auto format = field<std::uint16_t>(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  if (format != SAMPLEFORMAT_UINT && format != SAMPLEFORMAT_VOID) return false;
  if (layout.samples > 1 &&
      field<std::uint16_t>(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) != PLANARCONFIG_CONTIG)
    return false;
  if (layout.samples < layout.colours() || (layout.alpha >= 0 && layout.alpha < layout.colours()))
    return false;
  const bool small_depth = layout.bits == 1 || layout.bits == 2 || layout.bits == 4;
  const bool depth = layout.bits == 8 || layout.bits == 16 || (small_depth && layout.samples == 1);
  const std::int64_t row = layout.tiled ? TIFFTileRowSize(tiff) : TIFFScanlineSize(tiff);
  const std::int64_t expected =
      layout.tiled
          ? (std::int64_t{field<std::uint32_t>(tiff, TIFFTAG_TILEWIDTH)} * layout.samples * layout.bits + 7) /
                8
          : layout.row_bytes();
  if (!depth || row != expected) return false;
  switch (layout.photometric) {
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_RGB:
      return true;
    case PHOTOMETRIC_PALETTE:
      return layout.bits <= 8;
    case PHOTOMETRIC_SEPARATED:
      return field<std::uint16_t>(tiff, TIFFTAG_INKSET, INKSET_CMYK) == INKSET_CMYK;
    default:
      return false;
  }
}

// Stored rows to RGB.
class RowConverter {
 public:
  RowConverter(TIFF* tiff, const Layout& layout) : layout_(layout), cmyk_(profile(tiff, layout)) {
    samples_.resize(static_cast<std::size_t>(layout.width * layout.samples));
    if (layout.cmyk()) inks_.resize(static_cast<std::size_t>(4 * layout.width));
    if (layout.colours() == 1) fill_table(tiff);
  }

  void convert(const std::uint8_t* row, std::uint8_t* rgb) {
    unpack(row);
    const std::uint8_t* from = samples_.data();
    if (layout_.cmyk()) {
      for (std::int64_t x = 0; x < layout_.width; ++x)
        std::copy_n(from + x * layout_.samples, 4, inks_.data() + 4 * x);
      cmyk_.convert(inks_.data(), rgb, static_cast<int>(layout_.width));
    } else {
      std::uint8_t* to = rgb;
      const bool one_colour = layout_.colours() == 1;
      for (std::int64_t x = 0; x < layout_.width; ++x, from += layout_.samples, to += 3)
        std::memcpy(to, one_colour ? table_[*from] : from, 3);
    }
    if (layout_.alpha >= 0) composite(rgb);
  }

 private:
  static std::span<const std::uint8_t> profile(TIFF* tiff, const Layout& layout) {
    std::uint32_t bytes = 0;
    const std::uint8_t* data = nullptr;
    if (!layout.cmyk() || TIFFGetField(tiff, TIFFTAG_ICCPROFILE, &bytes, &data) != 1 || !data) return {};
    return {data, bytes};
  }

  // The colour of each value of a one-colour pixel.
  void fill_table(TIFF* tiff) {
    const int top = layout_.bits >= 8 ? 255 : (1 << layout_.bits) - 1;
    std::uint16_t* map[3] = {};
    const bool palette = layout_.photometric == PHOTOMETRIC_PALETTE &&
                         TIFFGetField(tiff, TIFFTAG_COLORMAP, &map[0], &map[1], &map[2]) == 1;
    const bool inverted = layout_.photometric == PHOTOMETRIC_MINISWHITE;
    // Old writers stored 8 bits in these 16-bit fields.
    bool wide = false;
    for (int i = 0; palette && i <= top; ++i)
      wide = wide || map[0][i] > 255 || map[1][i] > 255 || map[2][i] > 255;
    for (int i = 0; i <= top; ++i) {
      const int grey = 255 * (inverted ? top - i : i) / top;
      for (int c = 0; c < 3; ++c)
        table_[i][c] = static_cast<std::uint8_t>(palette ? map[c][i] >> (wide ? 8 : 0) : grey);
    }
  }

  // One byte a sample: the value as stored below 8 bits, scaled down from 16.
  void unpack(const std::uint8_t* row) {
    if (layout_.bits == 8) {
      std::copy_n(row, samples_.size(), samples_.data());
    } else if (layout_.bits == 16) {
      for (std::size_t i = 0; i < samples_.size(); ++i) {
        std::uint16_t value;
        std::memcpy(&value, row + 2 * i, 2);
        samples_[i] = static_cast<std::uint8_t>((value * 255u + 32767) / 65535);
      }
    } else {
      const int mask = (1 << layout_.bits) - 1;
      for (std::size_t i = 0; i < samples_.size(); ++row)
        for (int shift = 8 - layout_.bits; shift >= 0 && i < samples_.size(); shift -= layout_.bits)
          samples_[i++] = static_cast<std::uint8_t>(*row >> shift & mask);
    }
  }

  void composite(std::uint8_t* rgb) const {
    const std::uint8_t* alpha = samples_.data() + layout_.alpha;
    for (std::int64_t x = 0; x < layout_.width; ++x, alpha += layout_.samples, rgb += 3)
      for (int c = 0; c < 3; ++c)
        rgb[c] = layout_.premultiplied ? static_cast<std::uint8_t>(std::min(255, rgb[c] + 255 - *alpha))
                                       : on_white(rgb[c], *alpha);
  }

  Layout layout_;
  CmykToRgb cmyk_;
  std::uint8_t table_[256][3] = {};
  std::vector<std::uint8_t> samples_;  // [width, samples]
  std::vector<std::uint8_t> inks_;     // [width, 4]
};

void read_strips(TIFF* tiff, const Layout& layout, Canvas& canvas) {
  RowConverter converter(tiff, layout);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(layout.row_bytes())),
      rgb(std::size_t{3} * canvas.width());
  for (int y = 0; y < canvas.height(); ++y) {
    if (TIFFReadScanline(tiff, row.data(), static_cast<std::uint32_t>(y)) != 1) return;
    converter.convert(row.data(), rgb.data());
    canvas.add_row(rgb.data());
  }
}

void read_tiles(TIFF* tiff, const Layout& layout, Canvas& canvas) {
  const auto tile_width = field<std::uint32_t>(tiff, TIFFTAG_TILEWIDTH);
  const auto tile_height = field<std::uint32_t>(tiff, TIFFTAG_TILELENGTH);
  const std::int64_t tile_row = TIFFTileRowSize(tiff), row_bytes = layout.row_bytes();
  RowConverter converter(tiff, layout);
  std::vector<std::uint8_t> tile(static_cast<std::size_t>(TIFFTileSize(tiff)));
  const std::int64_t band_rows = std::min<std::int64_t>(tile_height, layout.height);
  std::vector<std::uint8_t> band(static_cast<std::size_t>(row_bytes * band_rows)),
      rgb(std::size_t{3} * canvas.width());
  for (std::int64_t top = 0; top < layout.height; top += tile_height) {
    const std::int64_t rows = std::min(band_rows, layout.height - top);
    for (std::int64_t left = 0; left < layout.width; left += tile_width) {
      if (TIFFReadTile(tiff, tile.data(), static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(top),
                       0, 0) < 0)
        return;
      // Tile widths are multiples of 16, so every tile starts at a whole byte.
      const std::int64_t offset = left * layout.samples * layout.bits / 8;
      const std::size_t bytes = static_cast<std::size_t>(std::min(tile_row, row_bytes - offset));
      for (std::int64_t y = 0; y < rows; ++y)
        std::memcpy(band.data() + row_bytes * y + offset, tile.data() + tile_row * y, bytes);
    }
    for (std::int64_t y = 0; y < rows; ++y) {
      converter.convert(band.data() + row_bytes * y, rgb.data());
      canvas.add_row(rgb.data());
    }
  }
}

// How many rows the RGBA interface should be asked for at once: a multiple of what is compressed together.
std::int64_t band_height(TIFF* tiff, const Layout& layout) {
  const auto rows = layout.tiled ? field<std::uint32_t>(tiff, TIFFTAG_TILELENGTH)
                                 : field<std::uint32_t>(tiff, TIFFTAG_ROWSPERSTRIP);
  return std::clamp<std::int64_t>(rows, 1, layout.height);
}

void read_rgba(TIFF* tiff, const Layout& layout, Canvas& canvas, MemoryFile& file) {
  constexpr int kMessage = 1024;
  char reason[kMessage] = "";
  TIFFRGBAImage image;
  if (!TIFFRGBAImageOK(tiff, reason) || !TIFFRGBAImageBegin(&image, tiff, 1, reason)) {
    std::snprintf(file.message, sizeof file.message, "%.*s", static_cast<int>(sizeof file.message) - 1,
                  reason);
    return;
  }
  const std::unique_ptr<TIFFRGBAImage, decltype(&TIFFRGBAImageEnd)> owner(&image, &TIFFRGBAImageEnd);
  image.req_orientation = image.orientation;  // as stored
  const std::int64_t band = band_height(tiff, layout);
  std::vector<std::uint32_t> raster(static_cast<std::size_t>(layout.width * band));
  std::vector<std::uint8_t> rgb(std::size_t{3} * canvas.width());
  for (std::int64_t top = 0; top < layout.height; top += band) {
    const std::int64_t rows = std::min(band, layout.height - top);
    image.row_offset = static_cast<int>(top);
    if (!TIFFRGBAImageGet(&image, raster.data(), static_cast<std::uint32_t>(layout.width),
                          static_cast<std::uint32_t>(rows)))
      return;
    for (std::int64_t y = 0; y < rows; ++y) {
      const std::uint32_t* from = raster.data() + layout.width * y;  // premultiplied
      for (std::int64_t x = 0; x < layout.width; ++x) {
        const std::uint32_t white = 255 - TIFFGetA(from[x]);
        rgb[static_cast<std::size_t>(3 * x)] =
            static_cast<std::uint8_t>(std::min(255u, TIFFGetR(from[x]) + white));
        rgb[static_cast<std::size_t>(3 * x + 1)] =
            static_cast<std::uint8_t>(std::min(255u, TIFFGetG(from[x]) + white));
        rgb[static_cast<std::size_t>(3 * x + 2)] =
            static_cast<std::uint8_t>(std::min(255u, TIFFGetB(from[x]) + white));
      }
      canvas.add_row(rgb.data());
    }
  }
}

}  // namespace

int tiff_frames(std::span<const std::byte> bytes) {
  MemoryFile file{.bytes = bytes};
  const TiffHandle tiff = open(file, ImageLimits{}.max_decoder_bytes);
  return tiff ? std::max(1, static_cast<int>(TIFFNumberOfDirectories(tiff.get()))) : 1;
}

DecodedImage decode_tiff(const ImageSource& source, int frame) {
  MemoryFile file{.bytes = source.file};
  const TiffHandle tiff = open(file, source.limits.max_decoder_bytes);
  if (!tiff) source.reject(ErrorCode::invalid_input, file.message);
  if (frame < 0 || (frame > 0 && !TIFFSetDirectory(tiff.get(), static_cast<tdir_t>(frame))))
    source.reject(ErrorCode::invalid_input,
                  fmt::format("frame {} cannot be reached: {}", frame, file.message));
  const auto compression = field<std::uint16_t>(tiff.get(), TIFFTAG_COMPRESSION);
  if (!TIFFIsCODECConfigured(compression))
    source.reject(ErrorCode::unsupported, fmt::format("compression scheme {}", compression));

  const Layout layout = read_layout(tiff.get());
  source.check_size(layout.width, layout.height);
  const bool direct = reads_directly(tiff.get(), layout);
  const std::int64_t unit = layout.tiled ? TIFFTileSize(tiff.get()) : TIFFStripSize(tiff.get());
  const std::int64_t band_bytes =
      direct ? (layout.tiled ? layout.row_bytes() * band_height(tiff.get(), layout) + unit : 0)
             : 4 * layout.width * band_height(tiff.get(), layout) + unit;
  Canvas canvas(source, layout.width, layout.height, std::max<std::int64_t>(0, band_bytes));
  if (!direct) {
    read_rgba(tiff.get(), layout, canvas, file);
  } else if (layout.tiled) {
    read_tiles(tiff.get(), layout, canvas);
  } else {
    read_strips(tiff.get(), layout, canvas);
  }
  return {.image = std::move(canvas).finish(file.message),
          .orientation = field<std::uint16_t>(tiff.get(), TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT)};
}

}  // namespace quire
