// CUDA devices: whether there is one, what it is, its memory. The only place that names the CUDA runtime
// outside kernels; a build without CUDA has no_cuda.cpp in its stead, and says that there is no device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/ops.h"

namespace quire::cuda {

struct DeviceFacts {
  std::string name;
  int compute_capability = 0;  // 10 * major + minor: 90 for Hopper
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;
  std::size_t l2_bytes = 0;
};

// How many devices Quire can run on. 0 without a driver, and in a build without CUDA.
int device_count();
// Throws Error{not_found} for an index that is not below device_count().
DeviceFacts device_facts(int device);

// The operations on the current device, whose Rows, Weights and spans point to device memory (ids, cos, sin
// and other small inputs too); nullptr when device_count() is 0.
const Ops* ops();

// Device memory, freed with it. Throws Error{out_of_memory} with the numbers.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes);
  ~DeviceBuffer();
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Copies in the order of the stream. Host memory may be reused when they return.
void upload(Stream& stream, void* device, const void* host, std::size_t bytes);
void download(Stream& stream, void* host, const void* device, std::size_t bytes);
// Waits for the stream. Throws Error{device} for what went wrong in a kernel before.
void synchronize(Stream& stream);

}  // namespace quire::cuda
