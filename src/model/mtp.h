// The head of a checkpoint that predicts one token more (mtp.*; equations: MODEL.md): one layer of full
// attention that meets the target's output for a token with the embedding of the token after it. From its own
// output and its guess it goes on, token by token. Its keys and values stand in the target's pages, and those
// of token i are made when token i + 1 is known.
#pragma once

#include "model/layer.h"

namespace quire {

class MtpHead {
 public:
  // Bounds of a step: rows that the target runs at a time, requests; and slots.
  struct Limits {
    std::int64_t rows = 0;
    int requests = 0;
    int slots = 0;
  };
  // All references must outlive the head; `target` gives embedding and output head. Throws
  // Error{out_of_memory}.
  MtpHead(const TextConfig& config, const MtpWeights& weights, const TextWeights& target,
          const Backend& backend, Stream& stream, Format format, const Limits& limits);

  // The rows of a prompt's chunk that the target has run, with its outputs [T, D] (rms_norm included), get
  // keys and values. `after` is a step of the one token behind them; null: it is not known yet, and the last
  // output waits in `last` of its slot.
  void extend(Stream& stream, const Step& step, Rows outputs, const Step* after);

  // The rows of a window that the target has run: drafts that were right have keys and values of guesses,
  // which those of the target's outputs replace. What is past them means nothing, and nobody reads it before
  // it is replaced.
  void extend(Stream& stream, const Step& step, Rows outputs);

  // Before the target runs a window: its first tokens meet the outputs in `last`, and the guesses of every
  // request take the places after its first in `ids`, which is the memory of step.ids. `at` is a window of
  // one row of the same requests, which this asks for as it needs it. Every request has step.requests.longest
  // rows.
  void draft(Stream& stream, const Step& step, std::int32_t* ids, StepArrays::Window at);

  // [slots, D]: the target's output for the last token that counts in each slot. Of windows `commit` keeps
  // it.
  Rows last() const { return last_; }
  std::span<std::byte> last(int slot) const;

  std::size_t activation_bytes() const { return memory_.size() + last_memory_.size(); }

 private:
  void pair(Pass& p, Rows embeddings, Rows outputs);
  void keep(Pass& p);
  Rows layer(Pass& p);

  const TextConfig& config_;
  const MtpWeights& weights_;
  const TextWeights& target_;
  const Backend& backend_;
  const Ops& ops_;
  Format format_;
  Memory last_memory_;
  Rows last_;
  Memory memory_;
  Arena arena_;
};

}  // namespace quire
