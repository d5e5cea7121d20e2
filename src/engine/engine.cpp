// quire::Engine: loads a model, and takes one request at a time from pixels to text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <new>

#include "core/error.h"
#include "core/thread_pool.h"
#include "engine/prompt.h"
#include "model/mrope.h"
#include "model/text_model.h"
#include "model/vision_model.h"
#include "text/detokenizer.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

// Prompts run in chunks cut at multiples of this many tokens, whatever else is going on (DESIGN: prefill
// boundaries are fixed, so that bits are).
constexpr std::int64_t kPrefillChunk = 512;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs `phase` and adds its wall time to `seconds`.
template <typename Phase>
auto timed(double& seconds, Phase phase) {
  const Clock::time_point start = Clock::now();
  auto result = phase();
  seconds += seconds_since(start);
  return result;
}

// The two files describe one cut of the page into patches.
void check_patches(const std::string& model, const PreprocessConfig& preprocess, const VisionConfig& vision) {
  const auto check = [&](const char* name, int found, int expected) {
    if (found != expected)
      fail(ErrorCode::invalid_input,
           "{}: preprocessor_config.json has {} {}; expected {}, as config.json has", model, name, found,
           expected);
  };
  check("patch_size", preprocess.patch_size, vision.patch_size);
  check("temporal_patch_size", preprocess.temporal_patch_size, vision.temporal_patch_size);
  check("merge_size", preprocess.merge_size, vision.spatial_merge_size);
}

Format to_format(Precision precision) {
  return precision == Precision::f32 ? Format::f32 : Format::bf16;
}

}  // namespace

std::string_view version() {
  return QUIRE_VERSION;
}

struct Engine::State {
  explicit State(const Options& options)
      : format(to_format(options.precision)),
        config(ModelConfig::from_directory(options.model)),
        preprocess_config(PreprocessConfig::from_directory(options.model)),
        tokenizer(Tokenizer::from_file(std::filesystem::path(options.model) / "tokenizer.json")),
        chat_template(ChatTemplate::from_directory(options.model)),
        weights(options.model, config),
        threads(options.threads),
        stream{.threads = &threads, .scratch = {}},
        vision(config.vision, weights.vision, cpu_ops(), format),
        text(config.text, weights.text, cpu_ops(), format, kPrefillChunk) {
    check_patches(options.model, preprocess_config, config.vision);
    // A template that cannot show a page is found now, not on every page.
    build_prompt(chat_template, tokenizer, config, Request().prompt, Request().enable_thinking, 1);
  }

  Result generate(const Request& request);
  int image_tokens(const ImageView& image) const;
  Rows prefill(std::span<const TokenId> prompt, const MropePositions& positions, Rows features,
               SequenceCache& cache);
  void decode(const Request& request, Clock::time_point start, Rows logits, const MropePositions& positions,
              SequenceCache& cache, Result& result);

  Format format;
  ModelConfig config;
  PreprocessConfig preprocess_config;
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  ModelWeights weights;
  ThreadPool threads;
  Stream stream;
  VisionModel vision;
  TextModel text;
  std::mutex one_request;
};

// Positions of the prompt that a picture takes. Known from its size, before any memory is taken.
int Engine::State::image_tokens(const ImageView& image) const {
  const Size size = smart_resize({image.width, image.height}, preprocess_config);
  const int side = preprocess_config.patch_size * preprocess_config.merge_size;
  const std::int64_t tokens = std::int64_t{size.width / side} * (size.height / side);
  if (tokens >= config.text.max_position_embeddings)
    fail(ErrorCode::limit_exceeded,
         "the picture takes {} tokens, as {}x{} pixels; the model holds {}: see the sizes in "
         "preprocessor_config.json",
         tokens, size.width, size.height, config.text.max_position_embeddings);
  return static_cast<int>(tokens);
}

