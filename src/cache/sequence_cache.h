// What a sequence remembers between steps: keys and values of its attention layers, convolution inputs and
// recurrent state of its Gated-DeltaNet layers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/buffer.h"
#include "ops/ops.h"

namespace quire {

// One layer's needs. An attention layer has only `kv_cols`, a Gated-DeltaNet layer only the others.
struct LayerCacheShape {
  std::int64_t kv_cols = 0;       // G * E: of a key row, and of a value row
  std::int64_t conv_floats = 0;   // (W - 1) * conv_dim
  std::int64_t state_floats = 0;  // Hv * Ek * Ev
};

class SequenceCache {
 public:
  // Room for `capacity` tokens, keys and values in `format`; the recurrent state starts at zero.
  // Throws Error{out_of_memory}.
  SequenceCache(std::span<const LayerCacheShape> layers, Format format, std::int64_t capacity);

  std::int64_t length() const { return length_; }  // tokens held
  std::int64_t capacity() const { return capacity_; }
  // `tokens` more are in every layer. Checked against the capacity.
  void advance(std::int64_t tokens);

  KvView kv(int layer) const;  // [capacity, kv_cols]
  std::span<float> conv(int layer) const;
  std::span<float> state(int layer) const;

 private:
  struct Layer {
    LayerCacheShape shape;
    Buffer keys_values;  // keys [capacity, kv_cols], then values
    Buffer recurrent;    // conv, then state
  };
  std::vector<Layer> layers_;
  Format format_;
  std::int64_t capacity_;
  std::int64_t length_ = 0;
};

}  // namespace quire
