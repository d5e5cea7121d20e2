#include "measure/drafter_check.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "core/error.h"
#include "io/safetensors.h"

namespace quire {
namespace {

// A change is a likely cause when tokens a step grow by this factor, and the growth is no accident of these
// pages; of few pages, which say little of accidents, by the other.
constexpr double kMuch = 1.1, kMuchOnFewPages = 1.5;
constexpr std::size_t kFewPages = 3;
constexpr double kAccident = 0.05;  // of any variant being named by chance
// Of changes that are about as good the first is named: variants come in the order of how likely they are.
constexpr double kAboutAsGood = 0.95;
// Fewer tokens a step than these are little, whatever else was tested.
constexpr double kLittle = 2;

using Layers = std::vector<DrafterConfig::Layer>;

std::string grouped(std::int64_t n) {
  std::string digits = std::to_string(n);
  for (auto at = std::ssize(digits) - 3; at > 0; at -= 3) digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

class Variants {
 public:
  Variants(const DrafterSetup& configured, const Target& target)
      : configured_(configured), target_(target), list_{{"as configured", "", "", configured}} {}

  std::vector<Variant> all() {
    taps(-1);
    taps(+1);
    mask_tokens();
    causality();
    windows();
    thetas();
    positions();
    arithmetic();
    prompts();
    return std::move(list_);
  }

 private:
  // A copy of the setup that `change` changes.
  template <typename Change>
  void add(std::string name, std::string before, std::string advice, Change change) {
    DrafterSetup setup = configured_;
    change(setup);
    list_.push_back({std::move(name), std::move(before), std::move(advice), std::move(setup)});
  }

  void taps(int shift) {
    std::vector<int> moved = configured_.config.taps;
    for (int& tap : moved) tap += shift;
    if (moved.front() < 0 || moved.back() >= target_.config.text.num_hidden_layers) return;
    const std::string list = fmt::format("{}", fmt::join(moved, ", "));
    add(fmt::format("taps {} (each {:+d})", list, shift),
        fmt::format("{}", fmt::join(configured_.config.taps, ", ")),
        fmt::format("set dflash_config.target_layer_ids to [{}]", list),
        [&](DrafterSetup& s) { s.config.taps = moved; });
  }

  std::string token_text(TokenId id) const {
    const Tokenizer& t = target_.tokenizer;
    return fmt::format("{} ({})", grouped(id),
                       t.is_special(id)       ? t.token_bytes(id)
                       : id >= t.vocab_size() ? "no token of the tokenizer"
                                              : "an ordinary token");
  }

  // Special tokens called mask; those of published drafters, after the tokenizer's last, and the last row;
  // special tokens for padding; those beside the configured one.
  std::vector<TokenId> mask_candidates() const {
    const Tokenizer& tokenizer = target_.tokenizer;
    const int vocabulary = target_.config.text.vocab_size;
    const TokenId mask = configured_.config.mask_token_id;
    const auto called = [&](std::string_view word) {
      std::vector<TokenId> ids;
      for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
        std::string name(tokenizer.is_special(id) ? tokenizer.token_bytes(id) : "");
        std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
        if (name.find(word) != std::string::npos) ids.push_back(id);
      }
      return ids;
    };
    std::vector<TokenId> all = called("mask"), ids;
    const auto join = [&](const std::vector<TokenId>& more) {
      all.insert(all.end(), more.begin(), more.end());
    };
    join({248070, 248077, tokenizer.vocab_size(), vocabulary - 1});
    join(called("pad"));
    join(called("endoftext"));
    join({mask - 1, mask + 1});
    for (const TokenId id : all)
      if (id >= 0 && id < vocabulary && id != mask && std::ranges::find(ids, id) == ids.end())
        ids.push_back(id);
    return ids;
  }

  void mask_tokens() {
    for (const TokenId id : mask_candidates())
      add("mask token " + token_text(id), token_text(configured_.config.mask_token_id),
          fmt::format("set dflash_config.mask_token_id to {}", id),
          [&](DrafterSetup& s) { s.config.mask_token_id = id; });
  }

  void causality() {
    for (const bool causal : {false, true}) {
      const auto is_so = [&](const DrafterConfig::Layer& layer) { return layer.causal == causal; };
      const Layers& layers = configured_.config.layers;
      if (std::ranges::all_of(layers, is_so)) continue;
      const auto word = [](bool c) { return c ? "causal" : "bidirectional"; };
      add(fmt::format("blocks {}", word(causal)),
          std::ranges::none_of(layers, is_so) ? word(!causal) : "as the kind of layer has it",
          fmt::format("set is_causal to {}", causal), [&](DrafterSetup& s) {
            for (DrafterConfig::Layer& layer : s.config.layers) layer.causal = causal;
          });
    }
  }

  // Of all layers; the causality of the layers stays, which may follow from their kind.
  void windows() {
    const Layers& layers = configured_.config.layers;
    const auto has = [](int window) {
      return [window](const DrafterConfig::Layer& layer) { return layer.sliding_window == window; };
    };
    const auto text = [](int window) {
      return window == 0 ? std::string("full attention") : "sliding window " + grouped(window);
    };
    std::set<int> windows = {0, 2048, 4096};  // none, of DFlash2, of DFlash
    for (const DrafterConfig::Layer& layer : layers) windows.insert(layer.sliding_window);
    const bool uniform = std::ranges::all_of(layers, has(layers.front().sliding_window));
    std::string keep;
    if (std::ranges::all_of(layers, [&](const auto& l) { return l.causal == layers.front().causal; }))
      keep = fmt::format(" (and is_causal to {}, as it is)", layers.front().causal);
    for (const int window : windows) {
      if (std::ranges::all_of(layers, has(window))) continue;
      const std::string advice =
          window == 0
              ? "set layer_types to full_attention in every layer"
              : fmt::format("set layer_types to sliding_attention in every layer, sliding_window to {}",
                            window);
      add(text(window) + " in every layer",
          uniform ? text(layers.front().sliding_window) : "another in each kind of layer", advice + keep,
          [&](DrafterSetup& s) {
            for (DrafterConfig::Layer& layer : s.config.layers) layer.sliding_window = window;
          });
    }
  }

  void thetas() {
    for (const double theta : std::set<double>{1e4, 1e6, 1e7, target_.config.text.rope_theta}) {
      if (theta == configured_.config.rope_theta) continue;
      add(fmt::format("rope_theta {:.0f}{}", theta,
                      theta == target_.config.text.rope_theta ? " (the model's)" : ""),
          fmt::format("{:.0f}", configured_.config.rope_theta),
          fmt::format("set rope_theta to {:.0f}", theta),
          [&](DrafterSetup& s) { s.config.rope_theta = theta; });
    }
  }

  void positions() {
    const char *const plain = "plain indices", *const mrope = "the model's M-RoPE positions";
    add(fmt::format("positions: {}", configured_.mrope ? plain : mrope), configured_.mrope ? mrope : plain,
        configured_.mrope ? "use plain positions"
                          : "train it on plain positions: Quire drafts with those, as z-lab's drafters do",
        [](DrafterSetup& s) { s.mrope = !s.mrope; });
  }

  void arithmetic() {
    const bool bf16 = configured_.format == Format::bf16;
    add(fmt::format("drafter computes in {}", bf16 ? "f32" : "bf16"), bf16 ? "bf16" : "f32",
        fmt::format("run with --dtype {}: the drafter loses too much otherwise", bf16 ? "f32" : "bf16"),
        [&](DrafterSetup& s) { s.format = bf16 ? Format::f32 : Format::bf16; });
  }

  void prompts() {
    const PromptSetup& now = configured_.prompt;
    PromptSetup thinking = now;
    thinking.enable_thinking = !now.enable_thinking;
    const auto on = [](const PromptSetup& p) { return p.enable_thinking ? "on" : "off"; };
    if (target_.prompt_ids(thinking, 1) != target_.prompt_ids(now, 1))
      add(fmt::format("prompt: thinking {}", on(thinking)), on(now),
          fmt::format("it was trained with thinking {}: train it on prompts with thinking {}", on(thinking),
                      on(now)),
          [&](DrafterSetup& s) { s.prompt = thinking; });
    for (const std::string& other : {Request().prompt, std::string()}) {
      if (other == now.instruction) continue;
      const auto quoted = [](const std::string& text) { return text.empty() ? "none" : '"' + text + '"'; };
      add(fmt::format("prompt: {}", quoted(other)), quoted(now.instruction),
          fmt::format("ask with --prompt \"{}\", or train it on this prompt", other),
          [&](DrafterSetup& s) { s.prompt.instruction = other; });
    }
  }

  const DrafterSetup& configured_;
  const Target& target_;
  std::vector<Variant> list_;
};

std::vector<Share> lengths(const std::vector<DraftCounts>& pages) {
  std::vector<Share> shares;
  for (const DraftCounts& c : pages) shares.push_back({1.0 * c.tokens, 1.0 * c.steps});
  return shares;
}

std::string words_of(const DrafterCheck::Verdict& v) {
  const double now = v.measured.front().length.value;
  if (!v.cause)
    return fmt::format("nothing tested is clearly better than as configured, {:.1f} tokens a step{}", now,
                       v.low ? ": the drafter itself drafts little on these pages (was it trained for this "
                               "model, and on such pages?)"
                             : "");
  const DrafterCheck::Measured& cause = v.measured[*v.cause];
  return fmt::format("as configured {:.1f} tokens a step; with {} instead of {}: {:.1f}: {}", now,
                     cause.variant->name, cause.variant->before, cause.length.value, cause.variant->advice);
}

}  // namespace

std::vector<Variant> variants_of(const DrafterSetup& configured, const Target& target) {
  return Variants(configured, target).all();
}

void check_vocabulary(const std::filesystem::path& drafter, const ModelConfig& target) {
  const Checkpoint checkpoint(drafter);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const bool has_rows_of_tokens = name.ends_with("embed_tokens.weight") ||
                                    name.ends_with("lm_head.weight") || name.ends_with("_codebook");
    if (!has_rows_of_tokens || tensor.shape.empty() || tensor.shape[0] == target.text.vocab_size) continue;
    fail(ErrorCode::invalid_input,
         "{}: vocabulary: {} has {} rows, the target model knows {} tokens: the drafter was made for another "
         "model",
         drafter.string(), name, tensor.shape[0], target.text.vocab_size);
  }
}

