// quire inspect: what a model directory holds, and what a request on it costs in memory.
#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cli/arguments.h"
#include "cli/bench.h"
#include "cli/commands.h"
#include "cli/model_directory.h"
#include "core/error.h"
#include "io/safetensors.h"
#include "model/config.h"
#include "model/text_model.h"
#include "text/tokenizer.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

std::string with_commas(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string size_text(double bytes) {
  static constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) bytes /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::int64_t bytes_of(const Tensor& tensor) {
  return tensor.elements() * size_of(tensor.dtype);
}

// What part of the model a tensor belongs to, by its name.
std::string_view kind_of(std::string_view name) {
  static constexpr std::array<std::array<std::string_view, 2>, 7> kKinds = {{
      {"visual.", "vision encoder"},
      {"mtp.", "multi-token prediction (--draft mtp)"},
      {"embed_tokens", "token embedding"},
      {"lm_head", "output head"},
      {".self_attn.", "full attention"},
      {".linear_attn.", "linear attention"},
      {".mlp.", "MLP"},
  }};
  for (const auto& [part, kind] : kKinds)
    if (name.find(part) != std::string_view::npos || name.starts_with(part)) return kind;
  return "norms";
}

void print_line(std::string_view label, const std::string& value) {
  fmt::print("{:<20}{}\n", label, value);
}

void print_tensors(const Checkpoint& checkpoint) {
  for (const auto& [name, tensor] : checkpoint.tensors())
    fmt::print("{}\t{}\t{}\t{}\n", name, to_string(tensor.dtype), shape_string(tensor.shape),
               bytes_of(tensor));
}

void print_sizes(const Checkpoint& checkpoint) {
  struct Sum {
    std::string_view kind;
    std::int64_t elements = 0, bytes = 0;
  };
  std::vector<Sum> sums;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const std::string_view kind = kind_of(name);
    auto sum = std::find_if(sums.begin(), sums.end(), [&](const Sum& s) { return s.kind == kind; });
    if (sum == sums.end()) sum = sums.insert(sums.end(), Sum{.kind = kind});
    sum->elements += tensor.elements();
    sum->bytes += bytes_of(tensor);
  }
  std::sort(sums.begin(), sums.end(), [](const Sum& a, const Sum& b) { return a.bytes > b.bytes; });
  for (const Sum& sum : sums)
    fmt::print("  {:<34}{:>16} {:>12}\n", sum.kind, with_commas(sum.elements),
               size_text(static_cast<double>(sum.bytes)));
}

void print_architecture(const ModelConfig& config) {
  const TextConfig& t = config.text;
  const VisionConfig& v = config.vision;
  const auto full = std::count(t.layer_types.begin(), t.layer_types.end(), LayerKind::full_attention);
  print_line("text", fmt::format("{} layers ({} linear attention, {} full attention), hidden {}, MLP {}",
                                 t.num_hidden_layers, t.num_hidden_layers - full, full, t.hidden_size,
                                 t.intermediate_size));
  print_line("  full attention",
             fmt::format("{} heads of {}, {} key/value heads, {} rotary dimensions", t.num_attention_heads,
                         t.head_dim, t.num_key_value_heads, t.rotary_dim));
  print_line("  linear attention",
             fmt::format("gated DeltaNet, {} key heads of {}, {} value heads of {}, convolution over {}",
                         t.linear_num_key_heads, t.linear_key_head_dim, t.linear_num_value_heads,
                         t.linear_value_head_dim, t.linear_conv_kernel_dim));
  print_line("vision",
             fmt::format("{} blocks, hidden {}, MLP {}, {} heads of {}, patches of {}, merged {}x{}", v.depth,
                         v.hidden_size, v.intermediate_size, v.num_heads, v.head_dim(), v.patch_size,
                         v.spatial_merge_size, v.spatial_merge_size));
  print_line("output head", config.tie_word_embeddings ? "the token embedding" : "a matrix of its own");
  print_line("context", fmt::format("{} tokens", with_commas(t.max_position_embeddings)));
}

