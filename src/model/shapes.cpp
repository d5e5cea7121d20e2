// The dimensions of published models.
#include "core/error.h"
#include "model/config.h"

namespace quire {
namespace {

struct TextShape {
  std::string_view name;
  int hidden, layers, ffn, heads, kv_heads, gdn_value_heads;
  bool tied;
  int depth, vision_hidden, vision_heads, vision_ffn;
};

// From the config.json of each (the 2B's from memory of it: its file could not be compared).
constexpr TextShape kShapes[] = {
    {"qwen3.5-0.8b", 1024, 24, 3584, 8, 2, 16, true, 12, 768, 12, 3072},
    {"qwen3.5-2b", 2048, 24, 6144, 8, 2, 16, true, 24, 1024, 16, 4096},
    {"qwen3.5-4b", 2560, 32, 9216, 16, 4, 32, true, 24, 1024, 16, 4096},
    {"qwen3.5-9b", 4096, 32, 12288, 16, 4, 32, false, 27, 1152, 16, 4304},
    {"qwen3.5-27b", 5120, 64, 17408, 24, 4, 48, false, 27, 1152, 16, 4304},
};

}  // namespace

ModelConfig published_shape(std::string_view name) {
  std::string known;
  for (const TextShape& s : kShapes) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", s.name);
    if (s.name != name) continue;
    ModelConfig c;
    c.text.hidden_size = s.hidden;
    c.text.intermediate_size = s.ffn;
    c.text.num_hidden_layers = s.layers;
    c.text.vocab_size = 248320;
    c.text.num_attention_heads = s.heads;
    c.text.num_key_value_heads = s.kv_heads;
    c.text.linear_num_value_heads = s.gdn_value_heads;
    for (int l = 1; l <= s.layers; ++l)
      c.text.layer_types.push_back(l % 4 == 0 ? LayerKind::full_attention : LayerKind::linear_attention);
    c.vision.depth = s.depth;
    c.vision.hidden_size = s.vision_hidden;
    c.vision.num_heads = s.vision_heads;
    c.vision.intermediate_size = s.vision_ffn;
    c.vision.out_hidden_size = s.hidden;
    c.tie_word_embeddings = s.tied;
    c.image_token_id = 248056;
    return c;
  }
  fail(ErrorCode::not_found, "no shape \"{}\": there are {}", name, known);
}

DrafterConfig published_drafter(const TextConfig& target) {
  constexpr int kTaps = 8, kLayers = 6, kSlidingWindow = 4096;
  DrafterConfig c;
  c.hidden_size = target.hidden_size;
  c.intermediate_size = target.intermediate_size;
  c.num_attention_heads = 32;
  c.num_key_value_heads = 8;
  c.head_dim = 128;
  c.block_size = 16;
  c.mask_token_id = target.vocab_size - 1;
  for (int i = 0; i < kTaps; ++i) c.taps.push_back(1 + i * (target.num_hidden_layers - 4) / (kTaps - 1));
  c.layers.assign(kLayers, {.causal = false, .sliding_window = kSlidingWindow});
  c.layers.back().sliding_window = 0;
  return c;
}

// From the config.json of the one for a model of 27B, there being none for a smaller one; its blocks are
// of 8.
DrafterConfig published_dflash2(const TextConfig& target) {
  constexpr int kTaps = 5, kLayers = 5, kSlidingWindow = 2048;
  DrafterConfig c = published_drafter(target);
  c.taps.clear();
  for (int i = 0; i < kTaps; ++i) c.taps.push_back(1 + i * (target.num_hidden_layers - 4) / (kTaps - 1));
  c.layers.assign(kLayers, {.causal = false, .sliding_window = kSlidingWindow});
  c.conv_kernel_size = 2;
  c.conv_group_size = 16;
  c.vocab_size = target.vocab_size;
  c.selector_rank = 256;
  c.selector_top_k = 16;
  return c;
}

}  // namespace quire
