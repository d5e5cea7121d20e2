// The text decoder: token ids and image features in, logits of the next token out.
#pragma once

#include <vector>

#include "model/layer.h"

namespace quire {

// What the caches of this model hold, for `slots` sequences; the number of pages is the caller's.
KvPool::Shape kv_shape(const TextConfig& config, Format format);
StateSlots::Shape state_shape(const TextConfig& config, Format format);

class TextModel {
 public:
  // Bounds of a step: rows of a prompt's chunk, and of a window step. `taps`: layers, rising, whose outputs a
  // drafter reads.
  struct Limits {
    std::int64_t prompt_rows = 0;
    std::int64_t window_rows = 0;
    std::vector<int> taps{};
  };
  // All references must outlive the model. Throws Error{out_of_memory}.
  TextModel(const TextConfig& config, const TextWeights& weights, const Backend& backend, Format format,
            const Limits& limits);

  // One step: its tokens join the caches. Returns logits (f32), valid until the next call: of a prompt [1,
  // V], of its last row; of a window [T, V].
  Rows forward(Stream& stream, const Step& step);

  // Of the last step: the residual stream after each tapped layer, side by side [T, taps * D]. Valid until
  // the next call.
  Rows features() const { return features_; }

  // Of the last step: what logits are made of, the last norm's outputs [T, D]. Valid until the next call.
  Rows outputs() const { return outputs_; }

  std::size_t activation_bytes() const { return memory_.size() + feature_memory_.size(); }

 private:
  void linear_attention(Pass& p, const LinearAttentionWeights& w, int index);
  void linear_attention_prompt(Pass& p, const LinearAttentionWeights& w, int index, Rows qkv, Rows z, Rows a,
                               Rows b, Rows read);

  const TextConfig& config_;
  const TextWeights& weights_;
  const Ops& ops_;
  Format format_;
  std::vector<int> taps_;
  Memory memory_;
  Arena arena_;
  Memory feature_memory_;
  Rows features_, outputs_;
};

}  // namespace quire
