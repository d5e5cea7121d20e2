#include "text/tokenizer_file.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "io/file.h"
#include "io/json.h"
#include "text/unicode/unicode.h"

namespace quire {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{256} << 20;
constexpr std::int64_t kMaxId = 1 << 22;  // several times the largest vocabulary published; ids index arrays

// Byte-level vocabularies are written in printable characters, one for each byte: bytes that Latin-1 prints
// stand for themselves, the others for U+0100, U+0101, ... in order.
std::array<char32_t, 256> byte_characters() {
  std::array<char32_t, 256> characters = {};
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
    characters[b] = printable ? b : next++;
  }
  return characters;
}

class Reader {
 public:
  explicit Reader(std::string_view what) : what_(what) {
    byte_of_.fill(-1);
    const std::array<char32_t, 256> characters = byte_characters();
    for (int b = 0; b < 256; ++b)
      byte_of_[characters[static_cast<std::size_t>(b)]] = static_cast<std::int16_t>(b);
  }

  TokenizerFile read(const Json& root) const;

 private:
  template <typename... Args>
  [[noreturn]] void refuse(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) const {
    fail(code, "{}: {}", what_, fmt::format(format, std::forward<Args>(args)...));
  }

  // The member `name` of `object`, null when there is none.
  const Json& member(const Json& object, std::string_view name) const;
  std::string_view string(const Json& object, std::string_view name) const;
  bool boolean(const Json& object, std::string_view name, bool absent) const;
  TokenId id(const Json& value, std::string_view of) const;

  bool read_normalizer(const Json& normalizer) const;
  WordPattern read_pretokenizer(const Json& pretokenizer) const;
  void check_model_options(const Json& model) const;
  void check_around(const Json& root) const;
  Vocabulary make_vocabulary(const Json& vocab, const Json& added) const;
  void read_vocabulary(const Json& vocab, TokenizerFile& file) const;
  void read_merges(const Json& merges, TokenizerFile& file) const;
  void read_added_tokens(const Json& tokens, TokenizerFile& file) const;

  // The bytes that a token's characters stand for; nothing when one is not of the byte alphabet.
  std::optional<std::string> bytes_of(std::string_view token) const;

  std::string_view what_;
  std::array<std::int16_t, 0x144> byte_of_;  // by character; -1: none
};

const Json& Reader::member(const Json& object, std::string_view name) const {
  static const Json kNull;
  if (!object.is_object()) refuse(ErrorCode::invalid_input, "an object with \"{}\" was expected", name);
  const auto found = object.find(name);
  return found == object.end() ? kNull : *found;
}

std::string_view Reader::string(const Json& object, std::string_view name) const {
  const Json& value = member(object, name);
  if (!value.is_string()) refuse(ErrorCode::invalid_input, "\"{}\" must be a string", name);
  return value.get_ref<const std::string&>();
}

bool Reader::boolean(const Json& object, std::string_view name, bool absent) const {
  const Json& value = member(object, name);
  if (value.is_null()) return absent;
  if (!value.is_boolean()) refuse(ErrorCode::invalid_input, "\"{}\" must be true or false", name);
  return value.get<bool>();
}

TokenId Reader::id(const Json& value, std::string_view of) const {
  const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() < std::uint64_t{kMaxId};
  if (!fits) refuse(ErrorCode::invalid_input, "the id of \"{}\" must be from 0 to {}", of, kMaxId - 1);
  return value.get<TokenId>();
}

std::optional<std::string> Reader::bytes_of(std::string_view token) const {
  std::string bytes;
  bytes.reserve(token.size());
  for (std::size_t i = 0; i < token.size();) {
    const Utf8Unit unit = utf8_at(token, i);
    if (unit.code >= byte_of_.size() || byte_of_[unit.code] < 0) return std::nullopt;
    bytes += static_cast<char>(byte_of_[unit.code]);
    i += unit.bytes;
  }
  return bytes;
}

bool Reader::read_normalizer(const Json& normalizer) const {
  if (normalizer.is_null()) return false;
  const std::string_view type = string(normalizer, "type");
  if (type != "NFC") refuse(ErrorCode::unsupported, "normalizer \"{}\": expected NFC or none", type);
  return true;
}

