#include "cli/arguments.h"

#include "cli/commands.h"
#include "core/error.h"

namespace quire {

std::optional<int> read_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    const std::string name = app.get_name();  // "quire parse"
    fail(ErrorCode::invalid_input, "{}: {} (see {} --help)", name.substr(name.find(' ') + 1), error.what(),
         name);
  }
}

}  // namespace quire
