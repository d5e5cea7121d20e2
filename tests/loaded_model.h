// What tests of models and of decoding begin with: a model on a backend.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

#include "backend/backend.h"
#include "core/thread_pool.h"
#include "model/weights.h"

namespace quire {

struct LoadedModel {
  LoadedModel(const Backend& where, const std::filesystem::path& directory)
      : backend(where),
        config(ModelConfig::from_directory(directory)),
        stream(backend, &threads),
        weights(directory, config, backend, stream) {}
  // With random weights.
  LoadedModel(const Backend& where, ModelConfig shape)
      : backend(where),
        config(std::move(shape)),
        stream(backend, &threads),
        weights(ModelWeights::Random{7}, config, backend, stream) {}

  const Backend& backend;
  ModelConfig config;
  ThreadPool threads{2};
  OpenStream stream;
  ModelWeights weights;
};

// The smallest model in the repository that runs there: kernels of a GPU are for the dimensions of published
// models.
inline const char* small_model(const Backend& backend) {
  return backend.host_memory ? "tests/golden/tiny-a" : "models/quire-mini";
}

// Four layers of a published model, without a vision encoder: on a GPU all of their width, on a CPU something
// that ends.
inline ModelConfig four_layers(std::string_view published, const Backend& backend) {
  ModelConfig c = published_shape(published);
  c.text.num_hidden_layers = 4;
  c.text.layer_types.resize(4);
  if (backend.host_memory) {
    c.text.hidden_size = 64, c.text.intermediate_size = 96, c.text.vocab_size = 300;
    c.text.num_attention_heads = 4, c.text.num_key_value_heads = 2;
    c.text.head_dim = 32, c.text.rotary_dim = 16;
    c.text.mrope_section[0] = 4, c.text.mrope_section[1] = c.text.mrope_section[2] = 2;
    c.text.linear_num_key_heads = 2, c.text.linear_num_value_heads = 4;
    c.text.linear_key_head_dim = c.text.linear_value_head_dim = 32;
  }
  c.vision.depth = 0, c.vision.hidden_size = 64, c.vision.num_heads = 1;
  return c;
}

}  // namespace quire
