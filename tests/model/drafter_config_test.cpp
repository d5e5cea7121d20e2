#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/json.h"
#include "model/config.h"
#include "model_directory.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A config.json as published drafters have, for a target of 32 layers.
const char* const kPublishedDrafter = R"({
  "architectures": ["DFlashDraftModel"], "model_type": "qwen3", "hidden_size": 2560, "intermediate_size": 9216,
  "num_hidden_layers": 3, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
  "rms_norm_eps": 1e-06, "rope_theta": 10000000, "rope_scaling": null, "attention_bias": false,
  "layer_types": ["sliding_attention", "sliding_attention", "full_attention"], "sliding_window": 4096,
  "num_target_layers": 32, "vocab_size": 248320, "block_size": 16,
  "dflash_config": {"mask_token_id": 248077, "target_layer_ids": [1, 5, 29]}})";

class DrafterConfigTest : public testing::Test {
 protected:
  DrafterConfigTest() {
    target.hidden_size = 2560, target.vocab_size = 248320, target.num_hidden_layers = 32;
  }

  DrafterConfig load() const {
    folder.write("config.json", json.dump());
    return DrafterConfig::from_directory(folder.path(), target);
  }
  Json& dflash() { return json["dflash_config"]; }
  std::string error() const {
    return error_of([&] { load(); });
  }
  std::vector<bool> causal() const {
    std::vector<bool> result;
    for (const DrafterConfig::Layer& layer : load().layers) result.push_back(layer.causal);
    return result;
  }

  Json json = parse_json(kPublishedDrafter, "kPublishedDrafter");
  TextConfig target;
  TemporaryDirectory folder;
};

TEST_F(DrafterConfigTest, ReadsAPublishedFile) {
  const DrafterConfig c = load();
  EXPECT_EQ(c.kv_cols(), 1024);
  EXPECT_EQ(c.block_size, 16);
  EXPECT_EQ(c.mask_token_id, 248077);
  EXPECT_THAT(c.taps, ElementsAre(1, 5, 29));
  EXPECT_EQ(c.layers[0].sliding_window, 4096);
  EXPECT_EQ(c.layers[2].sliding_window, 0);
}

TEST_F(DrafterConfigTest, WhoSeesWhomInABlock) {
  EXPECT_THAT(causal(), ElementsAre(true, true, false));  // by the kind of layer
  dflash()["causal"] = false;
  EXPECT_THAT(causal(), ElementsAre(false, false, false));
  json["is_causal"] = true;
  EXPECT_THAT(causal(), ElementsAre(true, true, true));
}

TEST_F(DrafterConfigTest, OlderFilesSayLess) {
  json.erase("layer_types");
  dflash().erase("target_layer_ids");
  dflash()["block_size"] = 8;
  json.erase("block_size");
  EXPECT_THAT(causal(), ElementsAre(false, false, false));
  EXPECT_THAT(load().taps, ElementsAre(1, 15, 29));
  EXPECT_EQ(load().block_size, 8);
  dflash()["use_swa"] = true;
  dflash()["swa_window_size"] = 512;
  EXPECT_THAT(causal(), ElementsAre(false, false, false));
  EXPECT_EQ(load().layers[1].sliding_window, 512);
}

TEST_F(DrafterConfigTest, ADrafterOfAnotherModel) {
  json["hidden_size"] = 4096;
  EXPECT_THAT(
      error(),
      HasSubstr("hidden_size is 4096, the target model has 2560: the drafter was made for another model"));
  json["hidden_size"] = 2560;
  json["num_target_layers"] = 36;
  EXPECT_THAT(error(), HasSubstr("num_target_layers is 36"));
}

TEST_F(DrafterConfigTest, WhatDoesNotFit) {
  const Json taps[] = {Json::array(), Json::array({1, 32}), Json::array({5, 5}), Json::array({-1}),
                       Json("1,5")};
  for (const Json& wrong : taps) {
    dflash()["target_layer_ids"] = wrong;
    EXPECT_THAT(error(), HasSubstr("target_layer_ids")) << wrong;
  }
  dflash()["target_layer_ids"] = Json::array({1});
  dflash()["mask_token_id"] = 248320;
  EXPECT_THAT(error(), HasSubstr("mask_token_id"));
  dflash()["mask_token_id"] = 1;
  json["layer_types"][0] = "linear_attention";
  EXPECT_THAT(error(), HasSubstr("layer_types"));
  json["architectures"] = Json::array({"DFlash3DraftModel"});
  EXPECT_THAT(error(), HasSubstr("DFlash drafter"));
}

