#include "model/config.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/json.h"
#include "model_directory.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// A config.json as published files look, with the sizes of the 4B model.
const char* const kPublished = R"({
  "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "tie_word_embeddings": true,
  "image_token_id": 248056, "video_token_id": 248057, "vision_start_token_id": 248053, "vision_end_token_id": 248054,
  "text_config": {
    "model_type": "qwen3_5_text", "hidden_size": 2560, "intermediate_size": 9216, "num_hidden_layers": 32,
    "vocab_size": 248320, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
    "attn_output_gate": true, "attention_bias": false, "full_attention_interval": 4, "hidden_act": "silu",
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-06, "eos_token_id": 248044,
    "max_position_embeddings": 262144, "mtp_num_hidden_layers": 1,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "partial_rotary_factor": 0.25,
      "mrope_section": [11, 11, 10], "mrope_interleaved": true}},
  "vision_config": {
    "model_type": "qwen3_5", "depth": 24, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096,
    "hidden_act": "gelu_pytorch_tanh", "in_channels": 3, "patch_size": 16, "temporal_patch_size": 2,
    "spatial_merge_size": 2, "num_position_embeddings": 2304, "out_hidden_size": 2560,
    "deepstack_visual_indexes": []}})";

class ConfigTest : public testing::Test {
 protected:
  Json json = parse_json(kPublished, "kPublished");
  Json& text = json["text_config"];
  Json& vision = json["vision_config"];
  TemporaryDirectory folder;

  ModelConfig load() const {
    folder.write("config.json", json.dump());
    return ModelConfig::from_directory(folder.path());
  }
  std::string error() const {
    return error_of([&] { load(); });
  }
};

TEST_F(ConfigTest, ReadsAPublishedFile) {
  folder.write("generation_config.json", R"({"eos_token_id": [248046, 248044]})");
  const ModelConfig c = load();
  EXPECT_EQ(c.text.hidden_size, 2560);
  EXPECT_EQ(c.text.rotary_dim, 64);
  EXPECT_EQ(c.text.rope_theta, 1e7);
  EXPECT_EQ(c.text.conv_dim(), 8192);
  EXPECT_EQ(c.text.rms_norm_eps, 1e-6f);
  EXPECT_EQ(c.vision.head_dim(), 64);
  EXPECT_EQ(c.vision.patch_dim(), 1536);
  EXPECT_EQ(c.vision.merged_dim(), 4096);
  EXPECT_EQ(c.vision.grid_side(), 48);
  EXPECT_EQ(c.vision.rope_theta, 10000);
  EXPECT_TRUE(c.tie_word_embeddings);
  EXPECT_EQ(c.image_token_id, 248056);
  EXPECT_THAT(c.stop_token_ids, ElementsAre(248044, 248046));
}

struct PublishedSize {
  const char* name;
  int hidden, layers, intermediate, heads, kv_heads, value_heads;
  bool tied;
  int depth, vision_hidden, vision_heads, vision_intermediate;
  int conv_dim, full_layers, vision_head_dim;  // what follows
};

class PublishedSizes : public ConfigTest, public testing::WithParamInterface<PublishedSize> {};

TEST_P(PublishedSizes, Load) {
  const PublishedSize& p = GetParam();
  text["hidden_size"] = vision["out_hidden_size"] = p.hidden;
  text["num_hidden_layers"] = p.layers;
  text["intermediate_size"] = p.intermediate;
  text["num_attention_heads"] = p.heads;
  text["num_key_value_heads"] = p.kv_heads;
  text["linear_num_value_heads"] = p.value_heads;
  text["tie_word_embeddings"] = json["tie_word_embeddings"] = p.tied;
  vision["depth"] = p.depth;
  vision["hidden_size"] = p.vision_hidden;
  vision["num_heads"] = p.vision_heads;
  vision["intermediate_size"] = p.vision_intermediate;
  const ModelConfig c = load();
  EXPECT_EQ(c.text.conv_dim(), p.conv_dim);
  EXPECT_EQ(std::ranges::count(c.text.layer_types, LayerKind::full_attention), p.full_layers);
  EXPECT_EQ(c.vision.head_dim(), p.vision_head_dim);
  EXPECT_EQ(c.tie_word_embeddings, p.tied);
}

