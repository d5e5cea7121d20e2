// Windows of drafts, planted ones (right up to some place, or not at all) and those of every source. Every
// token must be the one of plain decoding, and exactly the drafts that agree must count; greedy and sampled
// alike, because a seeded draw depends on the position alone.
#include <algorithm>
#include <array>
#include <numeric>

#include <gmock/gmock.h>

#include "backends.h"
#include "core/error.h"
#include "engine/decoder.h"
#include "engine/text_prompt.h"
#include "loaded_model.h"

namespace quire {
namespace {

using Tokens = std::vector<std::int32_t>;

constexpr std::size_t kTokens = 70;  // crosses blocks of the state twice
constexpr int kSlots = 3;
constexpr std::int64_t kRoom = 320;  // tokens of a sequence

struct SmallModel : LoadedModel {
  explicit SmallModel(const Backend& where) : LoadedModel(where, small_model(where)) {}

  std::unique_ptr<Decoder> decoder(int window, const Decoder::DraftSource& source) {
    auto d = std::make_unique<Decoder>(config.text, weights.text, backend, stream, Format::bf16, Switches(),
                                       Decoder::Limits{.slots = kSlots, .window = window}, source);
    d->reserve(kSlots * kRoom, kRoom);
    return d;
  }

  // The prompt of a length, run in a slot with room for so many tokens more; its first token.
  std::int32_t begin(Decoder& decoder, int slot, int length, const SamplingSettings& settings,
                     std::int64_t room = 2 * kTokens) {
    Tokens tokens;
    for (int i = 0; i < length; ++i) tokens.push_back((i * 37 + length) % 200);
    decoder.open(slot, length + room, settings);
    prefill_text(decoder, config, slot, tokens);
    return decoder.take().rows.front().token;
  }

