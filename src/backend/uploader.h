// Small arrays of the host on their way to a backend's memory. What is sent is copied before `send` returns,
// and arrives in the order of the stream: nobody waits for what the stream was asked for before.
#pragma once

#include <array>

#include "backend/backend.h"

namespace quire {

class Uploader {
 public:
  explicit Uploader(const Backend& backend) : backend_(backend) {}

  void send(Stream& stream, void* to, const void* from, std::size_t bytes);

 private:
  struct Buffer {
    Memory memory;  // staging
    Handle sent;    // an event after its last copy; nothing before the first
  };

  const Backend& backend_;
  std::array<Buffer, 16> buffers_;  // taken in turn
  std::size_t next_ = 0;
};

}  // namespace quire
