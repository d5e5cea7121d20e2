#include "model/weights.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_directory.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ModelConfig small_config() {
  ModelConfig c;
  c.text.hidden_size = 8;
  c.text.intermediate_size = 6;
  c.text.num_hidden_layers = 2;
  c.text.vocab_size = 10;
  c.text.layer_types = {LayerKind::linear_attention, LayerKind::full_attention};
  c.text.num_attention_heads = 2;
  c.text.num_key_value_heads = 1;
  c.text.head_dim = 4;
  c.text.linear_num_key_heads = 1;
  c.text.linear_num_value_heads = 3;
  c.text.linear_key_head_dim = 2;
  c.text.linear_value_head_dim = 5;
  c.vision.depth = 1;
  c.vision.hidden_size = 4;
  c.vision.num_heads = 1;
  c.vision.intermediate_size = 7;
  c.vision.patch_size = 2;
  c.vision.num_position_embeddings = 9;
  c.vision.out_hidden_size = 8;
  return c;
}

// The tensors of small_config() as a published file names them, each number written out.
std::vector<StoredTensor> small_tensors() {
  std::vector<StoredTensor> tensors;
  const auto add = [&](std::string prefix,
                       std::vector<std::pair<const char*, std::vector<std::int64_t>>> list) {
    for (auto& [name, shape] : list) tensors.push_back({prefix + name, "BF16", shape, {}});
  };
  add("model.language_model.", {{"embed_tokens.weight", {10, 8}}, {"norm.weight", {8}}});
  for (const char* layer : {"model.language_model.layers.0.", "model.language_model.layers.1."})
    add(layer, {{"input_layernorm.weight", {8}},
                {"post_attention_layernorm.weight", {8}},
                {"mlp.gate_proj.weight", {6, 8}},
                {"mlp.up_proj.weight", {6, 8}},
                {"mlp.down_proj.weight", {8, 6}}});
  add("model.language_model.layers.0.linear_attn.", {{"in_proj_qkv.weight", {19, 8}},
                                                     {"in_proj_z.weight", {15, 8}},
                                                     {"in_proj_b.weight", {3, 8}},
                                                     {"in_proj_a.weight", {3, 8}},
                                                     {"conv1d.weight", {19, 1, 4}},
                                                     {"A_log", {3}},
                                                     {"dt_bias", {3}},
                                                     {"norm.weight", {5}},
                                                     {"out_proj.weight", {8, 15}}});
  add("model.language_model.layers.1.self_attn.", {{"q_proj.weight", {16, 8}},
                                                   {"k_proj.weight", {4, 8}},
                                                   {"v_proj.weight", {4, 8}},
                                                   {"o_proj.weight", {8, 8}},
                                                   {"q_norm.weight", {4}},
                                                   {"k_norm.weight", {4}}});
  add("model.visual.", {{"patch_embed.proj.weight", {4, 3, 2, 2, 2}},
                        {"patch_embed.proj.bias", {4}},
                        {"pos_embed.weight", {9, 4}},
                        {"blocks.0.norm1.weight", {4}},
                        {"blocks.0.norm1.bias", {4}},
                        {"blocks.0.norm2.weight", {4}},
                        {"blocks.0.norm2.bias", {4}},
                        {"blocks.0.attn.qkv.weight", {12, 4}},
                        {"blocks.0.attn.qkv.bias", {12}},
                        {"blocks.0.attn.proj.weight", {4, 4}},
                        {"blocks.0.attn.proj.bias", {4}},
                        {"blocks.0.mlp.linear_fc1.weight", {7, 4}},
                        {"blocks.0.mlp.linear_fc1.bias", {7}},
                        {"blocks.0.mlp.linear_fc2.weight", {4, 7}},
                        {"blocks.0.mlp.linear_fc2.bias", {4}},
                        {"merger.norm.weight", {4}},
                        {"merger.norm.bias", {4}},
                        {"merger.linear_fc1.weight", {16, 16}},
                        {"merger.linear_fc1.bias", {16}},
                        {"merger.linear_fc2.weight", {8, 16}},
                        {"merger.linear_fc2.bias", {8}}});
  add("", {{"lm_head.weight", {10, 8}}});
  return tensors;
}

class WeightsTest : public testing::Test {
 protected:
  ModelConfig config = small_config();
  std::vector<StoredTensor> tensors = small_tensors();
  TemporaryDirectory folder;

  ModelWeights load() const {
    write_safetensors(folder.path() / "model.safetensors", tensors);
    OpenStream stream(cpu_backend(), nullptr);
    return ModelWeights(folder.path(), config, cpu_backend(), stream);
  }
  std::string error() const {
    return error_of([&] { load(); });
  }
  StoredTensor& find(std::string_view suffix) {
    return *std::ranges::find_if(tensors, [&](const auto& t) { return t.name.ends_with(suffix); });
  }
  void remove(std::string_view suffix) {
    std::erase_if(tensors, [&](const auto& t) { return t.name.ends_with(suffix); });
  }
  void rename(std::string_view from, std::string_view to) {
    for (StoredTensor& t : tensors)
      if (t.name.starts_with(from)) t.name = std::string(to) + t.name.substr(from.size());
  }
};

