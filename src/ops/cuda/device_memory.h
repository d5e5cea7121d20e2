// The CUDA backend in short words, for what tests and measures it. There is a device: whoever comes here has
// looked.
#pragma once

#include "backend/backend.h"

namespace quire::cuda {

struct DeviceBuffer : Memory {
  explicit DeviceBuffer(std::size_t bytes) : Memory(*cuda_backend(), bytes) {}
};

inline const Ops* ops() {
  return cuda_backend()->ops;
}
inline void upload(Stream& s, void* to, const void* from, std::size_t bytes) {
  cuda_backend()->upload(s, to, from, bytes);
}
inline void download(Stream& s, void* to, const void* from, std::size_t bytes) {
  cuda_backend()->download(s, to, from, bytes);
}
inline void synchronize(Stream& s) {
  cuda_backend()->synchronize(s);
}

}  // namespace quire::cuda
