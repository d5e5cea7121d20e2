// The drafter against oracle/make_drafter_golden.py.
#include "model/drafter.h"

#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>

#include "backends.h"
#include "core/thread_pool.h"
#include "golden.h"
#include "model_directory.h"

namespace quire {
namespace {

using Tokens = std::vector<std::int32_t>;

struct DrafterCase {
  const Backend* backend;
  std::string name;
  Format format;
};

class DrafterGolden : public testing::TestWithParam<DrafterCase> {};

// The logits of a block, and what is drafted from them.
TEST_P(DrafterGolden, LogitsAndDrafts) {
  const auto& [backend_pointer, name, format] = GetParam();
  const Backend& backend = *backend_pointer;
  const Golden golden("tests/golden/drafter/" + name + ".safetensors");
  TextConfig target;
  target.hidden_size = 32, target.vocab_size = 50, target.num_hidden_layers = 6;
  const std::filesystem::path directory = "tests/golden/drafter/" + name;
  const DrafterConfig config = DrafterConfig::from_directory(directory, target);
  ThreadPool threads(2);
  OpenStream stream(backend, &threads);
  const DrafterCheckpoint checkpoint(directory, config, backend, stream);
  const auto uploaded = [&](const void* data, std::size_t bytes) {
    Memory memory(backend, bytes);
    backend.upload(stream, memory.data(), data, bytes);
    return memory;
  };
  const Memory embed = uploaded(golden.at("embed").data, 50 * 32 * sizeof(bf16));
  TextWeights text;
  text.embed_tokens = {.data = embed.data(), .out = 50, .in = 32};
  text.lm_head = text.embed_tokens;

  const Tokens ids = golden.ints("ids");
  const std::vector<float> all_features = golden.floats("features");
  const Memory features = uploaded(all_features.data(), all_features.size() * sizeof(float));
  const std::int64_t cols = 3 * 32, context = std::ssize(all_features) / cols, block = std::ssize(ids);
  const int many = (kFewestForMaxima + static_cast<int>(block) - 1) / static_cast<int>(block);
  Drafter drafter(config, checkpoint.weights, text, backend, format,
                  {.context_rows = 64, .block_rows = many * block});
  KvPool kv(backend, stream,
            {.draft_layers = 2,
             .draft_cols = config.kv_cols(),
             .format = format,
             .slots = 2,
             .pages = 5,
             .pages_per_slot = 2});
  StateSlots states(backend, stream, {.gdn = {1, 1, 8, 8}, .format = format, .ring_u = format, .slots = 2});
  StepArrays arrays(backend, std::max(64, many * static_cast<int>(block)), many);
  kv.hold(stream, 0, 64);
  kv.hold(stream, 1, context + block);

  // The context in two steps that are cut inside a page.
  Memory rows(backend, static_cast<std::size_t>(64 * cols * size_of(format)));
  for (std::int64_t begin = 0; begin < context;) {
    const std::int64_t count = std::min<std::int64_t>(begin == 0 ? 50 : 64, context - begin);
    const Rows given{.data = features.as<float>() + begin * cols,
                     .format = Format::f32,
                     .rows = count,
                     .cols = cols,
                     .stride = cols};
    const Rows taken{.data = rows.data(), .format = format, .rows = count, .cols = cols, .stride = cols};
    backend.ops->convert(stream, given, taken);
    const Tokens zeros(static_cast<std::size_t>(count));
    const std::span<const std::int32_t> position(zeros);
    drafter.extend(stream,
                   arrays.prompt(stream, kv, states, 1, begin, zeros, {position, position, position}, {}, {}),
                   taken);
    begin += count;
  }
  states.end_prompt(stream, 1, static_cast<std::int32_t>(context), 0);
  backend.upload(stream, states.cursors().token + 1, &ids[0], sizeof(ids[0]));
  const Tokens mask_ids(2 * (kMostWindow - 1), config.mask_token_id);
  const Memory masks = uploaded(mask_ids.data(), mask_ids.size() * sizeof(std::int32_t));
  const int slot = 1;
  arrays.set_batch(stream, {&slot, 1}, static_cast<int>(block));
  // Alone, and before so many rows that belong to nobody that candidates are looked for by maxima.
  for (const int requests : {1, many}) {
    SCOPED_TRACE(requests);
    const StepArrays::Window window =
        arrays.window(kv, states, masks.as<std::int32_t>(), requests, static_cast<int>(block));
    backend.ops->step_begin(stream, window.begin);
    const Rows logits = drafter.draft(stream, window.step, arrays.ids());

    const std::vector<float> expected = golden.floats("logits");
    std::vector<float> found(expected.size());
    backend.download(stream, found.data(), logits.data, found.size() * sizeof(float));
    double difference = 0, size = 0;
    for (std::size_t i = 50; i < expected.size(); ++i) {  // the anchor's row means nothing
      const double d = found[i] - double{expected[i]};
      difference += d * d, size += double{expected[i]} * expected[i];
    }
    EXPECT_LT(std::sqrt(difference / size), format == Format::f32 ? 1e-5 : 3e-2);

    Tokens drafted(ids.size()), likeliest{ids[0]};
    backend.download(stream, drafted.data(), arrays.ids(), drafted.size() * sizeof(drafted[0]));
    for (std::size_t row = 50; row < found.size(); row += 50)
      likeliest.push_back(static_cast<std::int32_t>(
          std::ranges::max_element(found.begin() + row, found.begin() + row + 50) - found.begin() - row));
    if (config.selector_top_k == 0) {
      EXPECT_EQ(drafted, likeliest);
    } else {
      Tokens walk = golden.ints("greedy");  // with margins that rounding to bf16 leaves
      walk.insert(walk.begin(), ids[0]);
      EXPECT_EQ(drafted, walk);
      EXPECT_NE(drafted, likeliest);
    }
  }
}

std::vector<DrafterCase> drafter_cases() {
  std::vector<DrafterCase> cases;
  for (const Backend& b : backends())
    for (const char* name : {"full", "sliding", "dflash2"})
      for (const Format f : {Format::f32, Format::bf16}) cases.push_back({&b, name, f});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, DrafterGolden, testing::ValuesIn(drafter_cases()), [](const auto& c) {
  return c.param.name + (c.param.format == Format::f32 ? "_f32_" : "_bf16_") + c.param.backend->ops->name;
});

// What a drafter is made of follows from its config: weights of the other kind are named.
TEST(DrafterWeights, FitTheConfig) {
  const Backend& backend = cpu_backend();
  ThreadPool threads(1);
  OpenStream stream(backend, &threads);
  TextConfig target;
  target.hidden_size = 32, target.vocab_size = 50, target.num_hidden_layers = 6;
  const std::filesystem::path folder = "tests/golden/drafter";
  const auto error = [&](const char* config, const char* weights) {
    return error_of([&] {
      DrafterCheckpoint(folder / weights, DrafterConfig::from_directory(folder / config, target), backend,
                        stream);
    });
  };
  EXPECT_EQ(error("dflash2", "dflash2"), "");
  EXPECT_THAT(error("dflash2", "full"),
              testing::AllOf(testing::HasSubstr("11 missing"),
                             testing::HasSubstr("attention_conv.base_kernel [2, 2, 32]")));
  EXPECT_THAT(error("full", "dflash2"),
              testing::AllOf(testing::HasSubstr("11 unexpected"),
                             testing::HasSubstr("candidate_selector.successor_codebook [50, 8]")));
}

}  // namespace
}  // namespace quire
