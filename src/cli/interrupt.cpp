#include "cli/interrupt.h"

#include <ctime>

namespace quire {

Interrupt::Interrupt() {
  sigemptyset(&signals_);
  sigaddset(&signals_, SIGINT);
  sigaddset(&signals_, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  thread_ = std::jthread([this](std::stop_token done) { wait(done); });
}

void Interrupt::wait(std::stop_token done) {
  const timespec turn{.tv_sec = 0, .tv_nsec = 100'000'000};
  while (!done.stop_requested()) {
    const int signal = sigtimedwait(&signals_, nullptr, &turn);
    if (signal < 0) continue;
    if (source_.stop_requested()) {
      pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
      std::raise(signal);
    }
    source_.request_stop();
  }
}

}  // namespace quire
