// The whole model against transformers (f32) and the executable specification (bf16), at every probe point,
// with every table of operations this machine can run.
#include "engine/golden.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "compare.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "model/mrope.h"
#include "model/text_model.h"
#include "model/vision_model.h"
#include "ops/cpu/table.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

std::vector<const Ops*> tables() {
  std::vector<const Ops*> t = {&reference_ops()};
  t.insert(t.end(), cpu_tables().begin(), cpu_tables().end());
  return t;
}

std::vector<float> to_floats(const Rows& rows, const std::vector<std::int32_t>& which) {
  std::vector<float> x;
  for (const std::int64_t i : which) {
    for (std::int64_t c = 0; c < rows.cols; ++c) {
      x.push_back(rows.format == Format::f32
                      ? static_cast<const float*>(rows.data)[i * rows.stride + c]
                      : to_float(static_cast<const bf16*>(rows.data)[i * rows.stride + c]));
    }
  }
  return x;
}

// A model and one sequence on it, driven by ids.
struct Sequence {
  Sequence(const GoldenCase& c, const Ops& table, Format f, int thread_count)
      : ops(table),
        format(f),
        config(ModelConfig::from_directory(c.model)),
        weights(c.model, config),
        threads(thread_count),
        stream{.threads = &threads, .scratch = {}},
        vision(config.vision, weights.vision, ops, format),
        text(config.text, weights.text, ops, format, kMaxTokens),
        patches(preprocess({page(c).rgb.data(), image.width, image.height},
                           PreprocessConfig::from_directory(c.model))) {}

  const Image& page(const GoldenCase& c) { return image = golden_page(c); }

  void start(const std::vector<std::int32_t>& prompt, const Probe* probe) {
    ids = prompt;
    features = vision.encode(stream, patches.rows, patches.grid_height, patches.grid_width, storage, probe);
    const ImageGrid grid{patches.grid_height, patches.grid_width};
    positions = mrope_positions(ids, config.image_token_id, {&grid, 1}, config.vision.spatial_merge_size);
    cache.emplace(text.cache_shape(), format, static_cast<std::int64_t>(ids.size()) + 600);
  }

  // The next `count` prompt tokens.
  Rows prompt_step(std::size_t count, Path path, const Probe* probe) {
    const auto begin = static_cast<std::size_t>(cache->length());
    std::vector<std::int32_t> image_rows;
    for (std::size_t i = 0; i < count; ++i) {
      if (ids[begin + i] == config.image_token_id) image_rows.push_back(static_cast<std::int32_t>(i));
    }
    const auto part = [&](const std::vector<std::int32_t>& v) {
      return std::span<const std::int32_t>(v).subspan(begin, count);
    };
    const auto images = static_cast<std::int64_t>(image_rows.size());
    const Rows logits =
        text.forward(stream, {.path = path,
                              .tokens = part(ids),
                              .position = {part(positions.t), part(positions.h), part(positions.w)},
                              .images = {features.slice_rows(features_used, images), image_rows},
                              .cache = &*cache,
                              .probe = probe});
    features_used += images;
    return logits;
  }

  Rows prefill(std::size_t chunk, const Probe* probe) {
    Rows logits;
    for (std::size_t at = 0; at < ids.size(); at += chunk) {
      logits = prompt_step(std::min(chunk, ids.size() - at), Path::prefill, probe);
    }
    return logits;
  }

  // The most likely token after the prompt and after each of `given` but the last, which are fed one by one.
  std::vector<std::int32_t> most_likely(Rows logits, const std::vector<std::int32_t>& given) {
    std::vector<std::int32_t> out;
    for (const std::int32_t token : given) {
      Sampled sampled;
      ops.argmax(stream, logits, {&sampled, 1});
      out.push_back(sampled.token);
      if (out.size() == given.size()) break;
      const auto position = static_cast<std::int32_t>(cache->length()) + positions.delta;
      const std::span<const std::int32_t> at(&position, 1);
      logits = text.forward(stream, {.path = Path::window,
                                     .tokens = {&token, 1},
                                     .position = {at, at, at},
                                     .images = {},
                                     .cache = &*cache});
    }
    return out;
  }

  static constexpr std::int64_t kMaxTokens = 512;
  const Ops& ops;
  Format format;
  ModelConfig config;
  ModelWeights weights;
  ThreadPool threads;
  Stream stream;
  VisionModel vision;
  TextModel text;
  Image image;
  Patches patches;
  std::vector<std::int32_t> ids;
  MropePositions positions;
  Buffer storage;
  Rows features;
  std::int64_t features_used = 0;
  std::optional<SequenceCache> cache;
};

