#include "text/unicode/unicode.h"

#include <algorithm>
#include <cstring>

#include <utf8proc.h>

#include "core/error.h"

namespace quire {
namespace {

// The bytes that may follow lead byte `b`: how many, and the range of the first (Unicode, table 3-7).
struct Sequence {
  std::size_t continuations = 0;
  unsigned char low = 0x80, high = 0xbf;
};
Sequence sequence_of(unsigned char b) {
  if (b >= 0xc2 && b <= 0xdf) return {1};
  if (b == 0xe0) return {2, 0xa0, 0xbf};
  if (b == 0xed) return {2, 0x80, 0x9f};  // no surrogates
  if (b >= 0xe1 && b <= 0xef) return {2};
  if (b == 0xf0) return {3, 0x90, 0xbf};
  if (b >= 0xf1 && b <= 0xf3) return {3};
  if (b == 0xf4) return {3, 0x80, 0x8f};  // nothing above U+10FFFF
  return {};
}

int combining_class(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// Decomposes, orders marks and composes. Not by utf8proc_map: its ordering takes quadratic time on a long run
// of marks, and the text is anyone's.
void append_nfc(std::string& out, std::string_view text) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Unit unit = valid_utf8_at(text, i);
    utf8proc_int32_t parts[4];  // the longest canonical decomposition
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(unit.code), parts, 4,
                                                       UTF8PROC_DECOMPOSE, &boundary);
    QUIRE_CHECK(n >= 1 && n <= 4, "utf8proc decomposes U+{:04X} to {} code points",
                static_cast<std::uint32_t>(unit.code), n);
    codes.insert(codes.end(), parts, parts + n);
    i += unit.bytes;
  }
  for (auto begin = codes.begin(); begin != codes.end();) {
    const auto is_mark = [](utf8proc_int32_t code) { return combining_class(code) != 0; };
    begin = std::find_if(begin, codes.end(), is_mark);
    const auto end = std::find_if_not(begin, codes.end(), is_mark);
    std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
  const utf8proc_ssize_t size =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  QUIRE_CHECK(size >= 0, "utf8proc: {}", utf8proc_errmsg(size));
  for (utf8proc_ssize_t i = 0; i < size; ++i) append_utf8(out, static_cast<char32_t>(codes[i]));
}

}  // namespace

Utf8Unit utf8_at(std::string_view text, std::size_t at) {
  const unsigned char lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {lead, 1, true};
  const Sequence sequence = sequence_of(lead);
  if (sequence.continuations == 0) return {};
  for (std::size_t i = 1; i <= sequence.continuations; ++i) {
    if (at + i == text.size()) return {.bytes = i, .unfinished = true};
    const unsigned char b = static_cast<unsigned char>(text[at + i]);
    const bool fits = i == 1 ? b >= sequence.low && b <= sequence.high : (b & 0xc0) == 0x80;
    if (!fits) return {.bytes = i};
  }
  return valid_utf8_at(text, at);
}

bool is_ascii(std::string_view text) {
  std::size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) return false;
  }
  for (; i < text.size(); ++i)
    if (static_cast<unsigned char>(text[i]) >= 0x80) return false;
  return true;
}

bool is_valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Unit unit = utf8_at(text, i);
    if (!unit.valid) return false;
    i += unit.bytes;
  }
  return true;
}

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (code >> shift & 0x3f)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12);
    tail(6), tail(0);
  } else {
    out += static_cast<char>(0xf0 | code >> 18);
    tail(12), tail(6), tail(0);
  }
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Unit unit = utf8_at(text, i);
    if (unit.valid)
      out.append(text, i, unit.bytes);
    else
      append_utf8(out, kReplacementCharacter);
    i += unit.bytes;
  }
  return out;
}

CharClasses::CharClasses() : classes_(0x110000) {
  const std::span<const UnicodeRange> ranges = unicode_ranges();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const std::size_t end = i + 1 < ranges.size() ? ranges[i + 1].start : classes_.size();
    std::memset(&classes_[ranges[i].start], ranges[i].classes, end - ranges[i].start);
  }
}

std::string normalize_nfc(std::string_view text, const CharClasses& classes) {
  std::string out;
  out.reserve(text.size());
  std::size_t run = 0;      // start of the code points since the last newer one
  bool run_active = false;  // whether NFC may change them
  const auto finish_run = [&](std::size_t end) {
    const std::string_view piece = text.substr(run, end - run);
    if (run_active)
      append_nfc(out, piece);
    else
      out += piece;
  };
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Unit unit = valid_utf8_at(text, i);
    const std::uint8_t c = classes[unit.code];
    if (c & kAfterNormalization) {
      finish_run(i);
      out.append(text, i, unit.bytes);
      run = i + unit.bytes;
      run_active = false;
    }
    run_active |= (c & kNfcActive) != 0;
    i += unit.bytes;
  }
  finish_run(text.size());
  return out;
}

}  // namespace quire
