// Limits, damage and reduction, and the files that Pillow cannot write: these are made here by the libraries.
#include "io/image.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <jpeglib.h>
#include <lcms2.h>
#include <png.h>
#include <tiffio.h>

#include "io/file.h"
#include "model_directory.h"

namespace quire {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

Image decode(const std::string& file, const ImageLimits& limits = {}, std::int64_t enough_pixels = 0) {
  return decode_image(as_bytes(file), 0, "a", limits, enough_pixels);
}

std::string decode_error(const std::string& file, const ImageLimits& limits = {}) {
  return error_of([&] { decode(file, limits); });
}

// Colours that differ in every pixel and channel.
Image picture(int width, int height) {
  Image image{.width = width, .height = height, .rgb = {}};
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (const int v : {x * 255 / width, y * 255 / height, (x + y) * 120 / (width + height)})
        image.rgb.push_back(static_cast<std::uint8_t>(v));
  return image;
}

std::string png_of(const Image& image) {
  png_image out{};
  out.version = PNG_IMAGE_VERSION;
  out.width = static_cast<png_uint_32>(image.width);
  out.height = static_cast<png_uint_32>(image.height);
  out.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_to_memory(&out, nullptr, &size, 0, image.rgb.data(), 0, nullptr);
  std::string file(size, '\0');
  png_image_write_to_memory(&out, file.data(), &size, 0, image.rgb.data(), 0, nullptr);
  file.resize(size);
  return file;
}

// Rows of `components` samples a pixel. Four: as Adobe's, with `stored` as colour space and a profile.
std::string jpeg_of(int width, int height, int components, const std::vector<std::uint8_t>& samples,
                    J_COLOR_SPACE stored, const std::string& profile = "", bool progressive = false) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &memory, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = components;
  info.in_color_space = components == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, stored);
  jpeg_set_quality(&info, 98, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  if (!profile.empty())
    jpeg_write_icc_profile(&info, reinterpret_cast<const JOCTET*>(profile.data()),
                           static_cast<unsigned>(profile.size()));
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(samples.data() + std::size_t{info.next_scanline} * width * components);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string file(reinterpret_cast<char*>(memory), size);
  jpeg_destroy_compress(&info);
  std::free(memory);
  return file;
}

std::string jpeg_of(const Image& image, bool progressive = false) {
  return jpeg_of(image.width, image.height, 3, image.rgb, JCS_YCbCr, "", progressive);
}

// A CMYK profile in which every ink is grey: only the sum of the inks counts. No naive conversion does that.
std::string grey_ink_profile() {
  cmsHPROFILE profile = cmsCreateProfilePlaceholder(nullptr);
  cmsSetProfileVersion(profile, 2.1);
  cmsSetDeviceClass(profile, cmsSigOutputClass);
  cmsSetColorSpace(profile, cmsSigCmykData);
  cmsSetPCS(profile, cmsSigLabData);
  cmsPipeline* pipeline = cmsPipelineAlloc(nullptr, 4, 3);
  cmsStage* table = cmsStageAllocCLut16bit(nullptr, 2, 4, 3, nullptr);
  const auto lightness = [](const cmsUInt16Number in[], cmsUInt16Number out[], void*) {
    const unsigned inks = (unsigned{in[0]} + in[1] + in[2] + in[3]) / 4;
    out[0] = static_cast<cmsUInt16Number>(0xff00 - inks * 0xff00 / 0xffff);
    out[1] = out[2] = 0x8000;  // no colour
    return 1;
  };
  cmsStageSampleCLut16bit(table, lightness, nullptr, 0);
  cmsPipelineInsertStage(pipeline, cmsAT_BEGIN, table);
  cmsWriteTag(profile, cmsSigAToB0Tag, pipeline);
  cmsPipelineFree(pipeline);
  cmsUInt32Number size = 0;
  cmsSaveProfileToMem(profile, nullptr, &size);
  std::string bytes(size, '\0');
  cmsSaveProfileToMem(profile, bytes.data(), &size);
  cmsCloseProfile(profile);
  return bytes;
}

double mean_difference(const Image& a, const Image& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.rgb.size(); ++i) sum += std::abs(a.rgb[i] - b.rgb[i]);
  return sum / static_cast<double>(a.rgb.size());
}

TEST(ImageLimits, HoldBeforeMemoryIsTaken) {
  const std::string file = png_of(picture(50, 40));
  EXPECT_THAT(decode_error(file, {.max_side = 49}), HasSubstr("50x40"));
  EXPECT_THAT(decode_error(file, {.max_pixels = 1999}), StartsWith("limit_exceeded"));
  EXPECT_THAT(decode_error(file, {.max_decoder_bytes = 11000}), StartsWith("limit_exceeded"));
  EXPECT_EQ(decode(file, {.max_side = 50, .max_pixels = 2000, .max_decoder_bytes = 12000}).width, 50);
  // A progressive JPEG takes its coefficients, too.
  const std::string progressive = jpeg_of(picture(200, 200), true);
  EXPECT_EQ(decode(jpeg_of(picture(200, 200)), {.max_decoder_bytes = 250000}).width, 200);
  EXPECT_THAT(decode_error(progressive, {.max_decoder_bytes = 250000}), StartsWith("limit_exceeded"));
}

