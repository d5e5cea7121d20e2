// Streams ids to text, holding back the bytes of an unfinished UTF-8 character.
#pragma once

#include <string>

#include "text/tokenizer.h"

namespace quire {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool keep_special = false)
      : tokenizer_(&tokenizer), keep_special_(keep_special) {}

  // The text that `id` completes: whole characters only, invalid bytes as U+FFFD. May be empty.
  std::string push(TokenId id);

  // What is still held back, as U+FFFD. Call once, at the end.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  bool keep_special_;
  std::string pending_;
};

}  // namespace quire
