// What a build without CUDA has in place of cuda.cu.
#include <utility>

#include "backend/cuda.h"
#include "core/error.h"

namespace quire::cuda {
namespace {

[[noreturn]] void no_device() {
  fail(ErrorCode::not_found, "this build of Quire has no CUDA; there is no GPU");
}

}  // namespace

int device_count() {
  return 0;
}
DeviceFacts device_facts(int) {
  no_device();
}
const Ops* ops() {
  return nullptr;
}

DeviceBuffer::DeviceBuffer(std::size_t) {
  no_device();
}
DeviceBuffer::~DeviceBuffer() = default;
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void upload(Stream&, void*, const void*, std::size_t) {
  no_device();
}
void download(Stream&, void*, const void*, std::size_t) {
  no_device();
}
void synchronize(Stream&) {
  no_device();
}

}  // namespace quire::cuda
