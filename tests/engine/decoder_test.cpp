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

// What a step asks of a GPU: one graph, a copy of its result, and one of the pages when a sequence begins
// another. The host waits for the step before it and for nothing else.
TEST_P(DecoderTest, AStepIsOneGraphAndTwoCopiesAtMost) {
  constexpr int kSteps = 100, kPages = 3;  // that the sequences begin meanwhile
  const std::vector<int> slots = {0, 1, 2};
  const std::vector<int> lengths = {70, 5, 130};  // no two begin a page in the same step
  for (const int slot : slots) {
    const int length = lengths[static_cast<std::size_t>(slot)];
    begin(slot, prompt(length, slot), {}, length + 1);
    decoder.take();
  }
  Stream& s = stream;
  decoder.step(slots);  // loads the kernels
  std::int64_t copies = 0;
  for (int i = 0; i < kSteps; ++i) {
    const StreamCounts before = s.counts;
    for (const int slot : slots)
      ASSERT_TRUE(decoder.grow(slot, lengths[static_cast<std::size_t>(slot)] + i + 2));
    decoder.step(slots);
    const StreamCounts asked = s.counts - before;
    decoder.take();
    const StreamCounts all = s.counts - before;
    if (backend.host_memory) {
      ASSERT_EQ(all.launches() + all.copies() + all.waits, 0);
    } else {
      ASSERT_EQ(asked.graphs, 1) << i;
      ASSERT_EQ(asked.kernels, 0) << i;
      ASSERT_EQ(asked.downloads, 1) << i;
      ASSERT_LE(asked.copies(), 2) << i;
      ASSERT_EQ(asked.waits, 0) << i;
      ASSERT_EQ(all.waits, 1) << i;
      copies += all.copies();
    }
  }
  EXPECT_EQ(copies, backend.host_memory ? 0 : kSteps + kPages);
  decoder.drain();
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
