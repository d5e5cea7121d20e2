// Faults planted in the config of quire-mini's drafter, each of which the check names, on two pages.
#include "measure/drafter_check.h"

#include <gmock/gmock.h>

#include "drafter_directory.h"
#include "io/file.h"
#include "io/image.h"
#include "sanitized.h"
#include "small_pages.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kDrafter = "models/quire-mini-dflash2";
constexpr const char* kPages[] = {"samples/letter.png", "samples/scan.jpg"};
constexpr int kTokens = 40;

Image page_of(const char* file) {
  return decode_image(MappedFile(file).bytes(), 0, file);
}

// The model reads the pages once, and every layer is recorded.
struct Recorded {
  Recorded() {
    std::vector<int> taps;
    for (int layer = 0; layer < target.config.text.num_hidden_layers; ++layer) taps.push_back(layer);
    for (const char* file : kPages) {
      const Image image = page_of(file);
      target.show({image.rgb.data(), image.width, image.height});
      recordings.push_back(target.read({.instruction = Request().prompt}, taps, kTokens));
      if (kSanitized) break;  // a page takes half a minute
    }
  }

  SmallPages model;
  Target target{model.path(), cpu_backend(), 2};
  DrafterConfig config = DrafterConfig::from_directory(kDrafter, target.config.text);
  DrafterCheckpoint checkpoint{kDrafter, config, cpu_backend(), target.stream};
  std::vector<Recording> recordings;
};

class PlantedFault : public testing::Test {
 protected:
  static void SetUpTestSuite() { recorded = std::make_unique<Recorded>(); }
  static void TearDownTestSuite() { recorded.reset(); }

  // The verdict on the drafter with a config that `plant` has changed.
  static std::string verdict(const std::function<void(Json&)>& plant) {
    const TemporaryDirectory folder;
    Json json = read_json(fs::path(kDrafter) / "config.json");
    plant(json);
    folder.write("config.json", json.dump());
    DrafterSetup setup;
    setup.config = DrafterConfig::from_directory(folder.path(), recorded->target.config.text);
    setup.prompt.instruction = Request().prompt;
    DrafterCheck check(recorded->target, recorded->checkpoint.weights, setup);
    for (const Recording& recording : recorded->recordings) check.add(recording);
    const DrafterCheck::Verdict v = check.verdict();
    EXPECT_EQ(v.fine(), !v.cause.has_value()) << v.text;
    return v.text;
  }

  static std::unique_ptr<Recorded> recorded;
};
std::unique_ptr<Recorded> PlantedFault::recorded;

TEST_F(PlantedFault, ThereIsNone) {
  if (kSanitized) GTEST_SKIP() << "half a minute; MaskToken runs the same code";
  EXPECT_THAT(verdict([](Json&) {}), StartsWith("nothing tested is clearly better than as configured, 1"));
}

TEST_F(PlantedFault, TapsOffByOne) {
  if (kSanitized) GTEST_SKIP() << "half a minute; MaskToken runs the same code";
  EXPECT_THAT(verdict([](Json& c) {
                c["dflash_config"]["target_layer_ids"] = {2, 6, 10, 11};
              }),
              AllOf(HasSubstr("with taps 1, 5, 9, 10 (each -1) instead of 2, 6, 10, 11: 1"),
                    HasSubstr("set dflash_config.target_layer_ids to [1, 5, 9, 10]")));
  EXPECT_THAT(verdict([](Json& c) {
                c["dflash_config"]["target_layer_ids"] = {0, 4, 8, 9};
              }),
              HasSubstr("with taps 1, 5, 9, 10 (each +1) instead of 0, 4, 8, 9: 1"));
}

TEST_F(PlantedFault, MaskToken) {
  EXPECT_THAT(verdict([](Json& c) { c["dflash_config"]["mask_token_id"] = 4090; }),
              AllOf(HasSubstr("with mask token 4,095 (<|mask|>) instead of 4,090 (<|im_end|>): 1"),
                    HasSubstr("set dflash_config.mask_token_id to 4095")));
}

