// The model and the decoder that `quire bench` measures.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "cli/bench.h"
#include "core/thread_pool.h"
#include "engine/decoder.h"
#include "io/json.h"
#include "model/config.h"

namespace quire {

// A drafter, random or of a directory.
struct BenchDrafter {
  BenchDrafter(const std::string& draft, const TextConfig& target, const Backend& backend, Stream& stream)
      : config(draft == kPublished ? published_drafter(target)
               : draft == kDFlash2 ? published_dflash2(target)
                                   : DrafterConfig::from_directory(draft, target)),
        checkpoint(draft == kPublished || draft == kDFlash2
                       ? DrafterCheckpoint(ModelWeights::Random{1}, config, backend, stream)
                       : DrafterCheckpoint(draft, config, backend, stream)) {}

  static constexpr std::string_view kPublished = "published", kDFlash2 = "published-dflash2";
  DrafterConfig config;
  DrafterCheckpoint checkpoint;
  Decoder::DraftModel model{config, checkpoint.weights};
};

inline constexpr std::string_view kMtp = "mtp";

// A model with its decoder, ready for any of the measurements.
struct Bench {
  Bench(const BenchArguments& a, const Backend& where)
      : backend(where),
        config(a.model.empty() ? published_shape(a.shape) : ModelConfig::from_directory(a.model)),
        threads(a.threads),
        stream(backend, &threads),
        weights(a.model.empty() ? ModelWeights(ModelWeights::Random{}, config, backend, stream)
                                : ModelWeights(a.model, config, backend, stream)),
        drafter(a.draft.empty() || a.draft == kMtp
                    ? nullptr
                    : std::make_unique<BenchDrafter>(a.draft, config.text, backend, stream)),
        mtp(a.draft != kMtp ? nullptr
            : a.model.empty()
                ? std::make_unique<MtpCheckpoint>(ModelWeights::Random{1}, config.text, backend, stream)
                : std::make_unique<MtpCheckpoint>(a.model, config.text, backend, stream)),
        switches(Switches::parse(a.switches)),
        window(a.window),
        accept(a.accept) {}

  std::int64_t longest(std::int64_t context, int steps) const {
    return context + std::int64_t{steps + 1} * kMostWindow;
  }

  // A decoder with `batch` sequences of `context` tokens; `plain`: without drafts.
  std::unique_ptr<Decoder> decoder(const Backend& with, int batch, std::int64_t context, int steps,
                                   bool plain = false) {
    auto d =
        std::make_unique<Decoder>(config.text, weights.text, with, stream, Format::bf16, switches,
                                  Decoder::Limits{.slots = batch, .window = plain ? 1 : window},
                                  Decoder::DraftSource{.model = drafter && !plain ? &drafter->model : nullptr,
                                                       .lookup = false,
                                                       .mtp = mtp && !plain ? &mtp->weights : nullptr});
    d->assume_accepted(plain ? 0 : accept);
    const std::int64_t tokens = longest(context, steps);
    d->reserve(batch * (tokens + KvPool::kPageSize), tokens);
    for (int slot = 0; slot < batch; ++slot) {
      d->open(slot, tokens, {});
      d->skip_prompt(slot, context);
    }
    return d;
  }

  // Bytes that every step moves at least: the weights of the text model, keys and values, states. The
  // embedding is read row by row; when it is the output head too, whole.
  double least_bytes(int batch, std::int64_t context, const Decoder& d) const {
    double bytes = 0;
    const auto add = [&](const Weight& w) { bytes += static_cast<double>(w.out * w.in * size_of(w.format)); };
    const auto add_layer = [&](const AttentionWeights& a, const MlpWeights& m) {
      for (const Weight* w :
           {&a.q_proj, &a.k_proj, &a.v_proj, &a.o_proj, &m.gate_proj, &m.up_proj, &m.down_proj})
        add(*w);
    };
    for (const TextLayerWeights& l : weights.text.layers) {
      add_layer(l.self_attn, l.mlp);
      const LinearAttentionWeights& g = l.linear_attn;
      for (const Weight* w : {&g.in_proj_qkv, &g.in_proj_z, &g.in_proj_b, &g.in_proj_a, &g.out_proj}) add(*w);
    }
    add(weights.text.lm_head);
    if (drafter && window > 1) {
      add(weights.text.lm_head);
      const DrafterWeights& w = drafter->checkpoint.weights;
      add(w.fc);
      add(w.candidate_selector.hidden_projection);
      for (const DrafterLayerWeights& l : w.layers) {
        add_layer(l.self_attn, l.mlp);
        add(l.self_attn.k_proj), add(l.self_attn.v_proj);  // of the context
        add(l.attention_conv.kernel_projection), add(l.mlp_conv.kernel_projection);
      }
    }
    for (int draft = 1; mtp && draft < window; ++draft)
      add(mtp->weights.fc), add_layer(mtp->weights.layer.self_attn, mtp->weights.layer.mlp),
          add(weights.text.lm_head);
    const StateSlots::Shape states = state_shape(config.text, Format::bf16);
    return bytes + batch * (static_cast<double>(context) * static_cast<double>(d.token_bytes()) +
                            4.0 * static_cast<double>(states.layers * states.gdn.state_floats()));
  }

  const Backend& backend;
  ModelConfig config;
  ThreadPool threads;
  OpenStream stream;
  ModelWeights weights;
  std::unique_ptr<BenchDrafter> drafter;
  std::unique_ptr<MtpCheckpoint> mtp;
  Switches switches;
  int window, accept;
};

// Tokens a second in windows that the engine's policy chooses, over plain decoding: a line for each context,
// batch and acceptance (bench_policy.cpp).
Json policy_table(const BenchArguments& arguments, Bench& bench);

}  // namespace quire
