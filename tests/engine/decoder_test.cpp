// The decoder on quire-mini, without pictures: sequences together and alone, settings, memory.
#include "engine/decoder.h"

#include <numeric>

#include <gmock/gmock.h>

#include "backends.h"
#include "core/error.h"
#include "engine/text_prompt.h"
#include "loaded_model.h"
#include "sanitized.h"

namespace quire {
namespace {

using Tokens = std::vector<std::int32_t>;
using testing::HasSubstr;

class DecoderTest : public testing::TestWithParam<const Backend*>, protected LoadedModel {
 protected:
  static constexpr int kSlots = 3;
  static constexpr int kTokens = 200;

  DecoderTest()
      : LoadedModel(*GetParam(), "models/quire-mini"),
        decoder(config.text, weights.text, backend, stream, Format::bf16, Switches(), {.slots = kSlots}) {
    decoder.reserve(kSlots * 256, 256);
  }

  static Tokens prompt(int length, int seed) {
    Tokens t;
    for (int i = 0; i < length; ++i) t.push_back((i * 37 + seed * 101) % 4000);
    return t;
  }

  void begin(int slot, const Tokens& tokens, const SamplingSettings& settings = {},
             std::int64_t room = kTokens) {
    decoder.open(slot, room, settings);
    prefill_text(decoder, config, slot, tokens);
  }

  // The first `count` tokens of each sequence, all in every step.
  std::vector<Tokens> run(const std::vector<int>& slots, const std::vector<Tokens>& prompts,
                          std::size_t count, const SamplingSettings& settings = {}) {
    std::vector<Tokens> out(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      begin(slots[i], prompts[i], settings);
      out[i].push_back(decoder.take().rows.front().token);
    }
    while (out[0].size() < count) {
      decoder.step(slots);
      const std::span<const Sampled> rows = decoder.take().rows;
      for (std::size_t i = 0; i < slots.size(); ++i) out[i].push_back(rows[i].token);
    }
    for (const int slot : slots) decoder.close(slot);
    return out;
  }

