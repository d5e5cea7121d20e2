// step_begin and commit against what their contracts say, by hand: every table gives the same integers.
#include "ops/step/step.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <tuple>

#include <gmock/gmock.h>

#include "ops/testing.h"

namespace quire {
namespace {

using testing::ElementsAre;
using Ints = std::vector<std::int32_t>;

constexpr int kSlots = 4, kPages = 3;

struct Cursor {
  Ints length{70, 5, 0, 191}, generated{10, 0, 0, 31}, previous{7, 0, 0, 30}, accepted{3, 0, 0, 1},
      delta{-20, 2, 0, 0}, token{100, 101, 102, 103};

  Cursors view() {
    return {length.data(), generated.data(), previous.data(), accepted.data(), delta.data(), token.data()};
  }
};

struct Operands {
  Cursor cursors;
  Ints first_row, slot, table{5, 9, -1, 2, -1, -1, -1, -1, -1, 0, 1, 3};
  Ints drafts = Ints(kSlots * (kMostWindow - 1)), start, generated, previous, ids, position, kv_row, row_slot,
       index, next;

  Operands(Ints first, Ints slots, std::int64_t rows) : first_row(std::move(first)), slot(std::move(slots)) {
    std::iota(drafts.begin(), drafts.end(), 1000);
    for (Ints* r : {&start, &generated, &previous}) r->assign(slot.size(), -9);
    for (Ints* t : {&ids, &kv_row, &row_slot, &index, &next}) t->assign(static_cast<std::size_t>(rows), -9);
    position.assign(static_cast<std::size_t>(3 * rows), -9);
  }
  StepBegin begin(std::int32_t longest) {
    return {.cursors = cursors.view(),
            .requests = requests(longest),
            .new_pages = {},
            .kv = {.k = {}, .v = {}, .page_size = 64, .block_table = table.data(), .pages_per_slot = kPages},
            .drafts = drafts.data(),
            .rows = static_cast<std::int64_t>(ids.size()),
            .start = start.data(),
            .generated = generated.data(),
            .previous = previous.data(),
            .ids = ids.data(),
            .position = position.data(),
            .kv_row = kv_row.data(),
            .row_slot = row_slot.data(),
            .index = index.data(),
            .next = next.data()};
  }
  Requests requests(std::int32_t longest) const {
    return {.count = static_cast<std::int32_t>(slot.size()),
            .longest = longest,
            .first_row = first_row.data(),
            .slot = slot.data()};
  }
};

TEST(StepTest, BeginsWhereTheAcceptedRowsEnd) {
  for (const Ops* ops : tables()) {
    Stream stream;
    // Slot 0 with three rows over the end of its second page; nobody; slot 3 with two rows past the end of
    // its last; one row of padding.
    Operands a({0, 3, 3, 5}, {0, 2, 3}, 6);
    a.cursors.length[0] = 123;
    ops->step_begin(stream, a.begin(3));
    EXPECT_THAT(a.start, ElementsAre(126, 0, 192)) << ops->name;
    EXPECT_THAT(a.generated, ElementsAre(13, 0, 32));
    EXPECT_THAT(a.previous, ElementsAre(10, 0, 31));
    EXPECT_THAT(a.ids, ElementsAre(100, 1000, 1001, 103, 1045, 0));
    EXPECT_THAT(a.position, ElementsAre(106, 107, 108, 192, 193, 0, 106, 107, 108, 192, 193, 0, 106, 107, 108,
                                        192, 193, 0));
    EXPECT_THAT(a.kv_row, ElementsAre(9 * 64 + 62, 9 * 64 + 63, -1, -1, -1, -1));
    EXPECT_THAT(a.row_slot, ElementsAre(0, 0, 0, 3, 3, 0));
    EXPECT_THAT(a.index, ElementsAre(126, 127, 128, 192, 193, 0));
    EXPECT_THAT(a.next, ElementsAre(127, 128, 129, 193, 194, 1));
    EXPECT_THAT(a.cursors.length, ElementsAre(126, 5, 0, 192));
    EXPECT_THAT(a.cursors.generated, ElementsAre(13, 0, 0, 32));
    EXPECT_THAT(a.cursors.previous, ElementsAre(10, 0, 0, 31));
    EXPECT_THAT(a.cursors.accepted, ElementsAre(0, 0, 0, 0));
    EXPECT_THAT(a.cursors.token, ElementsAre(100, 101, 102, 103));
  }
}

// Another row of each sequence, before or after those of the step.
TEST(StepTest, BeginsAheadOrBehind) {
  for (const Ops* ops : tables()) {
    Stream stream;
    Operands a({0, 1, 1, 2}, {0, 1, 2}, 4);
    a.cursors.length[0] = 61;
    StepBegin begin = a.begin(1);
    ops->step_begin(stream, begin);
    EXPECT_THAT(a.start, ElementsAre(64, 0, 0)) << ops->name;
    begin.ahead = -1;
    ops->step_begin(stream, begin);
    EXPECT_THAT(a.start, ElementsAre(63, 0, 0));
    EXPECT_THAT(a.index, ElementsAre(63, -1, 0, 0));
    EXPECT_THAT(a.kv_row, ElementsAre(5 * 64 + 63, -1, -1, -1));
    EXPECT_THAT(Ints(a.position.begin(), a.position.begin() + 2), ElementsAre(43, -1));
    begin.ahead = 2;
    ops->step_begin(stream, begin);
    EXPECT_THAT(a.start, ElementsAre(66, 0, 2));
    EXPECT_THAT(a.kv_row, ElementsAre(9 * 64 + 2, -1, -1, -1));
    EXPECT_THAT(a.cursors.length, ElementsAre(64, 5, 0, 191));
    EXPECT_THAT(a.cursors.generated, ElementsAre(13, 0, 0, 31));
    EXPECT_THAT(a.cursors.token, ElementsAre(100, 101, 102, 103));
  }
}

// Pages that are new stand in the block table before a row looks there, whoever's they are, and come once.
TEST(StepTest, BeginsWithNewPages) {
  for (const Ops* ops : tables()) {
    Stream stream;
    Operands a({0, 2, 2, 3}, {0, 2, 1}, 3);
    a.cursors.length[0] = 124;
    Ints count{3}, place{0 * kPages + 2, 3 * kPages + 0, 1 * kPages + 1, 0}, page{7, 8, 6, 99};
    StepBegin begin = a.begin(2);
    begin.new_pages = {.count = count.data(),
                       .place = place.data(),
                       .page = page.data(),
                       .block_table = a.table.data(),
                       .most = 4};
    ops->step_begin(stream, begin);
    EXPECT_THAT(a.table, ElementsAre(5, 9, 7, 2, 6, -1, -1, -1, -1, 8, 1, 3)) << ops->name;
    EXPECT_THAT(a.kv_row, ElementsAre(9 * 64 + 63, 7 * 64, 2 * 64 + 5));
    EXPECT_THAT(count, ElementsAre(0));
    a.table[2] = 4;
    ops->step_begin(stream, begin);
    EXPECT_THAT(a.table, ElementsAre(5, 9, 4, 2, 6, -1, -1, -1, -1, 8, 1, 3));
    EXPECT_THAT(a.kv_row, ElementsAre(9 * 64 + 63, 4 * 64, 2 * 64 + 5));
  }
}

// More requests than a step has, windows of any length, new pages for some: as the reference.
TEST(StepTest, BeginsAnyNumberOfRequests) {
  constexpr int kTokens = kPages * 64, kMostNew = 300;
  for (const int count : {1, 2, 9, 31, 64, 65, 130}) {
    std::mt19937 random(static_cast<unsigned>(count));
    const auto draw = [&](int from, int to) {
      return std::uniform_int_distribution<std::int32_t>(from, to)(random);
    };
    Ints slots(static_cast<std::size_t>(count)), first_row{0};
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), random);
    for (int r = 0; r < count; ++r) first_row.push_back(first_row.back() + draw(0, kMostWindow));
    Operands given(first_row, slots, first_row.back() + draw(0, 40));
    given.drafts.resize(slots.size() * (kMostWindow - 1));
    std::iota(given.drafts.begin(), given.drafts.end(), 1000);
    given.table.assign(slots.size() * kPages, -1);
    for (std::int32_t& page : given.table) page = draw(-1, 500);
    Cursor& c = given.cursors;
    for (Ints* cursor : {&c.length, &c.generated, &c.previous, &c.accepted, &c.delta, &c.token}) {
      cursor->resize(slots.size());
      for (std::int32_t& value : *cursor) value = draw(0, kTokens);
    }
    Ints place, page(kMostNew);
    for (int i = 0; i < static_cast<int>(given.table.size()); ++i) place.push_back(i);
    std::shuffle(place.begin(), place.end(), random);
    place.resize(kMostNew);
    for (std::int32_t& p : page) p = draw(501, 1000);
    const std::int32_t new_pages = draw(0, std::min(kMostNew, count * kPages));
    for (const std::int32_t ahead : {0, -1, 3}) {
      const auto run = [&](const Ops& ops) {
        Operands a = given;
        Ints left{new_pages};
        StepBegin begin = a.begin(kMostWindow);
        begin.ahead = ahead;
        begin.new_pages = {.count = left.data(),
                           .place = place.data(),
                           .page = page.data(),
                           .block_table = a.table.data(),
                           .most = kMostNew};
        Stream stream;
        ops.step_begin(stream, begin);
        EXPECT_EQ(left[0], 0);
        return a;
      };
      const Operands expected = run(reference_ops());
      for (const Ops* ops : tables()) {
        const Operands a = run(*ops);
        for (const auto part :
             {&Operands::table, &Operands::start, &Operands::generated, &Operands::previous, &Operands::ids,
              &Operands::position, &Operands::kv_row, &Operands::row_slot, &Operands::index, &Operands::next})
          EXPECT_EQ(a.*part, expected.*part) << ops->name << " " << count;
        for (const auto cursor : {&Cursor::length, &Cursor::generated, &Cursor::previous, &Cursor::accepted,
                                  &Cursor::delta, &Cursor::token})
          EXPECT_EQ(a.cursors.*cursor, expected.cursors.*cursor) << ops->name << " " << count;
      }
    }
  }
}

