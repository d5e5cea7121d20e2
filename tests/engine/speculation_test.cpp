// Windows of planted drafts: right up to some place, or not at all. Every token must be the one of plain
// decoding, and exactly the drafts that agree must count; greedy and sampled alike, because a seeded draw
// depends on the position alone.
#include <algorithm>
#include <array>
#include <numeric>

#include <gmock/gmock.h>

#include "backends.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "engine/decoder.h"

namespace quire {
namespace {

using Tokens = std::vector<std::int32_t>;

class PlantedDrafts : public testing::TestWithParam<const Backend*> {
 protected:
  static constexpr std::size_t kTokens = 70;  // crosses blocks of the state twice
  static constexpr int kSlots = 3;

  PlantedDrafts()
      : backend(*GetParam()),
        config(ModelConfig::from_directory(model())),
        threads(2),
        stream(backend, &threads),
        weights(model(), config, backend, stream),
        decoder(config.text, weights.text, backend, stream, Format::bf16, Switches(),
                {.slots = kSlots, .window = kMostWindow}) {
    decoder.reserve(kSlots * 320, 320);
  }

  // Kernels of a GPU are for the dimensions of published models.
  const char* model() const { return backend.host_memory ? "tests/golden/tiny-a" : "models/quire-mini"; }

  // The prompt of a length, run in a slot; its first token.
  std::int32_t begin(int slot, int length, const SamplingSettings& settings) {
    Tokens tokens;
    for (int i = 0; i < length; ++i) tokens.push_back((i * 37 + length) % 200);
    MropePositions positions;
    positions.t.resize(tokens.size());
    std::iota(positions.t.begin(), positions.t.end(), 0);
    positions.h = positions.w = positions.t;
    const Rows none{
        .format = Format::bf16, .cols = config.text.hidden_size, .stride = config.text.hidden_size};
    decoder.open(slot, length + 2 * static_cast<std::int64_t>(kTokens), settings);
    decoder.prefill(slot, {tokens, positions, config.image_token_id, none});
    return decoder.take().rows.front().token;
  }

  Tokens plain(int length, const SamplingSettings& settings) {
    const int slot = 1;
    Tokens out{begin(slot, length, settings)};
    while (out.size() < kTokens + kMostWindow) {
      decoder.step({&slot, 1});
      out.push_back(decoder.take().rows.front().token);
    }
    decoder.close(slot);
    return out;
  }

  // Two sequences in one step, their drafts right for so many rows and then wrong. Checks tokens and counts.
  void expect_lossless(int length, const SamplingSettings& settings, int window, std::array<int, 2> right) {
    const Tokens expected = plain(length, settings);
    const std::array<int, 2> slots = {2, 0};
    std::array<Tokens, 2> out;
    for (std::size_t i = 0; i < 2; ++i) out[i].push_back(begin(slots[i], length, settings));
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
      backend.upload(stream, decoder.drafts(), drafts.data(), drafts.size() * sizeof(std::int32_t));
      decoder.step(slots, window);
      const Decoder::Result result = decoder.take();
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
      decoder.close(slots[i]);
    }
  }

  const Backend& backend;
  ModelConfig config;
  ThreadPool threads;
  OpenStream stream;
  ModelWeights weights;
  Decoder decoder;
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
                         [](const auto& b) { return b.param->host_memory ? "cpu" : "cuda"; });

}  // namespace
}  // namespace quire
