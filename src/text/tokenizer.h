// Byte-level BPE as a Hugging Face tokenizer.json describes it: added tokens, NFC, the family's pretokenizer,
// merges by rank. Every size and id comes from the file.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"

namespace quire {

class Tokenizer {
 public:
  // Throws Error{not_found | invalid_input | unsupported} naming the file, the field and what was expected
  // (a normalizer, pretokenizer pattern or model type that this code does not implement is `unsupported`).
  static Tokenizer from_file(const std::filesystem::path& tokenizer_json);
  static Tokenizer from_json(std::string_view text, std::string_view what);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Text to ids. Added tokens written in the text become their ids. Bytes that are not UTF-8 are read as
  // U+FFFD, one for each maximal invalid subsequence (the rule of Python's errors="replace").
  std::vector<TokenId> encode(std::string_view text) const;

  // Ids to bytes: one token may hold only part of a character (Detokenizer joins them). Special tokens vanish
  // unless asked for; an id outside the vocabulary gives nothing.
  std::string decode(const std::vector<TokenId>& ids, bool keep_special = false) const;
  std::string_view token_bytes(TokenId id) const;  // the bytes of one token; "" for an unknown id
  bool is_special(TokenId id) const;

  std::optional<TokenId> id_of(
      std::string_view token) const;  // an added token by its text, else any by its bytes
  int vocab_size() const;             // largest id + 1

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire
