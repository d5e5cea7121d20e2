#include "cache/sequence_cache.h"

#include <algorithm>

#include "core/error.h"

namespace quire {

SequenceCache::SequenceCache(std::span<const LayerCacheShape> layers, Format format, std::int64_t capacity)
    : format_(format), capacity_(capacity) {
  for (const LayerCacheShape& shape : layers) {
    const auto kv_bytes = static_cast<std::size_t>(2 * capacity * shape.kv_cols * size_of(format));
    const auto recurrent_floats = static_cast<std::size_t>(shape.conv_floats + shape.state_floats);
    Layer layer{shape, Buffer(kv_bytes), Buffer(recurrent_floats * sizeof(float))};
    std::fill_n(layer.recurrent.as<float>(), recurrent_floats, 0.0f);
    layers_.push_back(std::move(layer));
  }
}

void SequenceCache::advance(std::int64_t tokens) {
  QUIRE_CHECK(length_ + tokens <= capacity_, "{} tokens and {} more in a cache of {}", length_, tokens,
              capacity_);
  length_ += tokens;
}

KvView SequenceCache::kv(int layer) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  const std::int64_t cols = l.shape.kv_cols;
  const auto rows = [&](std::byte* data) {
    return Rows{.data = data, .format = format_, .rows = capacity_, .cols = cols, .stride = cols};
  };
  std::byte* keys = l.keys_values.data();
  return {rows(keys), rows(keys + capacity_ * cols * size_of(format_))};
}

std::span<float> SequenceCache::conv(int layer) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  return {l.recurrent.as<float>(), static_cast<std::size_t>(l.shape.conv_floats)};
}

std::span<float> SequenceCache::state(int layer) const {
  const Layer& l = layers_[static_cast<std::size_t>(layer)];
  return {l.recurrent.as<float>() + l.shape.conv_floats, static_cast<std::size_t>(l.shape.state_floats)};
}

}  // namespace quire
