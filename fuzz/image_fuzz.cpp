// Any bytes through every picture decoder: a picture or an Error, within small limits.
#include <cstddef>
#include <cstdint>

#include "io/image.h"
#include "quire/quire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  const quire::ImageLimits limits{.max_side = 4096,
                                  .max_pixels = 1 << 18,
                                  .max_decoder_bytes = std::int64_t{32} << 20,
                                  .reduce_above = 1 << 12};
  const int frames = quire::image_frames(file);
  for (int frame = 0; frame < frames && frame < 2; ++frame) {
    try {
      quire::decode_image(file, frame, "fuzz", limits, frame == 0 ? 0 : 256);
    } catch (const quire::Error& error) {
      if (error.code() == quire::ErrorCode::internal) throw;
    }
  }
  return 0;
}
