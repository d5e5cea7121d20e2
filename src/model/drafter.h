// A DFlash or DFlash2 drafter: features of the target in, drafts of a block of tokens out (config.h:
// DrafterConfig; equations: MODEL.md). DFlash2 is DFlash with convolutions and a candidate selector: what has
// weights, runs. Its keys and values stand in the target's pages.
#pragma once

#include "model/layer.h"

namespace quire {

class Drafter {
 public:
  // Bounds of a step: rows that join the context at a time, and rows of blocks.
  struct Limits {
    std::int64_t context_rows = 0;
    std::int64_t block_rows = 0;
  };
  // All references must outlive the drafter; `target` gives embedding and head. Throws Error{out_of_memory}.
  Drafter(const DrafterConfig& config, const DrafterWeights& weights, const TextWeights& target,
          const Backend& backend, Format format, const Limits& limits);

  // The rows of a step that the target has run, with the features it left of them [T, taps * D], become
  // context: their keys and values in every layer replace whatever stands in the pages of these rows.
  void extend(Stream& stream, const Step& step, Rows features);

  // Blocks: a request's first row is its newest token, the anchor, the rest are masks. Every row is guessed
  // at once from the context before the anchor, and the guesses take the places of the masks in `ids`, which
  // is the memory of step.ids. The keys and values of a block are in the pages until `extend` replaces them.
  // Returns the logits [T, V] (f32) that were guessed from, valid until the next call; those of anchors mean
  // nothing.
  Rows draft(Stream& stream, const Step& step, std::int32_t* ids);

  std::size_t activation_bytes() const { return memory_.size(); }

 private:
  struct Block;
  void convolve(Block& p, const DrafterConvWeights& w);
  void add(Block& p, const DrafterConvWeights& w, Vector norm);
  Rows place_drafts(Pass& p, std::int32_t* ids);

  const DrafterConfig& config_;
  const DrafterWeights& weights_;
  const TextWeights& target_;
  const Ops& ops_;
  Format format_;
  std::int64_t vocabulary_;
  Memory memory_;
  Arena arena_;
};

}  // namespace quire
