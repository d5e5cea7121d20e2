// quire::Engine: loads a model, and takes requests from pixels to text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <new>

#include <xxhash.h>

#include "backend/cuda.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "engine/drafting.h"
#include "engine/prompt.h"
#include "engine/scheduler.h"
#include "text/detokenizer.h"
#include "text/stop_strings.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
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

Sequence::Hash hash_of(const ImageView& image) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(
      image.rgb,
      std::size_t{3} * static_cast<std::size_t>(image.width) * static_cast<std::size_t>(image.height),
      static_cast<XXH64_hash_t>(image.width));
  return {hash.low64, hash.high64};
}

std::string gibibytes(double bytes) {
  return fmt::format("{:.2f} GiB", bytes / (1 << 30));
}

}  // namespace

std::string_view version() {
  return QUIRE_VERSION;
}

std::vector<double> DraftCounts::acceptance() const {
  std::vector<double> shares;
  for (std::size_t i = 0; i < drafted.size(); ++i)
    shares.push_back(static_cast<double>(accepted[i]) / drafted[i]);
  return shares;
}

void DraftCounts::add_step(std::size_t window, std::size_t tokens_given) {
  ++steps, tokens += static_cast<int>(tokens_given);
  const std::size_t drafts = std::max(drafted.size(), window - 1);
  drafted.resize(drafts), accepted.resize(drafts);
  for (std::size_t i = 0; i + 1 < window; ++i) ++drafted[i], accepted[i] += i + 1 < tokens_given;
}

DraftCounts& DraftCounts::operator+=(const DraftCounts& other) {
  steps += other.steps, tokens += other.tokens;
  const std::size_t drafts = std::max(drafted.size(), other.drafted.size());
  drafted.resize(drafts), accepted.resize(drafts);
  for (std::size_t i = 0; i < other.drafted.size(); ++i)
    drafted[i] += other.drafted[i], accepted[i] += other.accepted[i];
  return *this;
}

// Turns a GPU's host can prepare for while it runs one; a CPU does better work on less at a time.
constexpr int kGpuRequests = 32, kCpuRequests = 4;
// Prefixes of prompts that are kept for another request for the same page.
constexpr int kKeptPrefixes = 4;
// Tokens of prompts between two steps: 4 chunks of a GPU, one of a CPU.
constexpr int kGpuPromptTokens = 2048, kCpuPromptTokens = 512;

struct Engine::State {
  explicit State(const Options& options)
      : format(to_format(options.precision)),
        config(ModelConfig::from_directory(options.model)),
        preprocess_config(PreprocessConfig::from_directory(options.model)),
        tokenizer(Tokenizer::from_file(std::filesystem::path(options.model) / "tokenizer.json")),
        chat_template(ChatTemplate::from_directory(options.model)),
        backend(choose_backend(options.device)),
        free_before(device_bytes()),
        switches(Switches::parse(options.switches)),
        threads(options.threads),
        stream(backend, &threads),
        weights(options.model, config, backend, stream, options.on_load),
        drafting(options.draft, options.model, config.text, backend, stream),
        vision(config.vision, weights.vision, backend, format),
        limits{.slots = requests_at_a_time(options),
               .window = drafting.window(switches),
               .fixed_window = switches.window > 0,
               .prompt_tokens = backend.host_memory ? kCpuPromptTokens : kGpuPromptTokens,
               .prefixes = kKeptPrefixes},
        decoder(config.text, weights.text, backend, stream, format, switches,
                {.slots = limits.slots, .window = limits.window, .prefixes = limits.prefixes},
                drafting.source()) {
    check_patches(options.model, preprocess_config, config.vision);
    // A template that cannot show a page is found now, not on every page.
    build_prompt(chat_template, tokenizer, config, Request().prompt, Request().enable_thinking, 1);
    context = config.text.max_position_embeddings;
    if (!backend.host_memory) reserve_gpu_memory(options.gpu_memory);
    scheduler.emplace(config, vision, decoder, backend, stream, limits);
  }

  // Free memory of the device; 0 on a CPU.
  std::size_t device_bytes() const { return backend.host_memory ? 0 : cuda::device_facts(0).free_bytes; }
  double memory_allowed(double limit) const;
  double memory_left(double limit) const;
  int requests_at_a_time(const Options& options) const;
  void reserve_gpu_memory(double limit);
  Result generate(const Request& request);
  int image_tokens(const ImageView& image) const;
  void begin(const Request& request, Sequence& sequence, Result& result) const;
  void follow(const Request& request, Clock::time_point start, const std::shared_ptr<Sequence>& sequence,
              Result& result);

