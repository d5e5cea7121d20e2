#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "core/error.h"
#include "io/json.h"
#include "ops/ops.h"

namespace quire {
namespace {

// Far above every published model, and low enough that products of a few sizes fit an int: what a hostile
// file may ask for is bounded here.
constexpr int kMaxWidth = 1 << 16;  // hidden sizes
constexpr int kMaxFfn = 1 << 18;    // intermediate sizes
constexpr int kMaxLayers = 1024;
constexpr int kMaxHeads = 1024;
constexpr int kMaxHeadDim = 1024;
constexpr int kMaxVocab = 1 << 24;
constexpr int kMaxContext = 1 << 24;

// The fields of one JSON object, with its place for messages: "config.json: text_config". A field that is
// null counts as absent.
class Fields {
 public:
  Fields(const Json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

  const Json* find(std::string_view name) const {
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }

  Fields object(std::string_view name) const {
    const Json* value = find(name);
    if (!value || !value->is_object()) reject(name, "an object", value);
    return {*value, fmt::format("{}{}.", prefix_, name)};
  }

  int integer(std::string_view name, int low, int high) const {
    const Json* value = find(name);
    if (!value || !value->is_number_integer() || !in_range(*value, low, high))
      reject(name, fmt::format("an integer from {} to {}", low, high), value);
    return value->get<int>();
  }
  int integer_or(int fallback, std::string_view name, int low, int high) const {
    return find(name) ? integer(name, low, high) : fallback;
  }

  double number_or(double fallback, std::string_view name, double low, double high) const {
    const Json* value = find(name);
    if (!value) return fallback;
    const double x = value->is_number() ? value->get<double>() : NAN;
    if (!(x >= low && x <= high)) reject(name, fmt::format("a number from {} to {}", low, high), value);
    return x;
  }

  bool flag(std::string_view name) const {
    const Json* value = find(name);
    if (value && !value->is_boolean()) reject(name, "true or false", value);
    return value && value->get<bool>();
  }

  // Quire implements one of the values that this field may have.
  template <typename T>
  void only(std::string_view name, const T& value) const {
    const Json* found = find(name);
    if (found && *found != Json(value))
      fail(ErrorCode::unsupported, "{}{} is {}; Quire supports {} only", prefix_, name, shorten(*found),
           Json(value).dump());
  }

  [[noreturn]] void reject(std::string_view name, std::string_view expected, const Json* value) const {
    if (!value) fail(ErrorCode::invalid_input, "{}{} is missing; expected {}", prefix_, name, expected);
    fail(ErrorCode::invalid_input, "{}{} is {}; expected {}", prefix_, name, shorten(*value), expected);
  }

  const std::string& prefix() const { return prefix_; }

 private:
  static bool in_range(const Json& value, int low, int high) {
    if (value.is_number_unsigned()) {
      const auto x = value.get<std::uint64_t>();
      return x <= static_cast<std::uint64_t>(std::max(high, 0)) && static_cast<std::int64_t>(x) >= low;
    }
    const auto x = value.get<std::int64_t>();
    return x >= low && x <= high;
  }

  static std::string shorten(const Json& value) {
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    if (text.size() > 80) text = text.substr(0, 77) + "...";
    return text;
  }

  const Json& object_;
  std::string prefix_;
};

std::vector<LayerKind> read_layer_types(const Fields& f, int layers) {
  std::vector<LayerKind> kinds;
  const Json* types = f.find("layer_types");
  if (!types) {
    const int interval = f.integer_or(4, "full_attention_interval", 1, kMaxLayers);
    for (int i = 0; i < layers; ++i)
      kinds.push_back((i + 1) % interval == 0 ? LayerKind::full_attention : LayerKind::linear_attention);
    return kinds;
  }
  if (!types->is_array() || types->size() != static_cast<std::size_t>(layers))
    f.reject("layer_types", fmt::format("a list of num_hidden_layers = {} names", layers), types);
  for (const Json& name : *types) {
    if (name != "linear_attention" && name != "full_attention")
      f.reject("layer_types", "names \"linear_attention\" or \"full_attention\"", &name);
    kinds.push_back(name == "full_attention" ? LayerKind::full_attention : LayerKind::linear_attention);
  }
  return kinds;
}

// Newer files keep the rotary settings in `rope_parameters`, older ones beside the other fields, or call the
// object `rope_scaling`.
Fields rope_fields(const Fields& f) {
  for (const char* name : {"rope_parameters", "rope_scaling"})
    if (f.find(name)) return f.object(name);
  return f;
}

void read_rope(TextConfig& text, const Fields& f) {
  const Fields rope = rope_fields(f);
  rope.only("rope_type", "default");
  rope.only("mrope_interleaved", true);
  text.rope_theta = rope.number_or(f.number_or(1e7, "rope_theta", 1, 1e12), "rope_theta", 1, 1e12);
  const double factor =
      rope.number_or(f.number_or(0.25, "partial_rotary_factor", 0, 1), "partial_rotary_factor", 0, 1);
  text.rotary_dim = static_cast<int>(text.head_dim * factor);
  if (text.rotary_dim < 2 || text.rotary_dim % 2 != 0)
    fail(ErrorCode::invalid_input,
         "{}head_dim {} * partial_rotary_factor {} gives {} rotary dimensions; expected an even number of "
         "at "
         "least 2",
         rope.prefix(), text.head_dim, factor, text.rotary_dim);

  const Json* sections = rope.find("mrope_section");
  if (sections) {
    const auto is_count = [](const Json& n) { return n.is_number_unsigned() && n <= kMaxHeadDim; };
    if (!sections->is_array() || sections->size() != 3 || !std::ranges::all_of(*sections, is_count))
      rope.reject("mrope_section", "three counts of frequencies, for time, height and width", sections);
    for (std::size_t i = 0; i < 3; ++i) text.mrope_section[i] = (*sections)[i].get<int>();
  }
  const int sum = std::accumulate(std::begin(text.mrope_section), std::end(text.mrope_section), 0);
  if (sum != text.rotary_dim / 2)
    rope.reject("mrope_section", fmt::format("a sum of {}, half the rotary dimensions", text.rotary_dim / 2),
                sections);
}

void expect_multiple(const Fields& f, std::string_view name, int value, std::string_view of, int divisor) {
  if (value % divisor != 0)
    fail(ErrorCode::invalid_input, "{}{} is {}; expected a multiple of {} = {}", f.prefix(), name, value, of,
         divisor);
}

TextConfig read_text(const Fields& f) {
  f.only("model_type", "qwen3_5_text");
  f.only("hidden_act", "silu");
  f.only("attention_bias", false);
  f.only("attn_output_gate", true);
  TextConfig text;
  text.hidden_size = f.integer("hidden_size", 1, kMaxWidth);
  text.intermediate_size = f.integer("intermediate_size", 1, kMaxFfn);
  text.num_hidden_layers = f.integer("num_hidden_layers", 1, kMaxLayers);
  text.vocab_size = f.integer("vocab_size", 1, kMaxVocab);
  text.layer_types = read_layer_types(f, text.num_hidden_layers);
  text.rms_norm_eps = static_cast<float>(f.number_or(1e-6, "rms_norm_eps", 1e-12, 1));
  text.max_position_embeddings = f.integer_or(262144, "max_position_embeddings", 1, kMaxContext);

  text.num_attention_heads = f.integer("num_attention_heads", 1, kMaxHeads);
  text.num_key_value_heads = f.integer("num_key_value_heads", 1, kMaxHeads);
  text.head_dim = f.integer_or(256, "head_dim", 1, kMaxHeadDim);
  expect_multiple(f, "num_attention_heads", text.num_attention_heads, "num_key_value_heads",
                  text.num_key_value_heads);
  read_rope(text, f);

  text.linear_num_key_heads = f.integer_or(16, "linear_num_key_heads", 1, kMaxHeads);
  text.linear_num_value_heads = f.integer_or(32, "linear_num_value_heads", 1, kMaxHeads);
  text.linear_key_head_dim = f.integer_or(128, "linear_key_head_dim", 1, kMaxHeadDim);
  text.linear_value_head_dim = f.integer_or(128, "linear_value_head_dim", 1, kMaxHeadDim);
  text.linear_conv_kernel_dim = f.integer_or(4, "linear_conv_kernel_dim", 2, 16);
  expect_multiple(f, "linear_num_value_heads", text.linear_num_value_heads, "linear_num_key_heads",
                  text.linear_num_key_heads);
  return text;
}

VisionConfig read_vision(const Fields& f, const TextConfig& text) {
  f.only("hidden_act", "gelu_pytorch_tanh");
  f.only("in_channels", 3);
  f.only("deepstack_visual_indexes", Json::array());
  VisionConfig vision;
  vision.depth = f.integer("depth", 1, kMaxLayers);
  vision.hidden_size = f.integer("hidden_size", 1, kMaxWidth);
  vision.num_heads = f.integer("num_heads", 1, kMaxHeads);
  vision.intermediate_size = f.integer("intermediate_size", 1, kMaxFfn);
  vision.patch_size = f.integer_or(16, "patch_size", 1, 64);
  vision.temporal_patch_size = f.integer_or(2, "temporal_patch_size", 1, 8);
  vision.spatial_merge_size = f.integer_or(2, "spatial_merge_size", 1, 8);
  vision.num_position_embeddings = f.integer_or(2304, "num_position_embeddings", 1, 1 << 20);
  vision.out_hidden_size = f.integer("out_hidden_size", 1, kMaxWidth);
  vision.rope_theta = rope_fields(f).number_or(10000, "rope_theta", 1, 1e12);

  expect_multiple(f, "hidden_size", vision.hidden_size, "num_heads", vision.num_heads);
  expect_multiple(f, "hidden_size / num_heads", vision.head_dim(), "rotary pairs of two axes", 4);
  if (vision.head_dim() > kMaxHeadDim)
    fail(ErrorCode::invalid_input, "{}hidden_size / num_heads is {}; expected at most {}", f.prefix(),
         vision.head_dim(), kMaxHeadDim);
  if (const int side = vision.grid_side(); side * side != vision.num_position_embeddings)
    f.reject("num_position_embeddings", "the square of a whole number", f.find("num_position_embeddings"));
  if (vision.out_hidden_size != text.hidden_size)
    f.reject("out_hidden_size", fmt::format("text_config.hidden_size = {}", text.hidden_size),
             f.find("out_hidden_size"));
  return vision;
}

// One id, a list of ids, or nothing.
void add_stop_tokens(std::vector<std::int32_t>& stop, const Fields& f) {
  const Json* eos = f.find("eos_token_id");
  if (!eos) return;
  const Json list = eos->is_array() ? *eos : Json::array({*eos});
  for (const Json& id : list) {
    if (!id.is_number_unsigned() || id >= kMaxVocab) f.reject("eos_token_id", "token ids from 0", eos);
    if (std::ranges::find(stop, id.get<std::int32_t>()) == stop.end()) stop.push_back(id.get<std::int32_t>());
  }
}

// The one architecture, and why a close relative is none.
void check_architecture(const Fields& f) {
  constexpr std::string_view kName = "Qwen3_5ForConditionalGeneration";
  if (const Json* names = f.find("architectures"); names && !names->empty()) {
    const Json& name = names->is_array() ? names->front() : *names;
    if (name != kName)
      fail(ErrorCode::unsupported, "{}architectures is {}; Quire runs {}{}", f.prefix(), name.dump(), kName,
           name == "Qwen3_5ForCausalLM"
               ? ": this is a text-only export, without the vision encoder that reads pages"
               : "");
  }
  f.only("model_type", "qwen3_5");
  if (f.find("quantization_config"))
    fail(ErrorCode::unsupported, "{}quantization_config: this version runs unquantized checkpoints only",
         f.prefix());
  for (const char* part : {"text_config", "vision_config"})
    if (!f.find(part))
      fail(ErrorCode::unsupported, "{}{} is missing; Quire runs {}, which has a text and a vision part",
           f.prefix(), part, kName);
}

}  // namespace

int VisionConfig::grid_side() const {
  return static_cast<int>(std::lround(std::sqrt(num_position_embeddings)));
}

ModelConfig ModelConfig::from_directory(const std::filesystem::path& model) {
  const auto path = model / "config.json";
  const Json json = read_json(path);
  if (!json.is_object()) fail(ErrorCode::invalid_input, "{}: expected a JSON object", path.string());
  const Fields f(json, path.string() + ": ");
  check_architecture(f);

  ModelConfig config;
  const Fields text = f.object("text_config");
  config.text = read_text(text);
  config.vision = read_vision(f.object("vision_config"), config.text);
  config.tie_word_embeddings = f.flag("tie_word_embeddings") || text.flag("tie_word_embeddings");
  const int last = config.text.vocab_size - 1;
  config.image_token_id = f.integer("image_token_id", 0, last);
  config.vision_start_token_id = f.integer("vision_start_token_id", 0, last);
  config.vision_end_token_id = f.integer("vision_end_token_id", 0, last);

  add_stop_tokens(config.stop_token_ids, f);
  add_stop_tokens(config.stop_token_ids, text);
  const auto generation = model / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    const Json more = read_json(generation);
    if (!more.is_object()) fail(ErrorCode::invalid_input, "{}: expected a JSON object", generation.string());
    add_stop_tokens(config.stop_token_ids, Fields(more, generation.string() + ": "));
  }
  return config;
}

namespace {

std::vector<int> read_taps(const Fields& dflash, int drafter_layers, int target_layers) {
  std::vector<int> taps;
  const Json* ids = dflash.find("target_layer_ids");
  if (!ids) {
    if (drafter_layers == 1) return {target_layers / 2};
    for (int i = 0; i < drafter_layers; ++i)
      taps.push_back(static_cast<int>(
          std::lround(1.0 + static_cast<double>(i) * (target_layers - 4) / (drafter_layers - 1))));
    return taps;
  }
  const std::string expected = fmt::format("rising layers of the target, which has {}", target_layers);
  if (!ids->is_array() || ids->empty() || ids->size() > static_cast<std::size_t>(target_layers))
    dflash.reject("target_layer_ids", expected, ids);
  for (const Json& id : *ids) {
    if (!id.is_number_integer() || id < (taps.empty() ? 0 : taps.back() + 1) || id >= target_layers)
      dflash.reject("target_layer_ids", expected, ids);
    taps.push_back(id.get<int>());
  }
  return taps;
}

// Which rows of a block see one another is said in three ways, or follows from the kind of layer.
std::vector<DrafterConfig::Layer> read_drafter_layers(const Fields& f, const Fields& dflash, int layers) {
  const Json* types = f.find("layer_types");
  if (types && (!types->is_array() || types->size() != static_cast<std::size_t>(layers)))
    f.reject("layer_types", fmt::format("a list of num_hidden_layers = {} names", layers), types);
  std::vector<DrafterConfig::Layer> result;
  for (int i = 0; i < layers; ++i) {
    bool sliding = !types && dflash.flag("use_swa");
    if (types) {
      const Json& name = (*types)[static_cast<std::size_t>(i)];
      if (name != "sliding_attention" && name != "full_attention")
        f.reject("layer_types", "names \"sliding_attention\" or \"full_attention\"", &name);
      sliding = name == "sliding_attention";
    }
    DrafterConfig::Layer layer;
    layer.causal = sliding && types;
    if (dflash.find("causal")) layer.causal = dflash.flag("causal");
    if (f.find("is_causal")) layer.causal = f.flag("is_causal");
    if (sliding)
      layer.sliding_window = dflash.find("swa_window_size")
                                 ? dflash.integer("swa_window_size", 1, kMaxContext)
                                 : f.integer("sliding_window", 1, kMaxContext);
    result.push_back(layer);
  }
  return result;
}

// What DFlash2 adds; of its settings for other kinds of target those that Quire has no part for are refused.
void read_dflash2(DrafterConfig& c, const Fields& dflash) {
  dflash.only("input_embedding_scale", 1.0);
  dflash.only("sample_from_anchor", false);
  c.conv_kernel_size = dflash.integer("conv_kernel_size", 1, kMostWindow);
  c.conv_group_size = dflash.integer("conv_group_size", 1, c.hidden_size);
  expect_multiple(dflash, "hidden_size", c.hidden_size, "conv_group_size", c.conv_group_size);
  c.selector_rank = dflash.integer("selector_rank", 1, kMostRank);
  c.selector_top_k = dflash.integer("selector_top_k", 1, std::min(kMostCandidates, c.vocab_size));
  c.output_multiplier = static_cast<float>(dflash.number_or(1, "output_multiplier", 1e-6, 1e6));
  c.final_logit_softcapping = static_cast<float>(dflash.number_or(0, "final_logit_softcapping", 0, 1e6));
}

}  // namespace

DrafterConfig DrafterConfig::from_directory(const std::filesystem::path& drafter, const TextConfig& target) {
  const std::filesystem::path path = drafter / "config.json";
  const Json json = read_json(path);
  if (!json.is_object()) fail(ErrorCode::invalid_input, "{}: expected a JSON object", path.string());
  const Fields f(json, path.string() + ": ");
  const Json* architectures = f.find("architectures");
  const bool dflash2 = architectures && *architectures == Json::array({"DFlash2DraftModel"});
  if (!dflash2 && (!architectures || *architectures != Json::array({"DFlashDraftModel"})))
    f.reject("architectures", "[\"DFlashDraftModel\"] or [\"DFlash2DraftModel\"], a DFlash drafter",
             architectures);
  const Fields dflash = f.object("dflash_config");
  f.only("attention_bias", false);
  if (f.find("rope_scaling"))
    fail(ErrorCode::unsupported, "{}rope_scaling is set; Quire drafts with plain rotary positions only",
         f.prefix());
  const auto fits = [&](const char* name, int value) {
    const int found = f.integer(name, 1, kMaxVocab);
    if (found != value)
      fail(ErrorCode::invalid_input,
           "{}{} is {}, the target model has {}: the drafter was made for another model", f.prefix(), name,
           found, value);
    return found;
  };
  DrafterConfig c;
  c.hidden_size = fits("hidden_size", target.hidden_size);
  c.vocab_size = fits("vocab_size", target.vocab_size);
  if (f.find("num_target_layers")) fits("num_target_layers", target.num_hidden_layers);
  c.intermediate_size = f.integer("intermediate_size", 1, kMaxFfn);
  const int layers = f.integer("num_hidden_layers", 1, kMaxLayers);
  c.num_attention_heads = f.integer("num_attention_heads", 1, kMaxHeads);
  c.num_key_value_heads = f.integer("num_key_value_heads", 1, kMaxHeads);
  c.head_dim = f.integer("head_dim", 2, kMaxHeadDim);
  if (c.num_attention_heads % c.num_key_value_heads != 0 || c.head_dim % 2 != 0)
    fail(ErrorCode::invalid_input,
         "{}{} heads over {} key heads of {} dimensions; expected a multiple, and even", f.prefix(),
         c.num_attention_heads, c.num_key_value_heads, c.head_dim);
  c.rms_norm_eps = static_cast<float>(f.number_or(1e-6, "rms_norm_eps", 0, 1));
  const Fields rope = f.find("rope_parameters") ? f.object("rope_parameters") : f;
  c.rope_theta = rope.number_or(1e7, "rope_theta", 1, 1e12);
  c.block_size =
      dflash.find("block_size") ? dflash.integer("block_size", 2, 1024) : f.integer("block_size", 2, 1024);
  c.mask_token_id = dflash.integer("mask_token_id", 0, target.vocab_size - 1);
  c.taps = read_taps(dflash, layers, target.num_hidden_layers);
  c.layers = read_drafter_layers(f, dflash, layers);
  if (dflash2) read_dflash2(c, dflash);
  return c;
}

}  // namespace quire
