// gdn_window at the shape of Qwen3.5-4B (16 key heads, 32 value heads of 128), from the rows of the projections to the
// gated norm. JSON lines:
//   {"op", "B", "T", "case", "dependent_launch", "us", "floor_us", "limit_percent"}
// B requests with windows of T. Cases: "plain", 16 records of the block before the window; "fold", the step starts 8
// tokens into the next block; "cross", the block ends in the middle of the window. floor_us: the checkpoint once (twice
// with a fold), the records and inputs read and written, the rows, at 4.5 TB/s, the read limit of an H200. Slots rotate
// through more than 240 MB; the calls of one rotation stand in one CUDA graph; median of 15.
//   {"op", "B", "T", "accepted", "rule", "us"}
// 64 steps of 32 requests whose accepted counts are drawn (truncated geometric, of that mean): the own-block rule, and a
// replay that depends on the schedule: it folds whatever it has when history and window would pass 32 rows. The replay
// runs as the same kernel with cursors that make it do the same work: its history as records of the block, a fold where
// it would flush. (It reads 32 records there, the replay as many as it has: about 1 us more in those steps.)
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr GdnShape kShape{16, 32, 128, 128};
constexpr int kTaps = 4, kSlots = 160, kMostRequests = 32;
constexpr double kReadBytesPerSecond = 4.5e12;

__global__ void random_kernel(float* f, __nv_bfloat16* b, std::size_t n, float scale, float offset, unsigned seed) {
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += std::size_t{gridDim.x} * blockDim.x) {
    unsigned h = (static_cast<unsigned>(i) ^ seed) * 2654435761u;
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    const float x = offset + scale * (static_cast<float>(h) * 0x1p-31f - 1.0f);
    if (f) f[i] = x;
    if (b) b[i] = __float2bfloat16(x);
  }
}

// One step of up to 32 requests.
struct Step {
  std::vector<std::int32_t> slot, generated, previous;
  int window = 1;
};

class Bench {
 public:
  Bench() {
    check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    s_.cuda_stream = stream_;
    constexpr int kRows = kMostRequests * kMostWindow;
    call_ = {.shape = kShape,
             .qkv = rows(kRows, kShape.conv_cols(), 1),
             .z = rows(kRows, kShape.value_cols(), 1),
             .a = rows(kRows, kShape.value_heads, 1),
             .b = rows(kRows, kShape.value_heads, 1),
             .conv1d = floats(kShape.conv_cols() * kTaps, 0.5f),
             .A_log = floats(kShape.value_heads, 1),
             .dt_bias = floats(kShape.value_heads, 1, -4),
             .norm = floats(kShape.value_dim, 0.5f, 1),
             .eps = 1e-6f,
             .slots = {floats(kSlots * kShape.state_floats(), 0.1f), rows(kSlots * gdn_conv_rows(kTaps), kShape.conv_cols(), 1),
                       rows(kSlots * kGdnRing, kShape.key_cols(), 0.1f), rows(kSlots * kGdnRing, kShape.value_cols(), 1),
                       {}},
             .requests = {},
             .out = rows(kRows, kShape.value_cols(), 1)};
    call_.slots.ring_g = {.data = floats(kSlots * kGdnRing * kShape.value_heads, 0.01f, -0.01f).data(),
                          .format = Format::f32,
                          .rows = kSlots * kGdnRing,
                          .cols = kShape.value_heads,
                          .stride = kShape.value_heads};
  }

