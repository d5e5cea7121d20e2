// What the GPU can do at most, then the CUDA operations at the shapes of Qwen3.5-4B: all, or those whose names are given.
// JSON lines:
//   {"device", "copy_bytes_per_second" (read plus written), "read_bytes_per_second"}
//   {"op", "shape", "us", "bytes", "flop", "limit_percent"}
//   {"op": "linear plans", "shape", "rows", "split", "clusters", "us", "tflops", "expected_us", "taken"}, only if
//   it is named: every way to run the products of many rows (linear_wgmma.cuh), what the rule that chooses one expects of
//   it, and whether it chooses it
// limit_percent: the time that the least bytes take at the read bandwidth, or the FLOP at the rate of a matrix product
// (771 TFLOP/s for bf16, seen with cuBLAS on an H200), whichever is longer, over the time measured.
// Ceilings: buffers of 4 GiB, the median of 20 runs after 3, by events.
// Random data; operands rotate through more than 4 x L2, the calls of one rotation stand in one CUDA graph; median of 15.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "backend/cuda.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/launch.h"
#include "ops/linear/linear_wgmma.cuh"

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
  OpenStream stream(*cuda_backend(), nullptr);
  const double read = cuda_backend()->read_bandwidth(stream);
  DeviceBuffer a(kCeilingBytes), b(kCeilingBytes);
  auto* data = reinterpret_cast<unsigned*>(a.data());
  fill_kernel<<<8 * facts.multiprocessors, kThreads>>>(data, kCeilingBytes / 4);
  check_launch("fill");
  const double copy = median_seconds(
      [&] { check(cudaMemcpyAsync(b.data(), a.data(), kCeilingBytes, cudaMemcpyDeviceToDevice), "copy"); });
  std::printf("{\"device\": \"%s\", \"multiprocessors\": %d, \"l2_bytes\": %zu, \"copy_bytes_per_second\": %.4g, "
              "\"read_bytes_per_second\": %.4g}\n",
              facts.name.c_str(), facts.multiprocessors, facts.l2_bytes, 2.0 * kCeilingBytes / copy, read);
  return read;
}

