#include "engine/switches.h"

#include <charconv>

#include "core/error.h"

namespace quire {
namespace {

// "window=5"
bool read_window(std::string_view setting, int& window) {
  constexpr std::string_view kName = "window=";
  if (!setting.starts_with(kName)) return false;
  const char* end = setting.data() + setting.size();
  const auto [stop, error] = std::from_chars(setting.data() + kName.size(), end, window);
  return error == std::errc() && stop == end && window >= 0 && window <= kMostWindow;
}

void set(Switches& s, std::string_view setting) {
  const auto on_or_off = [&](std::string_view name, bool& value) {
    if (setting == fmt::format("{}=on", name)) return value = true, true;
    if (setting == fmt::format("{}=off", name)) return value = false, true;
    return false;
  };
  if (on_or_off("graphs", s.graphs) || on_or_off("dependent_launch", s.dependent_launch) ||
      read_window(setting, s.window))
    return;
  if (setting == "gdn_ring=bf16") {
    s.gdn_ring = Format::bf16;
  } else if (setting == "gdn_ring=f32") {
    s.gdn_ring = Format::f32;
  } else {
    fail(ErrorCode::invalid_input,
         "switch \"{}\" is not known; there are graphs=on|off, dependent_launch=on|off, gdn_ring=bf16|f32, "
         "window=0 to {}, with commas between them",
         setting, kMostWindow);
  }
}

}  // namespace

Switches Switches::parse(std::string_view text) {
  Switches switches;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    set(switches, text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return switches;
}

}  // namespace quire
