// The content of a Hugging Face tokenizer.json of the family, checked: what cannot be honoured is refused
// here.
#pragma once

#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"
#include "text/pretokenizer.h"

namespace quire {

struct AddedToken {
  std::string content;
  TokenId id = 0;
  bool special = false;
  bool normalized = false;  // matched after normalization, not before
};

struct TokenizerFile {
  struct Merge {
    TokenId left, right, merged;
  };

  bool nfc = false;
  WordPattern pattern = WordPattern::marks_join;
  Vocabulary vocabulary{0};                // added tokens included
  std::array<TokenId, 256> byte_ids = {};  // the token of each single byte
  std::vector<Merge> merges;               // by rank
  std::vector<AddedToken> added_tokens;
};

// Throws Error{invalid_input | unsupported} naming `what`, the field and what was expected.
TokenizerFile parse_tokenizer_file(std::string_view json, std::string_view what);
TokenizerFile read_tokenizer_file(const std::filesystem::path& path);  // Error{not_found | io} as well

}  // namespace quire