INSTANTIATE_TEST_SUITE_P(
    Family, PublishedSizes,
    testing::Values(PublishedSize{"0.8B", 1024, 24, 3584, 8, 2, 16, true, 12, 768, 12, 3072, 6144, 6, 64},
                    PublishedSize{"2B", 2048, 24, 6144, 8, 2, 16, true, 24, 1024, 16, 4096, 6144, 6, 64},
                    PublishedSize{"4B", 2560, 32, 9216, 16, 4, 32, true, 24, 1024, 16, 4096, 8192, 8, 64},
                    PublishedSize{"9B", 4096, 32, 12288, 16, 4, 32, false, 27, 1152, 16, 4304, 8192, 8, 72},
                    PublishedSize{"27B", 5120, 64, 17408, 24, 4, 48, false, 27, 1152, 16, 4304, 10240, 16,
                                  72}),
    [](const auto& param) {
      std::string name = param.param.name;
      std::ranges::replace(name, '.', '_');
      return name;
    });

TEST_F(ConfigTest, LayerTypesAreAListOrFollowTheInterval) {
  text["num_hidden_layers"] = 5;
  text["full_attention_interval"] = 2;
  const auto L = LayerKind::linear_attention, F = LayerKind::full_attention;
  EXPECT_THAT(load().text.layer_types, ElementsAre(L, F, L, F, L));
  text.erase("full_attention_interval");  // 4
  EXPECT_THAT(load().text.layer_types, ElementsAre(L, L, L, F, L));
  text["layer_types"] = {"full_attention", "linear_attention", "linear_attention", "linear_attention",
                         "full_attention"};
  EXPECT_THAT(load().text.layer_types, ElementsAre(F, L, L, L, F));
  text["num_hidden_layers"] = 6;
  EXPECT_THAT(error(), HasSubstr("expected a list of num_hidden_layers = 6 names"));
  text["num_hidden_layers"] = 5;
  text["layer_types"][2] = "sliding_attention";
  EXPECT_THAT(error(), HasSubstr("text_config.layer_types is \"sliding_attention\""));
}

TEST_F(ConfigTest, RotarySettingsInAnyOfTheirPlaces) {
  text.erase("rope_parameters");
  EXPECT_EQ(load().text.rotary_dim, 64);  // the family's defaults
  EXPECT_EQ(load().text.rope_theta, 1e7);
  text["rope_theta"] = 5000;
  text["partial_rotary_factor"] = 0.125;
  text["mrope_section"] = {6, 5, 5};
  ModelConfig c = load();
  EXPECT_EQ(c.text.rope_theta, 5000);
  EXPECT_EQ(c.text.rotary_dim, 32);
  EXPECT_THAT(c.text.mrope_section, ElementsAre(6, 5, 5));
  text["rope_parameters"] = {{"mrope_section", {6, 5, 5}}};  // the rest stays where it was
  EXPECT_EQ(load().text.rope_theta, 5000);
  text["rope_scaling"] = text["rope_parameters"];
  text.erase("rope_parameters");
  EXPECT_EQ(load().text.rotary_dim, 32);
  vision["rope_parameters"] = {{"rope_theta", 123.0}, {"rope_type", "axial"}};
  EXPECT_EQ(load().vision.rope_theta, 123);
}

