// Cuts text into the words that BPE works on: the family's regular expression as a scanner.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "text/unicode/unicode.h"

namespace quire {

// The alternatives, tried in this order, W being a letter (Qwen2, Qwen3) or a letter or mark (Qwen3.5):
//   1 (?i:'s|'t|'re|'ve|'m|'ll|'d)   2 [^\r\n\p{L}\p{N}]?W+   3 \p{N}   4 ` ?[^\s W \p{N}]+[\r\n]*`
//   5 \s*[\r\n]+                     6 \s+(?!\S)              7 \s+
// One of them matches at every character, so nothing lies between words.
enum class WordPattern { marks_join, marks_apart };

// By the pattern in tokenizer.json; nothing for any but the family's two.
std::optional<WordPattern> word_pattern(std::string_view regex);

class Pretokenizer {
 public:
  Pretokenizer(WordPattern pattern, const CharClasses& classes);  // `classes` must outlive it

  // The end of the word that starts at `begin` < text.size(). `text` is valid UTF-8.
  std::size_t word_end(std::string_view text, std::size_t begin) const;

 private:
  // The end of the longest run from `at` of characters that have (`wanted` true) or lack any class of `mask`.
  std::size_t run_end(std::string_view text, std::size_t at, unsigned mask, bool wanted) const;
  std::size_t space_end(std::string_view text, std::size_t begin) const;

  const CharClasses* classes_;
  unsigned word_;  // classes of W
};

}  // namespace quire