WordPattern Reader::read_pretokenizer(const Json& pretokenizer) const {
  const auto unsupported = [&](std::string_view found) {
    refuse(ErrorCode::unsupported, "pre_tokenizer {}: expected a Sequence of Split and ByteLevel", found);
  };
  if (pretokenizer.is_null()) unsupported("null");
  if (string(pretokenizer, "type") != "Sequence") unsupported(string(pretokenizer, "type"));
  const Json& steps = member(pretokenizer, "pretokenizers");
  if (!steps.is_array() || steps.size() != 2) unsupported("Sequence");
  const Json &split = steps[0], &bytes = steps[1];
  if (string(split, "type") != "Split") unsupported(string(split, "type"));
  if (string(bytes, "type") != "ByteLevel") unsupported(string(bytes, "type"));
  if (string(split, "behavior") != "Isolated" || boolean(split, "invert", false))
    refuse(ErrorCode::unsupported, "pre_tokenizer Split: expected behavior Isolated, not inverted");
  if (boolean(bytes, "add_prefix_space", true) || boolean(bytes, "use_regex", true))
    refuse(ErrorCode::unsupported, "pre_tokenizer ByteLevel: expected add_prefix_space and use_regex false");
  const Json& pattern = member(split, "pattern");
  if (!pattern.is_object() || !pattern.contains("Regex"))
    refuse(ErrorCode::unsupported, "pre_tokenizer Split: expected a Regex pattern");
  const std::string_view regex = string(pattern, "Regex");
  const std::optional<WordPattern> known = word_pattern(regex);
  if (!known)
    refuse(ErrorCode::unsupported, "pre_tokenizer pattern {}: expected that of Qwen2, Qwen3 or Qwen3.5",
           regex);
  return *known;
}

void Reader::check_model_options(const Json& model) const {
  if (string(model, "type") != "BPE")
    refuse(ErrorCode::unsupported, "model \"{}\": expected BPE", string(model, "type"));
  const Json& dropout = member(model, "dropout");
  if (!dropout.is_null() && dropout != 0) refuse(ErrorCode::unsupported, "model.dropout: expected null");
  if (!member(model, "unk_token").is_null()) refuse(ErrorCode::unsupported, "model.unk_token: expected null");
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json& affix = member(model, name);
    if (!affix.is_null() && affix != "") refuse(ErrorCode::unsupported, "model.{}: expected null", name);
  }
  for (const char* name : {"byte_fallback", "ignore_merges"})
    if (boolean(model, name, false)) refuse(ErrorCode::unsupported, "model.{}: expected false", name);
}

// What surrounds the model. "truncation" and "padding" describe batches of whoever saved the file, not the
// text's ids: they are passed over.
void Reader::check_around(const Json& root) const {
  const Json& after = member(root, "post_processor");
  if (!after.is_null() && string(after, "type") != "ByteLevel")
    refuse(ErrorCode::unsupported, "post_processor \"{}\": expected ByteLevel or none",
           string(after, "type"));
  const Json& decoder = member(root, "decoder");
  if (decoder.is_null() || string(decoder, "type") != "ByteLevel")
    refuse(ErrorCode::unsupported, "decoder: expected ByteLevel");
}

// An empty vocabulary with room for every id that the file names.
Vocabulary Reader::make_vocabulary(const Json& vocab, const Json& added) const {
  TokenId largest = -1;
  for (const auto& [token, value] : vocab.items()) largest = std::max(largest, id(value, token));
  for (const Json& token : added)
    largest = std::max(largest, id(member(token, "id"), string(token, "content")));
  return Vocabulary(static_cast<std::size_t>(largest) + 1);
}

void Reader::read_vocabulary(const Json& vocab, TokenizerFile& file) const {
  std::vector<bool> used(file.vocabulary.size());
  for (const auto& [token, value] : vocab.items()) {
    const TokenId token_id = id(value, token);
    if (used[static_cast<std::size_t>(token_id)])
      refuse(ErrorCode::invalid_input, "model.vocab: two tokens have id {}", token_id);
    used[static_cast<std::size_t>(token_id)] = true;
    // A token outside the byte alphabet is never made by merges; it decodes to itself.
    if (!file.vocabulary.add(token_id, bytes_of(token).value_or(token)))
      refuse(ErrorCode::invalid_input, "model.vocab: \"{}\" stands for the same bytes as another token",
             token);
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    const std::optional<TokenId> byte_id = file.vocabulary.find({&byte, 1});
    if (!byte_id) refuse(ErrorCode::invalid_input, "model.vocab: no token for byte 0x{:02x}", b);
    file.byte_ids[static_cast<std::size_t>(b)] = *byte_id;
  }
}

