#include "doc/repetition.h"

#include <algorithm>

namespace quire {
namespace {

constexpr std::size_t kCopies = 8;
constexpr std::size_t kProseBytes = 400;
constexpr std::size_t kTableBytes = 3200;

bool is_table_or_rule(std::string_view unit) {
  const auto is_word = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c & 0x80);
  };
  return unit.find_first_of("|<") != std::string_view::npos ||
         std::none_of(unit.begin(), unit.end(), is_word);
}

}  // namespace

bool RepetitionDetector::push(std::string_view piece) {
  for (const char c : piece) {
    if (found_unit_ != 0) break;
    text_.push_back(c);
    const std::size_t last = text_.size() - 1;
    for (std::size_t unit = 1; unit <= std::min(last, kLongestUnit); ++unit) {
      equal_[unit] = text_[last - unit] == c ? equal_[unit] + 1 : 0;
      if (equal_[unit] + unit >= std::max(kProseBytes, kCopies * unit) && repeats(unit)) {
        found_unit_ = unit;
        break;
      }
    }
  }
  return found_unit_ != 0;
}

bool RepetitionDetector::repeats(std::size_t unit) const {
  const std::string_view copy = std::string_view(text_).substr(text_.size() - unit);
  return !is_table_or_rule(copy) || equal_[unit] + unit >= kTableBytes;
}

std::size_t RepetitionDetector::bytes_to_keep() const {
  if (found_unit_ == 0) return text_.size();
  std::size_t end = text_.size() - equal_[found_unit_];
  while (end > 0 && (text_[end] & 0xC0) == 0x80) --end;  // not inside a UTF-8 character
  return end;
}

}  // namespace quire
