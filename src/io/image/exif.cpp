#include "io/image.h"

namespace quire {

namespace {

// Reads integers of either byte order; 0 past the end, which no valid field holds where it matters.
struct TiffBytes {
  std::span<const std::byte> bytes;
  bool big_endian;

  std::uint32_t integer(std::uint64_t offset, int size) const {
    if (offset + static_cast<std::uint64_t>(size) > bytes.size()) return 0;
    std::uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      const std::uint64_t at = offset + static_cast<std::uint64_t>(big_endian ? i : size - 1 - i);
      value = value << 8 | static_cast<std::uint32_t>(bytes[at]);
    }
    return value;
  }
};

}  // namespace

int exif_orientation(std::span<const std::byte> tiff) {
  constexpr std::uint32_t kMagic = 42, kOrientationTag = 0x0112, kShort = 3;
  if (tiff.size() < 8 || tiff[0] != tiff[1]) return 1;
  if (tiff[0] != std::byte{'I'} && tiff[0] != std::byte{'M'}) return 1;
  const TiffBytes in{.bytes = tiff, .big_endian = tiff[0] == std::byte{'M'}};
  if (in.integer(2, 2) != kMagic) return 1;
  const std::uint64_t directory = in.integer(4, 4);
  const std::uint32_t entries = in.integer(directory, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::uint64_t entry = directory + 2 + 12ull * i;  // tag, type, count, value
    if (entry + 12 > tiff.size()) break;
    if (in.integer(entry, 2) != kOrientationTag) continue;
    const std::uint32_t value = in.integer(entry + 2, 2) == kShort ? in.integer(entry + 8, 2) : 1;
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace quire
