// Runs a text model for the sequences in its slots: prompts in chunks, then steps that give each sequence its
// next tokens. It asks the backend for work and does not wait for it; results are taken in order.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "engine/switches.h"
#include "model/mrope.h"
#include "model/text_model.h"

namespace quire {

class Decoder {
 public:
  // Prompts run in chunks cut at multiples of this many tokens, whatever else is going on (DESIGN: prefill
  // boundaries are fixed, so that bits are).
  static constexpr std::int64_t kPrefillChunk = 512;
  // Steps whose results nobody has taken.
  static constexpr int kMostUntaken = 2;

  struct Limits {
    int slots = 1;   // sequences at a time
    int window = 1;  // rows of a sequence in one step
  };

  // References must outlive the decoder. Throws Error{out_of_memory}.
  Decoder(const TextConfig& config, const TextWeights& weights, const Backend& backend, Stream& stream,
          Format format, const Switches& switches, const Limits& limits);

  // Room for `tokens` tokens of keys and values in all, `longest` in one sequence. Whatever the slots held is
  // gone. Throws Error{out_of_memory}.
  void reserve(std::int64_t tokens, std::int64_t longest);
  std::int64_t reserved() const { return kv_ ? std::int64_t{kv_->shape().pages} * KvPool::kPageSize : 0; }
  // Bytes of keys and values a token, and of everything else that a decoder holds.
  std::size_t token_bytes() const;
  std::size_t fixed_bytes() const;

  // A sequence of at most `tokens` tokens begins in `slot`. Throws Error{out_of_memory} with the numbers.
  void open(int slot, std::int64_t tokens, const SamplingSettings& settings);
  void close(int slot) { kv_->release(slot); }

  // Its prompt; `image_token_id` rows take the next rows of `features`, which are in the backend's memory.
  // Asks for the first token, too: a result of one row.
  void prefill(int slot, std::span<const std::int32_t> tokens, const MropePositions& positions,
               std::int32_t image_token_id, Rows features);

  // As if a prompt of `length` tokens had run that left keys, values and states of zero: for measuring.
  void skip_prompt(int slot, std::int64_t length);

  // One step of these slots with `window` rows each: every sequence's next token and, in a window of more,
  // `drafts()` after it. A result of slots * window rows.
  void step(std::span<const int> slots, int window = 1);

  // [slots, kMostWindow - 1] in the backend's memory.
  std::int32_t* drafts() const { return drafts_.as<std::int32_t>(); }

  int untaken() const { return untaken_; }
  // Waits for the oldest result and gives its rows, valid until the next is asked for.
  std::span<const Sampled> take();
  // Waits for the results that nobody took, and drops them.
  void drain() {
    while (untaken() > 0) take();
  }

 private:
  struct Result {
    Memory rows;  // staging
    Handle done;
    std::size_t count = 0;
  };

  void draw(Rows logits, const Requests& requests, bool prompt);
  void publish(std::size_t rows);
  void run_window(const StepArrays::Window& window);

  const TextConfig& config_;
  const Backend& backend_;
  Stream& stream_;
  Switches switches_;
  Format format_;
  Limits limits_;
  TextModel text_;
  StepArrays arrays_;
  StateSlots states_;
  std::optional<KvPool> kv_;
  Memory sampled_, settings_, seen_, drafts_;

  std::vector<int> batch_;  // the slots, and rows of each, that arrays_ was set for
  int batch_window_ = 0;
  struct Recorded {
    bool ran = false;  // kernels are loaded when they first run, which a recording cannot do
    Handle graph;
  };
  std::map<std::pair<int, int>, Recorded> graphs_;  // by requests and window

  Result results_[kMostUntaken];
  int next_ = 0, untaken_ = 0;
};

}  // namespace quire
