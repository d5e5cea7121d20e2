// lookup_drafts by hand, and against its rule written with strings of tokens, at every length of a history.
#include "ops/lookup/lookup.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "ops/testing.h"

namespace quire {
namespace {

using testing::ElementsAre;
using Ints = std::vector<std::int32_t>;

constexpr int kSlots = 3, kDrafts = kMostWindow - 1;

// Sequences in some slots, each given with all that it has generated.
struct Operands {
  std::int32_t capacity;
  Ints history, generated = Ints(kSlots), accepted = Ints(kSlots), unused = Ints(kSlots), first_row{0}, slot;
  Ints drafts = Ints(kSlots * kDrafts, -9), matched;

  explicit Operands(std::int32_t most)
      : capacity(most), history(static_cast<std::size_t>(kSlots * most), -5) {}

  // `rows` of the step that was committed last count; rows of 0: nobody.
  void add(int in_slot, const Ints& said, int rows) {
    first_row.push_back(first_row.back() + rows);
    slot.push_back(in_slot);
    matched.push_back(-9);
    for (std::size_t i = 0; i < said.size(); ++i)
      history[static_cast<std::size_t>(in_slot * capacity) + i % static_cast<std::size_t>(capacity)] =
          said[i];
    const int counted = std::min(rows, static_cast<int>(said.size()) - 1);
    accepted[static_cast<std::size_t>(in_slot)] = counted;
    generated[static_cast<std::size_t>(in_slot)] = static_cast<int>(said.size()) - 1 - counted;
  }
  void run(const Ops& ops) {
    Stream stream;
    std::int32_t* const none = unused.data();
    ops.lookup_drafts(stream, {.cursors = {none, generated.data(), none, accepted.data(), none, none},
                               .requests = {.count = static_cast<std::int32_t>(slot.size()),
                                            .longest = kMostWindow,
                                            .first_row = first_row.data(),
                                            .slot = slot.data()},
                               .history = {history.data(), capacity},
                               .drafts = drafts.data(),
                               .matched = matched.data()});
  }
  Ints drafts_of(int in_slot) const {
    const auto begin = drafts.begin() + in_slot * kDrafts;
    return {begin, begin + kDrafts};
  }
};

TEST(LookupTest, ComputesByHand) {
  for (const Ops* ops : tables()) {
    SCOPED_TRACE(ops->name);
    Operands a(16);
    a.add(2, {1, 2, 3, 4, 9, 2, 3, 4, 8, 7, 3, 4}, 1);  // 3 4 twice before: the last time before 8
    a.add(1, {5}, 0);
    a.add(0, {5, 1, 2, 3, 6, 6, 2, 3, 7, 1, 2, 3}, 4);  // 2 3 before 7, but 1 2 3 before 6
    a.run(*ops);
    EXPECT_THAT(a.matched, ElementsAre(2, 0, 3));
    EXPECT_THAT(a.drafts_of(2), ElementsAre(8, 7, 3, 4, 8, 7, 3, 4, 8, 7, 3, 4, 8, 7, 3));
    EXPECT_EQ(a.drafts_of(1), Ints(kDrafts, -9));
    EXPECT_THAT(a.drafts_of(0), ElementsAre(6, 6, 2, 3, 7, 1, 2, 3, 6, 6, 2, 3, 7, 1, 2));

    Operands b(16);
    b.add(0, {4}, 1);           // the first token
    b.add(1, {4, 5, 6, 6}, 2);  // a token alone is no n-gram
    b.add(2, {1, 7, 7, 7}, 2);  // a run is one
    b.run(*ops);
    EXPECT_THAT(b.matched, ElementsAre(0, 0, 2));
    EXPECT_EQ(b.drafts_of(0), Ints(kDrafts, 4));
    EXPECT_EQ(b.drafts_of(1), Ints(kDrafts, 6));
    EXPECT_EQ(b.drafts_of(2), Ints(kDrafts, 7));

    Operands c(6);  // 1 2 3 has been forgotten
    c.add(0, {1, 2, 3, 9, 9, 1, 2, 3}, 1);
    c.run(*ops);
    EXPECT_THAT(c.matched, ElementsAre(0));
    Operands d(7);  // 2 3 has not
    d.add(0, {1, 2, 3, 9, 9, 1, 2, 3}, 1);
    d.run(*ops);
    EXPECT_THAT(d.matched, ElementsAre(2));
    EXPECT_EQ(d.drafts_of(0)[0], 9);
  }
}

// The longest of the n-grams that end the sequence is looked for from the end, among what is held.
struct Found {
  std::int32_t matched = 0;
  Ints drafts;
};
Found look_up(const Ints& all, std::size_t capacity) {
  const Ints said(all.end() - static_cast<std::ptrdiff_t>(std::min(all.size(), capacity)), all.end());
  for (int n = kLongestMatch; n >= kShortestMatch; --n) {
    if (std::ssize(said) <= n) continue;
    const auto at = std::find_end(said.begin(), said.end() - 1, said.end() - n, said.end());
    if (at == said.end() - 1) continue;
    Ints text = said;
    for (auto next = static_cast<std::size_t>(at - said.begin() + n); text.size() < said.size() + kDrafts;)
      text.push_back(text[next++]);
    return {n, Ints(text.end() - kDrafts, text.end())};
  }
  return {0, Ints(kDrafts, said.back())};
}

TEST(LookupTest, EveryLengthOfAHistory) {
  for (const Ops* ops : tables()) {
    SCOPED_TRACE(ops->name);
    Random random(5);
    std::array<int, kLongestMatch + 1> seen{};
    for (const std::int32_t capacity : {1, 2, 3, 7, 32, 64}) {
      for (int length = 1; length <= 40; ++length) {
        Operands a(capacity);
        std::array<Found, kSlots> expected;
        for (int slot = 0; slot < kSlots; ++slot) {
          Ints said;  // of few tokens, or of one: matches of every length
          for (int i = 0; i < length; ++i)
            said.push_back(static_cast<std::int32_t>(random.uniform(0, slot == 0 ? 1 : 2.0 * slot + 1)));
          expected[static_cast<std::size_t>(slot)] = look_up(said, static_cast<std::size_t>(capacity));
          a.add(slot, said, 1 + length % 5);
        }
        a.run(*ops);
        for (int slot = 0; slot < kSlots; ++slot) {
          const Found& e = expected[static_cast<std::size_t>(slot)];
          EXPECT_EQ(a.matched[static_cast<std::size_t>(slot)], e.matched) << capacity << " " << length;
          EXPECT_EQ(a.drafts_of(slot), e.drafts) << capacity << " " << length << " " << slot;
          ++seen[static_cast<std::size_t>(e.matched)];
        }
      }
    }
    for (const int matched : {0, 2, 3, 4}) EXPECT_GT(seen[static_cast<std::size_t>(matched)], 20) << matched;
  }
}

// As long as the engine keeps them, with the only match far behind.
TEST(LookupTest, LooksAllTheWayBack) {
  for (const Ops* ops : tables()) {
    constexpr std::int32_t kCapacity = 4096;
    Ints said(6000);
    for (std::size_t i = 0; i < said.size(); ++i) said[i] = static_cast<std::int32_t>(i);
    for (const std::int32_t distance : {4, 511, 512, 513, 4000, kCapacity - 4}) {
      Ints again = said;
      for (std::size_t i = again.size() - 4; i < again.size(); ++i)
        again[i] = again[i - static_cast<std::size_t>(distance)];
      Operands a(kCapacity);
      a.add(1, again, 3);
      a.run(*ops);
      EXPECT_THAT(a.matched, ElementsAre(4)) << ops->name << " " << distance;
      EXPECT_EQ(a.drafts_of(1), look_up(again, kCapacity).drafts) << ops->name << " " << distance;
    }
  }
}

}  // namespace
}  // namespace quire
