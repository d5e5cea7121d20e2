// A program run as a child with bounded time, memory and output.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct ChildLimits {
  double seconds = 60;                              // wall time; processor time is bounded likewise
  std::size_t memory_bytes = std::size_t{4} << 30;  // address space
  std::size_t output_bytes = std::size_t{1} << 20;  // on standard output
  std::stop_token stop = {};                        // its result is not wanted any more
};

enum class ChildEnd { exited, signalled, timed_out, output_too_long, stopped };

struct ChildResult {
  ChildEnd end = ChildEnd::exited;
  int status = 0;      // exit status, or the signal's number
  std::string output;  // standard output, at most output_bytes
  std::string errors;  // standard error, its first 64 KB
};

// The program's path in $PATH, if it is there.
std::optional<std::filesystem::path> find_program(std::string_view name);

// Runs `program` with `arguments` (no shell), standard input empty, in a process group of its own, which is
// killed as a whole when a limit is reached or `stop` is requested. Throws Error{io} when it cannot be
// started. Safe in a process of several threads.
ChildResult run_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                      const ChildLimits& limits);

}  // namespace quire
