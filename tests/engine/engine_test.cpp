// quire::Engine from pixels to text.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "drafter_directory.h"
#include "engine/golden.h"
#include "model/text_model.h"
#include "model_directory.h"
#include "mtp_directory.h"
#include "quire/quire.h"

namespace quire {
namespace {

const GoldenCase &kStamp = kGoldenCases[0], &kNotice = kGoldenCases[4];

// A model of random weights, which is small: too small for kernels of a GPU.
class EngineTest : public testing::Test {
 protected:
  EngineTest() : image(golden_page(kStamp)) {
    request.image = {image.rgb.data(), image.width, image.height};
    request.prompt = kStamp.prompt;
    request.max_tokens = 24;
  }
  Engine engine{{.model = kStamp.model, .device = Device::cpu}};
  Image image;
  Request request;
};

TEST(EngineReading, ReadsThePageAsTheSpecificationDoes) {
  if (kSanitized) GTEST_SKIP() << "takes minutes";
  Engine engine({.model = kNotice.model});
  const Image image = golden_page(kNotice);
  const Result result = engine.generate(
      {.image = {image.rgb.data(), image.width, image.height}, .prompt = kNotice.prompt, .on_text = {}});
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  // One paragraph or two is a near tie, which rounding decides.
  EXPECT_THAT(
      result.text,
      testing::MatchesRegex("# Notice\n\nThe reading room opens at nine\\.(\n\n| )Tea is served at four\\."));
  EXPECT_EQ(result.prompt_tokens, static_cast<int>(Golden(kNotice, Format::bf16).ints("prompt_ids").size()));
  EXPECT_LT(result.min_logprob, result.mean_logprob);
  EXPECT_LT(result.mean_logprob, 0);
  EXPECT_GT(result.mean_logprob, -0.5);
  EXPECT_EQ(result.cached_tokens, 0);

  // Again: all of it but the last chunk is still there.
  const Result again = engine.generate(
      {.image = {image.rgb.data(), image.width, image.height}, .prompt = kNotice.prompt, .on_text = {}});
  EXPECT_EQ(again.tokens, result.tokens);
  EXPECT_EQ(again.cached_tokens, (result.prompt_tokens - 1) / 512 * 512);
  EXPECT_GT(again.cached_tokens, 0);
  EXPECT_EQ(again.seconds.vision, 0);
}

TEST(EngineReading, ReadsGoldenPagesInF32AsTransformersDoes) {
  for (const GoldenCase& c : kGoldenCases) {
    if (!c.prompt) continue;
    if (kSanitized && !std::string_view(c.name).starts_with("tiny")) continue;
    const Image page = golden_page(c);
    Engine f32({.model = c.model, .device = Device::cpu, .precision = Precision::f32});
    const std::vector<std::int32_t> expected = Golden(c, Format::f32).ints("generated_ids");
    const Result result = f32.generate({.image = {page.rgb.data(), page.width, page.height},
                                        .prompt = c.prompt,
                                        .max_tokens = static_cast<int>(expected.size()),
                                        .on_text = {}});
    EXPECT_EQ(result.tokens, expected) << c.name;
  }
}

// Windows need records and inputs beside the states: half as much again in the published 4B and 9B.
TEST_F(EngineTest, SaysWhatARequestTakes) {
  EXPECT_THAT(engine.device_text(),
              testing::ContainsRegex(
                  "; a request 0\\.[0-9] MiB of state \\([0-9.]+ times the bare states\\) and "
                  "[0-9.]+ KiB a token; at most [0-9]+ tokens of prompts and one page's encoding between "
                  "two steps; drafts: ngram"));
  for (const char* shape : {"qwen3.5-4b", "qwen3.5-9b"}) {
    const StateSlots::Shape states = state_shape(published_shape(shape).text, Format::bf16);
    EXPECT_NEAR(static_cast<double>(states.slot_bytes()), 77e6, 1e6);
    EXPECT_NEAR(static_cast<double>(states.slot_bytes()) / static_cast<double>(states.bare_bytes()), 1.54,
                0.005);
  }
}

TEST_F(EngineTest, StreamsTheSameText) {
  std::string streamed;
  request.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  EXPECT_EQ(engine.generate(request).text, streamed);
}

TEST_F(EngineTest, StopsAtTheTokenLimit) {
  const std::vector<std::int32_t> whole = engine.generate(request).tokens;
  request.max_tokens = 3;
  const Result result = engine.generate(request);
  EXPECT_EQ(result.finish_reason, FinishReason::length);
  EXPECT_EQ(result.tokens, std::vector<std::int32_t>(whole.begin(), whole.begin() + 3));
}

TEST_F(EngineTest, StopsAtAStopString) {
  const Result whole = engine.generate(request);
  const std::size_t middle = whole.text.size() / 2;
  request.stop = {"no such text", whole.text.substr(middle, 3)};
  std::string streamed;
  request.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  const Result result = engine.generate(request);
  EXPECT_EQ(result.finish_reason, FinishReason::stop);
  EXPECT_EQ(result.text, whole.text.substr(0, whole.text.find(request.stop[1])));
  EXPECT_EQ(result.text, streamed);
  EXPECT_LT(result.tokens.size(), whole.tokens.size());
  request.stop = {""};
  EXPECT_THROW(engine.generate(request), Error);
}

TEST_F(EngineTest, StopsWhenCancelled) {
  request.on_text = [](std::string_view) { return false; };
  EXPECT_EQ(engine.generate(request).finish_reason, FinishReason::cancelled);
}

TEST_F(EngineTest, StopsAtTheTimeLimit) {
  request.max_seconds = 1e-9;
  const Result result = engine.generate(request);
  EXPECT_EQ(result.finish_reason, FinishReason::time_limit);
  EXPECT_LE(result.tokens.size(), 1u);
}

TEST_F(EngineTest, StopsAtTheTimeLimitWhileItWaits) {
  Engine one({.model = kStamp.model, .device = Device::cpu, .requests = 1});
  const std::vector<std::int32_t> alone = one.generate(request).tokens;
  Request hasty = request;
  hasty.max_seconds = 1e-6;
  std::atomic<int> cut{0}, right{0};
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 12; ++i)
      clients.emplace_back([&, i] {
        const Result result = one.generate(i % 2 ? hasty : request);
        cut += result.finish_reason == FinishReason::time_limit;
        right += result.tokens == alone;
      });
  }
  EXPECT_EQ(cut, 6);
  EXPECT_EQ(right, 6);
}

