// Any bytes as an EXIF block: an orientation from 1 to 8.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "io/image.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const int orientation = quire::exif_orientation({reinterpret_cast<const std::byte*>(data), size});
  if (orientation < 1 || orientation > 8) std::abort();
  return 0;
}
