// The whole model against transformers (f32) and the executable specification (bf16), at every probe point,
// with every table of operations this machine can run.
#include "engine/golden.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include <gtest/gtest.h>

#include "backends.h"
#include "compare.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "model/mrope.h"
#include "model/text_model.h"
#include "model/vision_model.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

// A model and one sequence on it, driven by ids.
struct GoldenRun {
  GoldenRun(const GoldenCase& c, const Backend& where, Format f, int thread_count)
      : backend(where),
        format(f),
        config(ModelConfig::from_directory(c.model)),
        threads(thread_count),
        stream(backend, &threads),
        weights(c.model, config, backend, stream),
        vision(config.vision, weights.vision, backend, format),
        text(config.text, weights.text, backend, format,
             {.prompt_rows = kMaxTokens, .window_rows = kMostWindow}),
        arrays(backend, kMaxTokens, 1),
        patches(preprocess({page(c).rgb.data(), image.width, image.height},
                           PreprocessConfig::from_directory(c.model))) {}

  const Image& page(const GoldenCase& c) { return image = golden_page(c); }

  void start(const std::vector<std::int32_t>& prompt, const Probe* probe) {
    ids = prompt;
    features = vision.encode(stream, patches.rows, patches.grid_height, patches.grid_width, probe);
    const ImageGrid grid{patches.grid_height, patches.grid_width};
    positions = mrope_positions(ids, config.image_token_id, {&grid, 1}, config.vision.spatial_merge_size);
    KvPool::Shape kv_pool = kv_shape(config.text, format);
    kv_pool.slots = 1;
    kv_pool.pages = kv_pool.pages_per_slot = KvPool::pages_for(static_cast<std::int64_t>(ids.size()) + 600);
    kv.emplace(backend, stream, kv_pool);
    kv->hold(stream, 0, static_cast<std::int64_t>(ids.size()) + 600);
    StateSlots::Shape state = state_shape(config.text, format);
    state.slots = 1;
    states.emplace(backend, stream, state);
    sampled = Memory(backend, kMostWindow * sizeof(Sampled));
    settings = Memory(backend, sizeof(SamplingSettings));
    const SamplingSettings greedy;
    backend.upload(stream, settings.data(), &greedy, sizeof(greedy));
    drafts = Memory(backend, (kMostWindow - 1) * sizeof(std::int32_t));
  }

  // The next `count` prompt tokens.
  Rows prompt_step(std::size_t count, const Probe* probe) {
    std::vector<std::int32_t> image_rows;
    for (std::size_t i = 0; i < count; ++i) {
      if (ids[done + i] == config.image_token_id) image_rows.push_back(static_cast<std::int32_t>(i));
    }
    const auto part = [&](const std::vector<std::int32_t>& v) {
      return std::span<const std::int32_t>(v).subspan(done, count);
    };
    const auto images = static_cast<std::int64_t>(image_rows.size());
    Step step = arrays.prompt(stream, *kv, *states, 0, static_cast<std::int64_t>(done), part(ids),
                              {part(positions.t), part(positions.h), part(positions.w)},
                              features.slice_rows(features_used, images), image_rows);
    step.probe = probe;
    features_used += images;
    done += count;
    return text.forward(stream, step);
  }

  Rows prefill(std::size_t chunk, const Probe* probe) {
    Rows logits;
    while (done < ids.size()) logits = prompt_step(std::min(chunk, ids.size() - done), probe);
    states->end_prompt(stream, 0, static_cast<std::int32_t>(ids.size()), positions.delta);
    arrays.set_batch(stream, std::vector<int>{0}, 1);
    return logits;
  }

  // A window of one row: `token` follows what is there.
  Rows window_step(std::int32_t token) {
    backend.upload(stream, states->cursors().token, &token, sizeof(token));
    const StepArrays::Window window = arrays.window(*kv, *states, drafts.as<std::int32_t>(), 1, 1);
    backend.ops->step_begin(stream, window.begin);
    const Rows logits = text.forward(stream, window.step);
    const std::int32_t accepted = 1;
    backend.upload(stream, states->cursors().accepted, &accepted, sizeof(accepted));
    return logits;
  }

