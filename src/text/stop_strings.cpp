#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "text/unicode/unicode.h"

namespace quire {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& s : strings_)
    if (s.empty() || !is_valid_utf8(s))
      fail(ErrorCode::invalid_input, "a stop string is {}; expected text", s.empty() ? "empty" : "not UTF-8");
}

std::string StopStrings::push(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  std::size_t begin = held_.size(), last = std::string::npos;  // of what is not let go
  for (const std::string& s : strings_) {
    const std::size_t at = held_.find(s);
    if (at == std::string::npos) continue;
    found_ = true;
    if (const std::size_t end = at + s.size(); end < last || (end == last && at < begin))
      begin = at, last = end;
  }
  if (!found_) {
    // The longest end that begins one of them.
    for (const std::string& s : strings_)
      for (std::size_t n = std::min(s.size() - 1, held_.size()); held_.size() - n < begin; --n)
        if (held_.ends_with(std::string_view(s).substr(0, n))) begin = held_.size() - n;
  }
  std::string free = held_.substr(0, begin);
  held_.erase(0, begin);
  return free;
}

std::string StopStrings::finish() {
  return found_ ? std::string() : std::exchange(held_, {});
}

}  // namespace quire