TEST(StepTest, CommitsTheRowsThatAgree) {
  constexpr std::int64_t kVocabulary = 8;
  for (const Ops* ops : tables()) {
    Stream stream;
    Operands a({0, 4, 6, 6, 7}, {2, 0, 3, 1}, 7);
    a.ids = {1, 2, 3, 4, /**/ 5, 6, /**/ 7};
    std::vector<Sampled> sampled(7);
    const Ints drawn = {2, 3, 0, 4, /**/ 1, 6, /**/ 5};
    for (std::size_t i = 0; i < drawn.size(); ++i) sampled[i].token = drawn[i];
    std::vector<std::uint16_t> seen(kSlots * kVocabulary);
    seen[2 * kVocabulary + 3] = kInPrompt | 4;
    seen[1 * kVocabulary + 5] = kInPrompt - 1;  // a count that stays
    Ints counts(4, -9);
    Commit commit{.cursors = a.cursors.view(),
                  .requests = a.requests(4),
                  .ids = a.ids.data(),
                  .sampled = sampled,
                  .counts = counts.data(),
                  .seen = seen.data(),
                  .vocabulary = kVocabulary,
                  .history = {}};
    ops->commit(stream, commit);
    EXPECT_THAT(a.cursors.accepted, ElementsAre(1, 1, 3, 1)) << ops->name;
    EXPECT_THAT(counts, ElementsAre(3, 1, 0, 1));
    EXPECT_THAT(a.cursors.token, ElementsAre(1, 5, 0, 103));
    EXPECT_EQ(seen[2 * kVocabulary + 2], 1);
    EXPECT_EQ(seen[2 * kVocabulary + 3], kInPrompt | 5);
    EXPECT_EQ(seen[2 * kVocabulary + 0], 1);
    EXPECT_EQ(seen[2 * kVocabulary + 4], 0);
    EXPECT_EQ(seen[1 * kVocabulary + 5], kInPrompt - 1);
    commit.assumed = 2;
    ops->commit(stream, commit);
    EXPECT_THAT(counts, ElementsAre(2, 2, 0, 1));
    EXPECT_THAT(a.cursors.token, ElementsAre(6, 5, 3, 103));
    commit.prompt = true;
    ops->commit(stream, commit);
    EXPECT_THAT(a.cursors.accepted, ElementsAre(0, 0, 0, 1));  // slot 3 had no rows
    EXPECT_THAT(a.cursors.token, ElementsAre(1, 5, 2, 103));
  }
}