TEST(ImageLimits, HoldForHeadersThatPromiseTooMuch) {
  std::string png = png_of(picture(5, 4));
  png.replace(16, 8, "\x7f\xff\xff\xff\x7f\xff\xff\xff");
  EXPECT_THAT(decode_error(png), StartsWith("limit_exceeded"));
  std::string jpeg = jpeg_of(picture(5, 4));
  jpeg.replace(jpeg.find("\xff\xc0") + 5, 4, "\xff\xdc\xff\xdc");
  EXPECT_THAT(decode_error(jpeg), StartsWith("limit_exceeded"));
}

TEST(ImageReduction, AveragesBoxesOfTheSmallestEnoughSize) {
  const Image whole = picture(103, 61);
  const ImageLimits limits{.reduce_above = 1000};
  // 103/3 x 61/3 = 34 x 20 = 680 pixels are enough; 25 x 15 would not be.
  const Image small = decode(png_of(whole), limits, 600);
  ASSERT_EQ(small.width, 35);
  ASSERT_EQ(small.height, 21);
  const auto box = [&](int x, int y, int channel) {
    int sum = 0, count = 0;
    for (int dy = 0; dy < 3 && 3 * y + dy < 61; ++dy)
      for (int dx = 0; dx < 3 && 3 * x + dx < 103; ++dx, ++count)
        sum += whole.rgb[static_cast<std::size_t>(((3 * y + dy) * 103 + 3 * x + dx) * 3 + channel)];
    return (sum + count / 2) / count;
  };
  for (int y = 0; y < 21; ++y)
    for (int x = 0; x < 35; ++x)
      for (int c = 0; c < 3; ++c)
        ASSERT_EQ(small.rgb[static_cast<std::size_t>((y * 35 + x) * 3 + c)], box(x, y, c)) << x << " " << y;
}

TEST(ImageReduction, LeavesOrdinaryPicturesAlone) {
  EXPECT_EQ(decode(png_of(picture(103, 61)), {.reduce_above = 103 * 61}, 100).width, 103);
  EXPECT_EQ(decode(png_of(picture(103, 61)), {.reduce_above = 1000}, 0).width, 103);
}

TEST(ImageReduction, ScalesJpegInTheTransform) {
  const ImageLimits limits{.reduce_above = 1000};
  const Image small = decode(jpeg_of(picture(160, 80)), limits, 700);
  EXPECT_EQ(small.width, 40);
  EXPECT_EQ(small.height, 20);
  EXPECT_LT(mean_difference(small, picture(40, 20)), 4);
}

TEST(ImageDamage, GivesTheRowsThatAreThereWhenTheyAreHalf) {
  Image noise = picture(64, 64);  // does not compress: bytes are proportional to rows
  unsigned state = 1;
  for (std::uint8_t& v : noise.rgb)
    v = static_cast<std::uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  for (const std::string& file : {png_of(noise), jpeg_of(noise)}) {
    const Image whole = decode(file), most = decode(file.substr(0, file.size() * 3 / 4));
    ASSERT_EQ(most.height, 64);
    const std::ptrdiff_t row = 64 * 3;
    // JPEG has rows in blocks of 16, and the last row of a block leans on the next.
    const auto differ = std::mismatch(most.rgb.begin(), most.rgb.begin() + row * 31, whole.rgb.begin());
    EXPECT_EQ((differ.first - most.rgb.begin()) / row, 31) << "the first row that differs";
    EXPECT_THAT(std::vector(most.rgb.end() - row * 4, most.rgb.end()), Each(255)) << "missing rows are white";
    EXPECT_THAT(decode_error(file.substr(0, file.size() / 4)), HasSubstr("of 64 rows could be read"));
  }
}

TEST(ImageDamage, IsAnErrorWithNameFormatAndReason) {
  EXPECT_THAT(decode_error(""), HasSubstr("a: the file is empty"));
  EXPECT_THAT(decode_error("hello, this is text"), StartsWith("unsupported: a: not a picture"));
  EXPECT_THAT(decode_error(png_of(picture(9, 9)).substr(0, 20)), StartsWith("invalid_input: a: PNG: "));
  EXPECT_THAT(error_of([] { decode_image(as_bytes(png_of(picture(9, 9))), 1, "a"); }), HasSubstr("frame 1"));
}

