// Notices a text that has begun to repeat itself without end, as language models do on pages they cannot
// read.
//
// The rule: the text ends in at least 8 copies of one unit of at most 400 bytes (the last copy may be cut
// off), and together they fill at least 400 bytes. Where repetition is honest, 3,200 bytes are asked for: a
// unit without a letter or digit (rules, dotted lines) or with a mark of a table ('|', '<': equal rows of a
// form).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

class RepetitionDetector {
 public:
  // Adds the next piece of the text. True once the rule holds, and from then on. Work: 400 steps a byte.
  bool push(std::string_view piece);

  // Bytes of the text up to the end of the first copy, at a character's boundary: what is worth keeping.
  // All of it while push() has not returned true.
  std::size_t bytes_to_keep() const;

 private:
  static constexpr std::size_t kLongestUnit = 400;

  bool repeats(std::size_t unit) const;

  std::string text_;
  // [unit]: how many bytes at the end equal the byte `unit` places before them.
  std::array<std::uint32_t, kLongestUnit + 1> equal_{};
  std::size_t found_unit_ = 0;  // 0: none yet
};

}  // namespace quire
