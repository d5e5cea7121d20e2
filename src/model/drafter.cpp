#include "model/drafter.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace quire {
namespace {

// Bytes of activations for T rows of context, and for T rows of blocks.
std::size_t context_bytes(const DrafterConfig& c, Format format, std::int64_t T) {
  const std::int64_t rows =
      T * (2 * c.hidden_size + 2 * std::ssize(c.layers) * c.kv_cols()) * size_of(format);
  return static_cast<std::size_t>(rows + T * c.head_dim * std::int64_t{sizeof(float)}) +
         (4 + 2 * c.layers.size()) * Arena::kAlignment;
}
std::size_t block_bytes(const DrafterConfig& c, Format format, std::int64_t T, std::int64_t vocabulary) {
  const std::int64_t q = std::int64_t{c.num_attention_heads} * c.head_dim;
  const std::int64_t widest = std::max(3 * q + 2 * c.kv_cols(), std::int64_t{2} * c.intermediate_size);
  const std::int64_t chosen = std::int64_t{2} * c.conv_kernel_size * c.conv_groups();
  const std::int64_t rows = T * (4 * c.hidden_size + chosen + widest) * size_of(format);
  const std::int64_t floats = T * (c.head_dim + vocabulary + maxima_cols(vocabulary) + c.selector_rank);
  return static_cast<std::size_t>(rows + floats * std::int64_t{sizeof(float)}) + 16 * Arena::kAlignment;
}

// Positions are plain indices in the sequence, also after an image.
Rotary rope(const DrafterConfig& c, const Step& step) {
  return {.position = step.index,
          .rows = std::ssize(step.ids),
          .dims = c.head_dim,
          .theta = c.rope_theta,
          .cos = {},
          .sin = {}};
}

}  // namespace

// The rows of blocks.
struct Drafter::Block : Pass {
  Rows normed{}, chosen{};  // of convolutions: the input before the first, what its rows choose for both

  // The convolution of one side: its base, and its part of what the rows have chosen.
  BlockConv side(const DrafterConvWeights& w, int side) const {
    const std::size_t base = w.base_kernel.size() / 2;
    return {.base = w.base_kernel.subspan(static_cast<std::size_t>(side) * base, base),
            .chosen = chosen.slice_cols(side * chosen.cols / 2, chosen.cols / 2),
            .requests = step.requests};
  }
};

Drafter::Drafter(const DrafterConfig& config, const DrafterWeights& weights, const TextWeights& target,
                 const Backend& backend, Format format, const Limits& limits)
    : config_(config),
      weights_(weights),
      target_(target),
      ops_(*backend.ops),
      format_(format),
      vocabulary_(target.lm_head.out),
      memory_(backend, std::max(context_bytes(config, format, limits.context_rows),
                                block_bytes(config, format, limits.block_rows, vocabulary_))),
      arena_(memory_.data(), memory_.size()) {}

void Drafter::extend(Stream& stream, const Step& step, Rows features) {
  const Arena::Scope scope(arena_);
  Pass p{stream, ops_, arena_, step, format_, config_.rms_norm_eps, std::ssize(step.ids)};
  p.rotary(rope(config_, step));
  const Rows mixed = p.rows(config_.hidden_size), context = p.rows(config_.hidden_size);
  ops_.linear(stream, features, weights_.fc, {}, mixed);
  ops_.rms_norm(stream, mixed, weights_.hidden_norm, config_.rms_norm_eps, context);

  // The context is the same in every layer: all keys and values are products of these rows.
  std::vector<Projection> products;
  std::vector<JoinKv::Layer> joined;
  for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
    const AttentionWeights& w = weights_.layers[l].self_attn;
    const Rows k = p.rows(w.k_proj.out), v = p.rows(w.v_proj.out);
    products.insert(products.end(), {{&w.k_proj, k}, {&w.v_proj, v}});
    joined.push_back({k, v, step.kv->draft_layer(static_cast<int>(l)), w.k_norm});
    if (joined.size() < kMostJoined && l + 1 < weights_.layers.size()) continue;
    ops_.project(stream, context, products);
    join(p, joined);
    products.clear(), joined.clear();
  }
}

