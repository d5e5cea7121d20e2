#include "backend/uploader.h"

#include <algorithm>
#include <cstring>

namespace quire {

void Uploader::send(Stream& stream, void* to, const void* from, std::size_t bytes) {
  if (backend_.host_memory) return backend_.upload(stream, to, from, bytes);
  Buffer& buffer = buffers_[next_];
  next_ = (next_ + 1) % buffers_.size();
  if (buffer.sent.get()) {
    backend_.wait(stream, buffer.sent.get());
  } else {
    buffer.sent = Handle(backend_.new_event(), backend_.delete_event);
  }
  if (buffer.memory.size() < bytes)
    buffer.memory = Memory::staging(backend_, std::max<std::size_t>(bytes, 4096));
  std::memcpy(buffer.memory.data(), from, bytes);
  backend_.begin_upload(stream, to, buffer.memory.data(), bytes);
  backend_.record(stream, buffer.sent.get());
}

}  // namespace quire