  // The most likely token after the prompt and after each of `given` but the last, which are fed one by one.
  std::vector<std::int32_t> most_likely(Rows logits, const std::vector<std::int32_t>& given) {
    std::vector<std::int32_t> out;
    for (const std::int32_t token : given) {
      Sampled likeliest;
      backend.ops->sample(stream, {.logits = logits,
                                   .settings = settings.as<SamplingSettings>(),
                                   .slot = arrays.row_slot(),
                                   .position = arrays.next(),
                                   .out = {sampled.as<Sampled>(), 1}});
      backend.download(stream, &likeliest, sampled.data(), sizeof(likeliest));
      out.push_back(likeliest.token);
      if (out.size() < given.size()) logits = window_step(token);
    }
    return out;
  }

  // Rows of a probe as floats, wherever they are.
  std::vector<float> to_floats(const Rows& rows, const std::vector<std::int32_t>& which) {
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(((rows.rows - 1) * rows.stride + rows.cols) * size_of(rows.format)));
    backend.download(stream, bytes.data(), rows.data, bytes.size());
    std::vector<float> x;
    for (const std::int64_t i : which) {
      for (std::int64_t c = 0; c < rows.cols; ++c) {
        const auto at = static_cast<std::size_t>(i * rows.stride + c);
        x.push_back(rows.format == Format::f32 ? reinterpret_cast<const float*>(bytes.data())[at]
                                               : to_float(reinterpret_cast<const bf16*>(bytes.data())[at]));
      }
    }
    return x;
  }

  static constexpr std::int64_t kMaxTokens = 512;
  const Backend& backend;
  Format format;
  ModelConfig config;
  ThreadPool threads;
  OpenStream stream;
  ModelWeights weights;
  VisionModel vision;
  TextModel text;
  StepArrays arrays;
  Image image;
  Patches patches;
  std::vector<std::int32_t> ids;
  MropePositions positions;
  Rows features;
  std::int64_t features_used = 0;
  std::size_t done = 0;  // prompt tokens
  std::optional<KvPool> kv;
  std::optional<StateSlots> states;
  Memory sampled, settings, drafts;
};

// Collects the rows of each probe that the fixture keeps, over all chunks of the prompt.
class Collector {
 public:
  Collector(const Golden& golden, GoldenRun& run)
      : run_(run),
        patches_(golden.ints("rows.patches")),
        image_tokens_(golden.ints("rows.image_tokens")),
        tokens_(golden.ints("rows.tokens")) {}

  void operator()(std::string_view name, const Rows& value) {
    std::vector<float>& to = seen_[std::string(name)];
    if (name == "visual.merger") {
      to = run_.to_floats(value, image_tokens_);
    } else if (name.starts_with("visual.")) {
      to = run_.to_floats(value, patches_);
    } else if (name == "norm" || name == "logits") {
      to = run_.to_floats(value, {0});
    } else {
      std::vector<std::int32_t> here;
      for (const std::int32_t t : tokens_) {
        if (t >= start_ && t < start_ + value.rows) here.push_back(t - start_);
      }
      const std::vector<float> more = run_.to_floats(value, here);
      to.insert(to.end(), more.begin(), more.end());
    }
    if (name == "logits") start_ += last_rows_;
    last_rows_ = name == "embed" ? static_cast<std::int32_t>(value.rows) : last_rows_;
  }

  const std::map<std::string, std::vector<float>>& seen() const { return seen_; }

 private:
  GoldenRun& run_;
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
  const Backend* backend;
  Format format;
};

class GoldenTest : public testing::TestWithParam<GoldenParam> {};