// What one request holds while it runs: keys and values, and a slot of state (checkpoint, records and inputs
// since).
void print_request_memory(const TextConfig& t, const PreprocessConfig& p) {
  const std::size_t per_token =
      kv_shape(t, Format::bf16).page_bytes() / static_cast<std::size_t>(KvPool::kPageSize);
  const StateSlots::Shape states = state_shape(t, Format::bf16);
  const double state = static_cast<double>(states.slot_bytes());
  const std::int64_t side = std::int64_t{p.patch_size} * p.merge_size;
  print_line("a request",
             fmt::format("{} of keys and values a token, {} of state ({:.2f} times the bare states)",
                         size_text(static_cast<double>(per_token)), size_text(state),
                         state / static_cast<double>(states.bare_bytes())));
  print_line("a page", fmt::format("{} to {} pixels: at most {} image tokens", with_commas(p.min_pixels),
                                   with_commas(p.max_pixels), with_commas(p.max_pixels / (side * side))));
}

void print_tokenizer(const std::filesystem::path& model, const ModelConfig& config) {
  const Tokenizer tokenizer = Tokenizer::from_file(model / "tokenizer.json");
  std::string stops;
  for (const std::int32_t id : config.stop_token_ids)
    stops += fmt::format("{}{} ({})", stops.empty() ? "" : ", ", tokenizer.token_bytes(id), id);
  print_line("tokenizer", fmt::format("{} entries; stops at {}", with_commas(tokenizer.vocab_size()), stops));
}

int run(const std::string& given, bool tensors) {
  const std::filesystem::path model = find_model(given);
  if (tensors) {
    print_tensors(Checkpoint(model));
    return kExitOk;
  }
  const ModelConfig config = ModelConfig::from_directory(model);
  OpenStream stream(cpu_backend(), nullptr);
  const ModelWeights weights(model, config, cpu_backend(), stream);
  print_line("model", model.string());
  print_line("architecture", "Qwen3.5: gated DeltaNet and attention, vision encoder");
  print_line("parameters", with_commas(weights.parameters()));
  print_line("weight files", size_text(static_cast<double>(weights.mapped_bytes())));
  print_sizes(Checkpoint(model));
  print_architecture(config);
  print_request_memory(config.text, PreprocessConfig::from_directory(model));
  print_tokenizer(model, config);
  return kExitOk;
}

void add_drafter_options(CLI::App& app, DrafterArguments& a) {
  constexpr const char* kGroup = "Drafter";
  auto* drafter = app.add_option("--drafter", a.drafter,
                                 "Measure a drafter on pages, and change its settings one at a time")
                      ->type_name("DIR")
                      ->group(kGroup);
  const auto add = [&](const char* name, auto& value, const char* text) {
    return app.add_option(name, value, text)->needs(drafter)->group(kGroup);
  };
  add("--pages", a.pages, "Pictures, PDFs, folders of them")->type_name("INPUT");
  add("--max-pages", a.max_pages, "Most pages")->capture_default_str()->check(CLI::Range(1, 1000));
  add("--max-tokens", a.max_tokens, "Most tokens a page")
      ->capture_default_str()
      ->check(CLI::Range(2, 1'000'000));
  add("--prompt", a.prompt, "The instruction to the model")->capture_default_str()->type_name("TEXT");
  add("--device", a.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  add("--threads", a.threads, "CPU threads; 0: one for each core")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  add("--json", a.json, "Write the figures into this file, too")->type_name("FILE");
}

}  // namespace

int inspect_command(int argc, char** argv) {
  DrafterArguments a;
  bool tensors = false;
  CLI::App app("Tells what a model directory holds, or what a drafter is worth and, if little, why.",
               "quire inspect");
  app.add_option("MODEL,--model", a.model,
                 "Hugging Face directory (default: $QUIRE_MODEL, else models/quire-mini)")
      ->type_name("DIR");
  app.add_flag("--tensors", tensors, "List every tensor: name, type, shape, bytes");
  add_drafter_options(app, a);
  app.footer(
      "Exit code: 0; 1 when a drafter's likely fault was found, or it drafts next to nothing; 2 when the\n"
      "directory is not a model that Quire can run.");
  if (const auto code = read_arguments(app, argc, argv)) return *code;
  return a.drafter.empty() ? run(a.model, tensors) : inspect_drafter(a);
}

}  // namespace quire
