// The commands of `quire`, one file each: the option parser compiles slowly. argv[0] is the command's name.
// They return the exit code, and throw quire::Error for what main() reports as kExitUnusable.
#pragma once

namespace quire {

inline constexpr int kExitOk = 0;             // every page is ok or blank
inline constexpr int kExitIncomplete = 1;     // some page is truncated or failed; inspect: a fault was found
inline constexpr int kExitUnusable = 2;       // wrong usage, no model, or nothing to do
inline constexpr int kExitInterrupted = 130;  // stopped by a signal

int parse_command(int argc, char** argv);
int inspect_command(int argc, char** argv);
int bench_command(int argc, char** argv);

}  // namespace quire
