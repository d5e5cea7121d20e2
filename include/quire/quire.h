// Quire: page image in, Markdown out, with vision-language models of the Qwen3.5 family.
//
//   quire::Engine engine({.model = "models/quire-mini"});
//   quire::Result page = engine.generate({.image = {pixels, width, height}});
//   std::puts(page.text.c_str());
//
// This is the only public header. Every failure is a quire::Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// What went wrong, for programs. New codes may be added: treat an unknown one as `internal`.
enum class ErrorCode {
  invalid_input,   // the user's file, option or request is wrong
  unsupported,     // well formed, but not something Quire does
  not_found,       // a named file or model does not exist
  out_of_memory,   // a stated memory limit does not hold the request
  limit_exceeded,  // a stated limit in time or size was reached
  io,              // the operating system refused to read or write
  device,          // the accelerator failed
  internal,        // a bug in Quire
};
std::string_view to_string(ErrorCode code);

// The one exception type. The message names the thing, its value, what was expected and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message,
        std::source_location where = std::source_location::current());
  ErrorCode code() const { return code_; }
  const std::source_location& where() const { return where_; }

 private:
  ErrorCode code_;
  std::source_location where_;
};

// Arithmetic of activations. Weights stay as stored.
enum class Precision { bf16, f32 };

// Where a model runs.
enum class Device {
  automatic,  // a GPU if there is one that Quire can use, else the CPU
  cpu,
  cuda,
};

struct Options {
  std::string model;  // a Hugging Face model directory
  Device device = Device::automatic;
  Precision precision = Precision::bf16;  // f32 is for comparing with a reference: slower
  int threads = 0;                        // CPU threads; 0: one for each core
  double gpu_memory = 0;  // GiB of the GPU that may be used in all; 0: nine tenths of what is free
  int requests = 0;       // at a time, further ones wait: at most 64; 0: 32 on a GPU, 4 on a CPU
  // Where drafts of tokens come from; they change no text. "none"; "ngram": from what the page has said
  // before; "mtp": of the multi-token-prediction head in the model's own checkpoint; the directory of a
  // DFlash or DFlash2 drafter; "auto": the drafter beside the model, in MODEL-dflash2 or MODEL-dflash, else
  // on a GPU "mtp" when the model has such a head, else "ngram".
  std::string draft = "auto";
  std::string switches{};  // optimizations by name, to measure them: "graphs=off" (engine/switches.h)
  // Called while weights are copied to a GPU, with bytes.
  std::function<void(std::size_t done, std::size_t total)> on_load{};
};

// 8-bit RGB, row-major, three bytes a pixel, no padding. `rgb` must outlive the call that reads it.
struct ImageView {
  const std::uint8_t* rgb = nullptr;
  int width = 0;   // pixels
  int height = 0;  // pixels
};

// Why generation ended. An open enumeration: more reasons may be added.
enum class FinishReason {
  stop,        // the model said it was done, or a stop string came
  length,      // max_tokens, or the model's context, was reached: the text is cut off
  time_limit,  // max_seconds was reached: the text is cut off
  cancelled,   // on_text returned false
};
std::string_view to_string(FinishReason reason);

// How tokens are chosen. In this order: penalties, temperature, top_k, min_p, top_p.
struct Sampling {
  double temperature = 0;         // 0: always the likeliest token
  int top_k = 0;                  // only the k likeliest; 0: all
  double top_p = 1;               // only the likeliest that make up this share
  double min_p = 0;               // only those with this share of the likeliest one's probability
  double repetition_penalty = 1;  // on what prompt or output hold already, as in transformers
  double presence_penalty = 0;    // subtracted from logits of what the output holds already (OpenAI)
  double frequency_penalty = 0;   // the same, times its count in the output
  std::uint64_t seed = 0;         // the same seed gives the same text
};

struct Request {
  ImageView image;
  std::string prompt = "Convert this page to Markdown.";  // the instruction that follows the image
  int max_tokens = 4096;                                  // generated tokens, the stop token included
  double max_seconds = 0;                                 // wall time of this request; 0: no limit
  bool enable_thinking = false;                           // passed to the model's chat template
  std::vector<std::string> stop{};                        // the text ends before the first of these
  Sampling sampling{};
  // Called with each piece of new text (whole UTF-8 characters). Return false to cancel.
  std::function<bool(std::string_view)> on_text;
};

// Seconds of each phase of one request: `queue` until it was admitted; from then on others run at the same
// time. `steps` is no phase of its own but most of `decode`: the steps of the model that the request took
// part in. A step drafts and verifies as one, so there is no time of either alone.
struct Timings {
  double preprocess = 0, queue = 0, vision = 0, prefill = 0, decode = 0, steps = 0;
};

// Decoding with a drafter: the steps after the first token, without the last, which may be cut off.
struct DraftCounts {
  int steps = 0, tokens = 0;           // tokens: that the steps gave
  std::vector<int> drafted, accepted;  // of draft 1, 2, ... of a step: how many there were, and were right

  // Tokens of a step; 0 without any.
  double acceptance_length() const { return steps ? static_cast<double>(tokens) / steps : 0; }
  // The share of draft 1, 2, ... that was accepted.
  std::vector<double> acceptance() const;
  // A step of `window` rows gave so many tokens.
  void add_step(std::size_t window, std::size_t tokens_given);
  DraftCounts& operator+=(const DraftCounts& other);
};

struct Result {
  std::string text;
  FinishReason finish_reason = FinishReason::stop;
  std::vector<std::int32_t> tokens;  // generated ids, the stop token, or those of a stop string, included
  int image_tokens = 0;              // positions of the prompt that carry the image
  int prompt_tokens = 0;             // the whole prompt, image tokens included
  int cached_tokens = 0;             // of these, those that an earlier request for the same page had run
  double mean_logprob = 0;           // natural log, over `tokens`
  double min_logprob = 0;
  DraftCounts drafts;  // nothing without drafts
  Timings seconds;
};

// A loaded model. Calls from several threads run together, up to Options::requests at a time, in the order in
// which they came; none changes the text of another.
class Engine {
 public:
  explicit Engine(const Options& options);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  Result generate(const Request& request);

  // How many requests run at a time.
  int requests() const;

  // Tokens that fit, prompt and output together: of the model, or of the memory it was given.
  int context_length() const;

  // Where the model runs and what it takes, for people: "NVIDIA H200: 8.4 GiB of weights, ...".
  std::string device_text() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The version of this library, "major.minor.patch".
std::string_view version();

}  // namespace quire
