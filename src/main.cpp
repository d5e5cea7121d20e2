// quire: the command line. The first argument names the command; each command reads its own options.
#include <cstdio>
#include <exception>
#include <string_view>

#include <fmt/format.h>

#include "cli/commands.h"
#include "doc/status.h"
#include "quire/quire.h"

namespace {

constexpr std::string_view kHelp =
    "quire: document pages to Markdown with Qwen3.5-family vision-language models\n"
    "\n"
    "  quire parse INPUT...     pictures, PDFs and folders of them to Markdown\n"
    "  quire inspect [MODEL]    what a model directory holds and what it needs\n"
    "  quire --version\n"
    "\n"
    "quire COMMAND --help lists the options of a command.\n";

int run(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "parse") return quire::parse_command(argc - 1, argv + 1);
  if (command == "inspect") return quire::inspect_command(argc - 1, argv + 1);
  if (command == "--version") {
    fmt::print("quire {}\n", quire::version());
    return 0;
  }
  if (command == "--help" || command == "-h" || command == "help") {
    fmt::print("{}", kHelp);
    return 0;
  }
  if (command.empty()) {
    fmt::print(stderr, "{}", kHelp);
  } else {
    fmt::print(stderr, "quire: no command '{}': expected parse or inspect (see quire --help)\n",
               quire::one_line(command));
  }
  return quire::kExitUnusable;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "quire: {}\n", quire::one_line(error.what()));
    return quire::kExitUnusable;
  }
}