// Collects the rows of each probe that the fixture keeps, over all chunks of the prompt.
class Collector {
 public:
  explicit Collector(const Golden& golden)
      : patches_(golden.ints("rows.patches")),
        image_tokens_(golden.ints("rows.image_tokens")),
        tokens_(golden.ints("rows.tokens")) {}

  void operator()(std::string_view name, const Rows& value) {
    std::vector<float>& to = seen_[std::string(name)];
    if (name == "visual.merger") {
      to = to_floats(value, image_tokens_);
    } else if (name.starts_with("visual.")) {
      to = to_floats(value, patches_);
    } else if (name == "norm" || name == "logits") {
      to = to_floats(value, {0});
    } else {
      std::vector<std::int32_t> here;
      for (const std::int32_t t : tokens_) {
        if (t >= start_ && t < start_ + value.rows) here.push_back(t - start_);
      }
      const std::vector<float> more = to_floats(value, here);
      to.insert(to.end(), more.begin(), more.end());
    }
    if (name == "logits") start_ += last_rows_;
    last_rows_ = name == "embed" ? static_cast<std::int32_t>(value.rows) : last_rows_;
  }

  const std::map<std::string, std::vector<float>>& seen() const { return seen_; }

 private:
  std::vector<std::int32_t> patches_, image_tokens_, tokens_;
  std::int32_t start_ = 0, last_rows_ = 0;
  std::map<std::string, std::vector<float>> seen_;
};

// Rounding points on the way to a probe: about 8 a text layer or vision block, the vision encoder before the
// text.
std::int64_t roundings(const std::string& probe, const ModelConfig& config) {
  const auto index = [&](std::size_t prefix) { return std::stoi(probe.substr(prefix)) + 1; };
  if (probe == "visual.patch_embed") return 2;
  if (probe == "visual.pos_embed") return 3;
  if (probe.starts_with("visual.blocks.")) return 3 + 8 * index(14);
  const std::int64_t vision = 6 + 8 * config.vision.depth;
  if (probe == "visual.merger" || probe == "embed") return vision;
  if (probe.starts_with("layers.")) return vision + 8 * index(7);
  return vision + 8 * config.text.num_hidden_layers + 2;
}

// In bf16 the elements of text layers are held by their cosine gap alone: the norm of a Gated-DeltaNet head
// divides by the head's own size, so one flipped rounding in a small head is one large element, whatever the
// chain's length.
Tolerance bounds(const std::string& probe, Format format, const ModelConfig& config) {
  Tolerance t = rounded_chain(format, config.vision.patch_dim(), roundings(probe, config));
  if (format == Format::bf16 && !probe.starts_with("visual."))
    t.absolute = std::numeric_limits<double>::infinity();
  return t;
}

double root_mean_square(const std::vector<float>& x) {
  double squares = 0;
  for (const float v : x) squares += double{v} * v;
  return std::sqrt(squares / static_cast<double>(x.size()));
}

struct GoldenParam {
  GoldenCase golden;
  const Ops* ops;
  Format format;
};

class GoldenTest : public testing::TestWithParam<GoldenParam> {};

TEST_P(GoldenTest, EveryProbeAndEveryToken) {
  const auto& [c, ops, format] = GetParam();
  const Golden golden(c, format);
  Sequence run(c, *ops, format, 2);
  ASSERT_EQ(golden.ints("grid"),
            (std::vector<std::int32_t>{run.patches.grid_height, run.patches.grid_width}));

  const Rows pixels{.data = run.patches.rows.data(),
                    .format = Format::f32,
                    .rows = run.patches.count(),
                    .cols = run.config.vision.patch_dim(),
                    .stride = run.config.vision.patch_dim()};
  EXPECT_TRUE(compare(to_floats(pixels, golden.ints("rows.pixel_values")), golden.floats("pixel_values"),
                      rounded_sum(Format::f32, 1)));

  Collector collector(golden);
  const Probe probe = [&](std::string_view name, const Rows& value) { collector(name, value); };
  run.start(golden.ints("prompt_ids"), &probe);
  std::vector<std::int32_t> positions = run.positions.t;
  positions.insert(positions.end(), run.positions.h.begin(), run.positions.h.end());
  positions.insert(positions.end(), run.positions.w.begin(), run.positions.w.end());
  EXPECT_EQ(positions, golden.ints("positions"));

  const Rows logits = run.prefill(Sequence::kMaxTokens, &probe);
  int compared = 0;
  for (const auto& [name, value] : collector.seen()) {
    const Tolerance tolerance = bounds(name, format, run.config);
    const std::vector<float> expected = golden.floats(name);
    EXPECT_TRUE(compare(value, expected, tolerance)) << name;
    RecordProperty(name,
                   fmt::format("{:.2e}", compare_detail::measure(value, expected, tolerance).cosine_gap));
    ++compared;
  }
  EXPECT_EQ(compared, 6 + run.config.vision.depth + 3 * run.config.text.num_hidden_layers);

  // Fed the golden tokens, the model must choose the same ones: always in f32 and on the trained model. A
  // random model in bf16 may choose another one only where the golden margin is below what rounding can move
  // a logit by.
  const std::vector<std::int32_t> expected = golden.ints("generated_ids");
  const std::vector<float> margin = golden.floats("generated_gap");
  const double scale = root_mean_square(golden.floats("logits"));
  const std::vector<std::int32_t> seen = run.most_likely(logits, expected);
  const bool may_differ = format == Format::bf16 && std::string_view(c.name).starts_with("tiny");
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (seen[i] == expected[i]) continue;
    const double movable =
        2 * scale *
        rounded_chain(format, run.config.vision.patch_dim(), roundings("logits", run.config)).absolute;
    EXPECT_TRUE(may_differ && margin[i] < movable) << "token " << i << " is " << seen[i] << ", expected "
                                                   << expected[i] << " by a margin of " << margin[i];
  }
}

