// What config.json and generation_config.json say about a model: every size, id and layer kind comes from
// here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace quire {

enum class LayerKind { linear_attention, full_attention };

// Dimension letters as in MODEL.md.
struct TextConfig {
  int hidden_size = 0;        // D
  int intermediate_size = 0;  // F
  int num_hidden_layers = 0;
  int vocab_size = 0;                  // V
  std::vector<LayerKind> layer_types;  // one for each layer
  float rms_norm_eps = 1e-6f;
  int max_position_embeddings = 262144;

  // Full attention.
  int num_attention_heads = 0;  // H
  int num_key_value_heads = 0;  // G
  int head_dim = 256;           // E
  double rope_theta = 1e7;
  int rotary_dim = 64;                  // head_dim * partial_rotary_factor
  int mrope_section[3] = {11, 11, 10};  // frequencies of t, h, w

  // Gated DeltaNet.
  int linear_num_key_heads = 16;    // Hk
  int linear_num_value_heads = 32;  // Hv
  int linear_key_head_dim = 128;    // Ek
  int linear_value_head_dim = 128;  // Ev
  int linear_conv_kernel_dim = 4;   // W

  int key_dim() const { return linear_num_key_heads * linear_key_head_dim; }
  int value_dim() const { return linear_num_value_heads * linear_value_head_dim; }
  int conv_dim() const { return 2 * key_dim() + value_dim(); }
};

struct VisionConfig {
  int depth = 0;
  int hidden_size = 0;
  int num_heads = 0;
  int intermediate_size = 0;
  int in_channels = 3;
  int patch_size = 16;
  int temporal_patch_size = 2;
  int spatial_merge_size = 2;
  int num_position_embeddings = 2304;  // a square grid
  int out_hidden_size = 0;             // the text model's hidden_size
  double rope_theta = 10000;

  int head_dim() const { return hidden_size / num_heads; }
  int patch_dim() const { return in_channels * temporal_patch_size * patch_size * patch_size; }
  int merged_dim() const { return hidden_size * spatial_merge_size * spatial_merge_size; }
  int grid_side() const;  // sqrt(num_position_embeddings)
};

struct ModelConfig {
  TextConfig text;
  VisionConfig vision;
  bool tie_word_embeddings = false;
  std::int32_t image_token_id = 0;
  std::int32_t vision_start_token_id = 0;
  std::int32_t vision_end_token_id = 0;
  std::vector<std::int32_t> stop_token_ids;  // every eos named in config.json or generation_config.json

  // Throws Error{not_found | invalid_input | unsupported} naming the file, the field, its value and what was
  // expected: another architecture or model_type, sizes that do not fit each other, an unknown activation.
  static ModelConfig from_directory(const std::filesystem::path& model);
};

// A DFlash drafter (architectures DFlashDraftModel or DFlash2DraftModel): guesses a block of tokens in one
// pass from what the target model has computed of the tokens before. Embedding and head are the target's.
// DFlash2 adds convolutions along the block and a candidate selector.
struct DrafterConfig {
  int hidden_size = 0;        // D, the target's
  int intermediate_size = 0;  // F
  int num_attention_heads = 0;
  int num_key_value_heads = 0;
  int head_dim = 0;  // E, all of it rotated
  float rms_norm_eps = 1e-6f;
  double rope_theta = 1e7;
  int block_size = 0;  // B: an anchor and B - 1 masks
  std::int32_t mask_token_id = 0;
  std::vector<int> taps;  // layers of the target whose outputs are its features, rising

  struct Layer {
    bool causal = false;     // inside the block
    int sliding_window = 0;  // over the context; 0: all of it
  };
  std::vector<Layer> layers;

  // Of DFlash2; 0 taps: there are no convolutions, 0 candidates: there is no selector.
  int conv_kernel_size = 0;  // W, taps
  int conv_group_size = 0;   // channels that share what a row chooses
  int vocab_size = 0;        // V, the target's
  int selector_rank = 0;     // R
  int selector_top_k = 0;    // K, candidates of a row
  float output_multiplier = 1,
        final_logit_softcapping = 0;  // of logits that meet other scores; 0: not capped

  std::int64_t kv_cols() const { return std::int64_t{num_key_value_heads} * head_dim; }
  int conv_groups() const { return conv_kernel_size ? hidden_size / conv_group_size : 0; }
  // Throws as ModelConfig does, and Error{invalid_input} when the drafter was made for another target.
  static DrafterConfig from_directory(const std::filesystem::path& drafter, const TextConfig& target);
};

// The dimensions of a published model, for measuring without its weights: "qwen3.5-0.8b", "-2b", "-4b", "-9b"
// or "-27b". Throws Error{not_found} that lists them.
ModelConfig published_shape(std::string_view name);
// A drafter for such a model with the dimensions of the published DFlash for Qwen3.5-4B, or of the published
// DFlash2 for a larger model, widths of the target's.
DrafterConfig published_drafter(const TextConfig& target);
DrafterConfig published_dflash2(const TextConfig& target);

}  // namespace quire