  Decoder decoder;
};

TEST_P(DecoderTest, TogetherAsAlone) {
  const std::vector<Tokens> prompts = {prompt(70, 1), prompt(5, 2), prompt(130, 3)};
  const std::vector<Tokens> together = run({2, 0, 1}, prompts, 40);
  for (std::size_t i = 0; i < prompts.size(); ++i)
    EXPECT_EQ(run({static_cast<int>(i)}, {prompts[i]}, 40)[0], together[i]) << i;
}

TEST_P(DecoderTest, AStepMayBeAskedForBeforeTheOneBeforeIsTaken) {
  const Tokens expected = run({0}, {prompt(70, 1)}, 20)[0];
  begin(1, prompt(70, 1));
  Tokens seen;
  const int slot = 1;
  while (seen.size() < expected.size()) {
    decoder.step({&slot, 1});
    seen.push_back(decoder.take().rows.front().token);
  }
  decoder.drain();
  EXPECT_EQ(seen, expected);
}

// What a step asks of a GPU: one graph, a copy of its result, and one of the new pages when sequences begin
// some, however many do. The host waits for the step before it and for nothing else.
TEST_P(DecoderTest, AStepIsOneGraphAndTwoCopiesAtMost) {
  constexpr int kSteps = 100;
  const std::vector<int> slots = {0, 1, 2};
  const std::vector<Tokens> prompts = {prompt(70, 0), prompt(6, 1), prompt(90, 2)};
  const std::vector<Tokens> expected = run(slots, prompts, kSteps + 2);
  std::vector<Tokens> said;
  for (const int slot : slots) {
    const Tokens& p = prompts[static_cast<std::size_t>(slot)];
    begin(slot, p, {}, std::ssize(p) + 1);
    said.push_back({decoder.take().rows.front().token});
  }
  Stream& s = stream;
  const auto step = [&] {
    decoder.step(slots);
    const StreamCounts asked = s.counts;
    const std::span<const Sampled> rows = decoder.take().rows;
    for (std::size_t i = 0; i < slots.size(); ++i) said[i].push_back(rows[i].token);
    return asked;
  };
  step();  // loads the kernels
  std::int64_t copies = 0;
  for (int i = 0; i < kSteps; ++i) {
    const StreamCounts before = s.counts;
    for (const int slot : slots)
      ASSERT_TRUE(decoder.grow(slot, std::ssize(prompts[static_cast<std::size_t>(slot)]) + i + 2));
    const StreamCounts asked = step() - before, all = s.counts - before;
    if (backend.host_memory) {
      ASSERT_EQ(all.launches() + all.copies() + all.waits, 0);
    } else {
      ASSERT_EQ(asked.graphs, 1) << i;
      ASSERT_EQ(asked.kernels, 0) << i;
      ASSERT_EQ(asked.downloads, 1) << i;
      ASSERT_LE(asked.uploads, 1) << i;
      ASSERT_EQ(asked.waits, 0) << i;
      ASSERT_EQ(all.waits, 1) << i;
      copies += all.copies();
    }
  }
  // Two sequences begin a page in the same step, the third in another.
  EXPECT_EQ(copies, backend.host_memory ? 0 : kSteps + 2);
  EXPECT_EQ(said, expected);
  decoder.drain();
}

// The same with windows of drafts, whose keys and values stand in the same pages.
TEST_P(DecoderTest, AStepOfDraftsIsOneGraphAndTwoCopiesAtMost) {
  constexpr int kSteps = 30, kWindow = 16, kAccepted = 12;
  constexpr int kLengths[] = {20, 20, 60};
  constexpr int kWithPages = 11;  // steps after the first: in 5 the first two begin a page
  const DrafterConfig drafter = DrafterConfig::from_directory("models/quire-mini-dflash2", config.text);
  const DrafterCheckpoint checkpoint("models/quire-mini-dflash2", drafter, backend, stream);
  const Decoder::DraftModel model{drafter, checkpoint.weights};
  const std::vector<int> slots = {2, 0, 1};
  const auto rows_of = [&](bool in_time) {  // pages come when they are needed, or all before
    Decoder d(config.text, weights.text, backend, stream, Format::bf16, Switches(),
              {.slots = kSlots, .window = kWindow}, {.model = &model, .lookup = false, .mtp = nullptr});
    d.reserve(kSlots * 1024, 1024);
    d.assume_accepted(kAccepted);
    for (const int slot : slots) {
      const Tokens tokens = prompt(kLengths[slot], slot);
      d.open(slot, in_time ? std::ssize(tokens) : 900, {});
      prefill_text(d, config, slot, tokens);
      d.take();
    }
    std::vector<Tokens> said;
    Stream& s = stream;
    std::int64_t with_pages = 0;
    for (int i = 0; i < kSteps; ++i) {
      const StreamCounts before = s.counts;
      for (const int slot : slots)
        EXPECT_TRUE(d.grow(slot, in_time ? kLengths[slot] + kAccepted * i + kWindow : 900));
      d.step(slots, kWindow);
      const StreamCounts asked = s.counts - before;
      said.emplace_back();
      for (const Sampled& row : d.take().rows) said.back().push_back(row.token);
      if (i == 0 || backend.host_memory) continue;  // loads the kernels
      EXPECT_EQ(asked.graphs, 1) << i;
      EXPECT_EQ(asked.kernels, 0) << i;
      EXPECT_EQ(asked.downloads, 1) << i;
      EXPECT_LE(asked.uploads, 1) << i;
      EXPECT_EQ(asked.waits, 0) << i;
      with_pages += asked.uploads;
    }
    EXPECT_EQ(with_pages, in_time && !backend.host_memory ? kWithPages : 0);
    return said;
  };
  const std::vector<Tokens> expected = rows_of(false);
  EXPECT_EQ(rows_of(true), expected);
}

// More pages at once than wait for a step.
TEST_P(DecoderTest, ManyPagesAtOnce) {
  constexpr std::int64_t kMany = (KvPool::kMostNewPages + 3) * KvPool::kPageSize;
  const std::vector<int> slots = {1, 0};
  const std::vector<Tokens> prompts = {prompt(60, 1), prompt(61, 2)};
  const std::vector<Tokens> expected = run(slots, prompts, 20);
  decoder.reserve(3 * kMany, 2 * kMany);
  std::vector<Tokens> said;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    begin(slots[i], prompts[i], {}, 62);
    said.push_back({decoder.take().rows.front().token});
  }
  ASSERT_TRUE(decoder.grow(1, 100));
  ASSERT_TRUE(decoder.grow(0, kMany));
  ASSERT_TRUE(decoder.grow(1, kMany));
  ASSERT_FALSE(decoder.grow(1, 2 * kMany + 1));
  while (said[0].size() < expected[0].size()) {
    decoder.step(slots);
    const std::span<const Sampled> rows = decoder.take().rows;
    for (std::size_t i = 0; i < slots.size(); ++i) said[i].push_back(rows[i].token);
  }
  EXPECT_EQ(said, expected);
}

// New pages are the sequence's that asked for them, once: not of the next in its slot, which it leaves before
// they have come, nor after it has left and come back to other pages.
TEST_P(DecoderTest, NewPagesGoWithTheirSequence) {
  const std::vector<int> slots = {0, 1};
  const std::vector<Tokens> prompts = {prompt(126, 1), prompt(62, 2)};
  constexpr std::size_t kCount = 30;
  const std::vector<Tokens> expected = run(slots, prompts, kCount);
  // These wait for the next step when their sequences go, and pages change hands.
  begin(0, prompt(60, 3), {}, 64);
  begin(1, prompt(60, 4), {}, 64);
  ASSERT_TRUE(decoder.grow(0, 192));
  ASSERT_TRUE(decoder.grow(1, 128));
  decoder.close(1), decoder.close(0);
  decoder.drain();
  std::vector<Tokens> said(2);
  for (const int slot : {1, 0}) {
    begin(slot, prompts[static_cast<std::size_t>(slot)], {}, 127 + slot);
    said[static_cast<std::size_t>(slot)].push_back(decoder.take().rows.front().token);
  }
  const auto step = [&](std::size_t until) {
    while (said[0].size() < until) {
      for (const int slot : slots)
        ASSERT_TRUE(decoder.grow(slot, std::ssize(prompts[static_cast<std::size_t>(slot)]) +
                                           std::ssize(said[static_cast<std::size_t>(slot)])));
      decoder.step(slots);
      const std::span<const Sampled> rows = decoder.take().rows;
      for (std::size_t i = 0; i < slots.size(); ++i) said[i].push_back(rows[i].token);
    }
  };
  step(10);  // the third of these is the last with a new page
  const Decoder::Saved second = decoder.save(1), first = decoder.save(0);
  decoder.resume(1, second), decoder.resume(0, first);
  step(kCount);
  EXPECT_EQ(said, expected);
}

// Another batch is one copy more: everything the host says of a step.
TEST_P(DecoderTest, AnotherBatchIsOneCopy) {
  if (backend.host_memory) GTEST_SKIP() << "a CPU is asked for no copies";
  for (const int slot : {0, 1, 2}) {
    begin(slot, prompt(20, slot));
    decoder.take();
  }
  Stream& s = stream;
  for (int i = 0; i < 12; ++i) {
    const StreamCounts before = s.counts;
    decoder.step(std::vector<int>{i % 3, (i + 1) % 3});
    const StreamCounts asked = s.counts - before;
    decoder.take();
    if (i == 0) continue;  // loads the kernels
    ASSERT_EQ(asked.launches(), 1) << i;
    ASSERT_EQ(asked.uploads, 1) << i;
    ASSERT_EQ(asked.downloads, 1) << i;
    ASSERT_EQ(asked.waits, 0) << i;
  }
}

TEST_P(DecoderTest, ASeedGivesTheSameTokensAnywhere) {
  SamplingSettings settings{.temperature = 1.5f, .top_p = 0.95f, .seed = 7};
  const std::vector<Tokens> prompts(3, prompt(20, 1));
  const std::vector<Tokens> drawn = run({0, 1, 2}, prompts, 30, settings);
  EXPECT_EQ(drawn[0], drawn[1]);
  EXPECT_EQ(drawn[0], drawn[2]);
  settings.seed = 8;
  EXPECT_NE(run({1}, {prompts[0]}, 30, settings)[0], drawn[0]);
}

TEST_P(DecoderTest, PenaltiesCountWhatHasBeenSaid) {
  SamplingSettings settings;
  settings.presence_penalty = 100;  // no token twice
  Tokens tokens = run({0}, {prompt(20, 1)}, 60, settings)[0];
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(std::adjacent_find(tokens.begin(), tokens.end()), tokens.end());
}

TEST_P(DecoderTest, SaysWhatDoesNotFit) {
  try {
    decoder.open(0, 257, {});
    FAIL() << "257 tokens fitted into 256";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(e.what(), HasSubstr("257 tokens need 5 pages"));
  }
  decoder.open(0, 256, {});  // and it goes on
}

std::vector<const Backend*> fast_backends() {
  if (kSanitized) return main_backends();
  std::vector<const Backend*> p;
  for (const Backend& b : backends())
    if (b.ops != &reference_ops()) p.push_back(&b);
  return p;
}

INSTANTIATE_TEST_SUITE_P(Backends, DecoderTest, testing::ValuesIn(fast_backends()),
                         [](const auto& p) { return std::string(p.param->ops->name); });

TEST(Switches, AreReadByName) {
  const Switches s = Switches::parse("graphs=off,gdn_ring=f32,window=5");
  EXPECT_FALSE(s.graphs);
  EXPECT_TRUE(s.dependent_launch);
  EXPECT_EQ(s.gdn_ring, Format::f32);
  EXPECT_EQ(s.window, 5);
  EXPECT_TRUE(Switches::parse("").graphs);
  for (const char* wrong : {"graphs", "graphs=maybe", "fast=on", "graphs=off;gdn_ring=f32", "window",
                            "window=", "window=17", "window=-1", "window=4x"})
    EXPECT_THROW(Switches::parse(wrong), Error) << wrong;
}

}  // namespace
}  // namespace quire
