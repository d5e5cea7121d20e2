#include "core/thread_pool.h"

#include <algorithm>
#include <system_error>

#include <sched.h>

#include "core/error.h"

namespace quire {
namespace {

constexpr int kCountBits = 24;
constexpr std::uint64_t kCountMask = (std::uint64_t{1} << kCountBits) - 1;

std::uint64_t taken(std::uint64_t loop) {
  return loop & kCountMask;
}
std::uint64_t count(std::uint64_t loop) {
  return (loop >> kCountBits) & kCountMask;
}
std::uint64_t number(std::uint64_t loop) {
  return loop >> (2 * kCountBits);
}

int usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Loops of a decode step follow each other within microseconds, so a waiter spins for a moment before it
// sleeps.
template <typename Condition>
void spin_until(Condition condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) relax();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = usable_cores();
  try {
    for (int w = 1; w < threads; ++w) workers_.emplace_back([this, w] { run(w); });
  } catch (const std::system_error& error) {
    stop();  // those that have started: no destructor will
    fail(ErrorCode::limit_exceeded, "cannot start thread {} of {}: {}; use fewer threads", size() + 1,
         threads, error.code().message());
  }
}

ThreadPool::~ThreadPool() {
  stop();
}

void ThreadPool::stop() {
  stopping_ = true;
  loop_.fetch_add(std::uint64_t{1} << (2 * kCountBits));  // a new loop of no iterations
  loop_.notify_all();
}

void ThreadPool::run(int worker) {
  while (true) {
    const std::uint64_t seen = loop_.load();
    if (stopping_) return;
    if (taken(seen) < count(seen)) {
      drain(worker);
      continue;
    }
    spin_until([&] { return loop_.load(std::memory_order_relaxed) != seen; });
    loop_.wait(seen);
  }
}

void ThreadPool::drain(int worker) {
  std::uint64_t loop = loop_.load();
  while (taken(loop) < count(loop)) {
    if (!loop_.compare_exchange_weak(loop, loop + 1)) continue;
    const auto n = static_cast<std::int64_t>(count(loop));
    try {
      (*body_)(static_cast<std::int64_t>(taken(loop)), worker);
    } catch (...) {
      const std::scoped_lock lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    if (done_.fetch_add(1) + 1 == n) done_.notify_one();
    loop = loop_.load();
  }
}

void ThreadPool::parallel_for(std::int64_t n, const std::function<void(std::int64_t, int)>& body) {
  QUIRE_CHECK(n < static_cast<std::int64_t>(kCountMask), "a loop of {} iterations", n);
  const std::scoped_lock lock(loop_mutex_);
  if (workers_.empty() || n <= 1) {
    for (std::int64_t i = 0; i < n; ++i) body(i, 0);
    return;
  }
  body_ = &body;
  error_ = nullptr;
  done_ = 0;
  loop_ = (number(loop_) + 1) << (2 * kCountBits) | static_cast<std::uint64_t>(n) << kCountBits;
  loop_.notify_all();
  drain(0);
  spin_until([&] { return done_.load(std::memory_order_acquire) == n; });
  for (std::int64_t done = done_; done != n; done = done_) done_.wait(done);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace quire