  Format format;
  ModelConfig config;
  PreprocessConfig preprocess_config;
  Tokenizer tokenizer;
  ChatTemplate chat_template;
  const Backend& backend;
  std::size_t free_before;  // on the device, when nothing of the model was there
  Switches switches;
  ThreadPool threads;
  OpenStream stream;
  ModelWeights weights;
  Drafting drafting;
  VisionModel vision;
  Scheduler::Limits limits;
  Decoder decoder;
  std::int64_t context = 0;  // tokens of the longest sequence
  std::optional<Scheduler> scheduler;
};

// Bytes of the device that may be used, and those that still may.
double Engine::State::memory_allowed(double limit) const {
  constexpr double kShareOfFree = 0.9;
  return limit > 0 ? limit * (1 << 30) : kShareOfFree * static_cast<double>(free_before);
}
double Engine::State::memory_left(double limit) const {
  return memory_allowed(limit) - static_cast<double>(free_before - device_bytes());
}

// Their states take at most a quarter of a GPU's memory, unless so many were asked for.
int Engine::State::requests_at_a_time(const Options& options) const {
  constexpr double kShareOfStates = 0.25;
  if (options.requests < 0 || options.requests > Decoder::kMostRequests)
    fail(ErrorCode::invalid_input, "requests is {}; expected 1 to {}, or 0 for the usual number",
         options.requests, Decoder::kMostRequests);
  if (options.requests > 0) return options.requests;
  if (backend.host_memory) return kCpuRequests;
  const auto slot = static_cast<double>(Decoder::slot_bytes(config.text, format, switches));
  return static_cast<int>(
      std::clamp(kShareOfStates * memory_left(options.gpu_memory) / slot, 1.0, double{kGpuRequests}));
}

// Keys and values get what the limit leaves, up to the longest sequences that the model knows. Some is left
// for the activations of the vision encoder, which grow with the page.
void Engine::State::reserve_gpu_memory(double limit) {
  constexpr double kVisionReserve = 1.0 * (1 << 30);
  const double token = static_cast<double>(decoder.token_bytes());
  const double left = memory_left(limit) - kVisionReserve;
  const auto room = static_cast<std::int64_t>(left / token) / KvPool::kPageSize * KvPool::kPageSize;
  const std::int64_t most = limits.slots * context;
  context = std::min(context, room);
  if (context < KvPool::kPageSize) {
    fail(ErrorCode::out_of_memory,
         "the GPU's memory does not hold the model: {} may be used ({} are free), weights take {}, "
         "activations and state "
         "{}, pages to come {}; nothing is left for keys and values. Allow more, free some, or use the CPU",
         gibibytes(memory_allowed(limit)), gibibytes(static_cast<double>(free_before)),
         gibibytes(static_cast<double>(weights.memory_bytes())),
         gibibytes(static_cast<double>(decoder.fixed_bytes())), gibibytes(kVisionReserve));
  }
  decoder.reserve(std::min(room, most), context);
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
  Result result;
  const auto sequence = std::make_shared<Sequence>();
  begin(request, *sequence, result);
  scheduler->submit(sequence);
  try {
    follow(request, start, sequence, result);
  } catch (...) {
    scheduler->cancel(sequence);
    throw;
  }
  scheduler->cancel(sequence);  // the text may be enough before the tokens end
  return result;
}

// What there is to know of a request before any memory is taken.
void Engine::State::begin(const Request& request, Sequence& sequence, Result& result) const {
  if (request.max_tokens < 1) {
    fail(ErrorCode::invalid_input, "max_tokens is {}; at least 1 is needed", request.max_tokens);
  }
  result.image_tokens = image_tokens(request.image);
  sequence.prompt = build_prompt(chat_template, tokenizer, config, request.prompt, request.enable_thinking,
                                 result.image_tokens);
  result.prompt_tokens = static_cast<int>(sequence.prompt.size());
  const int room = static_cast<int>(context) - result.prompt_tokens;
  if (room < 1) {
    fail(ErrorCode::limit_exceeded, "the prompt takes {} tokens ({} of them for the image); the {} {}",
         result.prompt_tokens, result.image_tokens,
         context == config.text.max_position_embeddings ? "model holds" : "GPU's memory holds", context);
  }
  sequence.most_tokens = std::min(request.max_tokens, room);
  sequence.settings = to_settings(request.sampling);
}