TEST(ImageJpeg, ConvertsFourColoursByTheProfile) {
  // Full cyan: (255 - ink), as Adobe stores it. Naively (0, 255, 255), by the profile a grey.
  std::vector<std::uint8_t> cyan;
  for (int i = 0; i < 16 * 16; ++i) cyan.insert(cyan.end(), {0, 255, 255, 255});
  for (const J_COLOR_SPACE stored : {JCS_CMYK, JCS_YCCK}) {
    const Image naive = decode(jpeg_of(16, 16, 4, cyan, stored));
    EXPECT_NEAR(naive.rgb[0], 0, 4);
    EXPECT_NEAR(naive.rgb[1], 255, 4);
    EXPECT_NEAR(naive.rgb[2], 255, 4);
    const Image grey = decode(jpeg_of(16, 16, 4, cyan, stored, grey_ink_profile()));
    EXPECT_NEAR(grey.rgb[0], grey.rgb[1], 3);
    EXPECT_NEAR(grey.rgb[1], grey.rgb[2], 3);
    EXPECT_NEAR(grey.rgb[0], 185, 6) << "L* = 75";
    EXPECT_EQ(decode(jpeg_of(16, 16, 4, cyan, stored, "not a profile")).rgb, naive.rgb);
  }
}

// TIFF files by libtiff.
struct TiffKind {
  int photometric = PHOTOMETRIC_RGB, planes = PLANARCONFIG_CONTIG, compression = COMPRESSION_LZW, tile = 0,
      bits = 8;
  int samples = 3;
  std::string profile = {};
};

class TiffTest : public testing::Test {
 protected:
  // Samples of `bits`, row-major, interleaved; planes are split here.
  std::string write(const TiffKind& kind, int width, int height,
                    const std::vector<std::uint8_t>& interleaved) const {
    const std::string path = (folder_.path() / "a.tif").string();
    TIFF* tiff = TIFFOpen(path.c_str(), "w");
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, width);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, height);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, kind.bits);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, kind.samples);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, kind.planes);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, kind.photometric);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, kind.compression);
    if (kind.photometric == PHOTOMETRIC_YCBCR) TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    if (!kind.profile.empty())
      TIFFSetField(tiff, TIFFTAG_ICCPROFILE, static_cast<std::uint32_t>(kind.profile.size()),
                   kind.profile.data());
    const std::ptrdiff_t sample = kind.bits / 8, pixel = sample * kind.samples;
    if (kind.tile > 0) {
      TIFFSetField(tiff, TIFFTAG_TILEWIDTH, kind.tile);
      TIFFSetField(tiff, TIFFTAG_TILELENGTH, kind.tile);
      std::vector<std::uint8_t> tile(static_cast<std::size_t>(kind.tile * kind.tile * pixel));
      for (int top = 0; top < height; top += kind.tile)
        for (int left = 0; left < width; left += kind.tile) {
          for (int y = 0; y < std::min(kind.tile, height - top); ++y)
            std::copy_n(interleaved.begin() + ((top + y) * width + left) * pixel,
                        std::min(kind.tile, width - left) * pixel, tile.begin() + y * kind.tile * pixel);
          TIFFWriteTile(tiff, tile.data(), static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(top),
                        0, 0);
        }
    } else {
      TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 16);
      const int planes = kind.planes == PLANARCONFIG_SEPARATE ? kind.samples : 1;
      for (int plane = 0; plane < planes; ++plane)
        for (int y = 0; y < height; ++y) {
          std::vector<std::uint8_t> row;
          for (int x = 0; x < width; ++x)
            for (int s = 0; s < (planes > 1 ? 1 : kind.samples); ++s)
              row.insert(row.end(), interleaved.begin() + (y * width + x) * pixel + (plane + s) * sample,
                         interleaved.begin() + (y * width + x) * pixel + (plane + s + 1) * sample);
          TIFFWriteScanline(tiff, row.data(), static_cast<std::uint32_t>(y),
                            static_cast<std::uint16_t>(plane));
        }
    }
    TIFFClose(tiff);
    return read_file(path);
  }

  TemporaryDirectory folder_;
  const Image whole_ = picture(75, 50);
};

TEST_F(TiffTest, ReadsStripsTilesAndPlanes) {
  for (const int planes : {PLANARCONFIG_CONTIG, PLANARCONFIG_SEPARATE})
    EXPECT_EQ(decode(write({.planes = planes}, 75, 50, whole_.rgb)).rgb, whole_.rgb) << planes;
  EXPECT_EQ(decode(write({.tile = 32}, 75, 50, whole_.rgb)).rgb, whole_.rgb);
}

