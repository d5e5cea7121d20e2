#include "model/mtp.h"

#include <algorithm>

#include "core/error.h"

namespace quire {
namespace {

// Bytes of activations for T rows that get keys and values, and for drafts of R requests in a window of T
// rows: what `pair` and `layer` take, and the rows of the caller.
std::size_t extend_bytes(const TextConfig& c, Format format, std::int64_t T) {
  const std::int64_t D = c.hidden_size, kv = 2 * std::int64_t{c.num_key_value_heads} * c.head_dim;
  const std::int64_t rows = ((T + 1) * D + T * (4 * D + kv)) * size_of(format);
  return static_cast<std::size_t>(rows + T * c.rotary_dim * std::int64_t{sizeof(float)}) +
         9 * Arena::kAlignment;
}
std::size_t draft_bytes(const TextConfig& c, Format format, std::int64_t T, std::int64_t R) {
  const std::int64_t D = c.hidden_size, q = std::int64_t{c.num_attention_heads} * c.head_dim;
  const std::int64_t kv = 2 * std::int64_t{c.num_key_value_heads} * c.head_dim;
  const std::int64_t widest = std::max(4 * q + kv, std::int64_t{2} * c.intermediate_size);
  const std::int64_t rows = (T * D + R * (6 * D + widest)) * size_of(format);
  return static_cast<std::size_t>(rows + R * (c.rotary_dim + c.vocab_size) * std::int64_t{sizeof(float)}) +
         16 * Arena::kAlignment;
}

}  // namespace

MtpHead::MtpHead(const TextConfig& config, const MtpWeights& weights, const TextWeights& target,
                 const Backend& backend, Stream& stream, Format format, const Limits& limits)
    : config_(config),
      weights_(weights),
      target_(target),
      backend_(backend),
      ops_(*backend.ops),
      format_(format),
      last_memory_(backend, static_cast<std::size_t>(limits.slots * std::int64_t{config.hidden_size} *
                                                     size_of(format))),
      last_{.data = last_memory_.data(),
            .format = format,
            .rows = limits.slots,
            .cols = config.hidden_size,
            .stride = config.hidden_size},
      memory_(backend, std::max(extend_bytes(config, format, limits.rows),
                                draft_bytes(config, format, limits.rows, limits.requests))),
      arena_(memory_.data(), memory_.size()) {
  backend.clear(stream, last_memory_.data(), last_memory_.size());
}

std::span<std::byte> MtpHead::last(int slot) const {
  const auto bytes = static_cast<std::size_t>(last_.cols * size_of(format_));
  return {last_memory_.data() + static_cast<std::size_t>(slot) * bytes, bytes};
}

// x = fc [rms_norm(embedding of the token after a row) ; rms_norm(output of the row)]
void MtpHead::pair(Pass& p, Rows embeddings, Rows outputs) {
  const std::int64_t D = config_.hidden_size;
  p.x = p.rows(D), p.h = p.rows(D);
  const Arena::Scope scope(p.arena);
  const Rows both = p.rows(2 * D);
  ops_.rms_norm(p.stream, embeddings, weights_.pre_fc_norm_embedding, config_.rms_norm_eps,
                both.slice_cols(0, D));
  ops_.rms_norm(p.stream, outputs, weights_.pre_fc_norm_hidden, config_.rms_norm_eps, both.slice_cols(D, D));
  ops_.linear(p.stream, both, weights_.fc, {}, p.x);
  ops_.rms_norm(p.stream, p.x, weights_.layer.input_layernorm, config_.rms_norm_eps, p.h);
}

// Keys and values alone: there is one layer, and nobody asks for what comes out of it.
void MtpHead::keep(Pass& p) {
  const AttentionWeights& w = weights_.layer.self_attn;
  const Rows k = p.rows(w.k_proj.out), v = p.rows(w.v_proj.out);
  const Projection projections[] = {{&w.k_proj, k}, {&w.v_proj, v}};
  ops_.project(p.stream, p.h, std::span(projections));
  const JoinKv::Layer layer{k, v, p.step.kv->draft_layer(0), w.k_norm};
  join(p, {&layer, 1});
}

void MtpHead::extend(Stream& stream, const Step& step, Rows outputs, const Step* after) {
  const auto T = static_cast<std::int64_t>(step.ids.size()), D = std::int64_t{config_.hidden_size};
  const Arena::Scope scope(arena_);
  Pass p{stream, ops_, arena_, step, format_, config_.rms_norm_eps, after ? T : T - 1};
  const Rows tokens = take_rows(arena_, T + 1, D, format_);
  const auto embed = [&](const Step& s, Rows to) {
    ops_.embed(stream, s.ids, target_.embed_tokens, to);
    ops_.scatter_rows(stream, s.images.features, s.images.rows, to);
  };
  embed(step, tokens.slice_rows(0, T));
  if (after) embed(*after, tokens.slice_rows(T, 1));
  if (p.T > 0) {
    p.rotary(mrope(config_, step.position, T));
    pair(p, tokens.slice_rows(1, p.T), outputs.slice_rows(0, p.T));
    keep(p);
  }
  if (!after)
    backend_.copy(stream, last(step.slot).data(), outputs.slice_rows(T - 1, 1).data, last(0).size());
}

void MtpHead::extend(Stream& stream, const Step& step, Rows outputs) {
  if (step.requests.longest == 1) return;
  const auto T = static_cast<std::int64_t>(step.ids.size());
  const Arena::Scope scope(arena_);
  Pass p{stream, ops_, arena_, step, format_, config_.rms_norm_eps, T - 1};
  p.rotary(mrope(config_, step.position, T));
  const Rows tokens = take_rows(arena_, T, config_.hidden_size, format_);
  ops_.embed(stream, step.ids, target_.embed_tokens, tokens);
  pair(p, tokens.slice_rows(1, p.T), outputs.slice_rows(0, p.T));
  keep(p);
}

void MtpHead::draft(Stream& stream, const Step& step, std::int32_t* ids, StepArrays::Window at) {
  const std::int64_t R = step.requests.count, W = step.requests.longest, D = config_.hidden_size;
  QUIRE_CHECK(std::ssize(step.ids) == R * W && at.step.requests.count == R, "{} rows of {} requests of {}",
              step.ids.size(), R, W);
  const Arena::Scope scope(arena_);
  Pass p{stream, ops_, arena_, at.step, format_, config_.rms_norm_eps, R};
  const Rows tokens = take_rows(arena_, R * W, D, format_);
  Rows outputs = p.rows(D);
  ops_.embed(stream, {step.requests.slot, static_cast<std::size_t>(R)},
             {.data = last_.data, .format = format_, .out = last_.rows, .in = D}, outputs);
  for (std::int64_t draft = 0; draft == 0 || draft + 1 < W; ++draft) {
    const Arena::Scope pass(arena_);
    at.begin.ahead = static_cast<std::int32_t>(draft) - 1;
    ops_.step_begin(stream, at.begin);
    p.rotary(mrope(config_, at.step.position, R));
    ops_.embed(stream, step.ids, target_.embed_tokens, tokens);
    Rows column = tokens.slice_rows(draft, 1);  // of every request
    column.rows = R, column.stride = W * D;
    pair(p, column, outputs);
    if (W == 1) return keep(p);
    const Rows normed = layer(p);
    const Rows logits = p.rows(config_.vocab_size, Format::f32);
    ops_.linear(stream, normed, target_.lm_head, {}, logits);
    ops_.place_drafts(stream, {.logits = logits,
                               .requests = step.requests,
                               .ids = ids,
                               .row = static_cast<std::int32_t>(draft) + 1});
    ops_.convert(stream, normed, outputs);
  }
}

// The layer, from the normed input in h to the normed output.
Rows MtpHead::layer(Pass& p) {
  p.y = p.rows(config_.hidden_size);
  attention(p, weights_.layer.self_attn, p.step.kv->draft_layer(0));
  ops_.add_rms_norm(p.stream, p.x, p.y, p.x, weights_.layer.post_attention_layernorm, config_.rms_norm_eps,
                    p.h);
  mlp(p, weights_.layer.mlp);
  ops_.add_rms_norm(p.stream, p.x, p.y, p.x, weights_.norm, config_.rms_norm_eps, p.h);
  return p.h;
}

}  // namespace quire
