// The CPU as a backend: host memory, copies that are done when asked for, no events to wait for and no
// graphs.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <numeric>
#include <vector>

#include "backend/backend.h"
#include "core/error.h"
#include "core/thread_pool.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::align_val_t kAlignment{256};

std::byte* allocate(std::size_t bytes) {
  void* p = ::operator new(bytes, kAlignment, std::nothrow);
  if (!p) fail(ErrorCode::out_of_memory, "{} MiB of memory asked for, and not there", bytes >> 20);
  return static_cast<std::byte*>(p);
}
void release(std::byte* p) {
  ::operator delete(p, kAlignment);
}

void copy(Stream&, void* to, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void clear(Stream&, void* memory, std::size_t bytes) {
  if (bytes > 0) std::memset(memory, 0, bytes);
}

double seconds_between(void* first, void* second) {
  return std::chrono::duration<double>(*static_cast<Clock::time_point*>(second) -
                                       *static_cast<Clock::time_point*>(first))
      .count();
}

// Sums of 256 MiB, a part for each thread; the best of five.
double read_bandwidth(Stream& s) {
  constexpr std::int64_t kParts = 256, kWords = std::int64_t{1} << 17;  // of 1 MiB
  const std::vector<std::uint64_t> data(kParts * kWords, 1);
  std::vector<std::uint64_t> sums(kParts);
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const Clock::time_point start = Clock::now();
    s.threads->parallel_for(kParts, [&](std::int64_t i, int) {
      const auto first = data.begin() + i * kWords;
      sums[static_cast<std::size_t>(i)] = std::accumulate(first, first + kWords, std::uint64_t{0});
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    QUIRE_CHECK(std::accumulate(sums.begin(), sums.end(), std::uint64_t{0}) == data.size(), "a sum of ones");
    best = std::max(best, static_cast<double>(data.size() * sizeof(std::uint64_t)) / seconds);
  }
  return best;
}

}  // namespace

Backend cpu_backend(const Ops& ops) {
  return {
      .name = "cpu",
      .ops = &ops,
      .host_memory = true,
      .row_tile = 6,  // of AVX-512; AVX2 takes two tiles of 3
      .open = [](Stream&) {},
      .close = [](Stream&) {},
      .allocate = allocate,
      .release = release,
      .allocate_staging = allocate,
      .release_staging = release,
      .upload = copy,
      .download = copy,
      .begin_upload = copy,
      .begin_download = copy,
      .copy = copy,
      .clear = clear,
      .synchronize = [](Stream&) {},
      .new_event = []() -> void* { return new Clock::time_point; },
      .delete_event = [](void* event) { delete static_cast<Clock::time_point*>(event); },
      .record = [](Stream&, void* event) { *static_cast<Clock::time_point*>(event) = Clock::now(); },
      .wait = [](Stream&, void*) {},
      .seconds_between = seconds_between,
      .capture = nullptr,
      .delete_graph = nullptr,
      .run = nullptr,
      .read_bandwidth = read_bandwidth,
  };
}

const Backend& cpu_backend() {
  static const Backend backend = cpu_backend(cpu_ops());
  return backend;
}

}  // namespace quire