TEST_F(TiffTest, ReadsJpegInside) {
  const TiffKind kind{.photometric = PHOTOMETRIC_YCBCR, .compression = COMPRESSION_JPEG};
  EXPECT_LT(mean_difference(decode(write(kind, 75, 50, whole_.rgb)), whole_), 4);
  TiffKind tiled = kind;
  tiled.tile = 16;
  EXPECT_LT(mean_difference(decode(write(tiled, 75, 50, whole_.rgb)), whole_), 4);
}

TEST_F(TiffTest, Scales16Bits) {
  std::vector<std::uint8_t> deep;
  for (const std::uint8_t v : whole_.rgb) {
    const std::uint16_t value = static_cast<std::uint16_t>(v * 257 + (v < 128 ? 100 : -100));  // rounds to v
    deep.push_back(static_cast<std::uint8_t>(value));
    deep.push_back(static_cast<std::uint8_t>(value >> 8));
  }
  EXPECT_EQ(decode(write({.bits = 16}, 75, 50, deep)).rgb, whole_.rgb);
  EXPECT_EQ(decode(write({.tile = 16, .bits = 16}, 75, 50, deep)).rgb, whole_.rgb);
}

TEST_F(TiffTest, ConvertsFourColoursByTheProfile) {
  std::vector<std::uint8_t> cyan;
  for (int i = 0; i < 20 * 20; ++i) cyan.insert(cyan.end(), {255, 0, 0, 0});
  for (const int tile : {0, 16}) {
    TiffKind kind{.photometric = PHOTOMETRIC_SEPARATED, .tile = tile, .samples = 4};
    const Image naive = decode(write(kind, 20, 20, cyan));
    EXPECT_EQ(std::vector(naive.rgb.begin(), naive.rgb.begin() + 3),
              (std::vector<std::uint8_t>{0, 255, 255}));
    kind.profile = grey_ink_profile();
    const Image grey = decode(write(kind, 20, 20, cyan));
    EXPECT_NEAR(grey.rgb[0], 185, 3) << "L* = 75";
    EXPECT_NEAR(grey.rgb[0], grey.rgb[2], 2);
  }
}

TEST_F(TiffTest, ReducesRowByRow) {
  const Image small = decode(write({}, 75, 50, whole_.rgb), {.reduce_above = 1000}, 900);
  EXPECT_EQ(small.width, 38);
  EXPECT_EQ(small.height, 25);
  EXPECT_LT(mean_difference(small, picture(38, 25)), 4);
}

TEST_F(TiffTest, CountsAndNumbersFrames) {
  const std::string path = (folder_.path() / "frames.tif").string();
  TIFF* tiff = TIFFOpen(path.c_str(), "w");
  for (std::uint8_t frame = 0; frame < 3; ++frame) {
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 1);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 1);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    TIFFWriteScanline(tiff, &frame, 0, 0);
    TIFFWriteDirectory(tiff);
  }
  TIFFClose(tiff);
  const std::string file = read_file(path);
  ASSERT_EQ(image_frames(as_bytes(file)), 3);
  for (int frame = 0; frame < 3; ++frame)
    EXPECT_EQ(decode_image(as_bytes(file), frame, "a").rgb,
              std::vector<std::uint8_t>(3, static_cast<std::uint8_t>(frame)));
  EXPECT_THAT(error_of([&] { decode_image(as_bytes(file), 3, "a"); }),
              HasSubstr("frame 3 cannot be reached"));
  EXPECT_THAT(error_of([&] { decode_image(as_bytes(file), -1, "a"); }), StartsWith("invalid_input"));
}

TEST_F(TiffTest, PrintsNothing) {
  const std::string file = write({}, 75, 50, whole_.rgb);
  testing::internal::CaptureStderr();
  for (std::size_t size = 0; size < file.size(); size += 97) {
    image_frames(as_bytes(file.substr(0, size)));
    decode_error(file.substr(0, size));
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// Of 1 2 3 / 4 5 6, red alone.
TEST(Turn, Clockwise) {
  Image image{.width = 3, .height = 2, .rgb = {1, 0, 0, 2, 0, 0, 3, 0, 0, 4, 0, 0, 5, 0, 0, 6, 0, 0}};
  const auto reds = [](const Image& turned) {
    std::vector<int> values{turned.width, turned.height};
    for (std::size_t i = 0; i < turned.rgb.size(); i += 3) values.push_back(turned.rgb[i]);
    return values;
  };
  EXPECT_THAT(reds(turn(image, 90)), testing::ElementsAre(2, 3, 4, 1, 5, 2, 6, 3));
  EXPECT_THAT(reds(turn(image, 180)), testing::ElementsAre(3, 2, 6, 5, 4, 3, 2, 1));
  EXPECT_THAT(reds(turn(image, 270)), testing::ElementsAre(2, 3, 3, 6, 2, 5, 1, 4));
}

}  // namespace
}  // namespace quire