TEST_F(PlantedFault, Causality) {
  if (kSanitized) GTEST_SKIP() << "half a minute; MaskToken runs the same code";
  EXPECT_THAT(verdict([](Json& c) { c["is_causal"] = true; }),
              AllOf(HasSubstr("with blocks bidirectional instead of causal: 1"),
                    HasSubstr("set is_causal to false")));
}

TEST_F(PlantedFault, SlidingWindow) {
  if (kSanitized) GTEST_SKIP() << "half a minute; MaskToken runs the same code";
  EXPECT_THAT(verdict([](Json& c) {
                c["sliding_window"] = 16;
                for (Json& type : c["layer_types"]) type = "sliding_attention";
              }),
              AllOf(HasSubstr("with full attention in every layer instead of sliding window 16: 1"),
                    HasSubstr("set layer_types to full_attention in every layer")));
}

TEST_F(PlantedFault, RopeTheta) {
  if (kSanitized) GTEST_SKIP() << "half a minute; MaskToken runs the same code";
  EXPECT_THAT(verdict([](Json& c) { c["rope_theta"] = 10000; }),
              AllOf(HasSubstr("with rope_theta 1000000 instead of 10000: 1"),
                    HasSubstr("set rope_theta to 1000000")));
}

// What is counted without the model running is what the engine counts.
TEST_F(PlantedFault, CountsAreThoseOfTheEngine) {
  Engine engine({.model = recorded->model.path(),
                 .device = Device::cpu,
                 .threads = 2,
                 .requests = 1,
                 .draft = kDrafter,
                 .switches = "window=16"});
  const Image image = page_of(kPages[0]);
  Request request;
  request.image = {image.rgb.data(), image.width, image.height};
  request.max_tokens = kTokens;
  const Result result = engine.generate(request);
  const Recording& recording = recorded->recordings[0];
  EXPECT_EQ(std::vector(recording.tokens.begin() + static_cast<std::ptrdiff_t>(recording.prompt_tokens),
                        recording.tokens.end()),
            result.tokens);
  DrafterSetup setup;
  setup.config = recorded->config;
  const DraftCounts counts = replay(recorded->target, setup, recorded->checkpoint.weights, recording);
  EXPECT_EQ(counts.steps, result.drafts.steps);
  EXPECT_EQ(counts.tokens, result.drafts.tokens);
  EXPECT_EQ(counts.accepted, result.drafts.accepted);
  // Other positions are others.
  setup.mrope = true;
  EXPECT_NE(replay(recorded->target, setup, recorded->checkpoint.weights, recording).accepted,
            counts.accepted);
}

// ---- The verdict, on made-up counts

class Judged : public testing::Test {
 protected:
  // Tokens in 100 steps of each page.
  void add(const char* name, const std::vector<int>& pages) {
    variants.push_back({name, "before", "set it", {}});
    counts.emplace_back();
    for (const int tokens : pages) {
      DraftCounts c;
      c.steps = 100, c.tokens = tokens;
      counts.back().push_back(c);
    }
  }
  std::string text() const { return judge(variants, counts).text; }

  std::vector<Variant> variants;
  std::vector<std::vector<DraftCounts>> counts;
};

TEST_F(Judged, NoiseIsNoCause) {
  add("as configured", {300, 200, 420, 250, 310, 280});
  add("noise", {400, 150, 500, 200, 360, 330});  // a tenth more in all
  add("little", {310, 210, 430, 260, 320, 290});
  EXPECT_EQ(text(), "nothing tested is clearly better than as configured, 2.9 tokens a step");
  EXPECT_TRUE(judge(variants, counts).fine());
}

TEST_F(Judged, PagesAreComparedInPairs) {
  add("as configured", {300, 200, 900, 250, 310, 280});
  add("other", {380, 270, 990, 320, 390, 350});
  EXPECT_EQ(text(), "as configured 3.7 tokens a step; with other instead of before: 4.5: set it");
}

TEST_F(Judged, FewPagesNeedMore) {
  add("as configured", {150, 160});
  add("other", {200, 210});
  EXPECT_THAT(text(), StartsWith("nothing tested is clearly better"));
  add("another", {400, 500});
  EXPECT_THAT(text(), HasSubstr("with another instead"));
  variants.clear(), counts.clear();
  add("as configured", {150});
  add("other", {200});
  EXPECT_THAT(text(), StartsWith("nothing tested is clearly better"));
  add("another", {400});
  EXPECT_THAT(text(), HasSubstr("with another instead"));
}

