#include "text/jinja/lexer.h"

#include <algorithm>

#include "core/error.h"
#include "text/jinja/value.h"
#include "text/unicode/unicode.h"

namespace quire::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// "\r\n" and "\r" become "\n"; one newline at the very end is dropped.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run();

 private:
  using Kind = Token::Kind;

  [[noreturn]] void refuse(std::string_view reason) const {
    fail(ErrorCode::invalid_input, "chat template, line {}: {}", line_, reason);
  }

  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < source_.size() ? source_[at_ + ahead] : '\0';
  }
  bool next_is(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }
  void advance(std::size_t n) {
    for (; n > 0; --n) line_ += source_[at_++] == '\n';
  }
  void add(Kind kind, std::string text = {}) { tokens_.push_back({kind, std::move(text), line_}); }

  void skip_spaces();
  void text_before(std::size_t tag);
  bool end_tag(std::string_view mark, bool trims, bool takes_plus);
  void comment();
  void tag(bool block);
  void token();
  void number();
  void string(char quote);
  void append_escape(std::string& value);

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // the last tag ended a line, or there was none yet
  std::string open_;         // brackets open in the current tag
  std::vector<Token> tokens_;
};

void Lexer::skip_spaces() {
  while (at_ < source_.size()) {
    const Utf8Unit unit = valid_utf8_at(source_, at_);
    if (!is_python_space(unit.code)) break;
    advance(unit.bytes);
  }
}

// The text up to the tag at `tag`, less what the tag strips on its left.
void Lexer::text_before(std::size_t tag) {
  std::string text = source_.substr(at_, tag - at_);
  const char kind = source_[tag + 1], sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
  if (sign == '-') {
    text = strip(text, false, true);
  } else if (sign != '+' && kind != '{') {
    const std::size_t newline = text.rfind('\n');
    const std::size_t line = newline == std::string::npos ? 0 : newline + 1;
    if ((line > 0 || line_starts_) && strip(std::string_view(text).substr(line), true, true).empty())
      text.resize(line);
  }
  if (!text.empty()) add(Kind::text, std::move(text));
  advance(tag - at_);
}

// Whether the tag ends here, by `mark`; if so takes it with the white space that goes with it.
bool Lexer::end_tag(std::string_view mark, bool trims, bool takes_plus) {
  const bool minus = peek() == '-', plus = takes_plus && peek() == '+';
  if (source_.compare(at_ + (minus || plus), mark.size(), mark) != 0) return false;
  const std::size_t begin = at_;
  advance(mark.size() + (minus || plus));
  if (minus)
    skip_spaces();
  else if (trims && !plus && peek() == '\n')
    advance(1);
  line_starts_ = at_ > begin && source_[at_ - 1] == '\n';
  return true;
}

void Lexer::comment() {
  advance(2);
  if (peek() == '-' || peek() == '+') advance(1);
  while (!end_tag("#}", true, true)) {
    if (at_ == source_.size()) refuse("a comment has no end: #} expected");
    advance(1);
  }
}

void Lexer::append_escape(std::string& value) {
  const char c = peek();
  const auto hex = [&](std::size_t digits) {
    char32_t code = 0;
    for (std::size_t i = 1; i <= digits; ++i) {
      const char d = peek(i);
      const int digit = is_digit(d)            ? d - '0'
                        : d >= 'a' && d <= 'f' ? d - 'a' + 10
                        : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                               : -1;
      if (digit < 0) refuse(fmt::format("\\{} expects {} hexadecimal digits", c, digits));
      code = code * 16 + static_cast<char32_t>(digit);
    }
    if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) refuse("an escape that is no character");
    append_utf8(value, code);
    advance(digits + 1);
  };
  constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
  if (c == 'x') return hex(2);
  if (c == 'u') return hex(4);
  if (c == 'U') return hex(8);
  if (c == 'N' || is_digit(c))
    fail(ErrorCode::unsupported, "chat template, line {}: the escape \\{} in a string", line_, c);
  if (const std::size_t i = kNames.find(c); i != std::string_view::npos && c != '\0') {
    value += kValues[i];
  } else if (c != '\n') {  // Python keeps the backslash before other characters
    value += '\\';
    value += c;
  }
  advance(1);
}