TEST_P(GoldenTest, EveryProbeAndEveryToken) {
  const auto& [c, backend, format] = GetParam();
  const Golden golden(c, format);
  GoldenRun run(c, *backend, format, 2);
  ASSERT_EQ(golden.ints("grid"),
            (std::vector<std::int32_t>{run.patches.grid_height, run.patches.grid_width}));

  std::vector<float> pixels;
  for (const std::int64_t patch : golden.ints("rows.pixel_values")) {
    const auto first = run.patches.rows.begin() + patch * run.config.vision.patch_dim();
    pixels.insert(pixels.end(), first, first + run.config.vision.patch_dim());
  }
  EXPECT_TRUE(compare(pixels, golden.floats("pixel_values"), rounded_sum(Format::f32, 1)));

  Collector collector(golden, run);
  const Probe probe = [&](std::string_view name, const Rows& value) { collector(name, value); };
  run.start(golden.ints("prompt_ids"), &probe);
  std::vector<std::int32_t> positions = run.positions.t;
  positions.insert(positions.end(), run.positions.h.begin(), run.positions.h.end());
  positions.insert(positions.end(), run.positions.w.begin(), run.positions.w.end());
  EXPECT_EQ(positions, golden.ints("positions"));

  const Rows logits = run.prefill(GoldenRun::kMaxTokens, &probe);
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

  // Fed the golden tokens, the model must choose the same ones: always in f32; in bf16 it may choose another
  // one where the golden margin is below what rounding can move a logit by.
  const std::vector<std::int32_t> expected = golden.ints("generated_ids");
  const std::vector<float> margin = golden.floats("generated_gap");
  const double scale = root_mean_square(golden.floats("logits"));
  const std::vector<std::int32_t> seen = run.most_likely(logits, expected);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (seen[i] == expected[i]) continue;
    const double movable =
        2 * scale *
        rounded_chain(format, run.config.vision.patch_dim(), roundings("logits", run.config)).absolute;
    EXPECT_TRUE(format == Format::bf16 && margin[i] < movable)
        << "token " << i << " is " << seen[i] << ", expected " << expected[i] << " by a margin of "
        << margin[i];
  }
}

// Pages of quire-mini take long: the tiny models are enough for all tables of a CPU but the one that it uses.
std::vector<GoldenParam> params() {
  std::vector<GoldenParam> p;
  for (const GoldenCase& c : kGoldenCases) {
    const bool tiny = std::string_view(c.name).starts_with("tiny");
    for (const Backend& backend : backends()) {
      if (backend.host_memory && !tiny && (kSanitized || backend.ops != cpu_backend().ops)) continue;
      if (!backend.host_memory && tiny) continue;  // kernels are for the dimensions of published models
      for (const Format format : {Format::f32, Format::bf16}) p.push_back({c, &backend, format});
    }
  }
  return p;
}

std::string param_name(const testing::TestParamInfo<GoldenParam>& info) {
  std::string name = fmt::format("{}_{}_{}", info.param.golden.name, info.param.backend->ops->name,
                                 info.param.format == Format::f32 ? "f32" : "bf16");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenTest, testing::ValuesIn(params()), param_name);

// The end of a prompt through the window path, token by token: the same mathematics as prefill.
TEST(ModelPaths, PrefillAgreesWithTokenByToken) {
  constexpr std::size_t kSerial = 8;
  for (const GoldenCase& c : {kGoldenCases[1], kGoldenCases[2]}) {
    const Golden golden(c, Format::f32);
    const std::vector<std::int32_t> prompt = golden.ints("prompt_ids");
    GoldenRun chunked(c, cpu_backend(), Format::f32, 2), serial(c, cpu_backend(), Format::f32, 2);
    chunked.start(prompt, nullptr);
    serial.start(prompt, nullptr);
    const Rows a = chunked.prefill(GoldenRun::kMaxTokens, nullptr);
    serial.ids.resize(prompt.size() - kSerial);
    serial.prefill(GoldenRun::kMaxTokens, nullptr);
    Rows b;
    for (std::size_t i = prompt.size() - kSerial; i < prompt.size(); ++i) b = serial.window_step(prompt[i]);
    EXPECT_TRUE(compare(
        chunked.to_floats(a, {0}), serial.to_floats(b, {0}),
        rounded_chain(Format::f32, chunked.config.vision.patch_dim(), roundings("logits", chunked.config))))
        << c.name;
  }
}

