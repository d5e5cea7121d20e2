// Byte-pair encoding: a vocabulary of byte strings and the merges that build them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

using TokenId = std::int32_t;

// Byte strings by id and ids by byte string.
class Vocabulary {
 public:
  // Room for ids 0 to `ids` - 1, all of them empty.
  explicit Vocabulary(std::size_t ids);

  // Gives `id` < size() its bytes, once. False when another id has the same, which find() goes on to give.
  bool add(TokenId id, std::string_view bytes);

  std::string_view bytes(TokenId id) const;  // "" for an id that has none or is out of range
  std::optional<TokenId> find(std::string_view bytes) const;
  std::size_t size() const { return spans_.size(); }

 private:
  struct Span {
    std::uint32_t begin = 0, size = 0;
  };
  std::size_t slot_of(std::string_view bytes) const;

  std::string blob_;
  std::vector<Span> spans_;     // by id
  std::vector<TokenId> slots_;  // open addressing, -1: free
};

// Applies merges, lowest rank first and leftmost among equals, until none applies.
class Bpe {
 public:
  // `byte_ids`: the token of each single byte. `merges`: how many add_merge calls will follow.
  Bpe(const std::array<TokenId, 256>& byte_ids, std::size_t merges);
  ~Bpe();

  // The pair of `left` and `right` becomes `merged`. Of a pair that is given twice the last rank counts.
  void add_merge(TokenId left, TokenId right, TokenId merged, std::uint32_t rank);

  // Appends the tokens of one word. May be called from several threads.
  void encode(std::string_view word, std::vector<TokenId>& out) const;

 private:
  static constexpr std::uint32_t kNoRank = ~std::uint32_t{0};
  struct Merge {
    std::uint64_t pair = ~std::uint64_t{0};  // left << 32 | right; all ones: a free slot
    std::uint32_t rank = kNoRank;
    TokenId merged = -1;
  };
  struct CachedWord;

  const Merge& find(TokenId left, TokenId right) const;  // a free slot when there is no merge
  std::size_t slot_of(std::uint64_t pair) const;
  std::size_t encode_short(std::string_view word, TokenId* ids) const;
  void encode_long(std::string_view word, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_ids_;
  std::vector<Merge> merges_;  // open addressing
  std::unique_ptr<CachedWord[]> cache_;
};

}  // namespace quire
