// What the GPU can do at most, then the CUDA operations at the shapes of Qwen3.5-4B. JSON lines:
//   {"device", "copy_bytes_per_second" (read plus written), "read_bytes_per_second"}
//   {"op", "shape", "us", "bytes", "flop", "limit_percent"}
// limit_percent: the time that the least bytes take at the read bandwidth, or the FLOP at the rate of a matrix product
// (771 TFLOP/s for bf16, seen with cuBLAS on an H200), whichever is longer, over the time measured.
// Ceilings: buffers of 4 GiB, the median of 20 runs after 3, by events.
// Random data; operands rotate through more than 4 x L2, the calls of one rotation stand in one CUDA graph; median of 15.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr double kMatrixFlops = 771e12;
constexpr std::size_t kRotate = std::size_t{256} << 20;

__global__ void random_kernel(__nv_bfloat16* x, std::size_t n, float scale, unsigned seed) {
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += std::size_t{gridDim.x} * blockDim.x) {
    unsigned h = (static_cast<unsigned>(i) ^ seed) * 2654435761u;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    x[i] = __float2bfloat16(scale * (static_cast<float>(h) * 0x1p-31f - 1.0f));
  }
}

__global__ void logits_kernel(float* x, std::size_t n, unsigned seed) {
  const std::size_t step = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += step) {
    float sum = 0;  // of twelve uniform numbers: normal, as far as +-6 deviations
    unsigned h = (static_cast<unsigned>(i) ^ seed) * 2654435761u;
    for (int k = 0; k < 12; ++k) {
      h ^= h >> 15, h *= 2246822519u, h ^= h >> 13, h += 0x9e3779b9u;
      sum += static_cast<float>(h) * 0x1p-32f - 0.5f;
    }
    x[i] = 3 * sum;
  }
}

constexpr std::size_t kCeilingBytes = std::size_t{4} << 30;
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

// Bytes per second of a stream that only reads; prints both ceilings.
double measure_ceilings() {
  const DeviceFacts facts = device_facts(0);
  DeviceBuffer a(kCeilingBytes), b(kCeilingBytes), out(4);
  auto* data = reinterpret_cast<unsigned*>(a.data());
  fill_kernel<<<8 * facts.multiprocessors, kThreads>>>(data, kCeilingBytes / 4);
  check_launch("fill");
  const double copy = median_seconds(
      [&] { check(cudaMemcpyAsync(b.data(), a.data(), kCeilingBytes, cudaMemcpyDeviceToDevice), "copy"); });
  const double read = median_seconds([&] {
    read_kernel<<<8 * facts.multiprocessors, kThreads>>>(reinterpret_cast<const uint4*>(a.data()), kCeilingBytes / 16,
                                                        reinterpret_cast<unsigned*>(out.data()));
    check_launch("read");
  });
  std::printf("{\"device\": \"%s\", \"multiprocessors\": %d, \"l2_bytes\": %zu, \"copy_bytes_per_second\": %.4g, "
              "\"read_bytes_per_second\": %.4g}\n",
              facts.name.c_str(), facts.multiprocessors, facts.l2_bytes, 2.0 * kCeilingBytes / copy, kCeilingBytes / read);
  return kCeilingBytes / read;
}

class Bench {
 public:
  explicit Bench(double read_bytes_per_second) : read_(read_bytes_per_second) {
    check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    s.cuda_stream = stream_;
    s.cuda_scratch = scratch_.data();
    s.cuda_scratch_bytes = scratch_.size();
  }