// From pixels to patches, then from tokens to text as they come: all in the caller's thread, while others
// decode.
void Engine::State::follow(const Request& request, Clock::time_point start,
                           const std::shared_ptr<Sequence>& sequence, Result& result) {
  StopStrings stops(request.stop);
  std::optional<Clock::time_point> until;
  if (request.max_seconds > 0)
    until = start + std::chrono::duration_cast<Clock::duration>(
                        std::chrono::duration<double>(std::min(request.max_seconds, 1e9)));
  result.finish_reason = FinishReason::time_limit;
  if (!sequence->wait_for_turn(until)) return;
  const Clock::time_point turn = Clock::now();
  sequence->patches = preprocess(request.image, preprocess_config);
  const ImageGrid grid{sequence->patches.grid_height, sequence->patches.grid_width};
  sequence->positions =
      mrope_positions(sequence->prompt, config.image_token_id, {&grid, 1}, config.vision.spatial_merge_size);
  sequence->page = hash_of(request.image);
  result.seconds.preprocess = seconds_since(turn);
  scheduler->ready(sequence);

  Detokenizer detokenizer(tokenizer);
  double total_logprob = 0;
  const auto emit = [&](const std::string& piece) {  // false: nobody wants more
    result.text += piece;
    return !request.on_text || piece.empty() || request.on_text(piece);
  };
  const auto end = [&](FinishReason reason) {
    result.finish_reason = reason;
    return false;
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
    const auto& ids = config.stop_token_ids;
    if (std::ranges::find(ids, sampled.token) != ids.end()) return end(FinishReason::stop);
    if (!emit(stops.push(detokenizer.push(sampled.token)))) return end(FinishReason::cancelled);
    if (stops.found()) return end(FinishReason::stop);
    if (static_cast<int>(result.tokens.size()) == sequence->most_tokens) return end(FinishReason::length);
    if (until && Clock::now() >= *until) return end(FinishReason::time_limit);
    return true;
  };
  std::vector<Sampled> tokens = sequence->take(until);
  for (bool more = true; more && !tokens.empty();) {
    for (std::size_t i = 0; more && i < tokens.size(); ++i) more = keep(tokens[i]);
    if (more) tokens = sequence->take(until);
  }
  std::string rest = stops.push(detokenizer.finish());
  emit(rest += stops.finish());

  const Sequence::Figures& figures = sequence->figures();
  if (!result.tokens.empty()) {
    result.mean_logprob = total_logprob / static_cast<double>(result.tokens.size());
    result.seconds.decode = seconds_since(figures.first);
  }
  result.cached_tokens = figures.cached_tokens;
  if (limits.window > 1) result.drafts = figures.drafts;
  result.seconds.queue = std::max(0.0, figures.queue - result.seconds.preprocess);
  result.seconds.vision = figures.vision;
  result.seconds.prefill = figures.prefill;
  result.seconds.steps = figures.steps;
}

Engine::Engine(const Options& options) : state_(std::make_unique<State>(options)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

Result Engine::generate(const Request& request) {
  try {
    return state_->generate(request);
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "not enough memory for a picture of {}x{} pixels, {} tokens of the prompt",
         request.image.width, request.image.height, state_->image_tokens(request.image));
  }
}

int Engine::requests() const {
  return state_->limits.slots;
}

int Engine::context_length() const {
  return static_cast<int>(state_->context);
}

std::string Engine::device_text() const {
  const State& s = *state_;
  const StateSlots::Shape& states = s.decoder.states();
  const auto slot = static_cast<double>(states.slot_bytes()), bare = static_cast<double>(states.bare_bytes());
  const std::string request = fmt::format(
      "a request {:.1f} MiB of state ({:.2f} times the bare states) and {:.1f} KiB a token; at most {} "
      "tokens of prompts and one page's encoding between two steps",
      slot / (1 << 20), slot / bare, static_cast<double>(s.decoder.token_bytes()) / (1 << 10),
      s.limits.prompt_tokens);
  if (s.backend.host_memory)
    return fmt::format("CPU ({}), {} threads; {}; drafts: {}", s.backend.ops->name, s.threads.size(), request,
                       s.drafting.name());
  return fmt::format(
      "{}: weights {}, activations and states {}, keys and values {} ({} tokens); {} requests at a time, of "
      "at most {} tokens; {}; drafts: {}",
      cuda::device_facts(0).name, gibibytes(static_cast<double>(s.weights.memory_bytes())),
      gibibytes(static_cast<double>(s.decoder.fixed_bytes())),
      gibibytes(static_cast<double>(s.decoder.reserved()) * static_cast<double>(s.decoder.token_bytes())),
      s.decoder.reserved(), s.limits.slots, s.context, request, s.drafting.name());
}

}  // namespace quire
