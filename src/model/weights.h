// The weights of a model under the names of its checkpoint, in the memory of a backend. On a CPU, matrices
// are used where the file is mapped; vectors (norms, biases, convolution taps) are small and held as f32
// everywhere.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "backend/backend.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "ops/ops.h"

namespace quire {

using Vector = std::span<const float>;

struct AttentionWeights {
  Weight q_proj;  // [H * 2E, D]: for each head E rows of query, then E of gate; a drafter's: [H * E, D]
  Weight k_proj, v_proj;  // [G * E, D]
  Weight o_proj;          // [D, H * E]
  Vector q_norm, k_norm;  // [E], offset from 1
};

struct LinearAttentionWeights {
  Weight in_proj_qkv;           // [2 Hk Ek + Hv Ev, D]: q | k | v, each head-major
  Weight in_proj_z;             // [Hv Ev, D]
  Weight in_proj_b, in_proj_a;  // [Hv, D]
  Vector conv1d;                // [2 Hk Ek + Hv Ev, W], the last tap meets the current token
  Vector A_log, dt_bias;        // [Hv]
  Vector norm;                  // [Ev], not offset
  Weight out_proj;              // [D, Hv Ev]
};

struct MlpWeights {
  Weight gate_proj, up_proj;  // [F, D]
  Weight down_proj;           // [D, F]
};

struct TextLayerWeights {
  Vector input_layernorm, post_attention_layernorm;  // [D], offset from 1
  AttentionWeights self_attn;                        // one of the two is filled, by layer_types
  LinearAttentionWeights linear_attn;
  MlpWeights mlp;
};

struct TextWeights {
  Weight embed_tokens;  // [V, D]
  std::vector<TextLayerWeights> layers;
  Vector norm;     // [D], offset from 1
  Weight lm_head;  // [V, D]; the same memory as embed_tokens when tied
};

// The head that predicts one token more.
struct MtpWeights {
  Weight fc;                                         // [D, 2D]: of the embedding, then of the target's output
  Vector pre_fc_norm_embedding, pre_fc_norm_hidden;  // [D], offset from 1
  TextLayerWeights layer;                            // of full attention
  Vector norm;                                       // [D], offset from 1
};

struct Affine {
  Weight weight;
  Vector bias;
};

struct LayerNormWeights {
  Vector weight, bias;
};

struct VisionBlockWeights {
  LayerNormWeights norm1, norm2;  // [D]
  Affine qkv;                     // [3D, D]: q | k | v, each head-major
  Affine proj;                    // [D, D]
  Affine linear_fc1, linear_fc2;  // [F, D], [D, F]
};

struct VisionWeights {
  Affine patch_embed;  // [D, channels * frames * patch^2]
  Weight pos_embed;    // [num_position_embeddings, D]
  std::vector<VisionBlockWeights> blocks;
  LayerNormWeights merger_norm;   // [D]
  Affine merger_fc1, merger_fc2;  // [merged, merged], [out_hidden, merged]
};

// The convolutions in front of attention or MLP (side 0) and behind it (side 1).
struct DrafterConvWeights {
  Vector base_kernel;        // [2, W, D], tap 0 meets the current row
  Weight kernel_projection;  // [2 * W * groups, D]
};

struct DrafterLayerWeights {
  Vector input_layernorm, post_attention_layernorm;  // [D], all norms of a drafter offset from 1
  AttentionWeights self_attn;
  MlpWeights mlp;
  DrafterConvWeights attention_conv, mlp_conv;  // empty without convolutions
};

struct CandidateSelectorWeights {
  Weight predecessor_codebook, successor_codebook;  // [V, R]
  Weight hidden_projection;                         // [R, D]
};

struct DrafterWeights {
  Weight fc;           // [D, taps * D]
  Vector hidden_norm;  // [D]
  std::vector<DrafterLayerWeights> layers;
  Vector norm;                                  // [D]
  CandidateSelectorWeights candidate_selector;  // empty without
};

// How far loading is: bytes in place, of all.
using LoadProgress = std::function<void(std::size_t done, std::size_t total)>;

// Gives tensors by name, from a checkpoint or made up (weights.cpp).
class WeightBinder;

// Owns the mapping of a checkpoint, and the memory that holds what is not used where it is mapped.
class WeightOwner {
 public:
  std::size_t mapped_bytes() const { return checkpoint_ ? checkpoint_->bytes() : 0; }
  // In the backend's memory, the mapping not counted.
  std::size_t memory_bytes() const { return memory_.size(); }
  std::int64_t parameters() const { return parameters_; }

  // In place of a directory: random weights of the same shapes, scaled so that activations keep the size of
  // one, for measuring. The same seed gives the same weights.
  struct Random {
    std::uint64_t seed = 0;
  };

 protected:
  // What asks a binder for every tensor. It runs twice, first to count.
  using Bind = std::function<void(WeightBinder&)>;
  // Takes the tensors whose names without prefix are `wanted`. Throws as ModelWeights does.
  void load(const std::filesystem::path& directory, bool (*wanted)(std::string_view name),
            const Backend& backend, Stream& stream, const LoadProgress& progress, const Bind& bind);
  // `tied`: the output head is the embedding.
  void make_up(Random random, bool tied, const Backend& backend, Stream& stream, const Bind& bind);

 private:
  std::optional<Checkpoint> checkpoint_;
  Memory memory_;
  std::int64_t parameters_ = 0;
};

class ModelWeights : public WeightOwner {
 public:
  // Strips the known prefixes (model.language_model., language_model.model., language_model., model.;
  // model.visual., visual.) and binds every tensor by name. Throws one Error{invalid_input} that lists each
  // missing, unexpected and mis-shaped tensor with its shape and the expected one (the first 10 of each kind,
  // then a count). Tensors of the multi-token-prediction head (mtp.*: MtpCheckpoint) and rotary inv_freq
  // buffers are known and left out. Throws Error{out_of_memory} with the numbers before anything is copied.
  ModelWeights(const std::filesystem::path& directory, const ModelConfig& config, const Backend& backend,
               Stream& stream, const LoadProgress& progress = {});
  ModelWeights(Random random, const ModelConfig& config, const Backend& backend, Stream& stream);

  TextWeights text;
  VisionWeights vision;
};

// The weights of the multi-token-prediction head in a model's directory.
class MtpCheckpoint : public WeightOwner {
 public:
  // Whether the model has one.
  static bool is_in(const std::filesystem::path& model);
  // Throws Error{not_found} when the model has none.
  MtpCheckpoint(const std::filesystem::path& model, const TextConfig& config, const Backend& backend,
                Stream& stream);
  MtpCheckpoint(Random random, const TextConfig& config, const Backend& backend, Stream& stream);

  MtpWeights weights;
};

// The weights of a drafter's directory.
class DrafterCheckpoint : public WeightOwner {
 public:
  DrafterCheckpoint(const std::filesystem::path& directory, const DrafterConfig& config,
                    const Backend& backend, Stream& stream);
  DrafterCheckpoint(Random random, const DrafterConfig& config, const Backend& backend, Stream& stream);

  DrafterWeights weights;
};

}  // namespace quire