  // bf16 in [-scale, scale].
  Rows rows(std::int64_t count, std::int64_t cols, float scale = 1) {
    const auto n = static_cast<std::size_t>(count * cols);
    memory_.emplace_back(n * 2 + 64);
    auto* data = reinterpret_cast<__nv_bfloat16*>(memory_.back().data());
    random_kernel<<<1024, 256, 0, stream_>>>(data, n, scale, static_cast<unsigned>(memory_.size()));
    check_launch("random");
    return {.data = data, .format = Format::bf16, .rows = count, .cols = cols, .stride = cols};
  }
  // f32, about normal with standard deviation 3.
  Rows logits(std::int64_t count, std::int64_t cols) {
    const auto n = static_cast<std::size_t>(count * cols);
    memory_.emplace_back(n * 4);
    auto* data = reinterpret_cast<float*>(memory_.back().data());
    logits_kernel<<<1024, 256, 0, stream_>>>(data, n, static_cast<unsigned>(memory_.size()));
    check_launch("logits");
    return {.data = data, .format = Format::f32, .rows = count, .cols = cols, .stride = cols};
  }
  std::span<float> floats(std::int64_t n, float value) {
    return array(std::vector<float>(static_cast<std::size_t>(n), value));
  }
  // A copy on the device.
  template <typename T>
  std::span<T> array(const std::vector<T>& host) {
    memory_.emplace_back(host.size() * sizeof(T));
    upload(s, memory_.back().data(), host.data(), host.size() * sizeof(T));
    return {reinterpret_cast<T*>(memory_.back().data()), host.size()};
  }

  // call(i) for i in [0, variants): each on operands of its own.
  void measure(const char* op, const std::string& shape, int variants, double bytes, double flop,
               const std::function<void(int)>& call) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    call(0);
    synchronize(s);
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    const int calls = std::max(variants, 20);
    for (int i = 0; i < calls; ++i) call(i % variants);
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event"), check(cudaEventCreate(&end), "event");
    std::vector<double> us;
    for (int run = 0; run < 18; ++run) {
      check(cudaEventRecord(begin, stream_), "event");
      check(cudaGraphLaunch(exec, stream_), "launch");
      check(cudaEventRecord(end, stream_), "event");
      check(cudaEventSynchronize(end), op);
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
      if (run >= 3) us.push_back(1e3 * milliseconds / calls);
    }
    std::nth_element(us.begin(), us.begin() + 7, us.end());
    const double limit = 1e6 * std::max(bytes / read_, flop / kMatrixFlops);
    std::printf("{\"op\": \"%s\", \"shape\": \"%s\", \"us\": %.2f, \"bytes\": %.4g, \"flop\": %.4g, "
                "\"limit_percent\": %.1f}\n", op, shape.c_str(), us[7], bytes, flop, 100 * limit / us[7]);
    std::fflush(stdout);
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    memory_.clear();
  }

  Stream s;

 private:
  double read_;
  cudaStream_t stream_ = nullptr;
  DeviceBuffer scratch_{std::size_t{512} << 20};
  std::vector<DeviceBuffer> memory_;
};

void bench_linear(Bench& b, const char* name, std::int64_t N, std::int64_t K) {
  for (const std::int64_t T : {1, 8, 16, 32, 64, 128, 512, 4096}) {
    const auto variants = static_cast<int>(std::clamp<std::size_t>(kRotate / static_cast<std::size_t>(2 * N * K) + 1, 2, 32));
    std::vector<Rows> w;
    for (int i = 0; i < variants; ++i) w.push_back(b.rows(N, K, 0.05f));
    const Rows x = b.rows(T, K), y = b.rows(T, N);
    const double bytes = 2.0 * (double(N) * K + double(T) * (N + K));
    b.measure("linear", std::string(name) + " T=" + std::to_string(T), variants, bytes, 2.0 * T * N * K, [&](int i) {
      ops()->linear(b.s, x, {.data = w[static_cast<std::size_t>(i)].data, .out = N, .in = K}, {}, y);
    });
  }
}

void bench_attention(Bench& b, std::int64_t T, std::int64_t keys) {
  constexpr std::int64_t H = 16, G = 4, E = 256;
  const Rows q = b.rows(T, H * E), k = b.rows(keys, G * E), v = b.rows(keys, G * E), out = b.rows(T, H * E);
  const double bytes = 2.0 * (2.0 * keys * G * E + 2.0 * T * H * E);
  b.measure("attention", "T=" + std::to_string(T) + " keys=" + std::to_string(keys), 1, bytes,
            4.0 * H * E * T * (keys - T / 2.0), [&](int) {
              ops()->attention(b.s, {.q = q, .kv = {k, v}, .start = keys - T, .head_dim = E, .out = out});
            });
}

