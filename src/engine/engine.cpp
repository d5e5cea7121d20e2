// quire::Engine: loads a model, and takes one request at a time from pixels to text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <new>

#include "backend/cuda.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "engine/decoder.h"
#include "engine/prompt.h"
#include "model/vision_model.h"
#include "text/detokenizer.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

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

const Backend& choose_backend(Device device) {
  if (device == Device::cpu) return cpu_backend();
  if (const Backend* cuda = cuda_backend()) return *cuda;
  if (device == Device::cuda)
    fail(ErrorCode::not_found,
         "there is no GPU that Quire can use: it needs an NVIDIA GPU of compute capability 9.0 or higher "
         "with its driver, "
         "and a build with CUDA (./dev build cuda)");
  return cpu_backend();
}

SamplingSettings to_settings(const Sampling& s) {
  const auto check = [](const char* name, double value, double low, double high) {
    if (!(value >= low && value <= high))
      fail(ErrorCode::invalid_input, "{} is {}; expected {} to {}", name, value, low, high);
    return static_cast<float>(value);
  };
  if (s.top_k < 0) fail(ErrorCode::invalid_input, "top_k is {}; expected 0 (all) or more", s.top_k);
  return {.temperature = check("temperature", s.temperature, 0, 100),
          .top_k = s.top_k,
          .top_p = check("top_p", s.top_p, 0, 1),
          .min_p = check("min_p", s.min_p, 0, 1),
          .repetition_penalty = check("repetition_penalty", s.repetition_penalty, 0.01, 100),
          .presence_penalty = check("presence_penalty", s.presence_penalty, -100, 100),
          .frequency_penalty = check("frequency_penalty", s.frequency_penalty, -100, 100),
          .padding = 0,
          .seed = s.seed};
}

std::string gibibytes(double bytes) {
  return fmt::format("{:.2f} GiB", bytes / (1 << 30));
}

}  // namespace

std::string_view version() {
  return QUIRE_VERSION;
}

// A drafter of the model, loaded.
struct Drafting {
  Drafting(const std::filesystem::path& directory, const ModelConfig& target, const Backend& backend,
           Stream& stream)
      : config(DrafterConfig::from_directory(directory, target.text)),
        checkpoint(directory, config, backend, stream) {}

  DrafterConfig config;
  DrafterCheckpoint checkpoint;
  Decoder::DraftModel model{config, checkpoint.weights};
};

// Whether the choice of a token depends on the tokens before it other than through the model.
bool has_penalties(const SamplingSettings& s) {
  return s.repetition_penalty != 1 || s.presence_penalty != 0 || s.frequency_penalty != 0;
}

struct Engine::State {
  explicit State(const Options& options)
      : format(to_format(options.precision)),
        config(ModelConfig::from_directory(options.model)),
        preprocess_config(PreprocessConfig::from_directory(options.model)),
        tokenizer(Tokenizer::from_file(std::filesystem::path(options.model) / "tokenizer.json")),
        chat_template(ChatTemplate::from_directory(options.model)),
        backend(choose_backend(options.device)),
        free_before(device_bytes()),
        threads(options.threads),
        stream(backend, &threads),
        weights(options.model, config, backend, stream, options.on_load),
        drafter(options.draft.empty() ? nullptr
                                      : std::make_unique<Drafting>(options.draft, config, backend, stream)),
        vision(config.vision, weights.vision, backend, format),
        decoder(config.text, weights.text, backend, stream, format, Switches::parse(options.switches),
                {.window = drafter ? std::min(drafter->config.block_size, kMostWindow) : 1},
                drafter ? &drafter->model : nullptr) {
    check_patches(options.model, preprocess_config, config.vision);
    // A template that cannot show a page is found now, not on every page.
    build_prompt(chat_template, tokenizer, config, Request().prompt, Request().enable_thinking, 1);
    context = config.text.max_position_embeddings;
    if (!backend.host_memory) reserve_gpu_memory(options.gpu_memory);
  }

  // Free memory of the device; 0 on a CPU.
  std::size_t device_bytes() const { return backend.host_memory ? 0 : cuda::device_facts(0).free_bytes; }
  void reserve_gpu_memory(double limit);
  Result generate(const Request& request);
  int image_tokens(const ImageView& image) const;
  void decode(const Request& request, Clock::time_point start, int room, int window, Result& result);

  Format format;
  ModelConfig config;
  PreprocessConfig preprocess_config;
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  const Backend& backend;
  std::size_t free_before;  // on the device, when nothing of the model was there
  ThreadPool threads;
  OpenStream stream;
  ModelWeights weights;
  std::unique_ptr<Drafting> drafter;
  VisionModel vision;
  Decoder decoder;
  std::int64_t context = 0;  // tokens of the longest sequence
  std::mutex one_request;
};

