// JPEG through libjpeg-turbo: baseline, progressive, arithmetic; grey, YCbCr, RGB, CMYK, YCCK.
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <jpeglib.h>
// jpeglib.h must come first.
#include <jerror.h>

#include "io/image/codecs.h"

namespace quire {

namespace {

// A progressive file of many empty scans costs a pass over the picture for each: ordinary ones have about
// ten.
constexpr int kMaxScans = 100;

// The library's structures and what its callbacks note. The callbacks find it through client_data.
struct Jpeg {
  jpeg_decompress_struct info = {};
  jpeg_error_mgr errors = {};
  jpeg_source_mgr input = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf jump = {};
  char message[JMSG_LENGTH_MAX] = "the data ends early";
  bool unsupported = false;
  bool exhausted = false;        // the decoder asked for more bytes than there are
  JDIMENSION complete_rows = 0;  // rows that hold picture data, once exhausted

  Jpeg() = default;
  ~Jpeg() { jpeg_destroy_decompress(&info); }  // does nothing before jpeg_create_decompress
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;
};

Jpeg& self(j_common_ptr info) {
  return *static_cast<Jpeg*>(info->client_data);
}

[[noreturn]] void on_error(j_common_ptr info) {
  Jpeg& jpeg = self(info);
  jpeg.errors.format_message(info, jpeg.message);
  const int code = jpeg.errors.msg_code;
  jpeg.unsupported = code == JERR_SOF_UNSUPPORTED || code == JERR_BAD_PRECISION ||
                     code == JERR_CONVERSION_NOTIMPL || code == JERR_NOT_COMPILED;
  std::longjmp(jpeg.jump, 1);
}

void on_message(j_common_ptr) {}
void on_warning(j_common_ptr, int) {}  // damaged data: the decoder goes on, and so do we

void on_progress(j_common_ptr info) {
  Jpeg& jpeg = self(info);
  if (jpeg.info.input_scan_number <= kMaxScans) return;
  std::snprintf(jpeg.message, sizeof jpeg.message, "more than %d scans", kMaxScans);
  std::longjmp(jpeg.jump, 1);
}

void on_input_start(j_decompress_ptr) {}

// The file is one buffer: a request for more means that it was cut short. The decoder then gets an end marker
// and fills the rest with grey.
boolean on_input_end(j_decompress_ptr info) {
  static constexpr JOCTET kEnd[] = {0xff, JPEG_EOI};
  Jpeg& jpeg = self(reinterpret_cast<j_common_ptr>(info));
  if (!jpeg.exhausted) {
    jpeg.exhausted = true;
    const JDIMENSION block_row = info->max_v_samp_factor * DCTSIZE;
    if (info->input_scan_number > 1)  // every row has its first approximation
      jpeg.complete_rows = info->output_height;
    else if (info->output_scanline > 0)
      jpeg.complete_rows =
          info->output_scanline + block_row * info->output_height / std::max(1u, info->image_height);
    else
      jpeg.complete_rows = static_cast<JDIMENSION>(std::uint64_t{info->input_iMCU_row + 1} * block_row *
                                                   info->output_height / std::max(1u, info->image_height));
  }
  info->src->next_input_byte = kEnd;
  info->src->bytes_in_buffer = sizeof kEnd;
  return TRUE;
}

void on_skip(j_decompress_ptr info, long bytes) {
  if (bytes <= 0) return;
  if (static_cast<std::size_t>(bytes) > info->src->bytes_in_buffer) {
    on_input_end(info);
    return;
  }
  info->src->next_input_byte += bytes;
  info->src->bytes_in_buffer -= static_cast<std::size_t>(bytes);
}

void on_input_close(j_decompress_ptr) {}

// Up to the header. False on an error.
bool open(Jpeg& jpeg, const ImageSource& source) {
  if (setjmp(jpeg.jump)) return false;
  jpeg.info.client_data = &jpeg;
  jpeg.info.err = jpeg_std_error(&jpeg.errors);
  jpeg.errors.error_exit = on_error;
  jpeg.errors.output_message = on_message;
  jpeg.errors.emit_message = on_warning;
  jpeg_create_decompress(&jpeg.info);
  jpeg.progress.progress_monitor = on_progress;
  jpeg.info.progress = &jpeg.progress;
  jpeg.input = {.next_input_byte = source.bytes(),
                .bytes_in_buffer = source.size(),
                .init_source = on_input_start,
                .fill_input_buffer = on_input_end,
                .skip_input_data = on_skip,
                .resync_to_restart = jpeg_resync_to_restart,
                .term_source = on_input_close};
  jpeg.info.src = &jpeg.input;
  jpeg_save_markers(&jpeg.info, JPEG_APP0 + 1, 0xffff);  // EXIF
  jpeg_save_markers(&jpeg.info, JPEG_APP0 + 2, 0xffff);  // ICC profile
  jpeg_read_header(&jpeg.info, TRUE);
  return true;
}

// Rows in the library's colour space, written to `samples` one at a time; after each, `row` is called. It may
// not throw. False on an error.
bool read_rows(Jpeg& jpeg, std::uint8_t* samples, Canvas& canvas, const CmykToRgb* cmyk, std::uint8_t* rgb) {
  if (setjmp(jpeg.jump)) return false;
  jpeg_start_decompress(&jpeg.info);
  while (jpeg.info.output_scanline < jpeg.info.output_height) {
    jpeg_read_scanlines(&jpeg.info, &samples, 1);
    if (jpeg.exhausted && jpeg.info.output_scanline > jpeg.complete_rows) return false;
    if (cmyk) {
      // All writers of four-colour JPEG follow Adobe's and store 255 for no ink.
      for (int i = 0; i < 4 * canvas.width(); ++i) samples[i] = static_cast<std::uint8_t>(255 - samples[i]);
      cmyk->convert(samples, rgb, canvas.width());
    }
    canvas.add_row(cmyk ? rgb : samples);
  }
  return true;
}

int orientation_of(const Jpeg& jpeg) {
  constexpr std::size_t kPrefix = 6;
  for (jpeg_saved_marker_ptr m = jpeg.info.marker_list; m; m = m->next)
    if (m->marker == JPEG_APP0 + 1 && m->data_length >= kPrefix &&
        std::memcmp(m->data, "Exif\0\0", kPrefix) == 0)
      return exif_orientation(std::as_bytes(std::span(m->data, m->data_length)).subspan(kPrefix));
  return 1;
}

// The profile stands in numbered pieces, one a marker; the result is malloc'ed. False when there is none.
bool read_icc_profile(Jpeg& jpeg, JOCTET** data, unsigned* bytes) {
  if (setjmp(jpeg.jump)) return false;
  return jpeg_read_icc_profile(&jpeg.info, data, bytes);
}

// What the coefficients take that a file of several scans keeps until its end.
std::int64_t coefficient_bytes(Jpeg& jpeg) {
  if (!jpeg_has_multiple_scans(&jpeg.info)) return 0;
  std::int64_t blocks = 0;
  for (int i = 0; i < jpeg.info.num_components; ++i)
    blocks += std::int64_t{jpeg.info.comp_info[i].width_in_blocks} * jpeg.info.comp_info[i].height_in_blocks;
  return blocks * static_cast<std::int64_t>(sizeof(JBLOCK));
}

}  // namespace

DecodedImage decode_jpeg(const ImageSource& source) {
  Jpeg jpeg;
  const auto reject = [&] {
    source.reject(jpeg.unsupported ? ErrorCode::unsupported : ErrorCode::invalid_input, jpeg.message);
  };
  if (!open(jpeg, source)) reject();
  jpeg_decompress_struct& info = jpeg.info;
  source.check_size(info.image_width, info.image_height);

  int divisor = 1;
  while (divisor < 8 && source.reduction(info.image_width, info.image_height) >= 2 * divisor) divisor *= 2;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(divisor);
  const bool four_colours = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = four_colours ? JCS_CMYK : JCS_RGB;
  const std::int64_t width = (std::int64_t{info.image_width} + divisor - 1) / divisor;
  const std::int64_t height = (std::int64_t{info.image_height} + divisor - 1) / divisor;

  ImageSource reduced = source;
  reduced.enough_pixels = 0;
  Canvas canvas(reduced, width, height, coefficient_bytes(jpeg));
  std::vector<std::uint8_t> samples(static_cast<std::size_t>(width) * (four_colours ? 4 : 3));
  std::vector<std::uint8_t> rgb(four_colours ? static_cast<std::size_t>(width) * 3 : 0);
  std::unique_ptr<CmykToRgb> cmyk;
  if (four_colours) {
    JOCTET* profile = nullptr;
    unsigned profile_bytes = 0;
    if (!read_icc_profile(jpeg, &profile, &profile_bytes)) profile_bytes = 0;
    cmyk = std::make_unique<CmykToRgb>(std::span(profile, profile_bytes));
    std::free(profile);
  }
  const int orientation = orientation_of(jpeg);
  if (!read_rows(jpeg, samples.data(), canvas, cmyk.get(), rgb.data()) && jpeg.unsupported) reject();
  return {.image = std::move(canvas).finish(jpeg.message), .orientation = orientation};
}

}  // namespace quire
