// What the GPU can do at most, measured: the denominators of every limit%.
//   copy: bytes read plus bytes written of a device-to-device copy
//   read: bytes of a kernel that only reads
// One JSON line: {"device": ..., "copy_bytes_per_second": ..., "read_bytes_per_second": ...}
// Buffers are 4 GiB, far above L2; the median of 20 runs after 3, by events.
#include <algorithm>
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

#include "backend/cuda.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr std::size_t kBytes = std::size_t{4} << 30;
constexpr int kThreads = 512;

// Every thread keeps four 16-byte loads in flight; the sum keeps the compiler from leaving them out.
__global__ void read_kernel(const uint4* data, std::size_t n, unsigned* out) {
  unsigned sum = 0;
  const std::size_t step = std::size_t{gridDim.x} * kThreads;
  std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = __ldcs(data + i), b = __ldcs(data + i + step), c = __ldcs(data + i + 2 * step),
                d = __ldcs(data + i + 3 * step);
    sum += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) + (d.x ^ d.y ^ d.z ^ d.w);
  }
  for (; i < n; i += step) sum += data[i].x;
  if (sum == 0xdeadbeef) *out = sum;
}

__global__ void fill_kernel(unsigned* data, std::size_t n) {
  for (std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += std::size_t{gridDim.x} * kThreads) {
    data[i] = static_cast<unsigned>(i) * 2654435761u;
  }
}

// Median seconds of one run of `work`.
template <typename Work>
double median_seconds(Work work) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<double> seconds;
  for (int i = 0; i < 23; ++i) {
    check(cudaEventRecord(begin), "cudaEventRecord");
    work();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (i >= 3) seconds.push_back(milliseconds * 1e-3);
  }
  std::nth_element(seconds.begin(), seconds.begin() + 10, seconds.end());
  return seconds[10];
}

int run() {
  if (device_count() == 0) {
    std::fprintf(stderr, "ceilings: no CUDA device\n");
    return 1;
  }
  const DeviceFacts facts = device_facts(0);
  DeviceBuffer a(kBytes), b(kBytes), out(4);
  auto* data = reinterpret_cast<unsigned*>(a.data());
  fill_kernel<<<8 * facts.multiprocessors, kThreads>>>(data, kBytes / 4);
  check_launch("fill");
  const double copy = median_seconds(
      [&] { check(cudaMemcpyAsync(b.data(), a.data(), kBytes, cudaMemcpyDeviceToDevice), "copy"); });
  const double read = median_seconds([&] {
    read_kernel<<<8 * facts.multiprocessors, kThreads>>>(reinterpret_cast<const uint4*>(a.data()), kBytes / 16,
                                                        reinterpret_cast<unsigned*>(out.data()));
    check_launch("read");
  });
  std::printf("{\"device\": \"%s\", \"multiprocessors\": %d, \"l2_bytes\": %zu, \"copy_bytes_per_second\": %.4g, "
              "\"read_bytes_per_second\": %.4g}\n",
              facts.name.c_str(), facts.multiprocessors, facts.l2_bytes, 2.0 * kBytes / copy, kBytes / read);
  return 0;
}

}  // namespace
}  // namespace quire::cuda

int main() {
  try {
    return quire::cuda::run();
  } catch (const quire::Error& error) {
    std::fprintf(stderr, "ceilings: %s\n", error.what());
    return 1;
  }
}
