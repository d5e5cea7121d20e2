// UTF-8, character classes and normalization form C, with bits that are the same on every distribution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

inline constexpr char32_t kReplacementCharacter = 0xfffd;

// What stands at one place of a byte string.
struct Utf8Unit {
  char32_t code = kReplacementCharacter;
  std::size_t bytes = 1;    // of the character, or of the maximal invalid subsequence
  bool valid = false;       // false: `bytes` bytes that one U+FFFD stands for
  bool unfinished = false;  // invalid only because the text ends here
};
Utf8Unit utf8_at(std::string_view text, std::size_t at);  // at < text.size()

// The code point at `at` and its length, for text known to be valid.
inline Utf8Unit valid_utf8_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[at + i]));
  };
  const char32_t b = byte(0);
  if (b < 0x80) return {b, 1, true};
  if (b < 0xe0) return {(b & 0x1f) << 6 | (byte(1) & 0x3f), 2, true};
  if (b < 0xf0) return {(b & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3, true};
  return {(b & 7) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4, true};
}

bool is_ascii(std::string_view text);
bool is_valid_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t code);

// `text` with each maximal invalid subsequence replaced by U+FFFD (the rule of Python's errors="replace").
std::string replace_invalid_utf8(std::string_view text);

// Properties of a code point, combined as bits.
enum CharClass : std::uint8_t {
  kLetter = 1,               // \p{L}
  kMark = 2,                 // \p{M}
  kNumber = 4,               // \p{N}
  kSpace = 8,                // \s
  kAfterNormalization = 16,  // unknown to the Unicode version that the family normalizes by
  kNfcActive = 32,           // may change, or change its neighbours, under NFC
};

// Code points from `start` up to the next range's.
struct UnicodeRange {
  char32_t start;
  std::uint8_t classes;
};
std::span<const UnicodeRange> unicode_ranges();  // generated: tables.cpp

// The ranges laid out for one load a code point. 1.1 MB, of which text touches a few pages.
class CharClasses {
 public:
  CharClasses();
  std::uint8_t operator[](char32_t code) const { return classes_[code]; }  // code < 0x110000

 private:
  std::vector<std::uint8_t> classes_;
};

// Normalization form C of valid UTF-8 as the tokenizers of the family compute it: by Unicode 9.0, code points
// that are newer being left alone and never joined or passed by their neighbours.
std::string normalize_nfc(std::string_view text, const CharClasses& classes);

}  // namespace quire