Rows Drafter::draft(Stream& stream, const Step& step, std::int32_t* ids) {
  const Arena::Scope scope(arena_);
  Block p{{stream, ops_, arena_, step, format_, config_.rms_norm_eps, std::ssize(step.ids)}};
  p.rotary(rope(config_, step));
  for (Rows* rows : {&p.x, &p.h, &p.y}) *rows = p.rows(config_.hidden_size);
  if (config_.conv_kernel_size > 0) {
    p.normed = p.rows(config_.hidden_size);
    p.chosen = p.rows(std::int64_t{2} * config_.conv_kernel_size * config_.conv_groups());
  }

  ops_.embed(stream, step.ids, target_.embed_tokens, p.x);
  ops_.rms_norm(stream, p.x, weights_.layers.front().input_layernorm, config_.rms_norm_eps, p.h);
  for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
    const DrafterLayerWeights& w = weights_.layers[l];
    convolve(p, w.attention_conv);
    attention(p, w.self_attn, step.kv->draft_layer(static_cast<int>(l)), config_.layers[l].causal,
              config_.layers[l].sliding_window);
    add(p, w.attention_conv, w.post_attention_layernorm);
    convolve(p, w.mlp_conv);
    mlp(p, w.mlp);
    const bool last = l + 1 == weights_.layers.size();
    add(p, w.mlp_conv, last ? weights_.norm : weights_.layers[l + 1].input_layernorm);
  }
  return place_drafts(p, ids);
}

// The input of a sublayer, normed, goes through the convolution in front of it. It also chooses the weights
// of the one behind.
void Drafter::convolve(Block& p, const DrafterConvWeights& w) {
  if (config_.conv_kernel_size == 0) return;
  std::swap(p.h, p.normed);
  ops_.linear(p.stream, p.normed, w.kernel_projection, {}, p.chosen);
  ops_.block_conv(p.stream, p.normed, p.side(w, 0), p.h);
}

// x += the output of a sublayer, through the convolution behind it; then the norm of the next.
void Drafter::add(Block& p, const DrafterConvWeights& w, Vector norm) {
  if (config_.conv_kernel_size == 0) {
    ops_.add_rms_norm(p.stream, p.x, p.y, p.x, norm, config_.rms_norm_eps, p.h);
  } else {
    ops_.add_conv_rms_norm(p.stream, p.x, p.y, p.side(w, 1), norm, config_.rms_norm_eps, p.h);
  }
}

Rows Drafter::place_drafts(Pass& p, std::int32_t* ids) {
  const Rows logits = p.rows(vocabulary_, Format::f32);
  if (config_.selector_top_k == 0) {
    ops_.linear(p.stream, p.h, target_.lm_head, {}, logits);
    ops_.place_drafts(p.stream, {.logits = logits, .requests = p.step.requests, .ids = ids});
    return logits;
  }
  const CandidateSelectorWeights& w = weights_.candidate_selector;
  const Rows projected = p.rows(config_.selector_rank, Format::f32);
  const Rows maxima = p.T < kFewestForMaxima ? Rows() : p.rows(maxima_cols(vocabulary_), Format::f32);
  const Projection products[] = {{&target_.lm_head, logits, maxima}, {&w.hidden_projection, projected}};
  ops_.project(p.stream, p.h, std::span(products));
  ops_.select_drafts(p.stream, {.logits = logits,
                                .maxima = maxima,
                                .projected = projected,
                                .predecessor = w.predecessor_codebook,
                                .successor = w.successor_codebook,
                                .candidates = config_.selector_top_k,
                                .multiplier = config_.output_multiplier,
                                .cap = config_.final_logit_softcapping,
                                .requests = p.step.requests,
                                .ids = ids});
  return logits;
}

}  // namespace quire
