// A model with a multi-token-prediction head, which tests write themselves: another model's files, and random
// tensors mtp.* beside them.
#pragma once

#include "io/json.h"
#include "io/safetensors.h"
#include "model_directory.h"
#include "ops/matrix.h"

namespace quire {

inline std::vector<StoredTensor> mtp_tensors(const Json& text) {
  const std::int64_t D = text["hidden_size"], F = text["intermediate_size"], E = text["head_dim"];
  const std::int64_t H = text["num_attention_heads"], G = text["num_key_value_heads"];
  std::vector<StoredTensor> tensors;
  Random random(4);
  const auto add = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t elements = 1;
    for (const std::int64_t d : shape) elements *= d;
    const double width = shape.size() == 1 ? 0.1 : std::sqrt(3.0 / static_cast<double>(shape.back()));
    std::vector<std::uint16_t> data;
    for (std::int64_t i = 0; i < elements; ++i) data.push_back(to_bf16(random.uniform(-width, width)).bits);
    tensors.push_back({"mtp." + name + ".weight", "BF16", std::move(shape), bytes_of(data)});
  };
  add("fc", {D, 2 * D});
  for (const char* name : {"pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.input_layernorm",
                           "layers.0.post_attention_layernorm"})
    add(name, {D});
  add("layers.0.self_attn.q_proj", {2 * H * E, D});
  add("layers.0.self_attn.k_proj", {G * E, D});
  add("layers.0.self_attn.v_proj", {G * E, D});
  add("layers.0.self_attn.o_proj", {D, H * E});
  add("layers.0.self_attn.q_norm", {E});
  add("layers.0.self_attn.k_norm", {E});
  add("layers.0.mlp.gate_proj", {F, D});
  add("layers.0.mlp.up_proj", {F, D});
  add("layers.0.mlp.down_proj", {D, F});
  return tensors;
}

// `model` has its weights in model.safetensors.
inline void write_mtp_model(const std::filesystem::path& folder, const std::filesystem::path& model) {
  std::filesystem::copy(model, folder, std::filesystem::copy_options::recursive);
  const std::vector<StoredTensor> tensors = mtp_tensors(read_json(model / "config.json")["text_config"]);
  write_safetensors(folder / "mtp.safetensors", tensors);
  Json files = Json::object();
  const Checkpoint checkpoint(model);
  for (const auto& [name, tensor] : checkpoint.tensors()) files[name] = "model.safetensors";
  for (const StoredTensor& t : tensors) files[t.name] = "mtp.safetensors";
  std::ofstream(folder / "model.safetensors.index.json") << Json{{"weight_map", files}}.dump();
}

}  // namespace quire