TEST_F(ConfigTest, RotarySettingsThatDoNotFit) {
  Json& rope = text["rope_parameters"];
  rope["mrope_section"] = {11, 11, 11};
  EXPECT_THAT(error(), HasSubstr("rope_parameters.mrope_section is [11,11,11]; expected a sum of 32"));
  rope["mrope_section"] = {40, -4, -4};
  EXPECT_THAT(error(), HasSubstr("expected three counts"));
  rope["mrope_section"] = {4294967296, 16, 16};
  EXPECT_THAT(error(), HasSubstr("expected three counts"));
  rope["mrope_section"] = {16, 16};
  EXPECT_THAT(error(), HasSubstr("expected three counts"));
  rope["partial_rotary_factor"] = 1.5;
  EXPECT_THAT(error(), HasSubstr("partial_rotary_factor is 1.5; expected a number from 0 to 1"));
  rope["partial_rotary_factor"] = 0;
  EXPECT_THAT(error(), HasSubstr("gives 0 rotary dimensions"));
  rope["partial_rotary_factor"] = 0.25;
  text["head_dim"] = 100;
  EXPECT_THAT(error(), HasSubstr("gives 25 rotary dimensions"));
  text["head_dim"] = 256;
  rope["rope_theta"] = "big";
  EXPECT_THAT(error(), HasSubstr("rope_theta is \"big\"; expected a number"));
  rope["rope_theta"] = -1;
  EXPECT_THAT(error(), HasSubstr("rope_theta is -1"));
  rope["rope_theta"] = 1e4;
  rope["rope_type"] = "yarn";
  EXPECT_THAT(error(), StartsWith("unsupported"));
}

TEST_F(ConfigTest, HostileSizesAreNamed) {
  const std::vector<std::pair<Json*, std::vector<const char*>>> sizes = {
      {&text,
       {"hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size", "num_attention_heads",
        "num_key_value_heads", "head_dim", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "max_position_embeddings"}},
      {&vision,
       {"depth", "hidden_size", "num_heads", "intermediate_size", "patch_size", "temporal_patch_size",
        "spatial_merge_size", "num_position_embeddings", "out_hidden_size"}},
      {&json, {"image_token_id", "vision_start_token_id", "vision_end_token_id"}}};
  const std::vector<Json> values = {-1,   4294967297, 2147483648, 18446744073709551615u, -9223372036854775807,
                                    1e30, 2.5,        "7",        Json::array({7}),      true};
  for (const auto& [object, names] : sizes)
    for (const char* name : names)
      for (const Json& value : values) {
        const Json good = (*object)[name];
        (*object)[name] = value;
        EXPECT_THAT(error(),
                    testing::AllOf(StartsWith("invalid_input"), HasSubstr(fmt::format("{} is ", name)),
                                   HasSubstr("expected an integer from")))
            << name << " = " << value.dump();
        (*object)[name] = good;
      }
  EXPECT_EQ(error(), "");
}

TEST_F(ConfigTest, SizesThatAreMissing) {
  for (const char* name : {"hidden_size", "vocab_size", "num_key_value_heads"}) {
    const Json good = text[name];
    text[name] = nullptr;  // as good as absent
    EXPECT_THAT(error(), HasSubstr(fmt::format("text_config.{} is missing; expected an integer", name)));
    text[name] = good;
  }
  json.erase("image_token_id");
  EXPECT_THAT(error(), HasSubstr("config.json: image_token_id is missing"));
}