// What steps of a drafter give that drafts one token, always: of a text that is known.
DraftCounts expected_drafts(const std::vector<std::int32_t>& text, std::int32_t token, int window) {
  DraftCounts counts;
  counts.drafted.resize(static_cast<std::size_t>(window) - 1);
  counts.accepted = counts.drafted;
  for (std::size_t at = 1; at < text.size();) {  // the first token is the prompt's
    std::size_t right = 0;
    while (right < counts.drafted.size() && at + right < text.size() && text[at + right] == token) ++right;
    at += right + 1;
    if (at >= text.size()) break;  // the last step does not count
    ++counts.steps, counts.tokens += static_cast<int>(right) + 1;
    for (std::size_t i = 0; i < counts.drafted.size(); ++i)
      ++counts.drafted[i], counts.accepted[i] += i < right;
  }
  return counts;
}

TEST_F(EngineTest, CountsWhatBecameOfDrafts) {
  const std::vector<std::int32_t> plain = engine.generate(request).tokens;
  const std::int32_t token = 253;  // the model says it twice in a row
  ASSERT_NE(
      std::adjacent_find(plain.begin(), plain.end(), [&](int a, int b) { return a == token && b == token; }),
      plain.end());
  const TemporaryDirectory drafter;
  write_drafter(drafter.path(), kStamp.model, token, 6);
  const auto drafts = [&](const std::string& switches) {
    Engine with(
        {.model = kStamp.model, .device = Device::cpu, .draft = drafter.path(), .switches = switches});
    const Result result = with.generate(request);
    EXPECT_EQ(result.tokens, plain);
    EXPECT_GT(result.seconds.steps, 0);
    EXPECT_LE(result.seconds.steps, result.seconds.decode + result.seconds.prefill);
    return result.drafts;
  };
  for (const int window : {2, 3, 6, 16}) {
    const DraftCounts expected = expected_drafts(plain, token, std::min(window, 6));
    const DraftCounts found = drafts(fmt::format("window={}", window));
    EXPECT_EQ(found.steps, expected.steps) << window;
    EXPECT_EQ(found.tokens, expected.tokens) << window;
    EXPECT_EQ(found.drafted, expected.drafted) << window;
    EXPECT_EQ(found.accepted, expected.accepted) << window;
    EXPECT_GT(found.acceptance_length(), 1);
  }
  EXPECT_THAT(drafts("window=1").drafted, testing::IsEmpty());
  EXPECT_GT(drafts("").steps, 0);  // windows as they pay
}