void Reader::read_merges(const Json& merges, TokenizerFile& file) const {
  if (!merges.is_array()) refuse(ErrorCode::invalid_input, "model.merges must be a list");
  const auto find = [&](std::string_view token) -> TokenId {
    const std::optional<std::string> bytes = bytes_of(token);
    const std::optional<TokenId> found =
        bytes && !bytes->empty() ? file.vocabulary.find(*bytes) : std::nullopt;
    if (!found)
      refuse(ErrorCode::invalid_input, "model.merges[{}]: \"{}\" is not a token of the vocabulary",
             file.merges.size(), token);
    return *found;
  };
  file.merges.reserve(merges.size());
  for (const Json& merge : merges) {
    std::string_view left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    } else if (merge.is_string()) {
      const std::string_view both = merge.get_ref<const std::string&>();
      const std::size_t space = std::min(both.find(' '), both.size());
      left = both.substr(0, space);
      right = both.substr(std::min(space + 1, both.size()));
    } else {
      refuse(ErrorCode::invalid_input, "model.merges[{}]: expected \"left right\" or [left, right]",
             file.merges.size());
    }
    file.merges.push_back({find(left), find(right), find(std::string(left).append(right))});
  }
}

void Reader::read_added_tokens(const Json& tokens, TokenizerFile& file) const {
  for (const Json& token : tokens) {
    AddedToken added;
    added.content = string(token, "content");
    added.id = id(member(token, "id"), added.content);
    if (added.content.empty()) refuse(ErrorCode::invalid_input, "added token {} has no text", added.id);
    for (const char* name : {"single_word", "lstrip", "rstrip"})
      if (boolean(token, name, false))
        refuse(ErrorCode::unsupported, "added token \"{}\": {} is not supported", added.content, name);
    added.special = boolean(token, "special", false);
    added.normalized = boolean(token, "normalized", !added.special);

    const std::optional<std::string> bytes = bytes_of(added.content);
    const std::optional<TokenId> known = bytes ? file.vocabulary.find(*bytes) : std::nullopt;
    if (known.value_or(added.id) != added.id)
      refuse(ErrorCode::invalid_input, "added token \"{}\" has id {}, but {} in the vocabulary",
             added.content, added.id, *known);
    if (!known) {
      if (!file.vocabulary.bytes(added.id).empty())
        refuse(ErrorCode::invalid_input, "added token \"{}\" has id {}, which is another token's",
               added.content, added.id);
      file.vocabulary.add(added.id, bytes.value_or(added.content));
    }
    file.added_tokens.push_back(std::move(added));
  }
}

TokenizerFile Reader::read(const Json& root) const {
  TokenizerFile file;
  file.nfc = read_normalizer(member(root, "normalizer"));
  file.pattern = read_pretokenizer(member(root, "pre_tokenizer"));
  check_around(root);
  const Json& model = member(root, "model");
  check_model_options(model);
  const Json &vocab = member(model, "vocab"), &added = member(root, "added_tokens");
  if (!vocab.is_object()) refuse(ErrorCode::invalid_input, "model.vocab must be an object");
  if (!added.is_array() && !added.is_null()) refuse(ErrorCode::invalid_input, "added_tokens must be a list");
  file.vocabulary = make_vocabulary(vocab, added);
  read_vocabulary(vocab, file);
  read_merges(member(model, "merges"), file);
  read_added_tokens(added, file);
  return file;
}

}  // namespace

TokenizerFile parse_tokenizer_file(std::string_view json, std::string_view what) {
  return Reader(what).read(parse_json(json, what));
}

TokenizerFile read_tokenizer_file(const std::filesystem::path& path) {
  return parse_tokenizer_file(read_file(path, kMaxFileBytes), path.string());
}

}  // namespace quire