void bench_vision_attention(Bench& b, std::int64_t N) {
  constexpr std::int64_t D = 1024;
  const Rows qkv = b.rows(N, 3 * D), out = b.rows(N, D);
  b.measure("vision_attention", "N=" + std::to_string(N) + " 16x64", 1, 8.0 * N * D, 4.0 * N * N * D,
            [&](int) { ops()->vision_attention(b.s, {.qkv = qkv, .heads = 16, .out = out}); });
}

void bench_gdn(Bench& b, std::int64_t T, bool window) {
  constexpr int Hk = 16, Hv = 32, E = 128;
  const int variants = window ? 32 : 1;
  std::vector<std::span<float>> state;
  for (int i = 0; i < variants; ++i) state.push_back(b.floats(std::int64_t{Hv} * E * E, 0.01f));
  const Rows qkv = b.rows(T, (2 * Hk + Hv) * E), out = b.rows(T, Hv * E);
  const std::span<float> g = b.floats(T * Hv, -0.05f), beta = b.floats(T * Hv, 0.5f);
  const double bytes = 8.0 * Hv * E * E + 2.0 * T * (2 * Hk + 2 * Hv) * E;
  b.measure(window ? "gdn_window" : "gdn_prefill", "T=" + std::to_string(T), variants, bytes,
            window ? 0 : 6.0 * T * Hv * E * E, [&](int i) {
              (window ? ops()->gdn_window : ops()->gdn_prefill)(
                  b.s, {.qkv = qkv, .key_heads = Hk, .value_heads = Hv, .key_dim = E, .value_dim = E, .g = g,
                        .beta = beta, .state = state[static_cast<std::size_t>(i)], .out = out});
            });
}

void bench_sample(Bench& b, const char* name, const SamplingSettings& settings, std::int64_t T) {
  constexpr std::int64_t V = 248320;
  const std::size_t row = sizeof(float) * V, rows = static_cast<std::size_t>(T);
  const auto variants = static_cast<int>(std::clamp<std::size_t>(kRotate / (row * rows) + 1, 2, 64));
  std::vector<Rows> logits;
  for (int i = 0; i < variants; ++i) logits.push_back(b.logits(T, V));
  const auto* s = b.array(std::vector(1, settings)).data();
  const auto* zeros = b.array(std::vector<std::int32_t>(rows)).data();
  const std::span<Sampled> out = b.array(std::vector<Sampled>(rows));
  b.measure("sample", std::string(name) + " V=248320 T=" + std::to_string(T), variants, double(row) * rows, 0, [&](int i) {
    ops()->sample(b.s, {.logits = logits[static_cast<std::size_t>(i)], .settings = s, .slot = zeros, .position = zeros,
                        .out = out});
  });
}

void run() {
  Bench b(measure_ceilings());
  for (const std::int64_t T : {1, 8, 32, 64}) bench_sample(b, "greedy", {}, T);
  for (const std::int64_t T : {1, 32}) {
    bench_sample(b, "temperature", {.temperature = 0.8f}, T);
    bench_sample(b, "top_k", {.temperature = 0.8f, .top_k = 20}, T);
    bench_sample(b, "top_k top_p", {.temperature = 0.8f, .top_k = 20, .top_p = 0.95f}, T);
  }
  bench_linear(b, "in_proj_qkv 8192x2560", 8192, 2560);
  bench_linear(b, "out_proj 2560x4096", 2560, 4096);
  bench_linear(b, "gate_proj 9216x2560", 9216, 2560);
  bench_linear(b, "down_proj 2560x9216", 2560, 9216);
  bench_linear(b, "lm_head 248320x2560", 248320, 2560);
  for (const std::int64_t keys : {1024, 4096, 8192}) bench_attention(b, 1, keys);
  bench_attention(b, 16, 4096);
  for (const std::int64_t T : {512, 4096}) bench_attention(b, T, T);
  for (const std::int64_t N : {3072, 8192, 15360}) bench_vision_attention(b, N);
  for (const std::int64_t T : {1, 16}) bench_gdn(b, T, true);
  for (const std::int64_t T : {512, 4096}) bench_gdn(b, T, false);
}

}  // namespace
}  // namespace quire::cuda

int main() {
  if (quire::cuda::device_count() == 0) {
    std::fprintf(stderr, "cuda_bench: there is no CUDA device\n");
    return 2;
  }
  try {
    quire::cuda::run();
  } catch (const quire::Error& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 1;
  }
}