  // Median microseconds of one of the steps, which stand in one graph.
  double measure(const std::vector<Step>& steps, bool dependent_launch) {
    s_.dependent_launch = dependent_launch;
    std::vector<GdnWindow> calls;
    std::vector<DeviceBuffer> arrays;
    for (const Step& step : steps) calls.push_back(call(step, arrays));
    const auto issue = [&] {
      for (const GdnWindow& c : calls) ops()->gdn_window(s_, c);
    };
    issue();
    synchronize(s_);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    issue();
    check(cudaStreamEndCapture(stream_, &graph), "capture");
    check(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event"), check(cudaEventCreate(&end), "event");
    std::vector<double> us;
    for (int run = 0; run < 18; ++run) {
      check(cudaEventRecord(begin, stream_), "event");
      check(cudaGraphLaunch(exec, stream_), "launch");
      check(cudaEventRecord(end, stream_), "event");
      check(cudaEventSynchronize(end), "gdn_window");
      float milliseconds = 0;
      check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
      if (run >= 3) us.push_back(1e3 * milliseconds / static_cast<double>(steps.size()));
    }
    std::nth_element(us.begin(), us.begin() + 7, us.end());
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return us[7];
  }

 private:
  Rows rows(std::int64_t count, std::int64_t cols, float scale) {
    const auto n = static_cast<std::size_t>(count * cols);
    memory_.emplace_back(n * 2);
    auto* data = reinterpret_cast<__nv_bfloat16*>(memory_.back().data());
    random_kernel<<<1024, 256, 0, stream_>>>(nullptr, data, n, scale, 0, static_cast<unsigned>(memory_.size()));
    check_launch("random");
    return {.data = data, .format = Format::bf16, .rows = count, .cols = cols, .stride = cols};
  }
  std::span<float> floats(std::int64_t n, float scale, float offset = 0) {
    memory_.emplace_back(static_cast<std::size_t>(n) * 4);
    auto* data = reinterpret_cast<float*>(memory_.back().data());
    random_kernel<<<1024, 256, 0, stream_>>>(data, nullptr, static_cast<std::size_t>(n), scale, offset,
                                             static_cast<unsigned>(memory_.size()));
    check_launch("random");
    return {data, static_cast<std::size_t>(n)};
  }
  const std::int32_t* numbers(const std::vector<std::int32_t>& x, std::vector<DeviceBuffer>& arrays) {
    arrays.emplace_back(x.size() * sizeof(std::int32_t));
    upload(s_, arrays.back().data(), x.data(), x.size() * sizeof(std::int32_t));
    return reinterpret_cast<const std::int32_t*>(arrays.back().data());
  }
  GdnWindow call(const Step& step, std::vector<DeviceBuffer>& arrays) {
    const auto B = static_cast<std::int32_t>(step.slot.size());
    std::vector<std::int32_t> first;
    for (std::int32_t r = 0; r <= B; ++r) first.push_back(r * step.window);
    GdnWindow c = call_;
    const std::int64_t T = first.back();
    for (Rows* x : {&c.qkv, &c.z, &c.a, &c.b, &c.out}) *x = x->slice_rows(0, T);
    c.requests = {B, step.window, numbers(first, arrays), nullptr, numbers(step.slot, arrays)};
    c.generated = numbers(step.generated, arrays);
    c.previous = numbers(step.previous, arrays);
    return c;
  }

  Stream s_;
  cudaStream_t stream_ = nullptr;
  std::vector<DeviceBuffer> memory_;
  GdnWindow call_;
};

double floor_us(int B, int T, int records, bool folds) {
  const double record = 2.0 * (kShape.key_cols() + kShape.value_cols()) + 4.0 * kShape.value_heads;
  const double row = 2.0 * (kShape.conv_cols() + 2 * kShape.value_cols());
  const double inputs = 2.0 * kShape.conv_cols();
  const double bytes = 4.0 * kShape.state_floats() * (folds ? 2 : 1) + record * (records + T) + inputs * (kTaps - 1 + T) + row * T;
  return 1e6 * B * bytes / kReadBytesPerSecond;
}

void bench_case(Bench& bench, int B, int T, const char* name, int previous, int start) {
  std::vector<Step> steps;
  const int variants = std::min(kSlots / B, 128);
  for (int v = 0; v < variants; ++v) {
    Step step{.window = T};
    for (int r = 0; r < B; ++r) {
      step.slot.push_back((v * B + r) % kSlots);
      step.generated.push_back(start), step.previous.push_back(previous);
    }
    steps.push_back(step);
  }
  const bool folds = previous / kGdnBlock != start / kGdnBlock;
  const double floor = floor_us(B, T, start - previous / kGdnBlock * kGdnBlock, folds);
  for (const bool dependent : {true, false}) {
    const double us = bench.measure(steps, dependent);
    std::printf("{\"op\": \"gdn_window\", \"B\": %d, \"T\": %d, \"case\": \"%s\", \"dependent_launch\": %s, \"us\": %.2f, "
                "\"floor_us\": %.2f, \"limit_percent\": %.1f}\n",
                B, T, name, dependent ? "true" : "false", us, floor, 100 * floor / us);
    std::fflush(stdout);
  }
}

// Accepted tokens of a window, 1 .. T: one more with probability p each.
int accepted(std::mt19937& random, int T, double p) {
  int n = 1;
  while (n < T && std::uniform_real_distribution<double>()(random) < p) ++n;
  return n;
}

void bench_rules(Bench& bench, double p, int mean) {
  constexpr int B = 32, T = 16, kSteps = 64;
  for (const bool own_block : {true, false}) {
    std::mt19937 random;
    std::vector<int> start(B), previous(B);
    for (int r = 0; r < B; ++r) start[r] = previous[r] = r % 17;
    std::vector<Step> steps;
    for (int i = 0; i < kSteps; ++i) {
      Step step{.window = T};
      for (int r = 0; r < B; ++r) {
        if (!own_block) {  // start is the history, 0 .. 32
          const bool flush = start[r] + T > kGdnBlock;
          previous[r] = 0;
          if (flush) start[r] = kGdnBlock;
        }
        step.slot.push_back(i * B % kSlots + r);
        step.generated.push_back(start[r]), step.previous.push_back(previous[r]);
        previous[r] = start[r];
        if (!own_block) start[r] %= kGdnBlock;
        start[r] += accepted(random, T, p);
      }
      steps.push_back(step);
    }
    std::printf("{\"op\": \"gdn_window\", \"B\": %d, \"T\": %d, \"accepted\": %d, \"rule\": \"%s\", \"us\": %.2f}\n", B, T, mean,
                own_block ? "own block" : "replay", bench.measure(steps, true));
    std::fflush(stdout);
  }
}

void run() {
  Bench bench;
  for (const int B : {1, 8, 32})
    for (const int T : {1, 4, 8, 16}) {
      bench_case(bench, B, T, "plain", 16, 16);
      bench_case(bench, B, T, "fold", 31, 40);
      if (T > 1) bench_case(bench, B, T, "cross", 20, kGdnBlock - T / 2);
    }
  for (const int B : {4, 16})
    for (const int T : {1, 16}) bench_case(bench, B, T, "plain", 16, 16);
  bench_rules(bench, 0.84, 6);
  bench_rules(bench, 0.96, 12);
}

}  // namespace
}  // namespace quire::cuda

int main() {
  if (quire::cuda::device_count() == 0) {
    std::fprintf(stderr, "gdn_bench: there is no CUDA device\n");
    return 2;
  }
  try {
    quire::cuda::run();
  } catch (const quire::Error& error) {
    std::fprintf(stderr, "gdn_bench: %s\n", error.what());
    return 1;
  }
}