// The head of the model's own checkpoint: a page of three chunks, of which two end inside the picture.
TEST_F(EngineTest, DraftsOfItsOwnHeadChangeNoToken) {
  const TemporaryDirectory folder;
  const std::filesystem::path model = folder.path() / "model";
  write_mtp_model(model, kStamp.model);
  Image page{640, 480, std::vector<std::uint8_t>(3 * 640 * 480)};
  for (std::size_t i = 0; i < page.rgb.size(); ++i) page.rgb[i] = static_cast<std::uint8_t>(i * i / 977);
  request.image = {page.rgb.data(), page.width, page.height};
  const auto run = [&](const std::string& directory, const std::string& draft, const std::string& switches,
                       Precision precision) {
    Engine e({.model = directory,
              .device = Device::cpu,
              .precision = precision,
              .draft = draft,
              .switches = switches});
    EXPECT_THAT(e.device_text(), testing::HasSubstr("drafts: " + (draft == "auto" ? "ngram" : draft)));
    const Result first = e.generate(request), again = e.generate(request);  // from the kept prefix
    EXPECT_GT(first.prompt_tokens, 1024);
    EXPECT_EQ(again.cached_tokens, 1024);
    EXPECT_EQ(first.tokens, again.tokens);
    EXPECT_EQ(first.drafts.steps > 0, draft != "none");
    return first.tokens;
  };
  for (const Precision precision : {Precision::bf16, Precision::f32}) {
    const std::vector<std::int32_t> plain = run(kStamp.model, "none", "", precision);
    for (const char* switches : {"", "window=2", "window=4", "window=16"}) {
      EXPECT_EQ(run(model, "mtp", switches, precision), plain) << switches;
      if (kSanitized) break;  // each takes seconds, and runs the same code
    }
  }
  run(model, "auto", "", Precision::bf16);  // a CPU pays for every row
}

// Drafts that are never right: after some pages nobody keeps up with them, and the text is the same.
TEST_F(EngineTest, HopelessDraftsAreGivenUp) {
  request.max_tokens = 60;
  const std::vector<std::int32_t> plain = engine.generate(request).tokens;
  const TemporaryDirectory drafter;
  std::int32_t unused = 0;  // a token that the text does not have
  while (std::ranges::find(plain, unused) != plain.end()) ++unused;
  write_drafter(drafter.path(), kStamp.model, unused, 6);
  Engine e({.model = kStamp.model, .device = Device::cpu, .draft = drafter.path()});
  bool given_up = false;
  for (int page = 0; page < 200 && !given_up; ++page) {
    const Result result = e.generate(request);
    ASSERT_EQ(result.tokens, plain);
    ASSERT_EQ(result.drafts.tokens, result.drafts.steps);
    given_up = result.drafts.drafted.empty();
  }
  EXPECT_TRUE(given_up);
}

TEST(EngineDraftsOfItsOwnHead, NeedOne) {
  EXPECT_THAT(error_of([] { Engine({.model = kStamp.model, .device = Device::cpu, .draft = "mtp"}); }),
              testing::AllOf(testing::StartsWith("not_found: tests/golden/tiny-a: no tensor there is named"),
                             testing::HasSubstr("--draft auto, ngram, none or")));
  const TemporaryDirectory folder;
  const std::filesystem::path model = folder.path() / "model";
  write_mtp_model(model, kStamp.model);
  std::vector<StoredTensor> tensors = mtp_tensors(read_json(model / "config.json")["text_config"]);
  tensors.front().shape = {48, 48};
  tensors.front().data.resize(2 * 48 * 48);
  write_safetensors(model / "mtp.safetensors", tensors);
  EXPECT_THAT(error_of([&] { Engine({.model = model, .device = Device::cpu, .draft = "mtp"}); }),
              testing::HasSubstr("mtp.fc.weight: shape [48, 48], expected [48, 96]"));
}

