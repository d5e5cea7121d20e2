// The scheduler with little memory: sequences make room for each other, and none comes out different.
#include "engine/scheduler.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "backends.h"
#include "loaded_model.h"

namespace quire {
namespace {

using Tokens = std::vector<std::int32_t>;

class SchedulerTest : public testing::TestWithParam<const Backend*>, protected LoadedModel {
 protected:
  static constexpr int kPrompt = 40, kMostTokens = 300;

  SchedulerTest()
      : LoadedModel(*GetParam(), small_model(*GetParam())),
        vision(config.vision, weights.vision, backend, Format::bf16) {
    config.stop_token_ids.clear();  // random weights would stop anywhere
  }

  static std::shared_ptr<Sequence> sequence(int length, int content) {
    auto s = std::make_shared<Sequence>();
    for (int i = 0; i < length; ++i) s->prompt.push_back((i * 37 + content * 101) % 200);
    s->positions.t.resize(s->prompt.size());
    std::iota(s->positions.t.begin(), s->positions.t.end(), 0);
    s->positions.h = s->positions.w = s->positions.t;
    s->most_tokens = kMostTokens;
    return s;
  }
  static std::shared_ptr<Sequence> sequence(int number) {
    auto s = sequence(kPrompt + number, number);
    s->most_tokens -= 20 * number;
    if (number % 3 == 1) s->settings = {.temperature = 0.8f, .seed = 5};
    if (number % 3 == 2) s->settings.repetition_penalty = 1.3f;
    return s;
  }

  // Tokens of so many sequences on so many slots, with room for `room` tokens in all. In windows of up to so
  // many rows their drafts are what they have said before. Behind: steps are asked for before the results of
  // the last are looked at, on a CPU too.
  std::vector<Tokens> run(int sequences, int slots, std::int64_t room, int window = 1, bool behind = false) {
    std::vector<std::shared_ptr<Sequence>> all;
    for (int i = 0; i < sequences; ++i) all.push_back(sequence(i));
    return run(all, slots, room, 0, window, behind);
  }
  std::vector<Tokens> run(const std::vector<std::shared_ptr<Sequence>>& all, int slots, std::int64_t room,
                          int prefixes, int window = 1, bool behind = false) {
    Decoder decoder(config.text, weights.text, backend, stream, Format::bf16, Switches(),
                    {.slots = slots, .window = window, .prefixes = prefixes},
                    {.model = nullptr, .lookup = window > 1, .mtp = nullptr});
    const auto longest = std::ranges::max(all, {}, [](const auto& s) { return s->prompt.size(); });
    decoder.reserve(room, std::ssize(longest->prompt) + kMostTokens);
    Backend seen = backend;
    seen.host_memory = backend.host_memory && !behind;
    Scheduler scheduler(config, vision, decoder, seen, stream,
                        {.slots = slots, .window = window, .prefixes = prefixes});
    for (const auto& s : all) {
      scheduler.submit(s);
      scheduler.ready(s);
    }
    std::vector<Tokens> out;
    for (const auto& s : all) {
      out.emplace_back();
      for (std::vector<Sampled> more = s->take({}); !more.empty(); more = s->take({}))
        for (const Sampled& t : more) out.back().push_back(t.token);
      steps += s->figures().drafts.steps, step_tokens += s->figures().drafts.tokens;
    }
    made_room = scheduler.times_made_room();
    return out;
  }

