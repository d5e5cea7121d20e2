// Ctrl-C and SIGTERM as a stop token: the run ends at the next safe place. A second signal ends the process.
#pragma once

#include <csignal>
#include <stop_token>
#include <thread>

namespace quire {

class Interrupt {
 public:
  // Takes the signals from this thread and from all that it starts from now on. Create it first.
  Interrupt();

  std::stop_token token() const { return source_.get_token(); }

 private:
  void wait(std::stop_token done);

  sigset_t signals_;
  std::stop_source source_;
  std::jthread thread_;
};

}  // namespace quire