// A GPU beside the CPU, fed the same tokens: after a first difference, tokens of its own would say nothing.
TEST(ModelPaths, CudaFollowsTheCpu) {
  if (!cuda_backend()) GTEST_SKIP() << "there is no GPU";
  const GoldenCase& c = kGoldenCases[4];
  const Golden golden(c, Format::bf16);
  GoldenRun cpu(c, cpu_backend(), Format::bf16, 2), gpu(c, *cuda_backend(), Format::bf16, 2);
  std::vector<std::vector<float>> logits[2];
  const std::vector<std::int32_t> tokens = golden.ints("generated_ids");
  for (GoldenRun* run : {&cpu, &gpu}) {
    auto& seen = logits[run == &gpu];
    run->start(golden.ints("prompt_ids"), nullptr);
    seen.push_back(run->to_floats(run->prefill(GoldenRun::kMaxTokens, nullptr), {0}));
    for (const std::int32_t token : tokens) seen.push_back(run->to_floats(run->window_step(token), {0}));
  }
  std::size_t equal = 0;
  double gap = 0;
  for (std::size_t i = 0; i < logits[0].size(); ++i) {
    const std::vector<float>&a = logits[0][i], &b = logits[1][i];
    equal +=
        std::max_element(a.begin(), a.end()) - a.begin() == std::max_element(b.begin(), b.end()) - b.begin();
    for (std::size_t v = 0; v < a.size(); ++v) gap = std::max(gap, std::fabs(double{a[v]} - b[v]));
  }
  const double scale = root_mean_square(logits[0][0]);
  fmt::print("{}: {} of {} likeliest tokens equal, largest gap of a logit {:.4f} ({:.4f} of their size)\n",
             c.name, equal, logits[0].size(), gap, gap / scale);
  EXPECT_LT(
      gap, scale * rounded_chain(Format::bf16, cpu.config.vision.patch_dim(), roundings("logits", cpu.config))
                       .absolute)
      << c.name;
}

// The bits of a step are a function of its request: not of the number of threads.
TEST(ModelPaths, BitsDoNotDependOnThreads) {
  const GoldenCase& c = kGoldenCases[1];
  const Golden golden(c, Format::bf16);
  for (const Backend& backend : backends()) {
    if (!backend.host_memory || backend.ops == &reference_ops()) continue;
    std::vector<float> first;
    for (const int threads : {1, 2, 3}) {
      GoldenRun run(c, backend, Format::bf16, threads);
      run.start(golden.ints("prompt_ids"), nullptr);
      const std::vector<float> logits = run.to_floats(run.prefill(GoldenRun::kMaxTokens, nullptr), {0});
      if (first.empty()) first = logits;
      EXPECT_TRUE(compare(logits, first, exactly())) << backend.ops->name << ", " << threads << " threads";
    }
  }
}

// GDN chunks are 64 tokens on absolute index, so prefill cut at multiples of 64 gives the same bits as in one
// piece.
TEST(ModelPaths, BitsDoNotDependOnWherePrefillIsCut) {
  for (const Backend& backend : backends()) {
    if (backend.ops == &reference_ops()) continue;
    const GoldenCase& c = backend.host_memory ? kGoldenCases[1] : kGoldenCases[4];
    const Golden golden(c, Format::bf16);
    GoldenRun whole(c, backend, Format::bf16, 2), cut(c, backend, Format::bf16, 2);
    whole.start(golden.ints("prompt_ids"), nullptr);
    cut.start(golden.ints("prompt_ids"), nullptr);
    const std::vector<float> a = whole.to_floats(whole.prefill(512, nullptr), {0});
    EXPECT_TRUE(compare(cut.to_floats(cut.prefill(64, nullptr), {0}), a, exactly())) << backend.ops->name;
  }
}

}  // namespace
}  // namespace quire
