#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "text/bpe.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_file.h"
#include "text/unicode/unicode.h"

namespace quire {

// Finds added tokens in text: at the leftmost place where one matches, the longest.
class AddedTokens {
 public:
  void add(std::string_view content, TokenId id) {
    std::vector<Entry>& entries = by_first_byte_[static_cast<unsigned char>(content[0])];
    const auto shorter = [&](const Entry& e) { return e.content.size() < content.size(); };
    entries.insert(std::find_if(entries.begin(), entries.end(), shorter), {std::string(content), id});
  }

  // Calls text(piece) for what lies between tokens and token(id) for each of them, in order.
  template <typename Text, typename Token>
  void split(std::string_view all, const Text& text, const Token& token) const {
    std::size_t begin = 0;
    for (std::size_t i = 0; i < all.size();) {
      const Entry* entry = match(all.substr(i));
      if (entry == nullptr) {
        ++i;
        continue;
      }
      if (i > begin) text(all.substr(begin, i - begin));
      token(entry->id);
      i += entry->content.size();
      begin = i;
    }
    if (begin < all.size()) text(all.substr(begin));
  }

 private:
  struct Entry {
    std::string content;
    TokenId id;
  };

  const Entry* match(std::string_view text) const {
    for (const Entry& entry : by_first_byte_[static_cast<unsigned char>(text[0])])
      if (text.starts_with(entry.content)) return &entry;
    return nullptr;
  }

  std::array<std::vector<Entry>, 256> by_first_byte_;  // each from long to short
};

struct Tokenizer::State {
  explicit State(TokenizerFile file);

  void encode_text(std::string_view text, std::vector<TokenId>& out) const;
  void encode_words(std::string_view text, std::vector<TokenId>& out) const;

  CharClasses classes;
  Pretokenizer pretokenizer;
  bool nfc;
  Vocabulary vocabulary;
  Bpe bpe;
  AddedTokens raw_tokens;         // matched in the text as it comes
  AddedTokens normalized_tokens;  // matched after normalization
  std::unordered_map<std::string, TokenId> added_ids;
  std::vector<bool> special;  // by id
};

Tokenizer::State::State(TokenizerFile file)
    : pretokenizer(file.pattern, classes),
      nfc(file.nfc),
      vocabulary(std::move(file.vocabulary)),
      bpe(file.byte_ids, file.merges.size()),
      special(vocabulary.size()) {
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const TokenizerFile::Merge& merge = file.merges[rank];
    bpe.add_merge(merge.left, merge.right, merge.merged, static_cast<std::uint32_t>(rank));
  }
  for (const AddedToken& token : file.added_tokens) {
    added_ids.emplace(token.content, token.id);
    special[static_cast<std::size_t>(token.id)] = token.special;
    if (token.normalized)
      normalized_tokens.add(nfc ? normalize_nfc(token.content, classes) : token.content, token.id);
    else
      raw_tokens.add(token.content, token.id);
  }
}

// Text without added tokens that are matched before normalization.
void Tokenizer::State::encode_text(std::string_view text, std::vector<TokenId>& out) const {
  std::string normalized;
  if (nfc && !is_ascii(text)) {
    normalized = normalize_nfc(text, classes);
    text = normalized;
  }
  normalized_tokens.split(
      text, [&](std::string_view piece) { encode_words(piece, out); },
      [&](TokenId id) { out.push_back(id); });
}

void Tokenizer::State::encode_words(std::string_view text, std::vector<TokenId>& out) const {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = pretokenizer.word_end(text, begin);
    bpe.encode(text.substr(begin, end - begin), out);
    begin = end;
  }
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::from_file(const std::filesystem::path& tokenizer_json) {
  return Tokenizer(std::make_unique<State>(read_tokenizer_file(tokenizer_json)));
}

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view what) {
  return Tokenizer(std::make_unique<State>(parse_tokenizer_file(text, what)));
}

std::vector<TokenId> Tokenizer::encode(std::string_view text) const {
  std::string repaired;
  if (!is_ascii(text) && !is_valid_utf8(text)) {
    repaired = replace_invalid_utf8(text);
    text = repaired;
  }
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3);
  state_->raw_tokens.split(
      text, [&](std::string_view piece) { state_->encode_text(piece, ids); },
      [&](TokenId id) { ids.push_back(id); });
  return ids;
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool keep_special) const {
  std::string bytes;
  for (TokenId id : ids)
    if (keep_special || !is_special(id)) bytes += token_bytes(id);
  return bytes;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return state_->vocabulary.bytes(id);
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < vocab_size() && state_->special[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Tokenizer::id_of(std::string_view token) const {
  const auto added = state_->added_ids.find(std::string(token));
  return added != state_->added_ids.end() ? added->second : state_->vocabulary.find(token);
}

int Tokenizer::vocab_size() const {
  return static_cast<int>(state_->vocabulary.size());
}

}  // namespace quire
