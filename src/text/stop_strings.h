// Ends a stream of text where the first of some strings is complete; the string is not part of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

class StopStrings {
 public:
  // Throws Error{invalid_input} for a string that is empty or no UTF-8.
  explicit StopStrings(std::vector<std::string> strings);

  // The text that the next piece (whole UTF-8 characters) lets go: what may still become one of the strings
  // is held back.
  std::string push(std::string_view piece);

  // One of the strings has come. What follows is not looked at.
  bool found() const { return found_; }

  // What is still held back. Call once, at the end.
  std::string finish();

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace quire