Result Engine::State::generate(const Request& request) {
  const Clock::time_point start = Clock::now();
  if (request.max_tokens < 1) {
    fail(ErrorCode::invalid_input, "max_tokens is {}; at least 1 is needed", request.max_tokens);
  }
  Result result;
  result.image_tokens = image_tokens(request.image);
  const std::vector<TokenId> prompt = build_prompt(chat_template, tokenizer, config, request.prompt,
                                                   request.enable_thinking, result.image_tokens);
  result.prompt_tokens = static_cast<int>(prompt.size());
  const int room = config.text.max_position_embeddings - result.prompt_tokens;
  if (room < 1) {
    fail(ErrorCode::limit_exceeded,
         "the prompt takes {} tokens ({} of them for the image); the model holds {}", result.prompt_tokens,
         result.image_tokens, config.text.max_position_embeddings);
  }
  const Patches patches =
      timed(result.seconds.preprocess, [&] { return preprocess(request.image, preprocess_config); });
  const ImageGrid grid{patches.grid_height, patches.grid_width};
  const MropePositions positions =
      mrope_positions(prompt, config.image_token_id, {&grid, 1}, config.vision.spatial_merge_size);

  Buffer storage;
  const Rows features = timed(result.seconds.vision, [&] {
    return vision.encode(stream, patches.rows, patches.grid_height, patches.grid_width, storage);
  });
  const int max_tokens = std::min(request.max_tokens, room);
  SequenceCache cache(text.cache_shape(), format, result.prompt_tokens + max_tokens);
  const Rows logits =
      timed(result.seconds.prefill, [&] { return prefill(prompt, positions, features, cache); });
  const Clock::time_point decode_start = Clock::now();
  decode(request, start, logits, positions, cache, result);
  result.seconds.decode = seconds_since(decode_start);
  return result;
}

Rows Engine::State::prefill(std::span<const TokenId> prompt, const MropePositions& positions, Rows features,
                            SequenceCache& cache) {
  Rows logits;
  std::int64_t features_used = 0;
  for (std::size_t begin = 0; begin < prompt.size(); begin += kPrefillChunk) {
    const std::size_t count = std::min<std::size_t>(kPrefillChunk, prompt.size() - begin);
    const std::span<const TokenId> tokens = prompt.subspan(begin, count);
    std::vector<std::int32_t> image_rows;
    for (std::size_t i = 0; i < count; ++i) {
      if (tokens[i] == config.image_token_id) image_rows.push_back(static_cast<std::int32_t>(i));
    }
    const auto images = static_cast<std::int64_t>(image_rows.size());
    const auto part = [&](const std::vector<std::int32_t>& stream_positions) {
      return std::span<const std::int32_t>(stream_positions).subspan(begin, count);
    };
    logits = text.forward(stream, {.path = Path::prefill,
                                   .tokens = tokens,
                                   .position = {part(positions.t), part(positions.h), part(positions.w)},
                                   .images = {features.slice_rows(features_used, images), image_rows},
                                   .cache = &cache});
    features_used += images;
  }
  return logits;
}

void Engine::State::decode(const Request& request, Clock::time_point start, Rows logits,
                           const MropePositions& positions, SequenceCache& cache, Result& result) {
  Detokenizer detokenizer(tokenizer);
  double total_logprob = 0;
  const auto emit = [&](const std::string& piece) {
    result.text += piece;
    return !request.on_text || piece.empty() || request.on_text(piece);
  };
  while (true) {
    Sampled sampled;
    cpu_ops().argmax(stream, logits, {&sampled, 1});
    if (!std::isfinite(sampled.logprob))
      fail(ErrorCode::invalid_input,
           "the model computes values that are no numbers (at token {}): are its weights damaged?",
           result.tokens.size() + 1);
    result.tokens.push_back(sampled.token);
    total_logprob += sampled.logprob;
    result.min_logprob = std::min<double>(result.min_logprob, sampled.logprob);
    const auto& stops = config.stop_token_ids;
    if (std::find(stops.begin(), stops.end(), sampled.token) != stops.end()) {
      result.finish_reason = FinishReason::stop;
      break;
    }
    if (!emit(detokenizer.push(sampled.token))) {
      result.finish_reason = FinishReason::cancelled;
      break;
    }
    if (cache.length() == cache.capacity() || static_cast<int>(result.tokens.size()) == request.max_tokens) {
      result.finish_reason = FinishReason::length;
      break;
    }
    if (request.max_seconds > 0 && seconds_since(start) >= request.max_seconds) {
      result.finish_reason = FinishReason::time_limit;
      break;
    }
    const std::int32_t position = static_cast<std::int32_t>(cache.length()) + positions.delta;
    const std::span<const std::int32_t> at(&position, 1);
    logits = text.forward(stream, {.path = Path::window,
                                   .tokens = {&sampled.token, 1},
                                   .position = {at, at, at},
                                   .images = {},
                                   .cache = &cache});
  }
  emit(detokenizer.finish());
  result.mean_logprob = total_logprob / static_cast<double>(result.tokens.size());
}

Engine::Engine(const Options& options) : state_(std::make_unique<State>(options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

Result Engine::generate(const Request& request) {
  const std::scoped_lock lock(state_->one_request);
  try {
    return state_->generate(request);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "not enough memory for a picture of {}x{} pixels, {} tokens of the prompt",
         request.image.width, request.image.height, state_->image_tokens(request.image));
  }
}

int Engine::context_length() const {
  return state_->config.text.max_position_embeddings;
}

}  // namespace quire