TEST(DraftCounts, AddUp) {
  DraftCounts counts{.steps = 10, .tokens = 15, .drafted = {10}, .accepted = {5}};
  counts += {.steps = 2, .tokens = 5, .drafted = {2, 2}, .accepted = {2, 1}};
  EXPECT_EQ(counts.steps, 12);
  EXPECT_DOUBLE_EQ(counts.acceptance_length(), 20.0 / 12);
  EXPECT_THAT(counts.acceptance(), testing::ElementsAre(testing::DoubleEq(7.0 / 12), 0.5));
  EXPECT_EQ(DraftCounts().acceptance_length(), 0);
}

// Requests of all kinds: alone, and together on too few slots.
std::vector<Request> mixed_requests(const std::vector<Image>& pages) {
  std::vector<Request> requests;
  for (int i = 0; i < 9; ++i) {
    const Image& page = pages[static_cast<std::size_t>(i) % pages.size()];
    Request r;
    r.image = {page.rgb.data(), page.width, page.height};
    r.prompt = std::string("Read it.") + std::string(static_cast<std::size_t>(i), '!');
    r.max_tokens = 1 + 13 * i % 60;
    if (i % 3 == 1) r.sampling = {.temperature = 0.9, .top_p = 0.95, .seed = static_cast<std::uint64_t>(i)};
    if (i % 4 == 3) r.sampling.repetition_penalty = 1.2;
    requests.push_back(r);
  }
  return requests;
}

void expect_together_as_alone(const Options& options, const std::vector<Image>& pages) {
  const std::vector<Request> requests = mixed_requests(pages);
  Engine plain({.model = options.model, .device = options.device});
  std::vector<std::vector<std::int32_t>> alone(requests.size()), together(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) alone[i] = plain.generate(requests[i]).tokens;
  Engine engine(options);
  {
    std::vector<std::jthread> clients;
    for (std::size_t i = 0; i < requests.size(); ++i)
      clients.emplace_back([&, i] { together[i] = engine.generate(requests[i]).tokens; });
  }
  for (std::size_t i = 0; i < requests.size(); ++i) EXPECT_EQ(together[i], alone[i]) << i;
}

TEST(EngineTogether, NoRequestChangesAnother) {
  const std::vector<Image> pages = {golden_page(kGoldenCases[0]), golden_page(kGoldenCases[1])};
  for (const int slots : {1, 3, 16})
    expect_together_as_alone({.model = kStamp.model, .device = Device::cpu, .requests = slots}, pages);
}

TEST(EngineTogether, AnErrorEndsItsRequestAlone) {
  const Image page = golden_page(kStamp);
  Engine engine({.model = kStamp.model, .device = Device::cpu, .requests = 2});
  Request good{.image = {page.rgb.data(), page.width, page.height}, .max_tokens = 24, .on_text = {}};
  const std::vector<std::int32_t> alone = engine.generate(good).tokens;
  Request bad = good;
  bad.on_text = [](std::string_view) -> bool { throw Error(ErrorCode::io, "the disk is full"); };
  std::vector<std::jthread> clients;
  std::atomic<int> errors{0}, right{0};
  for (int i = 0; i < 8; ++i)
    clients.emplace_back([&, i] {
      try {
        right += engine.generate(i % 2 ? bad : good).tokens == alone;
      } catch (const Error&) {
        ++errors;
      }
    });
  clients.clear();
  EXPECT_EQ(errors, 4);
  EXPECT_EQ(right, 4);
}

TEST_F(EngineTest, OneRequestDoesNotChangeTheNext) {
  const std::vector<std::int32_t> alone = engine.generate(request).tokens;
  const Image other = golden_page(kGoldenCases[1]);
  engine.generate({.image = {other.rgb.data(), other.width, other.height}, .max_tokens = 20, .on_text = {}});
  EXPECT_EQ(engine.generate(request).tokens, alone);
}

TEST_F(EngineTest, TakesRequestsFromSeveralThreads) {
  const std::vector<std::int32_t> alone = engine.generate(request).tokens;
  std::vector<std::vector<std::int32_t>> seen(3);
  {
    std::vector<std::jthread> clients;
    for (auto& tokens : seen) clients.emplace_back([&] { tokens = engine.generate(request).tokens; });
  }
  EXPECT_THAT(seen, testing::Each(alone));
}