TEST_F(ConfigTest, SizesThatDoNotFitEachOther) {
  text["num_key_value_heads"] = 3;
  EXPECT_THAT(error(),
              HasSubstr("num_attention_heads is 16; expected a multiple of num_key_value_heads = 3"));
  text["num_key_value_heads"] = 4;
  text["linear_num_value_heads"] = 24;
  EXPECT_THAT(error(),
              HasSubstr("linear_num_value_heads is 24; expected a multiple of linear_num_key_heads"));
  text["linear_num_value_heads"] = 32;
  vision["num_heads"] = 3;
  EXPECT_THAT(error(), HasSubstr("vision_config.hidden_size is 1024; expected a multiple of num_heads = 3"));
  vision["num_heads"] = 512;
  EXPECT_THAT(error(), HasSubstr("hidden_size / num_heads is 2; expected a multiple of"));
  vision["num_heads"] = 16;
  vision["num_position_embeddings"] = 2303;
  EXPECT_THAT(error(), HasSubstr("num_position_embeddings is 2303; expected the square of a whole number"));
  vision["num_position_embeddings"] = 2304;
  vision["out_hidden_size"] = 2048;
  EXPECT_THAT(error(), HasSubstr("out_hidden_size is 2048; expected text_config.hidden_size = 2560"));
  vision["out_hidden_size"] = 2560;
  json["image_token_id"] = 248320;
  EXPECT_THAT(error(), HasSubstr("image_token_id is 248320; expected an integer from 0 to 248319"));
}

TEST_F(ConfigTest, OtherModelsAreUnsupported) {
  const std::vector<std::pair<std::string, Json>> changes = {
      {"/architectures", {"Qwen3_5MoeForConditionalGeneration"}},
      {"/model_type", "qwen3_vl"},
      {"/quantization_config", {{"quant_method", "fp8"}}},
      {"/vision_config", nullptr},
      {"/text_config/model_type", "qwen3_5_moe_text"},
      {"/text_config/hidden_act", "gelu"},
      {"/text_config/attention_bias", true},
      {"/text_config/attn_output_gate", false},
      {"/vision_config/hidden_act", "silu"},
      {"/vision_config/in_channels", 1},
      {"/vision_config/deepstack_visual_indexes", {3, 5}}};
  for (const auto& [path, value] : changes) {
    const Json good = json;
    json[Json::json_pointer(path)] = value;
    const std::string field = path.substr(path.rfind('/') + 1);
    EXPECT_THAT(error(),
                testing::AllOf(StartsWith("unsupported"), HasSubstr(field), HasSubstr("config.json: ")));
    json = good;
  }
  json["architectures"] = {"Qwen3_5ForCausalLM"};
  EXPECT_THAT(error(), HasSubstr("text-only export"));
}

TEST_F(ConfigTest, EitherFlagTies) {
  json["tie_word_embeddings"] = false;
  EXPECT_FALSE(load().tie_word_embeddings);
  text["tie_word_embeddings"] = true;
  EXPECT_TRUE(load().tie_word_embeddings);
  text["tie_word_embeddings"] = "yes";
  EXPECT_THAT(error(), HasSubstr("text_config.tie_word_embeddings is \"yes\"; expected true or false"));
}

TEST_F(ConfigTest, StopTokens) {
  json["eos_token_id"] = {1, 2};
  text["eos_token_id"] = 2;
  EXPECT_THAT(load().stop_token_ids, ElementsAre(1, 2));
  json["eos_token_id"] = nullptr;
  text["eos_token_id"] = 400000;  // a fine-tune with a cut vocabulary may keep the old id
  EXPECT_THAT(load().stop_token_ids, ElementsAre(400000));
  for (const Json& value :
       {Json(-1), Json("x"), Json(1.5), Json(4294967296), Json::array({Json::array({1})})}) {
    text["eos_token_id"] = value;
    EXPECT_THAT(error(), HasSubstr("eos_token_id")) << value.dump();
  }
}

TEST_F(ConfigTest, FilesThatAreNone) {
  const auto error_for = [&](std::string_view content) {
    folder.write("config.json", content);
    return error_of([&] { ModelConfig::from_directory(folder.path()); });
  };
  EXPECT_THAT(error_of([&] { ModelConfig::from_directory(folder.path()); }), StartsWith("not_found"));
  EXPECT_THAT(error_for("[]"), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error_for("{\"a\":"), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_for("{}"), StartsWith("unsupported"));
  folder.write("generation_config.json", "[]");
  EXPECT_THAT(error_for(kPublished), HasSubstr("generation_config.json: expected a JSON object"));
}

}  // namespace
}  // namespace quire