// The reference table is slow: the tiny models are enough for it.
std::vector<GoldenParam> params() {
  std::vector<GoldenParam> p;
  for (const GoldenCase& c : kGoldenCases) {
    for (const Ops* ops : tables()) {
      if (ops == &reference_ops() && !std::string_view(c.name).starts_with("tiny")) continue;
      for (const Format format : {Format::f32, Format::bf16}) p.push_back({c, ops, format});
    }
  }
  return p;
}

std::string param_name(const testing::TestParamInfo<GoldenParam>& info) {
  std::string name = fmt::format("{}_{}_{}", info.param.golden.name, info.param.ops->name,
                                 info.param.format == Format::f32 ? "f32" : "bf16");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(params()), param_name);

// Prefill in chunks (WY form) and token by token through the window path: the same mathematics.
TEST(ModelPaths, PrefillAgreesWithTokenByToken) {
  for (const GoldenCase& c : {kGoldenCases[1], kGoldenCases[2]}) {
    const Golden golden(c, Format::f32);
    const std::vector<std::int32_t> prompt = golden.ints("prompt_ids");
    Sequence chunked(c, cpu_ops(), Format::f32, 2), serial(c, cpu_ops(), Format::f32, 2);
    chunked.start(prompt, nullptr);
    serial.start(prompt, nullptr);
    const Rows a = chunked.prefill(Sequence::kMaxTokens, nullptr);
    Rows b;
    for (std::size_t i = 0; i < prompt.size(); ++i) b = serial.prompt_step(1, Path::window, nullptr);
    EXPECT_TRUE(compare(
        to_floats(a, {0}), to_floats(b, {0}),
        rounded_chain(Format::f32, chunked.config.vision.patch_dim(), roundings("logits", chunked.config))))
        << c.name;
  }
}

// The bits of a step are a function of its request: not of the number of threads.
TEST(ModelPaths, BitsDoNotDependOnThreads) {
  const GoldenCase& c = kGoldenCases[1];
  const Golden golden(c, Format::bf16);
  for (const Ops* ops : cpu_tables()) {
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      Sequence run(c, *ops, Format::bf16, threads);
      run.start(golden.ints("prompt_ids"), nullptr);
      const std::vector<float> logits = to_floats(run.prefill(Sequence::kMaxTokens, nullptr), {0});
      if (first.empty()) first = logits;
      EXPECT_TRUE(compare(logits, first, exactly())) << ops->name << ", " << threads << " threads";
    }
  }
}

// GDN chunks are 64 tokens on absolute index, so prefill cut at multiples of 64 gives the same bits as in one
// piece.
TEST(ModelPaths, BitsDoNotDependOnWherePrefillIsCut) {
  const GoldenCase& c = kGoldenCases[1];
  const Golden golden(c, Format::bf16);
  for (const Ops* ops : cpu_tables()) {
    Sequence whole(c, *ops, Format::bf16, 2), cut(c, *ops, Format::bf16, 2);
    whole.start(golden.ints("prompt_ids"), nullptr);
    cut.start(golden.ints("prompt_ids"), nullptr);
    const std::vector<float> a = to_floats(whole.prefill(512, nullptr), {0});
    EXPECT_TRUE(compare(to_floats(cut.prefill(64, nullptr), {0}), a, exactly())) << ops->name;
  }
}

}  // namespace
}  // namespace quire
