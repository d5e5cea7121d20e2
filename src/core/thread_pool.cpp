#include "core/thread_pool.h"

#include <algorithm>
#include <chrono>

#include <sched.h>

namespace quire {
namespace {

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

// Loops of a decode step follow each other within microseconds, so a waiter first spins, then sleeps.
// `still` is asked while spinning; false ends the wait.
template <typename Still>
void spin_while(Still still) {
  for (int i = 0; i < 4000 && still(); ++i) relax();
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  if (threads <= 0) threads = usable_cores();
  for (int w = 1; w < threads; ++w) workers_.emplace_back([this, w] { run(w); });
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  generation_.fetch_add(1);
  generation_.notify_all();
}

void ThreadPool::run(int worker) {
  std::uint32_t seen = 0;
  while (true) {
    spin_while([&] { return generation_.load(std::memory_order_acquire) == seen; });
    generation_.wait(seen);
    seen = generation_.load();
    if (stopping_) return;
    drain(worker);
    if (busy_.fetch_sub(1) == 1) busy_.notify_one();
  }
}

void ThreadPool::drain(int worker) {
  while (true) {
    const std::int64_t i = next_.fetch_add(1);
    if (i >= end_) return;
    try {
      (*body_)(i, worker);
    } catch (...) {
      const std::scoped_lock lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
      next_ = end_;
    }
  }
}

void ThreadPool::parallel_for(std::int64_t n, const std::function<void(std::int64_t, int)>& body) {
  const std::scoped_lock lock(loop_mutex_);
  if (n <= 0) return;
  if (workers_.empty() || n == 1) {
    for (std::int64_t i = 0; i < n; ++i) body(i, 0);
    return;
  }
  body_ = &body;
  end_ = n;
  error_ = nullptr;
  next_ = 0;
  busy_ = static_cast<int>(workers_.size());
  generation_.fetch_add(1);
  generation_.notify_all();
  drain(0);
  spin_while([&] { return busy_.load(std::memory_order_acquire) != 0; });
  for (int left = busy_; left != 0; left = busy_) busy_.wait(left);
  if (error_) std::rethrow_exception(error_);
}

}  // namespace quire