TEST(StepTest, CommitKeepsTheTokensThatCount) {
  constexpr std::int32_t kCapacity = 5;
  for (const Ops* ops : tables()) {
    Stream stream;
    // Slot 1 with three rows, of which two count: tokens 8 and 9; nobody; slot 3 with one row, which ends a
    // prompt when there is one: token 32, or the first.
    Operands a({0, 3, 3, 4}, {1, 0, 3}, 4);
    a.ids = {1, 2, 9, /**/ 7};
    a.cursors.generated = {0, 7, 0, 31};
    std::vector<Sampled> sampled(4);
    const Ints drawn = {2, 3, 4, /**/ 5};
    for (std::size_t i = 0; i < drawn.size(); ++i) sampled[i].token = drawn[i];
    Ints history(kSlots * kCapacity, -9);
    Commit commit{.cursors = a.cursors.view(),
                  .requests = a.requests(3),
                  .ids = a.ids.data(),
                  .sampled = sampled,
                  .history = {history.data(), kCapacity}};
    ops->commit(stream, commit);
    EXPECT_THAT(history, ElementsAre(-9, -9, -9, -9, -9, /**/ -9, -9, -9, 2, 3, /**/ -9, -9, -9, -9, -9,
                                     /**/ -9, -9, 5, -9, -9))
        << ops->name;
    a.cursors.generated = {0, 8, 0, 0};  // over the end of a slot's memory
    ops->commit(stream, commit);
    EXPECT_THAT(history, ElementsAre(-9, -9, -9, -9, -9, /**/ 3, -9, -9, 2, 2, /**/ -9, -9, -9, -9, -9,
                                     /**/ -9, 5, 5, -9, -9));
    commit.prompt = true;
    ops->commit(stream, commit);
    EXPECT_EQ(history[3 * kCapacity], 5);
  }
}