TEST_F(Judged, OfChangesThatAreAsGoodTheFirstIsNamed) {
  add("as configured", {150, 160, 170, 150});
  add("a bit better", {250, 260, 270, 250});
  add("the one", {700, 720, 650, 710});
  add("as good", {705, 730, 640, 720});
  EXPECT_THAT(text(), HasSubstr("with the one instead"));
}

TEST_F(Judged, LittleIsNotFine) {
  add("as configured", {120, 110, 130, 120});
  add("other", {122, 110, 129, 120});
  EXPECT_THAT(text(), HasSubstr("1.2 tokens a step: the drafter itself drafts little on these pages"));
  EXPECT_FALSE(judge(variants, counts).fine());
  EXPECT_FALSE(judge(variants, counts).cause);
}

// ---- What is tested

constexpr const char* kTiny = "tests/golden/tiny-a";

std::vector<std::string> names(const DrafterSetup& setup, const Target& target) {
  std::vector<std::string> names;
  for (const Variant& v : variants_of(setup, target)) names.push_back(v.name);
  return names;
}

TEST(Variants, FollowFromConfigAndModel) {
  const TemporaryDirectory model, drafter;
  fs::copy(kTiny, model.path());
  const std::string chat = read_file(fs::path(kTiny) / "chat_template.jinja");
  write_drafter(drafter.path(), kTiny, 144, 4);
  DrafterSetup setup;
  {
    const Target target(model.path(), cpu_backend(), 1);
    setup.config = DrafterConfig::from_directory(drafter.path(), target.config.text);
    setup.prompt.instruction = "Read it.";
    const std::vector<std::string> all = names(setup, target);
    EXPECT_EQ(all.front(), "as configured");
    for (const char* name :
         {"taps 0 (each -1)", "taps 2 (each +1)", "mask token 145 (an ordinary token)", "blocks causal",
          "sliding window 2,048 in every layer", "positions: the model's M-RoPE positions",
          "drafter computes in f32", "prompt: \"Convert this page to Markdown.\"", "prompt: none"})
      EXPECT_THAT(all, testing::Contains(name));
    EXPECT_THAT(all, Not(testing::Contains("prompt: thinking on")));

    // Kinds of layers that differ.
    setup.config.layers = {{.causal = true, .sliding_window = 64}, {.causal = false, .sliding_window = 0}};
    const std::vector<std::string> mixed = names(setup, target);
    for (const char* name : {"blocks causal", "blocks bidirectional", "full attention in every layer",
                             "sliding window 64 in every layer"})
      EXPECT_THAT(mixed, testing::Contains(name));
    // No layer before the first.
    setup.config.taps = {0};
    EXPECT_THAT(names(setup, target), Not(testing::Contains(StartsWith("taps -1"))));
  }
  model.write("chat_template.jinja", chat + "{%- if enable_thinking %}<think>{% endif %}");
  EXPECT_THAT(names(setup, Target(model.path(), cpu_backend(), 1)), testing::Contains("prompt: thinking on"));
}

TEST(Vocabulary, OfAnotherModelIsNamed) {
  const TemporaryDirectory drafter;
  const ModelConfig target = ModelConfig::from_directory(kTiny);
  const auto error = [&](const char* name, std::int64_t rows) {
    write_safetensors(drafter.path() / "model.safetensors",
                      {{.name = name, .shape = {rows, target.text.hidden_size}, .data = {}}});
    return error_of([&] { check_vocabulary(drafter.path(), target); });
  };
  EXPECT_EQ(error("embed_tokens.weight", target.text.vocab_size), "");
  EXPECT_EQ(error("fc.weight", 7), "");
  for (const char* name : {"embed_tokens.weight", "lm_head.weight", "candidate_selector.successor_codebook"})
    EXPECT_THAT(error(name, 296),
                AllOf(StartsWith("invalid_input: "),
                      HasSubstr(fmt::format("{} has 296 rows, the target model knows 300 tokens", name))));
}

}  // namespace
}  // namespace quire
