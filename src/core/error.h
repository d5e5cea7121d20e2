// Throwing quire::Error (include/quire/quire.h): `fail` for what the user or the system did, QUIRE_CHECK for
// what a caller inside Quire promised.
#pragma once

#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "quire/quire.h"

namespace quire {

// A format string that remembers where it was written.
template <typename... Args>
struct LocatedFormat {
  fmt::format_string<Args...> text;
  std::source_location where;

  template <typename S>
  consteval LocatedFormat(const S& s, std::source_location w = std::source_location::current())
      : text(s), where(w) {}
};

// fail(ErrorCode::io, "cannot read {}: {}", path, reason)
template <typename... Args>
[[noreturn]] void fail(ErrorCode code, LocatedFormat<std::type_identity_t<Args>...> format, Args&&... args) {
  throw Error(code, fmt::format(format.text, std::forward<Args>(args)...), format.where);
}

}  // namespace quire

// Always on. A failure is a bug in Quire: code `internal`.
#define QUIRE_CHECK(condition, ...)                                                    \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::quire::fail(::quire::ErrorCode::internal, "check `{}` failed: {}", #condition, \
                    ::fmt::format(__VA_ARGS__));                                       \
  } while (0)