void expect_error(ErrorCode code, const std::string& part, const std::function<void()>& action) {
  try {
    action();
    FAIL() << "no error; expected one with: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    EXPECT_THAT(e.what(), testing::HasSubstr(part));
  }
}

TEST_F(EngineTest, NamesWhatIsWrongWithARequest) {
  expect_error(ErrorCode::invalid_input, "max_tokens is 0", [&] {
    Request none = request;
    none.max_tokens = 0;
    engine.generate(none);
  });
  expect_error(ErrorCode::unsupported, "2 image tokens", [&] {
    Request twice = request;
    twice.prompt = "Read <|image_pad|> please.";
    engine.generate(twice);
  });
  expect_error(ErrorCode::limit_exceeded, "the model holds", [&] {
    Request long_prompt = request;
    for (int i = 0; i < 9000; ++i) long_prompt.prompt += "word ";
    engine.generate(long_prompt);
  });
}

TEST(EngineLoading, NamesAMissingModel) {
  expect_error(ErrorCode::not_found, "no/such/model", [] { Engine({.model = "no/such/model"}); });
}

// A copy of a small model, to be spoiled.
class SpoiledModel : public testing::Test {
 protected:
  SpoiledModel() : image(golden_page(kGoldenCases[0])) {
    for (const auto& file : std::filesystem::directory_iterator(kGoldenCases[0].model))
      std::filesystem::copy(file, folder.path());
  }
  // Replaces `from` by `to`, once.
  void edit(const std::string& file, const std::string& from, const std::string& to) {
    std::string text = read_file(folder.path() / file);
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    folder.write(file, text.replace(at, from.size(), to));
  }
  void load() { Engine({.model = folder.path(), .device = Device::cpu}); }
  void generate() {
    Engine({.model = folder.path(), .device = Device::cpu})
        .generate({.image = {image.rgb.data(), image.width, image.height}, .max_tokens = 3, .on_text = {}});
  }

  TemporaryDirectory folder;
  Image image;
};

TEST_F(SpoiledModel, ValuesThatAreNoNumbersEndThePage) {
  std::string file = read_file(folder.path() / "model.safetensors");
  std::uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  std::fill(file.begin() + static_cast<std::ptrdiff_t>(sizeof(header) + header), file.end(), '\xff');
  folder.write("model.safetensors", file);
  expect_error(ErrorCode::invalid_input, "no numbers (at token 1)", [&] { generate(); });
}

TEST_F(SpoiledModel, PatchesOfAnotherModelAreFoundWhenLoading) {
  for (const auto& [from, to] : {std::pair("\n \"patch_size\": 8", "\n \"patch_size\": 14"),
                                 std::pair("\"merge_size\": 2", "\"merge_size\": 4"),
                                 std::pair("\"temporal_patch_size\": 2", "\"temporal_patch_size\": 1")}) {
    edit("preprocessor_config.json", from, to);
    expect_error(ErrorCode::invalid_input, "preprocessor_config.json has", [&] { load(); });
    edit("preprocessor_config.json", to, from);
  }
}

TEST_F(SpoiledModel, ATemplateWithoutThePageIsFoundWhenLoading) {
  folder.write("chat_template.jinja", "Read this.");
  expect_error(ErrorCode::unsupported, "0 image tokens", [&] { load(); });
}

TEST_F(SpoiledModel, TokensBeyondTheVocabularyAreFoundWhenLoading) {
  edit("tokenizer.json", "\"id\": 293", "\"id\": 9000");
  expect_error(ErrorCode::invalid_input, "token 9000", [&] { load(); });
}

TEST_F(SpoiledModel, APictureBeyondTheContextTakesNoMemory) {
  edit("preprocessor_config.json", "\"shortest_edge\": 1024", "\"shortest_edge\": 9000000");
  edit("preprocessor_config.json", "\"longest_edge\": 1048576", "\"longest_edge\": 90000000");
  expect_error(ErrorCode::limit_exceeded, "the picture takes", [&] { generate(); });
}

}  // namespace
}  // namespace quire