void Lexer::string(char quote) {
  add(Kind::string);
  std::string value;
  advance(1);
  while (peek() != quote) {
    if (at_ == source_.size()) refuse("a string has no end");
    if (peek() == '\\' && at_ + 1 < source_.size()) {
      advance(1);
      append_escape(value);
    } else {
      value += peek();
      advance(1);
    }
  }
  advance(1);
  tokens_.back().text = std::move(value);
}

void Lexer::number() {
  std::size_t n = 0;
  bool real = false;
  while (is_digit(peek(n))) ++n;
  if (peek(n) == '.' && is_digit(peek(n + 1))) {
    real = true;
    for (++n; is_digit(peek(n));) ++n;
  }
  if (peek(n) == 'e' || peek(n) == 'E') {
    const std::size_t sign = peek(n + 1) == '+' || peek(n + 1) == '-';
    if (is_digit(peek(n + 1 + sign))) {
      real = true;
      for (n += 1 + sign; is_digit(peek(n));) ++n;
    }
  }
  if (is_name_start(peek(n)))
    fail(ErrorCode::unsupported, "chat template, line {}: a number followed by \"{}\"", line_, peek(n));
  add(real ? Kind::number : Kind::integer, source_.substr(at_, n));
  advance(n);
}

void Lexer::token() {
  const char c = peek();
  if (is_digit(c)) return number();
  if (c == '"' || c == '\'') return string(c);
  if (is_name_start(c)) {
    std::size_t n = 1;
    while (is_name_start(peek(n)) || is_digit(peek(n))) ++n;
    add(Kind::name, source_.substr(at_, n));
    return advance(n);
  }
  for (const std::string_view op : {"//", "**", "==", "!=", ">=", "<="})
    if (next_is(op)) {
      add(Kind::op, std::string(op));
      return advance(2);
    }
  if (std::string_view("+-/*%~[](){}=<>.:|,;").find(c) == std::string_view::npos || c == '\0')
    refuse(fmt::format("unexpected character \"{}\"", source_.substr(at_, utf8_at(source_, at_).bytes)));
  if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
  if (c == ')' || c == ']' || c == '}') {
    if (open_.empty() || open_.back() != c) refuse(fmt::format("unexpected \"{}\"", c));
    open_.pop_back();
  }
  add(Kind::op, std::string(1, c));
  advance(1);
}

void Lexer::tag(bool block) {
  add(block ? Kind::block_begin : Kind::print_begin);
  advance(2);
  if (peek() == '-' || peek() == '+') advance(1);
  open_.clear();
  for (;;) {
    // An end mark inside brackets belongs to the expression: {{ {'a': {}} }}.
    if (open_.empty() && end_tag(block ? "%}" : "}}", block, block)) break;
    skip_spaces();
    if (open_.empty() && end_tag(block ? "%}" : "}}", block, block)) break;
    if (at_ == source_.size())
      refuse(block ? "a tag has no end: %} expected" : "a tag has no end: }} expected");
    token();
  }
  add(block ? Kind::block_end : Kind::print_end);
}

std::vector<Token> Lexer::run() {
  while (at_ < source_.size()) {
    std::size_t begin = at_;
    do {
      begin = source_.find('{', begin);
      if (begin == std::string::npos) begin = source_.size();
    } while (begin < source_.size() &&
             std::string_view("{%#").find(source_[begin + 1]) == std::string_view::npos && ++begin);
    if (begin >= source_.size()) {
      add(Kind::text, source_.substr(at_));
      break;
    }
    text_before(begin);
    if (source_[at_ + 1] == '#')
      comment();
    else
      tag(source_[at_ + 1] == '%');
  }
  add(Kind::end);
  return std::move(tokens_);
}

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace quire::jinja
