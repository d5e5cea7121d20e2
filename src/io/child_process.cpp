#include "io/child_process.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxErrorBytes = std::size_t{64} << 10;

struct PipeEnd {
  int fd = -1;
  PipeEnd() = default;
  ~PipeEnd() { close(); }
  PipeEnd(const PipeEnd&) = delete;
  PipeEnd& operator=(const PipeEnd&) = delete;
  void close() {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
};

struct Pipe {
  PipeEnd read, write;
  Pipe() {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) fail(ErrorCode::io, "cannot make a pipe: {}", std::strerror(errno));
    read.fd = fds[0];
    write.fd = fds[1];
  }
};

// What the child starts with: its descriptors, process group and signals.
struct SpawnSettings {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  SpawnSettings(const Pipe& output, const Pipe& errors) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, output.write.fd, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, errors.write.fd, STDERR_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setpgroup(&attributes, 0);
    // A server ignores SIGPIPE; the child must die of it when this process does.
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
};

void set_limit(pid_t child, __rlimit_resource resource, rlim_t value) {
  const rlimit limit{.rlim_cur = value, .rlim_max = value};
  prlimit(child, resource, &limit, nullptr);  // fails only when the child has ended already
}

// A child that runs, or has ended and is still to be waited for. Never left behind.
class Child {
 public:
  Child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
        const ChildLimits& limits, Pipe& output, Pipe& errors) {
    std::vector<char*> argv{const_cast<char*>(program.c_str())};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const SpawnSettings settings(output, errors);
    const int error =
        posix_spawn(&pid_, program.c_str(), &settings.files, &settings.attributes, argv.data(), environ);
    if (error != 0) fail(ErrorCode::io, "cannot run {}: {}", program.string(), std::strerror(error));
    output.write.close();
    errors.write.close();
    // After the start, because posix_spawn sets no limits and fork would copy this process's page tables.
    // What a program does in its first microseconds is loading itself.
    set_limit(pid_, RLIMIT_AS, limits.memory_bytes);
    set_limit(pid_, RLIMIT_CPU, static_cast<rlim_t>(std::ceil(limits.seconds)) + 1);
    set_limit(pid_, RLIMIT_CORE, 0);
  }
  ~Child() {
    if (pid_ < 0) return;
    kill_group();
    int status;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void kill_group() { ::kill(-pid_, SIGKILL); }

  // True when it has ended; `status` is then waitpid's.
  bool ended(int& status) {
    if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
    pid_ = -1;
    return true;
  }

 private:
  pid_t pid_ = -1;
};

// Appends what is there. False at the end of the stream.
bool read_some(PipeEnd& from, std::string& to) {
  char block[std::size_t{64} << 10];
  const ssize_t n = ::read(from.fd, block, sizeof block);
  if (n > 0) to.append(block, static_cast<std::size_t>(n));
  if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) from.close();
  return from.fd >= 0;
}

// How long to wait in one turn: a request to stop is looked for between two.
int milliseconds_until(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left + 1, 0, 100));
}

// True when the child must not go on; `end` then says why.
bool must_end(Clock::time_point deadline, const ChildLimits& limits, ChildEnd& end) {
  if (limits.stop.stop_requested()) end = ChildEnd::stopped;
  if (Clock::now() >= deadline) end = ChildEnd::timed_out;
  return end != ChildEnd::exited;
}

// Both streams to their ends. False when a limit was reached; result.end then says which.
bool read_streams(Pipe& output, Pipe& errors, Clock::time_point deadline, const ChildLimits& limits,
                  ChildResult& result) {
  while (output.read.fd >= 0 || errors.read.fd >= 0) {
    pollfd polled[2] = {{.fd = output.read.fd, .events = POLLIN, .revents = 0},
                        {.fd = errors.read.fd, .events = POLLIN, .revents = 0}};
    const int ready = poll(polled, 2, milliseconds_until(deadline));
    if (must_end(deadline, limits, result.end)) return false;
    if (ready <= 0) continue;
    if (polled[0].revents) read_some(output.read, result.output);
    if (polled[1].revents) read_some(errors.read, result.errors);
    if (result.output.size() > limits.output_bytes) {
      result.end = ChildEnd::output_too_long;
      return false;
    }
    result.errors.resize(std::min(result.errors.size(), kMaxErrorBytes));
  }
  return true;
}

}  // namespace

std::optional<std::filesystem::path> find_program(std::string_view name) {
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable ? variable : "/usr/bin:/bin";
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    if (!folder.empty() && access(path.c_str(), X_OK) == 0) return path;
  }
  return std::nullopt;
}

ChildResult run_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                      const ChildLimits& limits) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(limits.seconds));
  Pipe output, errors;
  Child child(program, arguments, limits, output, errors);
  ChildResult result;
  if (!read_streams(output, errors, deadline, limits, result)) return result;
  // The streams are closed: the end is near, but it is not signalled.
  int status = 0;
  for (int pause_us = 50; !child.ended(status); pause_us = std::min(2 * pause_us, 5000)) {
    if (must_end(deadline, limits, result.end)) return result;
    usleep(static_cast<useconds_t>(pause_us));
  }
  result.end = WIFSIGNALED(status) ? ChildEnd::signalled : ChildEnd::exited;
  result.status = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
  if (result.end == ChildEnd::signalled && result.status == SIGXCPU) result.end = ChildEnd::timed_out;
  return result;
}

}  // namespace quire
