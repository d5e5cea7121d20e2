// Buffer: move-only, uninitialised, 64-byte aligned host memory.
#pragma once

#include <cstddef>
#include <memory>

namespace quire {

class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);  // throws out_of_memory

  std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace quire
