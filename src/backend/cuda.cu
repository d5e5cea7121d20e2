// CUDA as a backend: one device, one stream, memory from cudaMalloc.
#include "backend/cuda.h"

#include <algorithm>
#include <vector>

#include <cuda_runtime.h>

#include "backend/backend.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/table.h"

namespace quire::cuda {
namespace {

// One area for all operations: they run one after the other.
constexpr std::size_t kScratchBytes = std::size_t{256} << 20;

std::string mebibytes(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

std::byte* allocate(std::size_t bytes) {
  void* p = nullptr;
  const cudaError_t status = cudaMalloc(&p, bytes);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    std::size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    throw Error(ErrorCode::out_of_memory, "not enough GPU memory: " + mebibytes(bytes) + " asked for, " +
                                              mebibytes(free_bytes) + " of " + mebibytes(total) + " are free");
  }
  check(status, "cudaMalloc");
  return static_cast<std::byte*>(p);
}
void release(std::byte* p) { cudaFree(p); }

std::byte* allocate_staging(std::size_t bytes) {
  void* p = nullptr;
  check(cudaMallocHost(&p, bytes), "cudaMallocHost");
  return static_cast<std::byte*>(p);
}
void release_staging(std::byte* p) { cudaFreeHost(p); }

void open(Stream& s) {
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  s.cuda_stream = stream;
  s.cuda_scratch = allocate(kScratchBytes);
  s.cuda_scratch_bytes = kScratchBytes;
}
void close(Stream& s) {
  cudaStreamSynchronize(handle(s));
  cudaFree(s.cuda_scratch);
  cudaStreamDestroy(handle(s));
}

void begin_upload(Stream& s, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, handle(s)), "copy to the device");
  ++s.counts.uploads;
}
void begin_download(Stream& s, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, handle(s)), "copy from the device");
  ++s.counts.downloads;
}
void synchronize(Stream& s) {
  check(cudaStreamSynchronize(handle(s)), "waiting for the device");
  ++s.counts.waits;
}
void copy(Stream& s, void* to, const void* from, std::size_t bytes) {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, handle(s)), "copy on the device");
  ++s.counts.kernels;
}
void upload(Stream& s, void* to, const void* from, std::size_t bytes) {
  begin_upload(s, to, from, bytes);
  synchronize(s);
}
void download(Stream& s, void* to, const void* from, std::size_t bytes) {
  begin_download(s, to, from, bytes);
  synchronize(s);
}
void clear(Stream& s, void* memory, std::size_t bytes) {
  check(cudaMemsetAsync(memory, 0, bytes, handle(s)), "clearing device memory");
  ++s.counts.kernels;
}

void* new_event() {
  cudaEvent_t event;
  check(cudaEventCreate(&event), "cudaEventCreate");
  return event;
}
void delete_event(void* event) { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
void record(Stream& s, void* event) {
  cudaStreamCaptureStatus capturing;
  check(cudaStreamIsCapturing(handle(s), &capturing), "event");
  const unsigned flags = capturing == cudaStreamCaptureStatusActive ? cudaEventRecordExternal : cudaEventRecordDefault;
  check(cudaEventRecordWithFlags(static_cast<cudaEvent_t>(event), handle(s), flags), "event");
}
double seconds_between(void* first, void* second) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(first), static_cast<cudaEvent_t>(second)), "event");
  return milliseconds * 1e-3;
}
void wait(Stream& s, void* event) {
  check(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "waiting for the device");
  ++s.counts.waits;
}

void* capture(Stream& s, const std::function<void()>& body) {
  check(cudaStreamBeginCapture(handle(s), cudaStreamCaptureModeThreadLocal), "recording a graph");
  cudaGraph_t graph = nullptr;
  const StreamCounts before = s.counts;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(handle(s), &graph);  // the stream can be used again
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  check(cudaStreamEndCapture(handle(s), &graph), "recording a graph");
  s.counts = before;  // nothing was launched
  cudaGraphExec_t executable;
  const cudaError_t status = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(status, "cudaGraphInstantiate");
  return executable;
}
void delete_graph(void* graph) { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }
void run(Stream& s, void* graph) {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), handle(s)), "graph");
  ++s.counts.graphs;
}

// Every thread keeps four 16-byte loads in flight; the sum keeps the compiler from leaving them out.
__global__ void read_kernel(const uint4* data, std::size_t n, unsigned* out) {
  unsigned sum = 0;
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 3 * step < n; i += 4 * step) {
    const uint4 a = __ldcs(data + i), b = __ldcs(data + i + step), c = __ldcs(data + i + 2 * step),
                d = __ldcs(data + i + 3 * step);
    sum += (a.x ^ a.y ^ a.z ^ a.w) + (b.x ^ b.y ^ b.z ^ b.w) + (c.x ^ c.y ^ c.z ^ c.w) + (d.x ^ d.y ^ d.z ^ d.w);
  }
  if (sum == 0xdeadbeef) *out = sum;
}

__global__ void fill_kernel(unsigned* data, std::size_t n) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    data[i] = static_cast<unsigned>(i) * 2654435761u;
  }
}

// Of 2 GiB that no cache holds; the median of 11 runs after 2.
double read_bandwidth(Stream& s) {
  constexpr std::size_t kBytes = std::size_t{2} << 30;
  constexpr int kWarmUp = 2, kRuns = 11, kThreads = 512;
  int multiprocessors = 0;
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "cudaDeviceGetAttribute");
  const Memory memory(*cuda_backend(), kBytes);
  const Grid grid{.blocks = dim3(8 * multiprocessors), .threads = kThreads, .alone = true};
  launch(s, "fill", grid, fill_kernel, memory.as<unsigned>(), kBytes / sizeof(unsigned));
  const Handle first(new_event(), delete_event), second(new_event(), delete_event);
  std::vector<double> seconds;
  for (int i = 0; i < kWarmUp + kRuns; ++i) {
    record(s, first.get());
    launch(s, "read", grid, read_kernel, memory.as<const uint4>(), kBytes / sizeof(uint4), memory.as<unsigned>());
    record(s, second.get());
    synchronize(s);
    if (i >= kWarmUp) seconds.push_back(seconds_between(first.get(), second.get()));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRuns / 2, seconds.end());
  return static_cast<double>(kBytes) / seconds[kRuns / 2];
}

constexpr Backend kBackend = {
    .name = "cuda",
    .ops = &kOps,
    .host_memory = false,
    .open = open,
    .close = close,
    .allocate = allocate,
    .release = release,
    .allocate_staging = allocate_staging,
    .release_staging = release_staging,
    .upload = upload,
    .download = download,
    .begin_upload = begin_upload,
    .begin_download = begin_download,
    .copy = copy,
    .clear = clear,
    .synchronize = synchronize,
    .new_event = new_event,
    .delete_event = delete_event,
    .record = record,
    .wait = wait,
    .seconds_between = seconds_between,
    .capture = capture,
    .delete_graph = delete_graph,
    .run = run,
    .read_bandwidth = read_bandwidth,
};

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

}  // namespace quire::cuda

const quire::Backend* quire::cuda_backend() { return cuda::device_count() > 0 ? &cuda::kBackend : nullptr; }