// Keys and values get what the limit leaves, up to the longest sequence that the model knows. Some is left
// for the activations of the vision encoder, which grow with the page.
void Engine::State::reserve_gpu_memory(double limit) {
  constexpr double kShareOfFree = 0.9, kVisionReserve = 1.0 * (1 << 30);
  const double allowed = limit > 0 ? limit * (1 << 30) : kShareOfFree * static_cast<double>(free_before);
  const double used = static_cast<double>(free_before - device_bytes());
  const double token = static_cast<double>(decoder.token_bytes());
  const double left = allowed - used - kVisionReserve;
  context =
      std::min(context, static_cast<std::int64_t>(left / token) / KvPool::kPageSize * KvPool::kPageSize);
  if (context < KvPool::kPageSize) {
    fail(ErrorCode::out_of_memory,
         "the GPU's memory does not hold the model: {} may be used ({} are free), weights take {}, "
         "activations and state "
         "{}, pages to come {}; nothing is left for keys and values. Allow more, free some, or use the CPU",
         gibibytes(allowed), gibibytes(static_cast<double>(free_before)),
         gibibytes(static_cast<double>(weights.memory_bytes())),
         gibibytes(static_cast<double>(decoder.fixed_bytes())), gibibytes(kVisionReserve));
  }
  decoder.reserve(context, context);
}

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
  const int room = static_cast<int>(context) - result.prompt_tokens;
  if (room < 1) {
    fail(ErrorCode::limit_exceeded, "the prompt takes {} tokens ({} of them for the image); the {} {}",
         result.prompt_tokens, result.image_tokens,
         context == config.text.max_position_embeddings ? "model holds" : "GPU's memory holds", context);
  }
  const SamplingSettings settings = to_settings(request.sampling);
  const Patches patches =
      timed(result.seconds.preprocess, [&] { return preprocess(request.image, preprocess_config); });
  const ImageGrid grid{patches.grid_height, patches.grid_width};
  const MropePositions positions =
      mrope_positions(prompt, config.image_token_id, {&grid, 1}, config.vision.spatial_merge_size);

  const Rows features = timed(result.seconds.vision, [&] {
    const Rows rows = vision.encode(stream, patches.rows, patches.grid_height, patches.grid_width);
    backend.synchronize(stream);
    return rows;
  });
  const int max_tokens = std::min(request.max_tokens, room);
  const std::int64_t tokens = std::int64_t{result.prompt_tokens} + max_tokens;
  decoder.drain();  // of a request that ended in an error
  if (decoder.reserved() < tokens)
    decoder.reserve(tokens, tokens);  // on a CPU, where memory is taken as it is needed
  decoder.open(0, tokens, settings);
  timed(result.seconds.prefill, [&] {
    decoder.prefill(0, prompt, positions, config.image_token_id, features);
    backend.synchronize(stream);
    return 0;
  });
  const Clock::time_point decode_start = Clock::now();
  // Rows of a window are all drawn at once, by what was seen before it: penalties need them one by one.
  const int window =
      drafter && !has_penalties(settings) ? std::min(drafter->config.block_size, kMostWindow) : 1;
  decode(request, start, max_tokens, window, result);
  decoder.drain();
  decoder.close(0);
  result.seconds.decode = seconds_since(decode_start);
  return result;
}

// Takes the tokens in order. A GPU is asked for the next step before this one is looked at, so that it never
// waits for the host; what it computes past the end is thrown away.
void Engine::State::decode(const Request& request, Clock::time_point start, int room, int window,
                           Result& result) {
  const bool ahead = !backend.host_memory;
  const int slot = 0;
  Detokenizer detokenizer(tokenizer);
  double total_logprob = 0;
  const auto emit = [&](const std::string& piece) {
    result.text += piece;
    return !request.on_text || piece.empty() || request.on_text(piece);
  };
  // One token joins the text; false: it is the last.
  const auto keep = [&](const Sampled& sampled) {
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
      return false;
    }
    if (!emit(detokenizer.push(sampled.token))) {
      result.finish_reason = FinishReason::cancelled;
      return false;
    }
    if (static_cast<int>(result.tokens.size()) == room) {
      result.finish_reason = FinishReason::length;
      return false;
    }
    if (request.max_seconds > 0 && seconds_since(start) >= request.max_seconds) {
      result.finish_reason = FinishReason::time_limit;
      return false;
    }
    return true;
  };
  bool first = true;  // the token that the prompt gave
  for (bool more = true; more; first = false) {
    // Any step gives a token or more: with this many to come, the one asked for now is not the last.
    if (ahead && static_cast<int>(result.tokens.size()) + 1 < room) decoder.step({&slot, 1}, window);
    const Decoder::Result step = decoder.take();
    int kept = 0;
    while (more && kept < step.counts[0]) more = keep(step.rows[static_cast<std::size_t>(kept++)]);
    if (more && !first && window > 1) ++result.draft_steps, result.draft_tokens += kept;
    if (more && !ahead) decoder.step({&slot, 1}, window);
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
  return static_cast<int>(state_->context);
}

std::string Engine::device_text() const {
  const State& s = *state_;
  if (s.backend.host_memory)
    return fmt::format("CPU ({}), {} threads", s.backend.ops->name, s.threads.size());
  return fmt::format(
      "{}: weights {}, activations and state {}, keys and values {} ({} tokens)", cuda::device_facts(0).name,
      gibibytes(static_cast<double>(s.weights.memory_bytes())),
      gibibytes(static_cast<double>(s.decoder.fixed_bytes())),
      gibibytes(static_cast<double>(s.decoder.reserved()) * static_cast<double>(s.decoder.token_bytes())),
      s.context);
}

}  // namespace quire
