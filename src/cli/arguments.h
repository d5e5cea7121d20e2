// What every command does with its arguments.
#pragma once

#include <optional>

#include <CLI/CLI.hpp>

namespace quire {

// Reads them into what `app` names. The exit code when that was all: --help was asked for, and shown. Throws
// Error{invalid_input}.
std::optional<int> read_arguments(CLI::App& app, int argc, char** argv);

}  // namespace quire
