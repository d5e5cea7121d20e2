// Runs a text model for the sequences in its slots: prompts in chunks, then steps that give each sequence its
// next tokens. It asks the backend for work and does not wait for it; results are taken in order.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/switches.h"
#include "model/drafter.h"
#include "model/mrope.h"
#include "model/mtp.h"
#include "model/text_model.h"

namespace quire {

class Decoder {
 public:
  // Prompts run in chunks cut at multiples of this many tokens, whatever else is going on (DESIGN: prefill
  // boundaries are fixed, so that bits are).
  static constexpr std::int64_t kPrefillChunk = 512;
  static constexpr int kMostRequests = 64;  // in one step
  // Steps run for so many requests when there are fewer.
  static int bucket(int requests);
  // Results that nobody has taken.
  static constexpr int kMostUntaken = 8;

  struct Limits {
    int slots = 1;            // sequences at a time
    int window = 1;           // rows of a sequence in one step
    int prefixes = 0;         // of prompts that are kept
    std::vector<int> taps{};  // without a drafter: layers, rising, whose outputs `features` gives
  };
  struct DraftModel {
    const DrafterConfig& config;
    const DrafterWeights& weights;
  };
  // Where the rows of a window after its first come from. No source changes a token.
  struct DraftSource {
    const DraftModel* model;  // a drafter, unless it is null
    bool lookup;              // else: what the sequence has said before (ops/lookup)
    const MtpWeights* mtp;    // else: the model's own head; none of the three: drafts()
  };
  // Of what a sequence has said, so much is looked through.
  static constexpr std::int32_t kHistory = 4096;
  // `image_token_id` tokens take the next rows of `features`, which are in the backend's memory and begin
  // with that of image token `first_feature`.
  struct Prompt {
    std::span<const std::int32_t> tokens;
    const MropePositions& positions;
    std::int32_t image_token_id = 0;
    Rows features;
    std::int64_t first_feature = 0;
  };
  // What became of one step: its rows, request after request, and how many of each request count.
  struct Result {
    std::span<const Sampled> rows;
    std::span<const std::int32_t> counts;
    // With lookup, of each request: how many of its latest tokens it has said before, so that its next window
    // has drafts; 0: it has none.
    std::span<const std::int32_t> matched;
    double seconds = 0;  // that the step took
    bool usual = false;  // it was not the first of its kind, which loads kernels and records a graph
  };

  // References must outlive the decoder. Throws Error{out_of_memory}.
  Decoder(const TextConfig& config, const TextWeights& weights, const Backend& backend, Stream& stream,
          Format format, const Switches& switches, const Limits& limits, const DraftSource& source = {});

  // Room for `tokens` tokens of keys and values in all, `longest` in one sequence. Whatever the slots held is
  // gone. Throws Error{out_of_memory}.
  void reserve(std::int64_t tokens, std::int64_t longest);
  std::int64_t reserved() const { return kv_ ? std::int64_t{kv_->shape().pages} * KvPool::kPageSize : 0; }
  const StateSlots::Shape& states() const { return states_.shape(); }
  // Bytes that a slot takes, whatever its sequence's length.
  static std::size_t slot_bytes(const TextConfig& config, Format format, const Switches& switches);
  // Bytes of keys and values a token, and of everything else that a decoder holds.
  std::size_t token_bytes() const;
  std::size_t fixed_bytes() const;

  // A sequence begins in `slot`, with room for `tokens` tokens; windows may reach past them. Its prompt
  // begins with the prefix that is kept in `place`, if that is one. Throws Error{out_of_memory} with the
  // numbers.
  void open(int slot, std::int64_t tokens, const SamplingSettings& settings, int place = -1);
  // Whether there is room for that, now, and when nothing else is held.
  bool fits(std::int64_t tokens) const { return kv_ && kv_->fits(tokens + overrun()); }
  bool could_hold(std::int64_t tokens) const {
    return kv_ &&
           KvPool::pages_for(tokens + overrun()) <= std::min(kv_->shape().pages, kv_->shape().pages_per_slot);
  }
  // Room for `tokens` tokens in all. False: there is too little.
  bool grow(int slot, std::int64_t tokens) { return kv_->grow(stream_, slot, tokens + overrun()); }

  // A sequence leaves its slot for the host's memory, byte by byte, and comes back later, to any slot: it
  // goes on as if nothing had been. `Saved` lives until a result of the time after `resume` has been taken.
  struct Saved {
    Memory memory;  // staging
    SamplingSettings settings;
    std::int64_t tokens = 0;  // that there was room for
  };
  Saved save(int slot);
  void resume(int slot, const Saved& saved);
  // At any time: what steps that are under way still write there comes before what a new sequence writes.
  void close(int slot) { kv_->release(slot); }

