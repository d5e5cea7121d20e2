#include "backend/cuda.h"

#include <utility>

#include <cuda_runtime.h>

#include "ops/cuda/launch.h"
#include "ops/cuda/table.h"

namespace quire::cuda {
namespace {

std::string with_numbers(const char* text, std::size_t a, std::size_t b) {
  return std::string(text) + " (" + std::to_string(a) + " bytes asked for, " + std::to_string(b) + " free)";
}

}  // namespace

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    cudaGetLastError();  // no driver, or none that fits: not an error
    return 0;
  }
  int usable = 0;
  for (int i = 0; i < count; ++i) {
    int major = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i) == cudaSuccess && major >= 9) ++usable;
  }
  return usable == count ? count : 0;  // one kind of device only: kernels are built for Hopper and later
}

DeviceFacts device_facts(int device) {
  if (device < 0 || device >= device_count()) {
    throw Error(ErrorCode::not_found, "there is no CUDA device " + std::to_string(device) + "; there are " +
                                          std::to_string(device_count()));
  }
  cudaDeviceProp p;
  check(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
  DeviceFacts facts{.name = p.name,
                    .compute_capability = 10 * p.major + p.minor,
                    .multiprocessors = p.multiProcessorCount,
                    .memory_bytes = p.totalGlobalMem,
                    .free_bytes = 0,
                    .l2_bytes = static_cast<std::size_t>(p.l2CacheSize)};
  std::size_t total = 0;
  check(cudaMemGetInfo(&facts.free_bytes, &total), "cudaMemGetInfo");
  return facts;
}

const Ops* ops() { return device_count() > 0 ? &kOps : nullptr; }

DeviceBuffer::DeviceBuffer(std::size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    throw Error(ErrorCode::out_of_memory, with_numbers("not enough GPU memory", bytes, free_bytes));
  }
  check(status, "cudaMalloc");
  data_ = static_cast<std::byte*>(p);
}
DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }
DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void upload(Stream& stream, void* device, const void* host, std::size_t bytes) {
  check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, handle(stream)), "copy to the device");
  check(cudaStreamSynchronize(handle(stream)), "copy to the device");
}

void download(Stream& stream, void* host, const void* device, std::size_t bytes) {
  check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, handle(stream)), "copy from the device");
  check(cudaStreamSynchronize(handle(stream)), "copy from the device");
}

void synchronize(Stream& stream) { check(cudaStreamSynchronize(handle(stream)), "waiting for the device"); }

}  // namespace quire::cuda
