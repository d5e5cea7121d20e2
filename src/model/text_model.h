// The text decoder: token ids and image features in, logits of the next token out.
#pragma once

#include <vector>

#include "core/arena.h"
#include "model/step.h"
#include "model/weights.h"

namespace quire {

class TextModel {
 public:
  // `max_tokens` bounds T of a step. All references must outlive the model.
  TextModel(const TextConfig& config, const TextWeights& weights, const Ops& ops, Format format,
            std::int64_t max_tokens);

  // One step. Appends its tokens to the cache and returns the logits [1, V] (f32) of its last token, valid
  // until the next call.
  Rows forward(Stream& stream, const Step& step);

  // What a sequence needs to remember, layer by layer.
  std::vector<LayerCacheShape> cache_shape() const;

 private:
  // Rows of one step, in the words of the equations (MODEL.md).
  struct Pass;

  void full_attention(Pass& p, const FullAttentionWeights& w, int layer);
  void linear_attention(Pass& p, const LinearAttentionWeights& w, int layer);
  void mlp(Pass& p, const TextLayerWeights& w);

  const TextConfig& config_;
  const TextWeights& weights_;
  const Ops& ops_;
  Format format_;
  Arena arena_;
};

}  // namespace quire