// Whole windows of few different tokens, so that many agree and one is drawn often; histories that are
// shorter than a window, too.
TEST(StepTest, CommitsWindowsAsTheReference) {
  constexpr std::int64_t kVocabulary = 3;
  std::minstd_rand random(7);
  for (int repetition = 0; repetition < 200; ++repetition) {
    const auto below = [&](std::uint32_t n) { return static_cast<std::int32_t>(random() / 7 % n); };
    Operands a({0, kMostWindow, kMostWindow, kMostWindow + 1 + below(16)}, {1, 0, 3}, 2 * kMostWindow);
    const std::int32_t capacity = 1 + below(40), step = below(3);
    std::vector<Sampled> sampled(a.ids.size());
    for (Sampled& s : sampled) s.token = below(kVocabulary);
    for (std::size_t t = 1; t < sampled.size(); ++t)
      a.ids[t] = below(8) > 0 ? sampled[t - 1].token : below(kVocabulary);
    std::vector<std::uint16_t> seen(kSlots * kVocabulary);
    for (std::uint16_t& s : seen)
      s = static_cast<std::uint16_t>(below(2) * kInPrompt + (below(2) ? below(3) : kInPrompt - 1 - below(6)));
    const auto run = [&](const Ops& ops) {
      Operands own = a;
      Ints counts(3, -9), history(static_cast<std::size_t>(kSlots * capacity), -9);
      std::vector<std::uint16_t> own_seen = seen;
      Stream stream;
      ops.commit(stream, {.cursors = own.cursors.view(),
                          .requests = own.requests(kMostWindow),
                          .ids = own.ids.data(),
                          .sampled = sampled,
                          .prompt = step == 1,
                          .assumed = step == 2 ? 8 : 0,
                          .counts = counts.data(),
                          .seen = own_seen.data(),
                          .vocabulary = kVocabulary,
                          .history = {history.data(), capacity}});
      return std::tuple(own.cursors.token, own.cursors.accepted, own.cursors.generated, counts, own_seen,
                        history);
    };
    for (const Ops* ops : tables())
      ASSERT_EQ(run(*ops), run(reference_ops())) << ops->name << " " << repetition;
  }
}

