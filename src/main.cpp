// quire: the command line. The first argument names the command; each command reads its own options.
#include <cstdio>
#include <exception>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "cli/commands.h"
#include "core/error.h"
#include "doc/status.h"
#include "quire/quire.h"

namespace {

constexpr std::string_view kHelp =
    "quire: document pages to Markdown with Qwen3.5-family vision-language models\n"
    "\n"
    "  quire parse INPUT...     pictures, PDFs and folders of them to Markdown\n"
    "  quire inspect [MODEL]    what a model directory holds and what it needs\n"
    "  quire inspect --drafter  why a drafter drafts little\n"
    "  quire bench --shape S    how long a decode step takes, and why\n"
    "  quire bench --spec       what a drafter is worth on pages\n"
    "  quire --version\n"
    "\n"
    "quire COMMAND --help lists the options of a command.\n";

// A file opened later must not become a standard stream that the caller has closed: what is said there would
// be written into it. The place is held by a descriptor that can neither be read nor written.
void hold_standard_streams() {
  int fd = STDIN_FILENO;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/", O_PATH);
  if (fd > STDERR_FILENO) ::close(fd);
}

int run(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "parse") return quire::parse_command(argc - 1, argv + 1);
  if (command == "inspect") return quire::inspect_command(argc - 1, argv + 1);
  if (command == "bench") return quire::bench_command(argc - 1, argv + 1);
  if (command == "--version") {
    fmt::print("quire {}\n", quire::version());
    return 0;
  }
  if (command == "--help" || command == "-h" || command == "help") {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (command.empty()) {
    std::fputs(kHelp.data(), stderr);
    return quire::kExitUnusable;
  }
  quire::fail(quire::ErrorCode::invalid_input,
              "no command '{}': expected parse, inspect or bench (see quire --help)", command);
}

}  // namespace

int main(int argc, char** argv) {
  hold_standard_streams();
  try {
    const int code = run(argc, argv);
    if (std::fflush(stdout) != 0) quire::fail(quire::ErrorCode::io, "standard output: cannot be written");
    return code;
  } catch (const std::exception& error) {
    // Not fmt::print, which throws when nobody can be told.
    std::fputs(fmt::format("quire: {}\n", quire::one_line(error.what())).c_str(), stderr);
    return quire::kExitUnusable;
  }
}