  Tokens plain(Decoder& decoder, int length, const SamplingSettings& settings) {
    const int slot = 1;
    Tokens out{begin(decoder, slot, length, settings)};
    while (out.size() < kTokens + kMostWindow) {
      decoder.step({&slot, 1});
      out.push_back(decoder.take().rows.front().token);
    }
    decoder.close(slot);
    return out;
  }
};

class PlantedDrafts : public testing::TestWithParam<const Backend*> {
 protected:
  // Two sequences in one step, their drafts right for so many rows and then wrong. Checks tokens and counts.
  void expect_lossless(int length, const SamplingSettings& settings, int window, std::array<int, 2> right) {
    const Tokens expected = loaded.plain(*decoder, length, settings);
    const std::array<int, 2> slots = {2, 0};
    std::array<Tokens, 2> out;
    for (std::size_t i = 0; i < 2; ++i) out[i].push_back(loaded.begin(*decoder, slots[i], length, settings));
    while (std::min(out[0].size(), out[1].size()) < kTokens) {
      Tokens drafts(kSlots * (kMostWindow - 1), 0);
      std::array<int, 2> agreeing;
      for (std::size_t i = 0; i < 2; ++i) {
        agreeing[i] = std::min(right[i], window - 1);
        for (int d = 0; d < window - 1; ++d) {
          const std::size_t at = std::min(out[i].size() + static_cast<std::size_t>(d), expected.size() - 1);
          if (at == expected.size() - 1) agreeing[i] = std::min(agreeing[i], d);
          const std::int32_t token = d < agreeing[i] ? expected[at] : (expected[at] + 1) % 200;
          drafts[static_cast<std::size_t>(slots[i] * (kMostWindow - 1) + d)] = token;
        }
      }
      loaded.backend.upload(loaded.stream, decoder->drafts(), drafts.data(),
                            drafts.size() * sizeof(std::int32_t));
      decoder->step(slots, window);
      const Decoder::Result result = decoder->take();
      for (std::size_t i = 0; i < 2; ++i) {
        if (out[i].size() < kTokens) {
          ASSERT_EQ(result.counts[i], agreeing[i] + 1);
        }
        for (int row = 0; row < result.counts[i]; ++row)
          out[i].push_back(
              result.rows[i * static_cast<std::size_t>(window) + static_cast<std::size_t>(row)].token);
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      const Tokens first(out[i].begin(), out[i].begin() + kTokens);
      ASSERT_EQ(first, Tokens(expected.begin(), expected.begin() + kTokens));
      decoder->close(slots[i]);
    }
  }

  SmallModel loaded{*GetParam()};
  std::unique_ptr<Decoder> decoder = loaded.decoder(kMostWindow, {});
};

TEST_P(PlantedDrafts, EveryPromptLength) {
  for (int length = 1; length <= 2 * kGdnBlock + 2; ++length) {
    SCOPED_TRACE(length);
    ASSERT_NO_FATAL_FAILURE(expect_lossless(length, {}, kMostWindow, {kMostWindow, length % 7}));
  }
}

TEST_P(PlantedDrafts, EveryWindowAndEveryPlaceOfTheFirstWrongDraft) {
  for (int window = 2; window <= kMostWindow; ++window) {
    for (int right = 0; right<window; right += window> 8 ? 3 : 1) {
      SCOPED_TRACE(fmt::format("window {}, {} right", window, right));
      ASSERT_NO_FATAL_FAILURE(expect_lossless(40, {}, window, {right, 0}));
    }
  }
}

TEST_P(PlantedDrafts, SampledTokensAreThoseOfPlainSampling) {
  for (const float temperature : {0.7f, 1.5f}) {
    const SamplingSettings settings{.temperature = temperature, .top_k = 40, .top_p = 0.95f, .seed = 11};
    for (const int right : {0, 3, kMostWindow}) {
      SCOPED_TRACE(fmt::format("temperature {}, {} right", temperature, right));
      ASSERT_NO_FATAL_FAILURE(expect_lossless(33, settings, kMostWindow, {right, 1}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, PlantedDrafts, testing::ValuesIn(main_backends()),
                         [](const auto& b) { return processor(*b.param); });

// Drafts that a decoder finds: those of a drafter or a head of random weights, wrong nearly always, and what
// the sequence has said before, right where it repeats itself.
enum class Source { dflash, dflash2, lookup, mtp };
constexpr const char* kSourceNames[] = {"_dflash", "_dflash2", "_lookup", "_mtp"};

class FoundDrafts : public testing::TestWithParam<std::tuple<const Backend*, Source>> {
 protected:
  FoundDrafts() {
    draft_config.hidden_size = loaded.config.text.hidden_size;
    draft_config.intermediate_size = 512;
    draft_config.num_attention_heads = 4;
    draft_config.num_key_value_heads = 2;
    draft_config.head_dim = 64;
    draft_config.block_size = kMostWindow;
    draft_config.taps = {1, 3};
    draft_config.layers.resize(2);
    if (source() == Source::dflash2) {
      draft_config.conv_kernel_size = 2;
      draft_config.conv_group_size = 16;
      draft_config.vocab_size = loaded.config.text.vocab_size;
      draft_config.selector_rank = 64;
      draft_config.selector_top_k = 16;
      draft_config.layers = {{.causal = false, .sliding_window = 48}, {.causal = true, .sliding_window = 0}};
    }
    drafter = std::make_unique<DrafterCheckpoint>(ModelWeights::Random{3}, draft_config, loaded.backend,
                                                  loaded.stream);
    model = std::make_unique<Decoder::DraftModel>(draft_config, drafter->weights);
    mtp = std::make_unique<MtpCheckpoint>(ModelWeights::Random{3}, loaded.config.text, loaded.backend,
                                          loaded.stream);
  }

  static Source source() { return std::get<1>(GetParam()); }
  static bool has_drafter() { return source() == Source::dflash || source() == Source::dflash2; }
  std::unique_ptr<Decoder> decoder(int window) {
    return loaded.decoder(window, {.model = has_drafter() ? model.get() : nullptr,
                                   .lookup = source() == Source::lookup,
                                   .mtp = source() == Source::mtp ? &mtp->weights : nullptr});
  }

  // What a sequence that has said this is given as drafts.
  static Tokens looked_up(const Tokens& said) {
    Tokens history = said, generated{static_cast<std::int32_t>(said.size()) - 1}, accepted{0},
           drafts(kMostWindow - 1), first_row{0, 1}, slot{0}, matched{0};
    Stream stream;
    reference_ops().lookup_drafts(
        stream, {.cursors = {nullptr, generated.data(), nullptr, accepted.data(), nullptr, nullptr},
                 .requests = {.count = 1, .first_row = first_row.data(), .slot = slot.data()},
                 .history = {history.data(), static_cast<std::int32_t>(history.size())},
                 .drafts = drafts.data(),
                 .matched = matched.data()});
    return drafts;
  }

  // The drafts that wait in the slot of a sequence.
  Tokens waiting(const Decoder& decoder, int slot) {
    Tokens drafts(kMostWindow - 1);
    loaded.backend.download(loaded.stream, drafts.data(), decoder.drafts() + slot * (kMostWindow - 1),
                            drafts.size() * sizeof(drafts[0]));
    return drafts;
  }

  // Sequences in these slots after prompts of these lengths, one of them sampled. After some steps the first
  // leaves for the host's memory, and comes back to another slot (if there is one) when the others have gone
  // on.
  void expect_lossless(std::vector<int> slots, int window, std::span<const int> lengths) {
    const auto with_drafts = decoder(window);
    std::vector<Tokens> expected, out(slots.size());
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const int length = lengths[i];
      const SamplingSettings settings = {.temperature = i == 1 ? 0.3f : 0, .seed = 11};
      expected.push_back(loaded.plain(*without, length, settings));
      out[i].push_back(loaded.begin(*with_drafts, slots[i], length, settings, 0));
    }
    Stream& s = loaded.stream;
    const auto step = [&](std::size_t first) {
      // Now and then the drafter does not keep up.
      const bool rests = source() != Source::lookup && steps % 7 == 5;
      const int now = rests ? 1 : window;
      // Pages come when a step may need them, and with it. A sequence that repeats itself runs far ahead.
      for (std::size_t i = first; i < slots.size(); ++i)
        ASSERT_TRUE(with_drafts->grow(slots[i], std::min(lengths[i] + std::ssize(out[i]) + now - 1, kRoom)));
      const StreamCounts counts = s.counts;
      with_drafts->step(std::span(slots).subspan(first), now, !rests);
      ASSERT_LE((s.counts - counts).copies(), 2);
      const Decoder::Result result = with_drafts->take();
      for (std::size_t i = first; i < slots.size(); ++i) {
        const auto rows = result.rows.subspan((i - first) * static_cast<std::size_t>(now));
        const int count = result.counts[i - first];
        for (int row = 0; row < count; ++row) out[i].push_back(rows[static_cast<std::size_t>(row)].token);
        if (source() == Source::lookup) {
          ASSERT_EQ(waiting(*with_drafts, slots[i]), looked_up(out[i])) << i << " " << out[i].size();
        }
        ++steps, tokens += count;
      }
    };
    const auto shortest = [&] { return std::ranges::min(out, {}, &Tokens::size).size(); };
    while (shortest() < kTokens / 2) ASSERT_NO_FATAL_FAILURE(step(0));
    const Decoder::Saved saved = with_drafts->save(slots[0]);
    if (slots.size() > 1) {
      ASSERT_NO_FATAL_FAILURE(step(1));
    }
    const std::vector<int> before = slots;
    for (int other = 0; other < kSlots; ++other)
      if (std::ranges::find(before, other) == before.end()) slots[0] = other;
    with_drafts->resume(slots[0], saved);
    if (source() == Source::lookup) {
      ASSERT_EQ(waiting(*with_drafts, slots[0]), looked_up(out[0]));
    }
    while (shortest() < kTokens) ASSERT_NO_FATAL_FAILURE(step(0));
    for (std::size_t i = 0; i < slots.size(); ++i)
      ASSERT_EQ(Tokens(out[i].begin(), out[i].begin() + kTokens),
                Tokens(expected[i].begin(), expected[i].begin() + kTokens));
  }

  SmallModel loaded{*std::get<0>(GetParam())};
  DrafterConfig draft_config;
  std::unique_ptr<DrafterCheckpoint> drafter;
  std::unique_ptr<Decoder::DraftModel> model;
  std::unique_ptr<MtpCheckpoint> mtp;
  std::unique_ptr<Decoder> without = loaded.decoder(1, {});
  int steps = 0, tokens = 0;
};

TEST_P(FoundDrafts, ChangeNoToken) {
  // After these prompts the small model says again what it said long before.
  constexpr int kLengths[] = {23, 44, 27};
  for (const int window : {2, 5, kMostWindow}) {
    for (const std::vector<int>& slots : {std::vector{1}, {2, 0}, {1, 2, 0}}) {
      SCOPED_TRACE(fmt::format("window {}, {} sequences", window, slots.size()));
      ASSERT_NO_FATAL_FAILURE(expect_lossless(slots, window, kLengths));
    }
  }
  if (source() == Source::lookup && loaded.backend.host_memory) {
    EXPECT_GT(tokens, steps);
  }
}

// Around the ends of blocks and pages, in which the keys and values of drafters stand, too.
TEST_P(FoundDrafts, ChangeNoTokenWhateverThePrompt) {
  if (source() == Source::lookup) GTEST_SKIP() << "has none";
  for (const int length : {1, 15, 16, 17, 63, 64, 65, 130}) {
    SCOPED_TRACE(length);
    ASSERT_NO_FATAL_FAILURE(expect_lossless({2, 0}, 5, std::array{length, length + 3}));
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FoundDrafts,
                         testing::Combine(testing::ValuesIn(main_backends()),
                                          testing::Values(Source::dflash, Source::dflash2, Source::lookup,
                                                          Source::mtp)),
                         [](const auto& p) {
                           return processor(*std::get<0>(p.param)) +
                                  kSourceNames[static_cast<int>(std::get<1>(p.param))];
                         });

}  // namespace
}  // namespace quire
