// Limits, reduction and colour: the parts of decoding that do not depend on the format.
#include <algorithm>
#include <cstring>

#include <lcms2.h>

#include "io/image/codecs.h"

namespace quire {

void ImageSource::reject(ErrorCode code, std::string_view reason) const {
  fail(code, "{}: {}: {}", what, to_string(format), reason);
}

void ImageSource::check_size(std::int64_t width, std::int64_t height) const {
  if (width < 1 || height < 1)
    reject(ErrorCode::invalid_input, fmt::format("a size of {}x{} pixels has no area", width, height));
  if (width > limits.max_side || height > limits.max_side)
    reject(ErrorCode::limit_exceeded,
           fmt::format("{}x{} pixels; a side may have at most {}", width, height, limits.max_side));
  if (width * height > limits.max_pixels)
    reject(ErrorCode::limit_exceeded, fmt::format("{}x{} is {} megapixels; the limit is {}", width, height,
                                                  width * height / 1'000'000, limits.max_pixels / 1'000'000));
}

void ImageSource::check_memory(std::int64_t width, std::int64_t height, std::int64_t bytes) const {
  if (bytes > limits.max_decoder_bytes)
    reject(ErrorCode::limit_exceeded,
           fmt::format("decoding {}x{} pixels of this kind takes {} MB of memory; the limit is {} MB", width,
                       height, bytes >> 20, limits.max_decoder_bytes >> 20));
}

int ImageSource::reduction(std::int64_t width, std::int64_t height) const {
  if (enough_pixels <= 0 || width * height <= limits.reduce_above) return 1;
  std::int64_t factor = 1;
  while (factor < std::min(width, height) &&
         (width / (factor + 1)) * (height / (factor + 1)) >= enough_pixels)
    ++factor;
  return static_cast<int>(factor);
}

Canvas::Canvas(const ImageSource& source, std::int64_t width, std::int64_t height, std::int64_t decoder_bytes)
    : source_(source) {
  source.check_size(width, height);
  factor_ = source.reduction(width, height);
  const std::int64_t out_width = (width + factor_ - 1) / factor_,
                     out_height = (height + factor_ - 1) / factor_;
  // Twice the result: turning it upright takes a copy.
  source.check_memory(width, height, 2 * 3 * out_width * out_height + decoder_bytes);
  width_ = static_cast<int>(width);
  height_ = static_cast<int>(height);
  image_.width = static_cast<int>(out_width);
  image_.height = static_cast<int>(out_height);
  image_.rgb.assign(static_cast<std::size_t>(3 * out_width * out_height), 255);
  if (factor_ > 1) sums_.assign(static_cast<std::size_t>(3 * out_width), 0);
}

void Canvas::add_row(const std::uint8_t* rgb) {
  if (rows_ >= height_) return;
  ++added_;
  if (factor_ == 1) {
    const std::size_t bytes = std::size_t{3} * width_;
    std::memcpy(image_.rgb.data() + bytes * rows_++, rgb, bytes);
    return;
  }
  std::uint32_t* sum = sums_.data();
  for (int x0 = 0; x0 < width_; x0 += factor_, sum += 3) {
    std::uint32_t r = 0, g = 0, b = 0;
    for (int n = std::min(factor_, width_ - x0); n > 0; --n, rgb += 3) r += rgb[0], g += rgb[1], b += rgb[2];
    sum[0] += r, sum[1] += g, sum[2] += b;
  }
  ++rows_in_sums_;
  if (++rows_ % factor_ == 0 || rows_ == height_) store_reduced_row();
}

void Canvas::skip_row() {
  if (rows_ >= height_) return;
  // Full size: the canvas is white already. Reduced: a white row does not count in its boxes.
  if (++rows_ % factor_ == 0 || rows_ == height_) store_reduced_row();
}

void Canvas::store_reduced_row() {
  if (rows_in_sums_ == 0) return;
  std::uint8_t* out = image_.rgb.data() + std::size_t{3} * image_.width * ((rows_ - 1) / factor_);
  for (int x = 0; x < image_.width; ++x) {
    const std::uint32_t columns = static_cast<std::uint32_t>(std::min(factor_, width_ - x * factor_));
    const std::uint32_t count = columns * static_cast<std::uint32_t>(rows_in_sums_);
    for (int c = 0; c < 3; ++c)
      out[3 * x + c] = static_cast<std::uint8_t>((sums_[3 * x + c] + count / 2) / count);
  }
  std::fill(sums_.begin(), sums_.end(), 0);
  rows_in_sums_ = 0;
}

Image Canvas::finish(std::string_view reason) && {
  if (std::int64_t{2} * added_ < height_)
    source_.reject(ErrorCode::invalid_input,
                   fmt::format("the file is damaged or cut short: {} ({} of {} rows could be read)", reason,
                               added_, height_));
  while (rows_ < height_) skip_row();
  return std::move(image_);
}

void rgba_on_white(const std::uint8_t* rgba, std::uint8_t* rgb, int pixels) {
  for (int x = 0; x < pixels; ++x, rgba += 4, rgb += 3)
    for (int c = 0; c < 3; ++c) rgb[c] = on_white(rgba[c], rgba[3]);
}

CmykToRgb::CmykToRgb(std::span<const std::uint8_t> icc_profile) {
  if (icc_profile.empty()) return;
  context_ = cmsCreateContext(nullptr, nullptr);
  cmsHPROFILE from = cmsOpenProfileFromMemTHR(static_cast<cmsContext>(context_), icc_profile.data(),
                                              static_cast<cmsUInt32Number>(icc_profile.size()));
  cmsHPROFILE to = cmsCreate_sRGBProfileTHR(static_cast<cmsContext>(context_));
  if (from && to && cmsGetColorSpace(from) == cmsSigCmykData)
    transform_ = cmsCreateTransformTHR(static_cast<cmsContext>(context_), from, TYPE_CMYK_8, to, TYPE_RGB_8,
                                       INTENT_PERCEPTUAL, 0);
  if (from) cmsCloseProfile(from);
  if (to) cmsCloseProfile(to);
}

CmykToRgb::~CmykToRgb() {
  if (transform_) cmsDeleteTransform(transform_);
  if (context_) cmsDeleteContext(static_cast<cmsContext>(context_));
}

void CmykToRgb::convert(const std::uint8_t* cmyk, std::uint8_t* rgb, int pixels) const {
  if (transform_) {
    cmsDoTransform(transform_, cmyk, rgb, static_cast<cmsUInt32Number>(pixels));
    return;
  }
  for (int x = 0; x < pixels; ++x, cmyk += 4, rgb += 3)
    for (int c = 0; c < 3; ++c)
      rgb[c] = static_cast<std::uint8_t>(((255 - cmyk[c]) * (255 - cmyk[3]) + 127) / 255);
}

}  // namespace quire