TEST_F(WeightsTest, BindsEveryTensor) {
  const ModelWeights w = load();
  std::int64_t stored = 0;
  for (const StoredTensor& t : tensors) {
    std::int64_t n = 1;
    for (std::int64_t side : t.shape) n *= side;
    stored += n;
  }
  EXPECT_EQ(w.parameters(), stored);
  EXPECT_EQ(w.mapped_bytes(), std::filesystem::file_size(folder.path() / "model.safetensors"));
  ASSERT_EQ(w.text.layers.size(), 2u);
  const LinearAttentionWeights& linear = w.text.layers[0].linear_attn;
  EXPECT_EQ(linear.in_proj_qkv.out, 19);
  EXPECT_EQ(linear.in_proj_qkv.in, 8);
  EXPECT_EQ(linear.conv1d.size(), 19u * 4);
  EXPECT_EQ(linear.norm.size(), 5u);
  const AttentionWeights& full = w.text.layers[1].self_attn;
  EXPECT_EQ(full.q_proj.out, 16);
  EXPECT_EQ(full.o_proj.in, 8);
  EXPECT_EQ(w.text.layers[0].self_attn.q_proj.data, nullptr);
  EXPECT_EQ(w.text.layers[1].linear_attn.out_proj.data, nullptr);
  EXPECT_EQ(w.vision.patch_embed.weight.out, 4);
  EXPECT_EQ(w.vision.patch_embed.weight.in, 24);
  EXPECT_EQ(w.vision.blocks.at(0).linear_fc2.weight.in, 7);
  EXPECT_EQ(w.vision.merger_fc2.bias.size(), 8u);
}

TEST_F(WeightsTest, MatricesAreReadWhereTheFileIsMapped) {
  // Values: 1, 2, 3 ... as bf16. Vectors become f32 whatever their type.
  const std::vector<std::uint16_t> halves = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0, 0x40e0, 0x4100};
  std::string rows;
  for (int i = 0; i < 10; ++i) rows += bytes_of(halves);
  find("embed_tokens.weight").data = rows;
  find("norm.weight").data = bytes_of(halves);
  StoredTensor& a_log = find("A_log");
  a_log.dtype = "F32";
  a_log.data = bytes_of(std::vector<float>{0.1f, 0.2f, 0.3f});
  StoredTensor& dt_bias = find("dt_bias");
  dt_bias.dtype = "F16";
  dt_bias.data = bytes_of(std::vector<std::uint16_t>{0x3c00, 0xc000, 0x0001});
  // write_safetensors puts data first, holes last.
  std::ranges::stable_partition(tensors, [](const auto& t) { return !t.data.empty(); });
  const ModelWeights w = load();
  const bf16* embed = static_cast<const bf16*>(w.text.embed_tokens.data);
  EXPECT_EQ(to_float(embed[0]), 1);
  EXPECT_EQ(to_float(embed[79]), 8);
  EXPECT_EQ(w.text.embed_tokens.format, Format::bf16);
  EXPECT_THAT(w.text.norm, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  EXPECT_THAT(w.text.layers[0].linear_attn.A_log, ElementsAre(0.1f, 0.2f, 0.3f));
  EXPECT_THAT(w.text.layers[0].linear_attn.dt_bias, ElementsAre(1, -2, 0x1p-24f));
}

TEST_F(WeightsTest, OtherMatricesAreConvertedToBf16) {
  StoredTensor& o_proj = find("o_proj.weight");
  o_proj.dtype = "F32";
  std::vector<float> values(64, 1.0f);
  values[1] = 1 + 0x1p-8f;    // half way: to even, down
  values[2] = 1 + 0x1.8p-7f;  // half way: to even, up
  values[63] = -3;
  o_proj.data = bytes_of(values);
  StoredTensor& k_proj = find("k_proj.weight");
  k_proj.dtype = "F16";
  k_proj.data = bytes_of(std::vector<std::uint16_t>(32, 0x3c01));  // 1 + 2^-10
  // An odd offset: bf16 that cannot be read in place.
  StoredTensor pad{"model.language_model.layers.1.self_attn.rotary_emb.inv_freq", "U8", {1}, "x"};
  StoredTensor& v_proj = find("v_proj.weight");
  v_proj.data = bytes_of(std::vector<std::uint16_t>(32, 0x4000));
  tensors.push_back(pad);
  std::ranges::stable_partition(tensors, [](const auto& t) { return !t.data.empty(); });
  std::rotate(tensors.begin(), std::ranges::find(tensors, pad.name, &StoredTensor::name),
              std::ranges::find(tensors, pad.name, &StoredTensor::name) + 1);
  const ModelWeights w = load();
  const AttentionWeights& full = w.text.layers[1].self_attn;
  const auto at = [](const Weight& m, int i) { return to_float(static_cast<const bf16*>(m.data)[i]); };
  EXPECT_EQ(at(full.o_proj, 0), 1);
  EXPECT_EQ(at(full.o_proj, 1), 1);
  EXPECT_EQ(at(full.o_proj, 2), 1 + 0x1p-6f);
  EXPECT_EQ(at(full.o_proj, 63), -3);
  EXPECT_EQ(at(full.k_proj, 31), 1);
  EXPECT_EQ(at(full.v_proj, 31), 2);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(full.v_proj.data) % alignof(bf16), 0u);
}

