#include "model/weights.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "core/error.h"

namespace quire {
namespace {

using Shape = std::vector<std::int64_t>;

// Checkpoints differ in the prefixes of their tensor names. Here text tensors are `layers.0...`, vision
// tensors `visual...`.
std::string canonical(std::string_view name) {
  for (std::string_view prefix :
       {"model.language_model.", "language_model.model.", "language_model.", "model."})
    if (name.starts_with(prefix)) return std::string(name.substr(prefix.size()));
  return std::string(name);
}

// Known parts of checkpoints that the forward pass does not read: the multi-token-prediction head and rotary
// frequencies, which follow from the configuration.
bool left_out(std::string_view name) {
  return name.starts_with("mtp.") || name.ends_with("inv_freq");
}

bool is_float(DType t) {
  return t == DType::bf16 || t == DType::f16 || t == DType::f32;
}

// Element `i`; the file aligns nothing.
float load(const Tensor& t, std::int64_t i) {
  const std::byte* at = t.data + i * size_of(t.dtype);
  if (t.dtype == DType::f32) {
    float x;
    std::memcpy(&x, at, sizeof(x));
    return x;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return t.dtype == DType::bf16 ? to_float(bf16{bits}) : f16_to_float(bits);
}

// The matrix as bf16: where the file is mapped, or a rounded copy that joins `converted`.
const void* as_bf16(const Tensor& t, std::vector<Buffer>& converted) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(t.data) % alignof(bf16) == 0;
  if (t.dtype == DType::bf16 && aligned) return t.data;
  Buffer copy(static_cast<std::size_t>(t.elements()) * sizeof(bf16));
  bf16* out = copy.as<bf16>();
  for (std::int64_t i = 0; i < t.elements(); ++i) out[i] = to_bf16(load(t, i));
  converted.push_back(std::move(copy));
  return out;
}

// Takes tensors by name, and remembers what did not fit until all are asked for.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, std::string directory, std::vector<Buffer>& converted)
      : directory_(std::move(directory)), converted_(converted) {
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      if (left_out(canonical(name))) continue;
      const auto [place, fresh] = unbound_.emplace(canonical(name), Named{name, &tensor});
      if (!fresh)
        fail(ErrorCode::invalid_input, "{}: {} and {} are two names of one tensor", directory_,
             place->second.name, name);
    }
  }

  bool has(const std::string& name) const { return unbound_.contains(name); }

  // A matrix stored as `stored`, which is [out, in] or folds to it.
  Weight matrix(const std::string& name, const Shape& stored) {
    Weight weight;
    if (const Tensor* t = take(name, stored)) {
      weight.data = as_bf16(*t, converted_);
      weight.out = stored[0];
      weight.in = stored[0] ? t->elements() / stored[0] : 0;
    }
    return weight;
  }

