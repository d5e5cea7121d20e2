// A fixed set of worker threads that run one parallel loop at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace quire {

class ThreadPool {
 public:
  // `threads` counts the caller: 1 starts no worker; 0 means one for each core this process may use.
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls body(i, worker) once for each i in [0, n), n < 2^24, in any order, on up to size() threads; returns
  // when all are done. `worker` in [0, size()) names the thread, for scratch memory. The first exception is
  // rethrown here. Loops do not nest, and calls from several threads wait for each other.
  void parallel_for(std::int64_t n, const std::function<void(std::int64_t i, int worker)>& body);

 private:
  void run(int worker);
  void stop();
  void drain(int worker);

  std::vector<std::jthread> workers_;
  std::mutex loop_mutex_;  // one loop at a time

  // The current loop in one word, so that taking an iteration and knowing which loop it belongs to are one
  // step: loop number (16 bits) | n (24) | iterations taken (24). A loop ends when all its iterations are
  // done, whether or not every worker has woken up for it; whoever has taken an iteration keeps it from
  // ending, so `body_` is its own.
  std::atomic<std::uint64_t> loop_{0};
  std::atomic<std::int64_t> done_{0};
  const std::function<void(std::int64_t, int)>* body_ = nullptr;
  std::exception_ptr error_;
  std::mutex error_mutex_;
  std::atomic<bool> stopping_{false};
};

}  // namespace quire
