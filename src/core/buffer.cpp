#include "core/buffer.h"

#include <cstdlib>

#include "core/error.h"

namespace quire {

Buffer::Buffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  constexpr std::size_t kAlign = 64;
  const std::size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlign, rounded)));
  if (!data_) fail(ErrorCode::out_of_memory, "cannot allocate {} bytes of host memory", bytes);
}

void Buffer::Free::operator()(std::byte* p) const {
  std::free(p);
}

}  // namespace quire
