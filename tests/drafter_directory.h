// A drafter that tests write themselves: it drafts one token, always, so what is accepted can be counted.
#pragma once

#include "io/json.h"
#include "model_directory.h"

namespace quire {

// Everything is zero but the scale of the last norm: what comes out is the embedding of the mask token, whose
// likeliest neighbour is itself.
inline void write_drafter(const std::filesystem::path& folder, const std::string& model, int token,
                          int block) {
  const Json text = read_json(std::filesystem::path(model) / "config.json")["text_config"];
  const int hidden = text["hidden_size"].get<int>(), heads = 2, dim = 8, ffn = 16;
  const Json config = {{"architectures", {"DFlashDraftModel"}},
                       {"hidden_size", hidden},
                       {"vocab_size", text["vocab_size"]},
                       {"intermediate_size", ffn},
                       {"num_hidden_layers", 1},
                       {"num_attention_heads", heads},
                       {"num_key_value_heads", heads},
                       {"head_dim", dim},
                       {"block_size", block},
                       {"dflash_config", {{"mask_token_id", token}, {"target_layer_ids", {1}}}}};
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config.dump();
  const std::string scale = bytes_of(std::vector<std::uint16_t>(static_cast<std::size_t>(hidden), 0x3f80));
  const std::string layer = "layers.0.";
  std::vector<StoredTensor> tensors = {{.name = "norm.weight", .shape = {hidden}, .data = scale},
                                       {.name = "fc.weight", .shape = {hidden, hidden}, .data = {}},
                                       {.name = "hidden_norm.weight", .shape = {hidden}, .data = {}}};
  for (const char* name : {"input_layernorm", "post_attention_layernorm"})
    tensors.push_back({.name = layer + name + ".weight", .shape = {hidden}, .data = {}});
  for (const char* name : {"q_norm", "k_norm"})
    tensors.push_back({.name = layer + "self_attn." + name + ".weight", .shape = {dim}, .data = {}});
  for (const char* name : {"q_proj", "k_proj", "v_proj"})
    tensors.push_back(
        {.name = layer + "self_attn." + name + ".weight", .shape = {heads * dim, hidden}, .data = {}});
  tensors.push_back({.name = layer + "self_attn.o_proj.weight", .shape = {hidden, heads * dim}, .data = {}});
  for (const char* name : {"gate_proj", "up_proj"})
    tensors.push_back({.name = layer + "mlp." + name + ".weight", .shape = {ffn, hidden}, .data = {}});
  tensors.push_back({.name = layer + "mlp.down_proj.weight", .shape = {hidden, ffn}, .data = {}});
  write_safetensors(folder / "model.safetensors", tensors);
}

}  // namespace quire