std::vector<PromptSetup> DrafterCheck::prompts() const {
  std::vector<PromptSetup> prompts;
  for (const Variant& v : variants_)
    if (std::ranges::find(prompts, v.setup.prompt) == prompts.end()) prompts.push_back(v.setup.prompt);
  return prompts;
}

std::vector<int> DrafterCheck::taps() const {
  std::set<int> taps;
  for (const Variant& v : variants_) taps.insert(v.setup.config.taps.begin(), v.setup.config.taps.end());
  return {taps.begin(), taps.end()};
}

void DrafterCheck::add(const Recording& recording) {
  for (std::size_t i = 0; i < variants_.size(); ++i)
    if (variants_[i].setup.prompt == recording.prompt)
      counts_[i].push_back(replay(target_, variants_[i].setup, weights_, recording));
}

DrafterCheck::Verdict DrafterCheck::verdict() const {
  return judge(variants_, counts_);
}

DrafterCheck::Verdict judge(const std::vector<Variant>& variants,
                            const std::vector<std::vector<DraftCounts>>& counts) {
  DrafterCheck::Verdict v;
  const std::vector<Share> configured = lengths(counts.front());
  const double much = configured.size() <= kFewPages ? kMuchOnFewPages : kMuch;
  const double level = 1 - kAccident / static_cast<double>(std::max<std::size_t>(1, variants.size() - 1));
  double best = 0;
  for (std::size_t i = 0; i < variants.size(); ++i) {
    if (counts[i].size() != configured.size()) continue;  // nobody asked its prompt
    DrafterCheck::Measured m;
    m.variant = &variants[i];
    for (const DraftCounts& page : counts[i]) m.counts += page;
    const std::vector<Share> shares = lengths(counts[i]);
    m.length = figure_of(shares);
    m.gain = difference_of(shares, configured, level);
    const double before = m.length.value - m.gain.value;
    m.better = !(m.gain.low <= 0) && m.gain.value > 0 && m.length.value >= much * before;
    if (m.better) best = std::max(best, m.length.value);
    v.measured.push_back(std::move(m));
  }
  const auto named = std::ranges::find_if(
      v.measured, [&](const auto& m) { return m.better && m.length.value >= kAboutAsGood * best; });
  if (named != v.measured.end()) v.cause = static_cast<std::size_t>(named - v.measured.begin());
  v.low = v.measured.front().length.value < kLittle;
  v.text = words_of(v);
  return v;
}

}  // namespace quire
