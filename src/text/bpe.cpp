#include "text/bpe.h"

#include <bit>
#include <cstring>
#include <queue>

#include "core/error.h"

namespace quire {
namespace {

// Up to here scanning all pairs for the best one is faster than keeping them in a heap.
constexpr std::size_t kShortWord = 48;

constexpr std::uint32_t kNone = ~std::uint32_t{0};  // no symbol

constexpr std::size_t kCachedWords = 1 << 15;  // 2 MB; a power of two
constexpr std::size_t kCachedBytes = 29;
constexpr std::size_t kCachedIds = 8;

std::uint64_t mix(std::uint64_t x) {
  x *= 0x9e3779b97f4a7c15u;
  return x ^ (x >> 32);
}

std::uint64_t hash(std::string_view bytes) {
  std::uint64_t h = bytes.size();
  std::uint64_t word;
  for (; bytes.size() > 8; bytes.remove_prefix(8)) {
    std::memcpy(&word, bytes.data(), 8);
    h = mix(h ^ word);
  }
  word = 0;
  std::memcpy(&word, bytes.data(), bytes.size());
  return mix(mix(h ^ word));
}

// Slots for open addressing of `n` entries, at most half full.
std::size_t slots_for(std::size_t n) {
  return std::bit_ceil(2 * n + 2);
}

}  // namespace

Vocabulary::Vocabulary(std::size_t ids) : spans_(ids), slots_(slots_for(ids), -1) {}

std::size_t Vocabulary::slot_of(std::string_view bytes) const {
  std::size_t slot = hash(bytes) & (slots_.size() - 1);
  while (slots_[slot] >= 0 && this->bytes(slots_[slot]) != bytes) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

bool Vocabulary::add(TokenId id, std::string_view bytes) {
  spans_.at(static_cast<std::size_t>(id)) = {static_cast<std::uint32_t>(blob_.size()),
                                             static_cast<std::uint32_t>(bytes.size())};
  blob_ += bytes;
  TokenId& slot = slots_[slot_of(bytes)];
  if (slot >= 0) return false;
  slot = id;
  return true;
}

std::string_view Vocabulary::bytes(TokenId id) const {
  if (id < 0 || static_cast<std::size_t>(id) >= spans_.size()) return {};
  const Span span = spans_[static_cast<std::size_t>(id)];
  return std::string_view(blob_).substr(span.begin, span.size);
}

std::optional<TokenId> Vocabulary::find(std::string_view bytes) const {
  const TokenId id = slots_[slot_of(bytes)];
  return id < 0 ? std::nullopt : std::optional(id);
}

// One line of the word cache. A line is filled once, by the first word that lands on it, and never changes
// after `state` says that it is ready: readers need no lock, and memory is bounded.
struct alignas(64) Bpe::CachedWord {
  enum : std::uint8_t { empty, being_written, ready };
  std::atomic<std::uint8_t> state = empty;
  std::uint8_t size = 0;
  std::uint8_t count = 0;
  char word[kCachedBytes] = {};
  TokenId ids[kCachedIds] = {};
};

Bpe::Bpe(const std::array<TokenId, 256>& byte_ids, std::size_t merges)
    : byte_ids_(byte_ids), merges_(slots_for(merges)), cache_(std::make_unique<CachedWord[]>(kCachedWords)) {}

Bpe::~Bpe() = default;

std::size_t Bpe::slot_of(std::uint64_t pair) const {
  std::size_t slot = mix(pair) & (merges_.size() - 1);
  while (merges_[slot].pair != pair && merges_[slot].rank != kNoRank)
    slot = (slot + 1) & (merges_.size() - 1);
  return slot;
}

void Bpe::add_merge(TokenId left, TokenId right, TokenId merged, std::uint32_t rank) {
  const std::uint64_t pair =
      std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  merges_[slot_of(pair)] = {pair, rank, merged};
}

const Bpe::Merge& Bpe::find(TokenId left, TokenId right) const {
  return merges_[slot_of(std::uint64_t{static_cast<std::uint32_t>(left)} << 32 |
                         static_cast<std::uint32_t>(right))];
}

void Bpe::encode(std::string_view word, std::vector<TokenId>& out) const {
  if (word.size() == 1) {
    out.push_back(byte_ids_[static_cast<unsigned char>(word[0])]);
    return;
  }
  if (word.size() > kShortWord) return encode_long(word, out);

  CachedWord* line = nullptr;
  if (word.size() <= kCachedBytes) {
    line = &cache_[hash(word) & (kCachedWords - 1)];
    if (line->state.load(std::memory_order_acquire) == CachedWord::ready && line->size == word.size() &&
        std::memcmp(line->word, word.data(), word.size()) == 0) {
      out.insert(out.end(), line->ids, line->ids + line->count);
      return;
    }
  }
  TokenId ids[kShortWord];
  const std::size_t count = encode_short(word, ids);
  out.insert(out.end(), ids, ids + count);

  std::uint8_t expected = CachedWord::empty;
  if (line == nullptr || count > kCachedIds) return;
  if (!line->state.compare_exchange_strong(expected, CachedWord::being_written, std::memory_order_relaxed))
    return;
  line->size = static_cast<std::uint8_t>(word.size());
  line->count = static_cast<std::uint8_t>(count);
  std::memcpy(line->word, word.data(), word.size());
  std::memcpy(line->ids, ids, count * sizeof(TokenId));
  line->state.store(CachedWord::ready, std::memory_order_release);
}

// ids [kShortWord]. Returns how many are used.
std::size_t Bpe::encode_short(std::string_view word, TokenId* ids) const {
  std::size_t n = word.size();
  std::uint32_t ranks[kShortWord];  // of the pair (i, i + 1)
  TokenId merged[kShortWord];
  const auto look_up = [&](std::size_t i) {
    const Merge& merge = find(ids[i], ids[i + 1]);
    ranks[i] = merge.rank;
    merged[i] = merge.merged;
  };
  for (std::size_t i = 0; i < n; ++i) ids[i] = byte_ids_[static_cast<unsigned char>(word[i])];
  for (std::size_t i = 0; i + 1 < n; ++i) look_up(i);

  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i)
      if (ranks[i] < ranks[best]) best = i;
    if (ranks[best] == kNoRank) break;
    ids[best] = merged[best];
    --n;
    for (std::size_t i = best + 1; i < n; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  return n;
}

// A linked list of symbols and a heap of pairs: n log n, whatever the word.
void Bpe::encode_long(std::string_view word, std::vector<TokenId>& out) const {
  QUIRE_CHECK(word.size() < kNone, "a word of {} bytes", word.size());
  struct Symbol {
    TokenId id;
    std::uint32_t previous, next;
  };
  struct Pair {
    std::uint32_t rank, at;
    TokenId left, right, merged;
    bool operator<(const Pair& other) const {  // the heap's top is its largest
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };
  const auto n = static_cast<std::uint32_t>(word.size());
  std::vector<Symbol> symbols(n);
  for (std::uint32_t i = 0; i < n; ++i)
    symbols[i] = {byte_ids_[static_cast<unsigned char>(word[i])], i == 0 ? kNone : i - 1,
                  i + 1 < n ? i + 1 : kNone};

  std::vector<Pair> pairs;
  const auto pair_at = [&](std::uint32_t i) -> std::optional<Pair> {
    if (symbols[i].next == kNone) return std::nullopt;
    const TokenId left = symbols[i].id, right = symbols[symbols[i].next].id;
    const Merge& merge = find(left, right);
    if (merge.rank == kNoRank) return std::nullopt;
    return Pair{merge.rank, i, left, right, merge.merged};
  };
  for (std::uint32_t i = 0; i < n; ++i)
    if (const auto pair = pair_at(i)) pairs.push_back(*pair);
  std::priority_queue<Pair> heap({}, std::move(pairs));

  while (!heap.empty()) {
    const Pair pair = heap.top();
    heap.pop();
    Symbol& left = symbols[pair.at];
    // A pair is out of date once either side was merged with another symbol.
    if (left.id != pair.left || left.next == kNone || symbols[left.next].id != pair.right) continue;
    Symbol& right = symbols[left.next];
    left.id = pair.merged;
    right.id = -1;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = pair.at;
    if (left.previous != kNone)
      if (const auto next = pair_at(left.previous)) heap.push(*next);
    if (const auto next = pair_at(pair.at)) heap.push(*next);
  }
  for (std::uint32_t i = 0; i != kNone; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace quire