TEST_F(DrafterConfigTest, RotaryPositionsOfImagesAreRefused) {
  json["rope_scaling"] = {{"mrope_section", Json::array({11, 11, 10})}};
  EXPECT_THAT(error(), HasSubstr("plain rotary positions"));
}

class DFlash2ConfigTest : public DrafterConfigTest {
 protected:
  // As published: every layer slides, nothing is causal, the length of a block is where all else of DFlash2
  // is.
  DFlash2ConfigTest() {
    json["architectures"] = Json::array({"DFlash2DraftModel"});
    json["layer_types"][2] = "sliding_attention";
    json["sliding_window"] = 2048;
    json["is_causal"] = false;
    json.erase("block_size");
    dflash() = {{"mask_token_id", 248070}, {"target_layer_ids", {5, 19, 31}}, {"block_size", 8},
                {"conv_kernel_size", 2},   {"conv_group_size", 16},           {"selector_rank", 256},
                {"selector_top_k", 16}};
  }
};

TEST_F(DFlash2ConfigTest, ReadsAPublishedFile) {
  const DrafterConfig c = load();
  EXPECT_EQ(c.block_size, 8);
  EXPECT_THAT(causal(), ElementsAre(false, false, false));
  EXPECT_EQ(c.layers[2].sliding_window, 2048);
  EXPECT_EQ(c.conv_kernel_size, 2);
  EXPECT_EQ(c.conv_groups(), 160);
  EXPECT_EQ(c.vocab_size, 248320);
  EXPECT_EQ(c.selector_rank, 256);
  EXPECT_EQ(c.selector_top_k, 16);
  EXPECT_EQ(c.output_multiplier, 1);
  EXPECT_EQ(c.final_logit_softcapping, 0);
}

TEST_F(DFlash2ConfigTest, ADFlashDrafterHasNoneOfIt) {
  json["architectures"] = Json::array({"DFlashDraftModel"});
  EXPECT_EQ(load().conv_kernel_size, 0);
  EXPECT_EQ(load().conv_groups(), 0);
  EXPECT_EQ(load().selector_top_k, 0);
}

TEST_F(DFlash2ConfigTest, SettingsOfOtherTargets) {
  dflash()["input_embedding_scale"] = 1;
  dflash()["output_multiplier"] = 0.19612;
  dflash()["final_logit_softcapping"] = 20;
  EXPECT_FLOAT_EQ(load().output_multiplier, 0.19612f);
  EXPECT_EQ(load().final_logit_softcapping, 20);
  dflash()["final_logit_softcapping"] = nullptr;
  EXPECT_EQ(load().final_logit_softcapping, 0);
  dflash()["input_embedding_scale"] = 50.5;
  EXPECT_THAT(error(), HasSubstr("dflash_config.input_embedding_scale is 50.5; Quire supports 1.0 only"));
  dflash()["input_embedding_scale"] = nullptr;
  dflash()["sample_from_anchor"] = true;
  EXPECT_THAT(error(), HasSubstr("dflash_config.sample_from_anchor is true"));
}

TEST_F(DFlash2ConfigTest, WhatDoesNotFit) {
  const Json published = dflash();
  for (const char* name : {"conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k"}) {
    dflash() = published;
    dflash().erase(name);
    EXPECT_THAT(error(), HasSubstr(std::string(name) + " is missing"));
    dflash()[name] = 0;
    EXPECT_THAT(error(), HasSubstr(std::string(name) + " is 0"));
  }
  dflash() = published;
  dflash()["conv_group_size"] = 48;
  EXPECT_THAT(error(), HasSubstr("hidden_size is 2560; expected a multiple of conv_group_size = 48"));
  dflash() = published;
  dflash()["selector_top_k"] = 33;
  EXPECT_THAT(error(), HasSubstr("selector_top_k is 33; expected an integer from 1 to 32"));
  dflash() = published;
  dflash()["selector_rank"] = 513;
  EXPECT_THAT(error(), HasSubstr("selector_rank is 513; expected an integer from 1 to 512"));
  dflash() = published;
  dflash()["final_logit_softcapping"] = -1;
  EXPECT_THAT(error(), HasSubstr("final_logit_softcapping"));
}

}  // namespace
}  // namespace quire