TEST_F(WeightsTest, TiedHeadIsTheSameMemory) {
  remove("lm_head.weight");
  EXPECT_THAT(error(), HasSubstr("1 missing:\n  lm_head.weight [10, 8]"));
  config.tie_word_embeddings = true;
  const ModelWeights w = load();
  EXPECT_EQ(w.text.lm_head.data, w.text.embed_tokens.data);
  EXPECT_EQ(w.text.lm_head.out, 10);
}

TEST_F(WeightsTest, AHeadThatIsThereIsUsedEvenWhenTied) {
  config.tie_word_embeddings = true;
  const ModelWeights w = load();
  EXPECT_NE(w.text.lm_head.data, nullptr);
  EXPECT_NE(w.text.lm_head.data, w.text.embed_tokens.data);
}

TEST_F(WeightsTest, PrefixVariants) {
  const auto& last = tensors.back().name;
  ASSERT_EQ(last, "lm_head.weight");
  struct Variant {
    const char *text, *vision, *head;
  };
  const char *text = "model.language_model.", *vision = "model.visual.", *head = "lm_head.";
  for (const Variant& v :
       {Variant{"language_model.model.", "visual.", "language_model.lm_head."},
        Variant{"language_model.", "visual.", "lm_head."}, Variant{"model.", "model.visual.", "lm_head."}}) {
    rename(head, v.head), rename(text, v.text), rename(vision, v.vision);
    EXPECT_EQ(error(), "") << v.text;
    tensors = small_tensors();
  }
  StoredTensor twin = find("embed_tokens.weight");
  twin.name = "model.embed_tokens.weight";
  tensors.push_back(twin);
  EXPECT_THAT(error(), HasSubstr("are two names of one tensor"));
}

TEST_F(WeightsTest, KnownExtrasAreLeftOut) {
  tensors.push_back({"mtp.fc.weight", "BF16", {8, 16}, {}});
  tensors.push_back({"mtp.layers.0.self_attn.q_proj.weight", "BF16", {16, 8}, {}});
  tensors.push_back({"model.visual.rotary_pos_emb.inv_freq", "F32", {1}, {}});
  EXPECT_EQ(error(), "");
}

TEST_F(WeightsTest, OneMessageListsAllThatIsWrong) {
  remove("A_log");
  find("q_proj.weight").shape = {8, 8};
  find("visual.blocks.0.attn.proj.bias").shape = {5};
  find("dt_bias").dtype = "I32";
  tensors.push_back({"model.language_model.layers.2.mlp.up_proj.weight", "BF16", {6, 8}, {}});
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("1 missing:\n  layers.0.linear_attn.A_log [3]"));
  EXPECT_THAT(message, HasSubstr("1 unexpected:\n  model.language_model.layers.2.mlp.up_proj.weight [6, 8]"));
  EXPECT_THAT(message, HasSubstr("3 of a wrong shape or type:"));
  EXPECT_THAT(
      message,
      HasSubstr("model.language_model.layers.1.self_attn.q_proj.weight: shape [8, 8], expected [16, 8]"));
  EXPECT_THAT(message, HasSubstr("model.visual.blocks.0.attn.proj.bias: shape [5], expected [4]"));
  EXPECT_THAT(message, HasSubstr("linear_attn.dt_bias: type I32, expected BF16, F16 or F32"));
  EXPECT_THAT(message, HasSubstr(folder.path().string()));
}

TEST_F(WeightsTest, ALongListIsCutToTen) {
  for (int i = 0; i < 12; ++i) tensors.push_back({fmt::format("extra.{:02}", i), "BF16", {1}, {}});
  const std::string message = error();
  EXPECT_THAT(message, HasSubstr("12 unexpected:"));
  EXPECT_THAT(message, HasSubstr("extra.09"));
  EXPECT_THAT(message, Not(HasSubstr("extra.10")));
  EXPECT_THAT(message, HasSubstr("and 2 more"));
}

TEST(ShippedModel, Loads) {
  const std::filesystem::path directory = "models/quire-mini";
  const ModelConfig config = ModelConfig::from_directory(directory);
  OpenStream stream(cpu_backend(), nullptr);
  const ModelWeights w(directory, config, cpu_backend(), stream);
  EXPECT_EQ(w.text.layers.size(), 12u);
  EXPECT_EQ(w.vision.blocks.size(), 6u);
  EXPECT_EQ(w.text.lm_head.data, w.text.embed_tokens.data);
  // Stored as bf16: the file is the only copy of the matrices.
  EXPECT_LT(w.mapped_bytes(), 40u << 20);
  EXPECT_GT(w.parameters(), 18'000'000);
}

}  // namespace
}  // namespace quire