TEST(StepTest, CommitKeepsTheLastOutputThatCounts) {
  constexpr std::int64_t kCols = 300;
  for (const Ops* ops : tables()) {
    for (const Format format : {Format::f32, Format::bf16}) {
      Stream stream;
      // Slot 2 with three rows, of which two count; nobody; slot 0 with one row.
      Operands a({0, 3, 3, 4}, {2, 0, 0}, 5);
      a.ids = {1, 2, 9, /**/ 7, /**/ 0};
      std::vector<Sampled> sampled(5);
      const Ints drawn = {2, 3, 4, /**/ 5, /**/ 0};
      for (std::size_t i = 0; i < drawn.size(); ++i) sampled[i].token = drawn[i];
      Matrix outputs(format, 5, kCols), last(format, kSlots, kCols);
      for (std::int64_t t = 0; t < 5; ++t)
        for (std::int64_t d = 0; d < kCols; ++d) outputs.set(t, d, static_cast<float>(1000 * t + d % 100));
      for (std::int64_t s = 0; s < kSlots; ++s)
        for (std::int64_t d = 0; d < kCols; ++d) last.set(s, d, -1);
      ops->commit(stream, {.cursors = a.cursors.view(),
                           .requests = a.requests(3),
                           .ids = a.ids.data(),
                           .sampled = sampled,
                           .history = {},
                           .outputs = outputs,
                           .last = last});
      for (std::int64_t d = 0; d < kCols; ++d) {
        ASSERT_EQ(last.get(0, d), outputs.get(3, d)) << ops->name << " " << d;
        ASSERT_EQ(last.get(2, d), outputs.get(1, d)) << ops->name << " " << d;
        ASSERT_EQ(last.get(1, d), -1) << ops->name << " " << d;
      }
    }
  }
}

TEST(StepTest, PlacesTheLikeliestDrafts) {
  constexpr std::int64_t kVocabulary = 20'000;
  for (const Ops* ops : tables()) {
    Stream stream;
    Operands a({0, 3, 3, 4}, {2, 0, 3}, 6);
    a.ids = {1, 2, 3, 4, 5, 6};
    Matrix logits(Format::f32, 6, kVocabulary);
    for (std::int64_t t = 0; t < 6; ++t)
      for (std::int64_t v = 0; v < kVocabulary; ++v) logits.set(t, v, static_cast<float>(-(v % 7)));
    logits.set(1, 12'291, 0.5f), logits.set(1, 12'297, 0.5f);  // equal: the lower id
    logits.set(2, 0, -1);
    ops->place_drafts(stream, {.logits = logits, .requests = a.requests(3), .ids = a.ids.data()});
    EXPECT_THAT(a.ids, ElementsAre(1, 12'291, 7, 4, 5, 6)) << ops->name;

    // A row of logits for each request.
    Rows three = logits;
    three.rows = 3;
    a.ids = {1, 2, 3, 4, 5, 6};
    ops->place_drafts(stream, {.logits = three, .requests = a.requests(3), .ids = a.ids.data(), .row = 2});
    EXPECT_THAT(a.ids, ElementsAre(1, 2, 0, 4, 5, 6)) << ops->name;
  }
}

}  // namespace
}  // namespace quire
