// PNG through libpng: every colour type and depth, transparency, interlacing, eXIf.
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <png.h>

#include "io/image/codecs.h"

namespace quire {

namespace {

// Text, profiles and unknown chunks are of no use here: only so much of a compressed one is expanded.
constexpr png_alloc_size_t kMaxChunkBytes = png_alloc_size_t{8} << 20;
constexpr int kAdam7Passes = 7;

struct Png {
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> rest;  // of the file, not yet read
  char message[160] = "the data ends early";

  Png() = default;
  ~Png() { png_destroy_read_struct(&png, &info, nullptr); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;
};

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  Png& self = *static_cast<Png*>(png_get_error_ptr(png));
  std::snprintf(self.message, sizeof self.message, "%s", text);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep to, std::size_t bytes) {
  Png& self = *static_cast<Png*>(png_get_io_ptr(png));
  if (bytes > self.rest.size()) png_error(png, "the data ends early");
  std::memcpy(to, self.rest.data(), bytes);
  self.rest = self.rest.subspan(bytes);
}

// Up to the pixels. False on an error.
bool open(Png& self) {
  self.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &self, on_error, on_warning);
  if (!self.png) return false;
  if (setjmp(png_jmpbuf(self.png))) return false;
  self.info = png_create_info_struct(self.png);
  if (!self.info) return false;
  png_set_read_fn(self.png, &self, on_read);
  // The caller's limits hold, not libpng's. A checksum that does not match says nothing about which pixels
  // are wrong: show them.
  png_set_user_limits(self.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  png_set_chunk_malloc_max(self.png, kMaxChunkBytes);
  png_set_crc_action(self.png, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
  png_read_info(self.png, self.info);
  return true;
}

// Sets the transformations to 8-bit RGB or RGBA and takes the memory for a row. False on an error.
bool start_rows(Png& self) {
  if (setjmp(png_jmpbuf(self.png))) return false;
  png_set_expand(self.png);  // palette to RGB, 1, 2 and 4 bits to 8, tRNS to alpha
  png_set_scale_16(self.png);
  png_set_gray_to_rgb(self.png);
  png_set_interlace_handling(self.png);
  png_read_update_info(self.png, self.info);
  return true;
}

// Adds all rows as they come; `row` and `rgb` hold one. False on an error.
bool read_rows(Png& self, Canvas& canvas, std::uint8_t* row, std::uint8_t* rgb) {
  const bool alpha = png_get_channels(self.png, self.info) == 4;
  if (setjmp(png_jmpbuf(self.png))) return false;
  for (int y = 0; y < canvas.height(); ++y) {
    png_read_row(self.png, row, nullptr);
    if (alpha) rgba_on_white(row, rgb, canvas.width());
    canvas.add_row(alpha ? rgb : row);
  }
  return true;
}

// Interlaced: the seven passes over the whole picture. Each fills the pixels not yet known with their
// neighbours. `passes` counts the complete ones. False on an error.
bool read_interlaced(Png& self, int height, std::size_t row_bytes, std::uint8_t* pixels, int* passes) {
  if (setjmp(png_jmpbuf(self.png))) return false;
  for (*passes = 0; *passes < kAdam7Passes; ++*passes)
    for (int y = 0; y < height; ++y) png_read_row(self.png, nullptr, pixels + row_bytes * y);
  return true;
}

// An eXIf chunk may also stand after the pixels; damage there costs nothing but the orientation.
int orientation_of(Png& self, bool rows_complete) {
  png_bytep exif = nullptr;
  png_uint_32 bytes = 0;
  if (setjmp(png_jmpbuf(self.png))) return 1;
  if (rows_complete) png_read_end(self.png, self.info);
  if (!png_get_eXIf_1(self.png, self.info, &bytes, &exif) || !exif) return 1;
  return exif_orientation(std::as_bytes(std::span(exif, bytes)));
}

}  // namespace

DecodedImage decode_png(const ImageSource& source) {
  Png self;
  self.rest = source.file;
  if (!open(self)) source.reject(ErrorCode::invalid_input, self.message);
  const std::int64_t width = png_get_image_width(self.png, self.info);
  const std::int64_t height = png_get_image_height(self.png, self.info);
  source.check_size(width, height);
  if (!start_rows(self)) source.reject(ErrorCode::invalid_input, self.message);
  const int channels = png_get_channels(self.png, self.info);
  const bool alpha = channels == 4;
  const bool interlaced = png_get_interlace_type(self.png, self.info) != PNG_INTERLACE_NONE;
  Canvas canvas(source, width, height, interlaced ? width * height * channels : 0);

  bool complete = false;
  const std::size_t row_bytes = static_cast<std::size_t>(width * channels);
  std::vector<std::uint8_t> rgb(alpha ? static_cast<std::size_t>(3 * width) : 0);
  if (interlaced) {
    std::vector<std::uint8_t> pixels(row_bytes * static_cast<std::size_t>(height));
    int passes = 0;
    complete = read_interlaced(self, canvas.height(), row_bytes, pixels.data(), &passes);
    // The last pass brings the odd rows: before it, exactly half of the rows are there.
    for (int y = 0; passes >= kAdam7Passes - 1 && y < canvas.height(); ++y) {
      const std::uint8_t* row = pixels.data() + row_bytes * y;
      if (alpha) rgba_on_white(row, rgb.data(), canvas.width());
      canvas.add_row(alpha ? rgb.data() : row);
    }
  } else {
    std::vector<std::uint8_t> row(row_bytes);
    complete = read_rows(self, canvas, row.data(), rgb.data());
  }
  const int orientation = orientation_of(self, complete);
  return {.image = std::move(canvas).finish(self.message), .orientation = orientation};
}

}  // namespace quire