  VisionModel vision;
  std::int64_t made_room = 0;
  int steps = 0, step_tokens = 0;
};

TEST_P(SchedulerTest, WhoMakesRoomGoesOnAsIfNothingHadBeen) {
  const std::vector<Tokens> alone = run(6, 1, 4 * 512);
  EXPECT_EQ(made_room, 0);
  for (std::size_t i = 0; i < alone.size(); ++i)
    EXPECT_EQ(std::ssize(alone[i]), kMostTokens - 20 * static_cast<int>(i));
  EXPECT_EQ(run(6, 6, 6 * 512), alone);
  EXPECT_EQ(made_room, 0);
  EXPECT_EQ(run(6, 6, 1024), alone);
  EXPECT_GT(made_room, 0);
  EXPECT_EQ(run(6, 6, 1024, 1, true), alone);
  EXPECT_GT(made_room, 0);
  EXPECT_EQ(run(6, 3, 512), alone);
  EXPECT_GT(made_room, 0);
}

TEST_P(SchedulerTest, DraftsChangeNoToken) {
  const std::vector<Tokens> alone = run(6, 1, 4 * 512);
  EXPECT_EQ(step_tokens, steps);
  EXPECT_EQ(run(6, 1, 4 * 512, 8), alone);
  EXPECT_EQ(run(6, 6, 6 * 512, 8), alone);
  EXPECT_EQ(made_room, 0);
  EXPECT_EQ(run(6, 6, 1024, 8), alone);
  EXPECT_GT(made_room, 0);
  EXPECT_EQ(run(6, 6, 1024, 8, true), alone);
  EXPECT_GT(made_room, 0);
  EXPECT_GT(step_tokens, steps);
}

TEST_P(SchedulerTest, ThoseThatAreGivenUpLeaveRoomForTheOthers) {
  const std::vector<Tokens> alone = run(4, 1, 4 * 512);
  Decoder decoder(config.text, weights.text, backend, stream, Format::bf16, Switches(), {.slots = 4});
  decoder.reserve(640, kPrompt + kMostTokens);
  Scheduler scheduler(config, vision, decoder, backend, stream, {.slots = 4});
  std::vector<std::shared_ptr<Sequence>> all;
  for (int i = 0; i < 4; ++i) {
    all.push_back(sequence(i));
    scheduler.submit(all.back());
    scheduler.ready(all.back());
  }
  all[0]->take({});
  scheduler.cancel(all[0]);
  scheduler.cancel(all[2]);
  for (const std::size_t i : {1, 3}) {
    Tokens tokens;
    for (std::vector<Sampled> more = all[i]->take({}); !more.empty(); more = all[i]->take({}))
      for (const Sampled& t : more) tokens.push_back(t.token);
    EXPECT_EQ(tokens, alone[i]) << i;
  }
}

TEST_P(SchedulerTest, PromptsThatBeginAlikeRunOnce) {
  struct Case {
    int length, content, kept;  // tokens that had run before
    std::uint64_t page = 0;
    SamplingSettings settings = {};
  };
  const std::vector<Case> cases = {
      {600, 1, 0},
      {600, 1, 512},  // and what follows is drawn otherwise:
      {600, 1, 512, 0, {.temperature = 0.8f, .seed = 3}},
      {600, 1, 512, 0, {.repetition_penalty = 1.5f}},
      {1024, 1, 512},  // the last chunk is never kept: it has the first token
      {513, 1, 512},
      {512, 1, 0},
      {600, 2, 0},
      {600, 2, 512},
      {600, 1, 0, 7},  // other pixels: two prefixes are kept, and the first comes to be the oldest
      {600, 2, 512},
      {600, 1, 0},
      {1100, 2, 0},
      {1100, 2, 1024},
  };
  const auto sequences = [&] {
    std::vector<std::shared_ptr<Sequence>> all;
    for (const Case& c : cases) {
      all.push_back(sequence(c.length, c.content));
      all.back()->page.low = c.page;
      all.back()->settings = c.settings;
      all.back()->most_tokens = 40;
    }
    return all;
  };
  const std::vector<Tokens> expected = run(sequences(), 1, 4096, 0);
  for (const int slots : {1, 3}) {
    const auto all = sequences();
    EXPECT_EQ(run(all, slots, std::int64_t{8} * 2048, 2), expected) << slots;
    for (std::size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(all[i]->figures().cached_tokens, cases[i].kept) << i;
  }
  // Too little memory for sequences and what is kept: the latter leaves.
  for (const int slots : {1, 2, 3}) EXPECT_EQ(run(sequences(), slots, 1536, 2), expected) << slots;
}

// However far the model has gone on meanwhile.
TEST_P(SchedulerTest, FiguresAreOfTheTokensThatWereTaken) {
  const auto s = sequence(0);
  Decoder decoder(config.text, weights.text, backend, stream, Format::bf16, Switches(), {.slots = 1});
  decoder.reserve(512, kPrompt + kMostTokens);
  Scheduler scheduler(config, vision, decoder, backend, stream, {.slots = 1});
  scheduler.submit(s);
  scheduler.ready(s);
  int taken = 0;
  for (std::vector<Sampled> more = s->take({}); !more.empty(); more = s->take({})) {
    taken += static_cast<int>(more.size());
    const Sequence::Figures& figures = s->figures();
    EXPECT_EQ(figures.drafts.steps, std::min(taken, kMostTokens - 1) - 1);  // neither prompt nor last step
    EXPECT_EQ(figures.drafts.tokens, figures.drafts.steps);
    EXPECT_EQ(figures.steps > 0, taken > 1);
  }
  EXPECT_EQ(taken, kMostTokens);
}

TEST_P(SchedulerTest, ClosingEndsWhatIsUnderWay) {
  auto running = sequence(0), waiting = sequence(1);
  Decoder decoder(config.text, weights.text, backend, stream, Format::bf16, Switches(), {.slots = 1});
  decoder.reserve(512, kPrompt + kMostTokens);
  {
    Scheduler scheduler(config, vision, decoder, backend, stream, {.slots = 1});
    for (const auto& s : {running, waiting}) {
      scheduler.submit(s);
      scheduler.ready(s);
    }
    EXPECT_FALSE(running->take({}).empty());
  }
  EXPECT_THROW(while (!waiting->take({}).empty()){}, Error);
}

INSTANTIATE_TEST_SUITE_P(Backends, SchedulerTest, testing::ValuesIn(main_backends()),
                         [](const auto& b) { return processor(*b.param); });

}  // namespace
}  // namespace quire