class Bench {
 public:
  Bench(double read_bytes_per_second, std::vector<std::string> only)
      : read_(read_bytes_per_second), only_(std::move(only)) {
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

  const std::int32_t* ints(const std::vector<std::int32_t>& values) {
    return array(values).data();
  }

  // call(i) for i in [0, variants): each on operands of its own.
  void measure(const char* op, const std::string& shape, int variants, double bytes, double flop,
               const std::function<void(int)>& call) {
    if (only_.empty() || is_named(op)) {
      const double us = time(op, variants, call), limit = 1e6 * std::max(bytes / read_, flop / kMatrixFlops);
      std::printf("{\"op\": \"%s\", \"shape\": \"%s\", \"us\": %.2f, \"bytes\": %.4g, \"flop\": %.4g, "
                  "\"limit_percent\": %.1f}\n", op, shape.c_str(), us, bytes, flop, 100 * limit / us);
      std::fflush(stdout);
    }
    clear();
  }
  // Microseconds of a call.
  double time(const char* op, int variants, const std::function<void(int)>& call) {
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
    cudaGraphExecDestroy(exec), cudaGraphDestroy(graph);
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return us[7];
  }
  bool is_named(const char* op) const { return std::find(only_.begin(), only_.end(), op) != only_.end(); }
  // Ends operands.
  void clear() { memory_.clear(); }

  Stream s;

 private:
  double read_;
  std::vector<std::string> only_;  // none: all
  cudaStream_t stream_ = nullptr;
  DeviceBuffer scratch_{std::size_t{512} << 20};
  std::vector<DeviceBuffer> memory_;
};

void bench_linear(Bench& b, const char* name, std::int64_t N, std::int64_t K) {
  for (const std::int64_t T : {1, 8, 16, 32, 64, 96, 128, 256, 512, 4096}) {
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

// The products that a drafter's candidates come from, without and with the maxima of the logits.
void bench_head(Bench& b, std::int64_t T, bool has_maxima) {
  constexpr std::int64_t V = 248320, R = 256, D = 2560;
  std::vector<Weight> head, rank;
  for (int i = 0; i < 2; ++i) {
    head.push_back({.data = b.rows(V, D, 0.05f).data, .out = V, .in = D});
    rank.push_back({.data = b.rows(R, D, 0.05f).data, .out = R, .in = D});
  }
  const Rows x = b.rows(T, D), logits = b.logits(T, V), projected = b.logits(T, R);
  const Rows maxima = has_maxima ? b.logits(T, maxima_cols(V)) : Rows();
  const std::string shape = "248320 256 x2560 T=" + std::to_string(T) + (has_maxima ? " with maxima" : "");
  const double outputs = V + R + (has_maxima ? maxima_cols(V) : 0);
  b.measure("project", shape, 2, 2.0 * (double(V + R) * D + double(T) * D) + 4.0 * T * outputs, 2.0 * T * (V + R) * D,
            [&](int i) {
              const auto at = static_cast<std::size_t>(i);
              ops()->project(b.s, x, std::vector<Projection>{{&head[at], logits, maxima}, {&rank[at], projected}});
            });
}

// Gate and up of an MLP and swiglu of them: as one operation, or as the two that it stands for.
void bench_gate_up(Bench& b, bool whole, std::int64_t F, std::int64_t D) {
  for (const std::int64_t T : {16, 64, 96, 128, 256, 512, 2048}) {
    const auto variants = static_cast<int>(kRotate / static_cast<std::size_t>(4 * F * D)) + 2;
    std::vector<Weight> gate, up;
    for (int i = 0; i < variants; ++i) {
      gate.push_back({.data = b.rows(F, D, 0.05f).data, .out = F, .in = D});
      up.push_back({.data = b.rows(F, D, 0.05f).data, .out = F, .in = D});
    }
    const Rows x = b.rows(T, D), spare = b.rows(T, F), y = b.rows(T, F);
    const std::string shape = std::to_string(F) + "x" + std::to_string(D) + " T=" + std::to_string(T);
    const double bytes = 2.0 * (2.0 * F * D + double(T) * (D + F)), flop = 4.0 * T * F * D;
    b.measure(whole ? "project_swiglu" : "project, swiglu", shape, variants, bytes, flop, [&](int i) {
      const Weight &g = gate[static_cast<std::size_t>(i)], &u = up[static_cast<std::size_t>(i)];
      if (whole) return ops()->project_swiglu(b.s, x, g, u, spare, y);
      ops()->project(b.s, x, std::vector<Projection>{{&g, y}, {&u, spare}});
      ops()->swiglu(b.s, y, spare, y);
    });
  }
}

// A product of many rows by every plan there is.
void bench_plans(Bench& b, const char* name, std::int64_t T, std::int64_t K, const std::vector<std::int64_t>& outs,
                 bool gated = false, bool bf16 = true) {
  const std::int64_t N = std::accumulate(outs.begin(), outs.end(), std::int64_t{0});
  const auto variants = static_cast<int>(kRotate / static_cast<std::size_t>(2 * N * K)) + 2;
  const Rows x = b.rows(T, K);
  std::vector<Rows> y;
  for (const std::int64_t out : outs) y.push_back(bf16 ? b.rows(T, out) : b.logits(T, out));
  std::vector<Product> products;
  for (int i = 0; i < variants; ++i) {
    Product a = {.factors = {},
                 .count = 0,
                 .gated = gated,
                 .x = static_cast<const bfloat*>(x.data),
                 .x_stride = x.stride,
                 .T = static_cast<int>(T),
                 .K = static_cast<int>(K),
                 .segment = segment_columns(static_cast<int>(K))};
    for (std::size_t f = 0; f < outs.size(); ++f) {
      a.factors[a.count++] = {.w = static_cast<const bfloat*>(b.rows(outs[f], K, 0.05f).data),
                              .y = y[f].data,
                              .bias = nullptr,
                              .y_stride = y[f].stride,
                              .N = static_cast<int>(outs[f]),
                              .first_tile = 0,
                              .bf16 = bf16};
    }
    products.push_back(a);
  }
  const std::vector<WgmmaChoice> all = wgmma_choices(products[0]);
  const auto taken = std::min_element(all.begin(), all.end(), [](const WgmmaChoice& one, const WgmmaChoice& other) {
    return one.plan.work < other.plan.work;
  });
  for (auto choice = all.begin(); choice != all.end(); ++choice) {
    const WgmmaPlan& plan = choice->plan;
    const double us = b.time("linear plans", variants, [&](int i) {
      choice->launch(b.s, products[static_cast<std::size_t>(i)], plan);
    });
    std::printf("{\"op\": \"linear plans\", \"shape\": \"%s %ld T=%ld\", \"rows\": %d, \"split\": %d, "
                "\"clusters\": %d, \"us\": %.2f, \"tflops\": %.0f, \"expected_us\": %.2f, \"taken\": %s}\n",
                name, static_cast<long>(K), static_cast<long>(T), plan.rows, plan.split, plan.clusters, us,
                2e-6 * static_cast<double>(T * N * K) / us, 2.5e-3 * static_cast<double>(plan.work),
                choice == taken ? "true" : "false");
    std::fflush(stdout);
  }
  b.clear();
}

// The products of a decoder layer, one after the other: what a step of T rows reads of its weights.
struct LayerShape {
  const char* name;
  std::vector<std::int64_t> in;  // rows of each input projection
  std::int64_t D, mixed, F;      // `mixed`: what the output projection takes
};

void bench_layer(Bench& b, const LayerShape& shape) {
  const auto [name, in, D, mixed, F] = shape;
  for (const std::int64_t T : {1, 8, 16, 32, 64, 128, 256, 512}) {
    std::vector<std::int64_t> outs = in;
    outs.insert(outs.end(), {F, F});
    std::int64_t elements = D * (mixed + F);
    for (const std::int64_t out : outs) elements += out * D;
    const auto variants = static_cast<int>(kRotate / static_cast<std::size_t>(2 * elements)) + 2;

    std::vector<Weight> projections, out_proj, down;
    const auto weight = [&](std::int64_t N, std::int64_t K) {
      return Weight{.data = b.rows(N, K, 0.05f).data, .out = N, .in = K};
    };
    for (int i = 0; i < variants; ++i) {
      for (const std::int64_t out : outs) projections.push_back(weight(out, D));
      out_proj.push_back(weight(D, mixed)), down.push_back(weight(D, F));
    }
    std::vector<Rows> y;
    for (const std::int64_t out : outs) y.push_back(b.rows(T, out));
    const Rows x = b.rows(T, D), mix = b.rows(T, mixed), gated = b.rows(T, F), sum = b.rows(T, D);

    const std::int64_t moved = 4 * D + mixed + F + std::accumulate(outs.begin(), outs.end(), std::int64_t{0});
    const auto layer = [&](int i) {
      std::vector<Projection> parts;
      for (std::size_t p = 0; p < outs.size(); ++p) {
        parts.push_back({&projections[static_cast<std::size_t>(i) * outs.size() + p], y[p]});
      }
      const std::span all(parts);
      ops()->project(b.s, x, all.first(in.size()));
      ops()->linear(b.s, mix, out_proj[static_cast<std::size_t>(i)], {}, sum);
      ops()->project(b.s, x, all.subspan(in.size()));
      ops()->linear(b.s, gated, down[static_cast<std::size_t>(i)], {}, sum);
    };
    b.measure("layer products", std::string(name) + " T=" + std::to_string(T), variants,
              2.0 * static_cast<double>(elements + T * moved), 2.0 * static_cast<double>(T * elements), layer);
  }
}

struct Heads {
  const char* name;
  std::int64_t H, G;
  int E;
  bool causal;
};
constexpr Heads kTarget = {"4B", 16, 4, 256, true}, kDrafter = {"drafter", 32, 8, 128, false};

// B requests of T rows after `context` keys each, in pages that lie anywhere.
void bench_attention(Bench& b, const char* name, decltype(Ops::attention_window) op, const Heads& heads, std::int32_t B,
                     std::int32_t T, std::int32_t context) {
  constexpr std::int32_t kPage = 64;
  const std::int64_t H = heads.H, G = heads.G, E = heads.E;
  const std::int32_t keys = context + T;
  const double cache_bytes = 4.0 * B * keys * G * E;
  const auto variants = std::clamp(static_cast<std::int32_t>(kRotate / cache_bytes) + 1, 1, 64);
  const std::int32_t pages_per_slot = (keys + kPage - 1) / kPage, pages = variants * B * pages_per_slot;
  const Rows q = b.rows(B * T, H * E), out = b.rows(B * T, H * E);
  const Rows k = b.rows(pages * kPage, G * E), v = b.rows(pages * kPage, G * E);
  std::vector<std::int32_t> table(static_cast<std::size_t>(pages)), first_row, start(static_cast<std::size_t>(B), context);
  for (std::int32_t i = 0; i < pages; ++i) table[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7919LL % pages);
  for (std::int32_t r = 0; r <= B; ++r) first_row.push_back(r * T);
  const std::int32_t *block_table = b.ints(table), *first_rows = b.ints(first_row), *starts = b.ints(start);
  std::vector<const std::int32_t*> slots;
  for (std::int32_t i = 0; i < variants; ++i) {
    std::vector<std::int32_t> slot;
    for (std::int32_t r = 0; r < B; ++r) slot.push_back(i * B + r);
    slots.push_back(b.ints(slot));
  }
  const std::string shape = std::string(heads.name) + " B=" + std::to_string(B) + " T=" + std::to_string(T);
  b.measure(name, shape + " context=" + std::to_string(context), variants, cache_bytes + 4.0 * B * T * H * E,
            4.0 * H * E * B * T * (heads.causal ? keys - T / 2.0 : keys), [&](int i) {
              op(b.s, {.q = q,
                       .kv = {k, v, kPage, block_table, pages_per_slot},
                       .requests = {B, T, first_rows, starts, slots[static_cast<std::size_t>(i)]},
                       .head_dim = heads.E,
                       .causal = heads.causal,
                       .out = out});
            });
}

struct Rotated {
  const char* name;
  std::int64_t H, G;
  int E;
  std::int64_t dims;
  bool gated;
};
// The keys of a drafter: what it makes of the target's features.
constexpr Rotated kRotated[] = {
    {"4B", 16, 4, 256, 64, true}, {"drafter", 32, 8, 128, 128, false}, {"drafter's keys", 0, 8, 128, 128, false}};

void bench_qk_norm_rope(Bench& b, const Rotated& heads, std::int64_t T) {
  const auto [name, H, G, E, dims, gated] = heads;
  const Rows q_gate = b.rows(T, (gated ? 2 : 1) * H * E), k = b.rows(T, G * E), v = b.rows(T, G * E), q = b.rows(T, H * E);
  const Rows pool_k = b.rows(T, G * E), pool_v = b.rows(T, G * E);
  const std::span<float> norm = b.floats(E, 0.1f), angles = b.floats(T * dims / 2, 0.7f);
  std::vector<std::int32_t> row;
  for (std::int64_t t = 0; t < T; ++t) row.push_back(static_cast<std::int32_t>(T - 1 - t));
  const QkNormRope call{.q_gate = q_gate,
                        .gated = gated,
                        .k = k,
                        .v = v,
                        .q = q,
                        .kv = {.k = pool_k, .v = pool_v},
                        .kv_row = b.ints(row),
                        .head_dim = E,
                        .q_norm = norm,
                        .k_norm = norm,
                        .eps = 1e-6f,
                        .cos = angles,
                        .sin = angles};
  b.measure("qk_norm_rope", std::string(name) + " T=" + std::to_string(T), 1, 2.0 * T * (2 * H + 4 * G) * E, 0,
            [&](int) { ops()->qk_norm_rope(b.s, call); });
}

// The operations on rows of T tokens, of one size each.
void bench_rows(Bench& b, std::int64_t T) {
  constexpr std::int64_t D = 2560, kVocabulary = 248320;
  const std::string shape = "D=2560 T=" + std::to_string(T);
  const double row_bytes = 2.0 * T * D;
  const auto measure = [&](const char* op, double rows, const std::function<void()>& call) {
    b.measure(op, shape, 1, rows * row_bytes, 0, [&](int) { call(); });
  };
  {
    const Rows x = b.rows(T, D), y = b.rows(T, D);
    const std::span<float> w = b.floats(D, 0.1f);
    measure("rms_norm", 2, [&] { ops()->rms_norm(b.s, x, w, 1e-6f, y); });
  }
  {
    const Rows x = b.rows(T, D), r = b.rows(T, D), y = b.rows(T, D);
    const std::span<float> w = b.floats(D, 0.1f);
    measure("add_rms_norm", 4, [&] { ops()->add_rms_norm(b.s, x, r, x, w, 1e-6f, y); });
  }
  for (const bool normed : {false, true}) {
    const Rows x = b.rows(T, D), r = b.rows(T, D), y = b.rows(T, D), chosen = b.rows(T, 2 * D / 16, 0.1f);
    const std::span<float> w = b.floats(D, 0.1f), base = b.floats(2 * D, 0.5f);
    std::vector<std::int32_t> first_row{0};
    const auto rows = static_cast<std::int32_t>(T);
    while (first_row.back() < rows) first_row.push_back(std::min(rows, first_row.back() + 16));
    const auto requests = static_cast<std::int32_t>(first_row.size()) - 1;
    const BlockConv conv{base, chosen, {.count = requests, .longest = 16, .first_row = b.ints(first_row)}};
    if (normed) {
      measure("add_conv_rms_norm", 4, [&] { ops()->add_conv_rms_norm(b.s, x, r, conv, w, 1e-6f, y); });
    } else {
      measure("block_conv", 2, [&] { ops()->block_conv(b.s, r, conv, y); });
    }
  }
  {
    const Rows x = b.rows(T, 4096), q_gate = b.rows(T, 8192);
    b.measure("attention_gate", "16x256 T=" + std::to_string(T), 1, 6.0 * T * 4096, 0,
              [&](int) { ops()->attention_gate(b.s, x, q_gate, 256, x); });
  }
  {
    const Rows x = b.rows(T, D), wide = b.rows(T, 5 * D);
    measure("convert", 2, [&] { ops()->convert(b.s, x, wide.slice_cols(D, D)); });
  }
  {
    const Rows x = b.rows(T, D), y = b.rows(T, D, 1e-3f);
    measure("add", 3, [&] { ops()->add(b.s, x, y); });
  }
  {
    const Weight table{.data = b.rows(kVocabulary, D).data, .out = kVocabulary, .in = D};
    const Rows y = b.rows(T, D);
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < T; ++t) ids.push_back(static_cast<std::int32_t>(t * 7919 * 31 % kVocabulary));
    const std::span<const std::int32_t> on_device = b.array(ids);
    measure("embed", 2, [&] { ops()->embed(b.s, on_device, table, y); });
  }
}

// Blocks of up to 16 rows, of which the first is an anchor. Maxima are those of nothing: what they cost is the same.
void bench_select_drafts(Bench& b, std::int64_t T, bool has_maxima) {
  constexpr std::int64_t V = 248320, R = 256, K = 16;
  const std::int64_t longest = std::min<std::int64_t>(T, 16), drafted = T - T / longest;
  const auto variants = static_cast<int>(std::clamp<std::size_t>(kRotate / static_cast<std::size_t>(4 * V * T) + 1, 2, 64));
  std::vector<Rows> logits, maxima;
  for (int i = 0; i < variants; ++i) {
    logits.push_back(b.logits(T, V));
    maxima.push_back(has_maxima ? b.logits(T, maxima_cols(V)) : Rows());
  }
  const Rows projected = b.logits(T, R), predecessor = b.rows(V, R, 0.1f), successor = b.rows(V, R, 0.1f);
  std::vector<std::int32_t> first_row;
  for (std::int64_t t = 0; t <= T; t += longest) first_row.push_back(static_cast<std::int32_t>(t));
  SelectDrafts call{.projected = projected,
                    .predecessor = {.data = predecessor.data, .out = V, .in = R},
                    .successor = {.data = successor.data, .out = V, .in = R},
                    .candidates = K,
                    .requests = {.count = static_cast<std::int32_t>(T / longest),
                                 .longest = static_cast<std::int32_t>(longest),
                                 .first_row = b.ints(first_row)},
                    .ids = b.array(std::vector<std::int32_t>(static_cast<std::size_t>(T))).data()};
  const std::int64_t searched = has_maxima ? maxima_cols(V) + K * kMaximaColumns : V;
  const std::string shape = "V=248320 T=" + std::to_string(T) + (has_maxima ? " with maxima" : "");
  b.measure("select_drafts", shape, variants, 4.0 * drafted * (searched + K * R), 0, [&](int i) {
    call.logits = logits[static_cast<std::size_t>(i)], call.maxima = maxima[static_cast<std::size_t>(i)];
    ops()->select_drafts(b.s, call);
  });
}

void bench_rotary(Bench& b, std::int64_t T) {
  const std::int32_t* position = b.ints(std::vector<std::int32_t>(static_cast<std::size_t>(3 * T), 1234));
  const std::span<float> cos = b.floats(T * 32, 0), sin = b.floats(T * 32, 0);
  b.measure("rotary", "T=" + std::to_string(T), 1, 256.0 * T, 0, [&](int) {
    ops()->rotary(b.s, {.position = position,
                        .rows = T,
                        .dims = 64,
                        .theta = 1e7,
                        .section_h = 11,
                        .section_w = 10,
                        .format = Format::bf16,
                        .cos = cos,
                        .sin = sin});
  });
}

void bench_vision_attention(Bench& b, std::int64_t N) {
  constexpr std::int64_t D = 1024;
  const Rows qkv = b.rows(N, 3 * D), out = b.rows(N, D);
  b.measure("vision_attention", "N=" + std::to_string(N) + " 16x64", 1, 8.0 * N * D, 4.0 * N * N * D,
            [&](int) { ops()->vision_attention(b.s, {.qkv = qkv, .heads = 16, .out = out}); });
}

// A prompt of T tokens in calls of `step`, as the engine runs it.
void bench_gdn_prefill(Bench& b, std::int64_t T, std::int64_t step) {
  constexpr GdnShape kShape{16, 32, 128, 128};
  const std::int64_t Hv = kShape.value_heads;
  const std::span<float> state = b.floats(kShape.state_floats(), 0.01f);
  const Rows qkv = b.rows(T, kShape.conv_cols()), out = b.rows(T, kShape.value_cols());
  const std::span<float> g = b.floats(T * Hv, -0.05f), beta = b.floats(T * Hv, 0.5f);
  const double bytes = 8.0 * kShape.state_floats() * double(T / step) + 2.0 * T * (kShape.conv_cols() + kShape.value_cols());
  b.measure("gdn_prefill", "T=" + std::to_string(T) + " in calls of " + std::to_string(step), 1, bytes,
            6.0 * T * kShape.state_floats(), [&](int) {
              for (std::int64_t t = 0; t < T; t += step) {
                const auto at = static_cast<std::size_t>(t * Hv), n = static_cast<std::size_t>(step * Hv);
                ops()->gdn_prefill(b.s, {kShape, qkv.slice_rows(t, step), g.subspan(at, n), beta.subspan(at, n), state,
                                         out.slice_rows(t, step)});
              }
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

void run(std::vector<std::string> only) {
  const bool nothing_else = only.size() == 1;
  Bench b(measure_ceilings(), std::move(only));
  for (const std::int64_t T : {256, 512}) {
    if (!b.is_named("linear plans")) break;
    bench_plans(b, "gate, up 9216+9216", T, 2560, {9216, 9216}, true);
    bench_plans(b, "down 2560", T, 9216, {2560});
    bench_plans(b, "GDN in 8192+4096+32+32", T, 2560, {8192, 4096, 32, 32});
    bench_plans(b, "attention in 8192+1024+1024", T, 2560, {8192, 1024, 1024});
    bench_plans(b, "drafter in 4096+1024+1024", T, 2560, {4096, 1024, 1024});
    bench_plans(b, "out 2560", T, 4096, {2560});
    bench_plans(b, "640", T, 2560, {640});
    bench_plans(b, "head 248320", T, 2560, {248320}, false, false);
    if (T == 512 && nothing_else) return;  // operands of the others take their time
  }
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
  for (const std::int64_t T : {128, 512}) {
    for (const bool has_maxima : {false, true}) bench_head(b, T, has_maxima);
  }
  for (const bool whole : {false, true}) bench_gate_up(b, whole, 9216, 2560);
  bench_layer(b, {"4B GDN", {8192, 4096, 32, 32}, 2560, 4096, 9216});
  bench_layer(b, {"4B attention", {8192, 1024, 1024}, 2560, 4096, 9216});
  bench_layer(b, {"9B GDN", {8192, 4096, 32, 32}, 4096, 4096, 12288});
  bench_layer(b, {"9B attention", {8192, 1024, 1024}, 4096, 4096, 12288});
  for (const std::int32_t B : {1, 8, 32}) {
    for (const std::int32_t context : {1024, 8192}) {
      for (const std::int32_t T : {1, 16}) {
        bench_attention(b, "attention_window", ops()->attention_window, kTarget, B, T, context);
      }
    }
    bench_attention(b, "attention_window", ops()->attention_window, kDrafter, B, 16, 1024);
  }
  for (const std::int32_t context : {0, 3584}) {
    bench_attention(b, "attention_prefill", ops()->attention_prefill, kTarget, 1, 512, context);
  }
  bench_attention(b, "attention_prefill", ops()->attention_prefill, kTarget, 4, 512, 3584);
  for (const std::int64_t T : {1, 32, 512}) {
    for (const Rotated& heads : kRotated) bench_qk_norm_rope(b, heads, T);
    bench_rows(b, T);
  }
  for (const std::int64_t T : {2, 32, 512}) bench_select_drafts(b, T, false);
  for (const std::int64_t T : {128, 512}) bench_select_drafts(b, T, true);
  bench_sample(b, "greedy", {}, 512);
  for (const std::int64_t T : {1, 512}) bench_rotary(b, T);
  for (const std::int64_t N : {3072, 8192, 15360}) bench_vision_attention(b, N);
  for (const std::int64_t T : {512, 4096}) bench_gdn_prefill(b, T, 512);
  bench_gdn_prefill(b, 4096, 4096);
}

}  // namespace
}  // namespace quire::cuda

int main(int count, char** arguments) {
  if (quire::cuda::device_count() == 0) {
    std::fprintf(stderr, "cuda_bench: there is no CUDA device\n");
    return 2;
  }
  try {
    quire::cuda::run({arguments + 1, arguments + count});
  } catch (const quire::Error& error) {
    std::fprintf(stderr, "cuda_bench: %s\n", error.what());
    return 1;
  }
}