  Vector vector(const std::string& name, const Shape& stored) {
    Vector values;
    if (const Tensor* t = take(name, stored)) {
      values.resize(static_cast<std::size_t>(t->elements()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = load(*t, static_cast<std::int64_t>(i));
    }
    return values;
  }

  std::int64_t elements() const { return elements_; }

  // Throws one error that lists everything that was wrong.
  void finish() const {
    std::vector<std::string> unexpected;
    for (const auto& [name, found] : unbound_)
      unexpected.push_back(fmt::format("{} {}", found.name, shape_string(found.tensor->shape)));
    if (missing_.empty() && unexpected.empty() && wrong_.empty()) return;
    fail(ErrorCode::invalid_input,
         "{}: the tensors do not fit config.json{}{}{}\nCheck that all files are of one model.", directory_,
         list("missing", missing_), list("unexpected", unexpected), list("of a wrong shape or type", wrong_));
  }

 private:
  struct Named {
    std::string name;  // in the file
    const Tensor* tensor = nullptr;
  };

  const Tensor* take(const std::string& name, const Shape& expected) {
    const auto it = unbound_.find(name);
    if (it == unbound_.end()) {
      missing_.push_back(fmt::format("{} {}", name, shape_string(expected)));
      return nullptr;
    }
    const Named found = it->second;
    unbound_.erase(it);
    if (found.tensor->shape != expected)
      wrong_.push_back(fmt::format("{}: shape {}, expected {}", found.name, shape_string(found.tensor->shape),
                                   shape_string(expected)));
    else if (!is_float(found.tensor->dtype))
      wrong_.push_back(
          fmt::format("{}: type {}, expected BF16, F16 or F32", found.name, to_string(found.tensor->dtype)));
    else
      return elements_ += found.tensor->elements(), found.tensor;
    return nullptr;
  }

  static std::string list(std::string_view title, const std::vector<std::string>& items) {
    constexpr std::size_t kShown = 10;
    if (items.empty()) return {};
    std::string text = fmt::format("\n{} {}:", items.size(), title);
    for (std::size_t i = 0; i < std::min(items.size(), kShown); ++i) text += "\n  " + items[i];
    if (items.size() > kShown) text += fmt::format("\n  and {} more", items.size() - kShown);
    return text;
  }

  std::string directory_;
  std::vector<Buffer>& converted_;
  std::map<std::string, Named> unbound_;  // by canonical name
  std::vector<std::string> missing_, wrong_;
  std::int64_t elements_ = 0;
};

FullAttentionWeights bind_full_attention(Binder& b, const std::string& p, const TextConfig& c) {
  const std::int64_t D = c.hidden_size, E = c.head_dim, H = c.num_attention_heads, G = c.num_key_value_heads;
  FullAttentionWeights w;
  w.q_proj = b.matrix(p + "q_proj.weight", {H * 2 * E, D});
  w.k_proj = b.matrix(p + "k_proj.weight", {G * E, D});
  w.v_proj = b.matrix(p + "v_proj.weight", {G * E, D});
  w.o_proj = b.matrix(p + "o_proj.weight", {D, H * E});
  w.q_norm = b.vector(p + "q_norm.weight", {E});
  w.k_norm = b.vector(p + "k_norm.weight", {E});
  return w;
}

LinearAttentionWeights bind_linear_attention(Binder& b, const std::string& p, const TextConfig& c) {
  const std::int64_t D = c.hidden_size, Hv = c.linear_num_value_heads;
  LinearAttentionWeights w;
  w.in_proj_qkv = b.matrix(p + "in_proj_qkv.weight", {c.conv_dim(), D});
  w.in_proj_z = b.matrix(p + "in_proj_z.weight", {c.value_dim(), D});
  w.in_proj_b = b.matrix(p + "in_proj_b.weight", {Hv, D});
  w.in_proj_a = b.matrix(p + "in_proj_a.weight", {Hv, D});
  w.conv1d = b.vector(p + "conv1d.weight", {c.conv_dim(), 1, c.linear_conv_kernel_dim});
  w.A_log = b.vector(p + "A_log", {Hv});
  w.dt_bias = b.vector(p + "dt_bias", {Hv});
  w.norm = b.vector(p + "norm.weight", {c.linear_value_head_dim});
  w.out_proj = b.matrix(p + "out_proj.weight", {D, c.value_dim()});
  return w;
}

TextLayerWeights bind_text_layer(Binder& b, const std::string& p, LayerKind kind, const TextConfig& c) {
  const std::int64_t D = c.hidden_size, F = c.intermediate_size;
  TextLayerWeights w;
  w.input_layernorm = b.vector(p + "input_layernorm.weight", {D});
  w.post_attention_layernorm = b.vector(p + "post_attention_layernorm.weight", {D});
  if (kind == LayerKind::full_attention)
    w.self_attn = bind_full_attention(b, p + "self_attn.", c);
  else
    w.linear_attn = bind_linear_attention(b, p + "linear_attn.", c);
  w.gate_proj = b.matrix(p + "mlp.gate_proj.weight", {F, D});
  w.up_proj = b.matrix(p + "mlp.up_proj.weight", {F, D});
  w.down_proj = b.matrix(p + "mlp.down_proj.weight", {D, F});
  return w;
}

TextWeights bind_text(Binder& b, const ModelConfig& config) {
  const TextConfig& c = config.text;
  const Shape table{c.vocab_size, c.hidden_size};
  TextWeights w;
  w.embed_tokens = b.matrix("embed_tokens.weight", table);
  for (std::size_t i = 0; i < c.layer_types.size(); ++i)
    w.layers.push_back(bind_text_layer(b, fmt::format("layers.{}.", i), c.layer_types[i], c));
  w.norm = b.vector("norm.weight", {c.hidden_size});
  const bool tied = config.tie_word_embeddings && !b.has("lm_head.weight");
  w.lm_head = tied ? w.embed_tokens : b.matrix("lm_head.weight", table);
  return w;
}

Affine bind_affine(Binder& b, const std::string& p, const Shape& stored) {
  return {b.matrix(p + ".weight", stored), b.vector(p + ".bias", {stored[0]})};
}

LayerNormWeights bind_layer_norm(Binder& b, const std::string& p, std::int64_t width) {
  return {b.vector(p + ".weight", {width}), b.vector(p + ".bias", {width})};
}

VisionWeights bind_vision(Binder& b, const VisionConfig& c) {
  const std::int64_t D = c.hidden_size, F = c.intermediate_size, patch = c.patch_size,
                     merged = c.merged_dim();
  VisionWeights w;
  w.patch_embed =
      bind_affine(b, "visual.patch_embed.proj", {D, c.in_channels, c.temporal_patch_size, patch, patch});
  w.pos_embed = b.matrix("visual.pos_embed.weight", {c.num_position_embeddings, D});
  for (int i = 0; i < c.depth; ++i) {
    const std::string p = fmt::format("visual.blocks.{}.", i);
    VisionBlockWeights& block = w.blocks.emplace_back();
    block.norm1 = bind_layer_norm(b, p + "norm1", D);
    block.norm2 = bind_layer_norm(b, p + "norm2", D);
    block.qkv = bind_affine(b, p + "attn.qkv", {3 * D, D});
    block.proj = bind_affine(b, p + "attn.proj", {D, D});
    block.linear_fc1 = bind_affine(b, p + "mlp.linear_fc1", {F, D});
    block.linear_fc2 = bind_affine(b, p + "mlp.linear_fc2", {D, F});
  }
  w.merger_norm = bind_layer_norm(b, "visual.merger.norm", D);
  w.merger_fc1 = bind_affine(b, "visual.merger.linear_fc1", {merged, merged});
  w.merger_fc2 = bind_affine(b, "visual.merger.linear_fc2", {c.out_hidden_size, merged});
  return w;
}

}  // namespace

ModelWeights::ModelWeights(const std::filesystem::path& directory, const ModelConfig& config)
    : checkpoint_(directory) {
  Binder binder(checkpoint_, directory.string(), converted_);
  text = bind_text(binder, config);
  vision = bind_vision(binder, config.vision);
  binder.finish();
  parameters_ = binder.elements();
}

}  // namespace quire