  // The chunk of its prompt that begins at token `begin`; returns where the next begins. The last one asks
  // for the first token, too: a result of one row.
  std::size_t prefill_chunk(int slot, const Prompt& prompt, std::size_t begin);
  // All of it.
  void prefill(int slot, const Prompt& prompt) {
    for (std::size_t begin = 0; begin < prompt.tokens.size();) begin = prefill_chunk(slot, prompt, begin);
  }

  // The prefix of a prompt: the first `end` tokens of the one that is running in `slot`, where a chunk has
  // just ended and the next is the last. It holds its pages, and is gone after `reserve`.
  void keep_prefix(int place, int slot, const Prompt& prompt, std::size_t end);
  void drop_prefix(int place);
  struct Prefix {
    std::size_t tokens = 0;
    Rows features;  // for the image tokens after them
    std::int64_t first_feature = 0;
  };
  const Prefix& prefix(int place) const { return prefixes_[static_cast<std::size_t>(place)].prefix; }

  // As if a prompt of `length` tokens had run that left keys, values and states of zero: for measuring.
  void skip_prompt(int slot, std::int64_t length);

  // One step of these slots with `window` rows each: every sequence's next token and, in a window of more,
  // drafts after it. A result of slots * window rows. `keep_up`: a drafter makes what it needs for drafts in
  // later steps; where it did not, drafts get worse, nothing else.
  void step(std::span<const int> slots, int window = 1, bool keep_up = true);

  // [slots, kMostWindow - 1] in the backend's memory: what the next step of a slot runs after its token.
  // Masks when there is a draft model, which puts its drafts in their place, as the model's own head does.
  std::int32_t* drafts() const { return drafts_.as<std::int32_t>(); }

  // Of the chunk or step that was asked for last, what a drafter reads: [rows, taps * D].
  Rows features() const { return text_.features(); }

  // Whether every window has drafts; else a result says for which there are some.
  bool has_drafter() const { return drafter_.has_value() || mtp_.has_value(); }

  // From now on so many rows of every window count, whatever is drawn: for measuring.
  void assume_accepted(int rows) { assumed_ = rows; }

  int untaken() const { return untaken_; }
  // Waits for the oldest result; valid until the next is asked for.
  Result take();
  // Waits for the results that nobody took, and drops them.
  void drain() {
    while (untaken() > 0) take();
  }

 private:
  struct Pending {
    Memory memory;  // staging, as outcome_
    Handle begun, done;
    std::size_t rows = 0, requests = 0;
    bool usual = false;
  };

  struct KeptPrefix {
    Prefix prefix;
    std::vector<std::int32_t> pages;
    Memory memory;  // states, then features
  };

  // Rows past a sequence's last token: a window that begins at it, and one that was asked for before the
  // first was known to reach the end.
  std::int64_t overrun() const { return 2 * (limits_.window - 1); }
  std::int32_t* counts() const { return outcome_.as<std::int32_t>(); }
  std::int32_t* matched() const { return counts() + rows_offset_ / sizeof(Sampled); }
  History history() const { return {history_.as<std::int32_t>(), history_.data() ? kHistory : 0}; }
  Sampled* sampled() const { return reinterpret_cast<Sampled*>(outcome_.data() + rows_offset_); }
  void draw(Rows logits, const Requests& requests, bool prompt);
  Pending& next_result();
  std::vector<std::span<std::byte>> regions(int slot) const;
  void publish(std::size_t rows, std::size_t requests, bool usual);
  void extend_mtp(const Step& step, const Prompt& prompt, std::size_t end);
  void note_prompt(int slot, std::span<const std::int32_t> tokens);
  void run_window(const StepArrays::Window& window, bool keep_up);

  const TextConfig& config_;
  const Backend& backend_;
  Stream& stream_;
  Switches switches_;
  Format format_;
  Limits limits_;
  TextModel text_;
  KvPool::Shape kv_shape_;  // of a page
  std::optional<Drafter> drafter_;
  std::optional<MtpHead> mtp_;
  StepArrays arrays_;
  std::optional<StepArrays> one_row_;  // of each request, for mtp_
  StateSlots states_;
  std::optional<KvPool> kv_;
  std::vector<KeptPrefix> prefixes_;
  std::size_t rows_offset_;  // in outcome_
  Memory outcome_;           // counts and matches of the requests, then a Sampled for each row
  Memory settings_, seen_, drafts_;
  Memory history_;                       // [slots, kHistory]; none without lookup
  std::vector<SamplingSettings> asked_;  // of each slot, as settings_
  Uploader uploader_;

  std::vector<int> batch_;  // the slots, and rows of each, that arrays_ was set for
  int batch_window_ = 0;
  int assumed_ = 0;
  struct Recorded {
    bool ran = false;  // kernels are loaded when they first run, which a recording cannot do
    Handle graph;
  };
  std::map<std::pair<int, int>, Recorded> graphs_;  // by requests and window; 0: not kept up

  Pending results_[kMostUntaken];
  int next_ = 0, untaken_ = 0;
};

}  // namespace quire
