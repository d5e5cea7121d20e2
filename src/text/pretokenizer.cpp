#include "text/pretokenizer.h"

namespace quire {
namespace {

constexpr std::string_view kMarksJoin =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kMarksApart =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

bool is_newline(char c) {
  return c == '\r' || c == '\n';
}

char lower(std::string_view text, std::size_t at) {
  const char c = at < text.size() ? text[at] : '\0';
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

// The length of a contraction after the apostrophe at `at`, or 0. Case folding makes U+017F an s.
std::size_t contraction(std::string_view text, std::size_t at) {
  const char a = lower(text, at + 1), b = lower(text, at + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
  if (text.substr(at + 1, 2) == "\u017f") return 3;
  return 0;
}

}  // namespace

std::optional<WordPattern> word_pattern(std::string_view regex) {
  if (regex == kMarksJoin) return WordPattern::marks_join;
  if (regex == kMarksApart) return WordPattern::marks_apart;
  return std::nullopt;
}

Pretokenizer::Pretokenizer(WordPattern pattern, const CharClasses& classes)
    : classes_(&classes), word_(pattern == WordPattern::marks_join ? kLetter | kMark : kLetter) {}

std::size_t Pretokenizer::run_end(std::string_view text, std::size_t at, unsigned mask, bool wanted) const {
  while (at < text.size()) {
    const Utf8Unit unit = valid_utf8_at(text, at);
    if ((((*classes_)[unit.code] & mask) != 0) != wanted) break;
    at += unit.bytes;
  }
  return at;
}

// Alternatives 5 to 7, where a space starts that neither a word nor a symbol follows directly.
std::size_t Pretokenizer::space_end(std::string_view text, std::size_t begin) const {
  std::size_t end = begin, last = begin, newline = begin;
  while (end < text.size()) {
    const Utf8Unit unit = valid_utf8_at(text, end);
    if (!((*classes_)[unit.code] & kSpace)) break;
    last = end;
    end += unit.bytes;
    if (is_newline(text[last])) newline = end;
  }
  if (newline > begin) return newline;
  // The last space is left to the word that follows, unless it is the only one.
  return end == text.size() || last == begin ? end : last;
}

std::size_t Pretokenizer::word_end(std::string_view text, std::size_t begin) const {
  const Utf8Unit first = valid_utf8_at(text, begin);
  const unsigned first_class = (*classes_)[first.code];
  const std::size_t next = begin + first.bytes;

  if (first.code == '\'')
    if (const std::size_t length = contraction(text, begin)) return begin + length;

  if (first_class & word_) return run_end(text, next, word_, true);
  if (first_class & kNumber) return next;
  if (!is_newline(text[begin])) {
    const std::size_t end = run_end(text, next, word_, true);
    if (end > next) return end;
  }

  const std::size_t symbols = first.code == ' ' ? next : begin;
  std::size_t end = run_end(text, symbols, kSpace | kNumber | word_, false);
  if (end > symbols) {
    while (end < text.size() && is_newline(text[end])) ++end;
    return end;
  }
  return space_end(text, begin);
}

}  // namespace quire
