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

// Rows of the head, in the words of the equations (MODEL.md).
struct MtpHead::Pass {
  Stream& stream;
  Arena& arena;
  Format format;
  KvPages kv;
  const std::int32_t* kv_row;  // [T], where the rows' keys and values go
  std::int64_t T;
  const Requests* requests = nullptr;  // of draft alone
  std::span<float> cos{}, sin{};       // [T, R/2] of the rotary angles
  Rows x{};                            // [T, D] the residual stream
  Rows h{}, y{};                       // [T, D] input of a sublayer, and its output

  Rows rows(std::int64_t cols) { return rows(T, cols, format); }
  Rows rows(std::int64_t count, std::int64_t cols, Format f) {
    std::byte* data = arena.take(static_cast<std::size_t>(count * cols * size_of(f)));
    return {.data = data, .format = f, .rows = count, .cols = cols, .stride = cols};
  }
  // Angles at the positions of the rows, of which a step has `count`.
  void rotary(const Ops& ops, const TextConfig& c, const std::int32_t* position, std::int64_t count) {
    const auto floats = [&] {
      const auto n = static_cast<std::size_t>(count * c.rotary_dim / 2);
      return std::span(reinterpret_cast<float*>(arena.take(n * sizeof(float))), n);
    };
    cos = floats(), sin = floats();
    ops.rotary(stream, {.position = position,
                        .rows = count,
                        .dims = c.rotary_dim,
                        .theta = c.rope_theta,
                        .section_h = c.mrope_section[1],
                        .section_w = c.mrope_section[2],
                        .format = format,
                        .cos = cos,
                        .sin = sin});
    const auto n = static_cast<std::size_t>(T * c.rotary_dim / 2);
    cos = cos.first(n), sin = sin.first(n);
  }
};

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
  const FullAttentionWeights& w = weights_.layer.self_attn;
  const std::int64_t kv_cols = std::int64_t{config_.num_key_value_heads} * config_.head_dim;
  const Rows k = p.rows(kv_cols), v = p.rows(kv_cols);
  const Projection projections[] = {{&w.k_proj, k}, {&w.v_proj, v}};
  ops_.project(p.stream, p.h, std::span(projections));
  const Rows none{.data = p.h.data, .format = format_, .rows = p.T, .cols = 0, .stride = 0};
  ops_.qk_norm_rope(p.stream, {.q_gate = none,
                               .gated = false,
                               .k = k,
                               .v = v,
                               .q = none,
                               .kv = p.kv,
                               .kv_row = p.kv_row,
                               .head_dim = config_.head_dim,
                               .q_norm = w.q_norm,
                               .k_norm = w.k_norm,
                               .eps = config_.rms_norm_eps,
                               .cos = p.cos,
                               .sin = p.sin});
}

void MtpHead::extend(Stream& stream, const Step& step, Rows outputs, const Step* after) {
  const auto T = static_cast<std::int64_t>(step.ids.size()), D = std::int64_t{config_.hidden_size};
  const Arena::Scope scope(arena_);
  Pass p{stream, arena_, format_, step.kv->draft_layer(0), step.kv_row, after ? T : T - 1};
  const Rows tokens = p.rows(T + 1, D, format_);
  const auto embed = [&](const Step& s, Rows to) {
    ops_.embed(stream, s.ids, target_.embed_tokens, to);
    ops_.scatter_rows(stream, s.images.features, s.images.rows, to);
  };
  embed(step, tokens.slice_rows(0, T));
  if (after) embed(*after, tokens.slice_rows(T, 1));
  if (p.T > 0) {
    p.rotary(ops_, config_, step.position, T);
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
  Pass p{stream, arena_, format_, step.kv->draft_layer(0), step.kv_row, T - 1};
  p.rotary(ops_, config_, step.position, T);
  const Rows tokens = p.rows(T, config_.hidden_size, format_);
  ops_.embed(stream, step.ids, target_.embed_tokens, tokens);
  pair(p, tokens.slice_rows(1, p.T), outputs.slice_rows(0, p.T));
  keep(p);
}

void MtpHead::draft(Stream& stream, const Step& step, std::int32_t* ids, StepArrays::Window at) {
  const std::int64_t R = step.requests.count, W = step.requests.longest, D = config_.hidden_size;
  QUIRE_CHECK(std::ssize(step.ids) == R * W && at.step.requests.count == R, "{} rows of {} requests of {}",
              step.ids.size(), R, W);
  const Arena::Scope scope(arena_);
  Pass p{stream, arena_, format_, step.kv->draft_layer(0), at.step.kv_row, R, &at.step.requests};
  const Rows tokens = p.rows(R * W, D, format_);
  Rows outputs = p.rows(D);
  ops_.embed(stream, {step.requests.slot, static_cast<std::size_t>(R)},
             {.data = last_.data, .format = format_, .out = last_.rows, .in = D}, outputs);
  for (std::int64_t draft = 0; draft == 0 || draft + 1 < W; ++draft) {
    const Arena::Scope pass(arena_);
    at.begin.ahead = static_cast<std::int32_t>(draft) - 1;
    ops_.step_begin(stream, at.begin);
    p.rotary(ops_, config_, at.step.position, R);
    ops_.embed(stream, step.ids, target_.embed_tokens, tokens);
    Rows column = tokens.slice_rows(draft, 1);  // of every request
    column.rows = R, column.stride = W * D;
    pair(p, column, outputs);
    if (W == 1) return keep(p);
    const Rows normed = layer(p);
    const Rows logits = p.rows(R, config_.vocab_size, Format::f32);
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
  attention(p);
  ops_.add_rms_norm(p.stream, p.x, p.y, weights_.layer.post_attention_layernorm, config_.rms_norm_eps, p.h);
  mlp(p);
  ops_.add_rms_norm(p.stream, p.x, p.y, weights_.norm, config_.rms_norm_eps, p.h);
  return p.h;
}

void MtpHead::attention(Pass& p) {
  const Arena::Scope scope(p.arena);
  const FullAttentionWeights& w = weights_.layer.self_attn;
  const int E = config_.head_dim;
  const std::int64_t q_cols = std::int64_t{config_.num_attention_heads} * E;
  const std::int64_t kv_cols = std::int64_t{config_.num_key_value_heads} * E;
  const Rows q_gate = p.rows(2 * q_cols), k = p.rows(kv_cols), v = p.rows(kv_cols);
  const Projection projections[] = {{&w.q_proj, q_gate}, {&w.k_proj, k}, {&w.v_proj, v}};
  ops_.project(p.stream, p.h, std::span(projections));
  const Rows q = p.rows(q_cols);
  ops_.qk_norm_rope(p.stream, {.q_gate = q_gate,
                               .k = k,
                               .v = v,
                               .q = q,
                               .kv = p.kv,
                               .kv_row = p.kv_row,
                               .head_dim = E,
                               .q_norm = w.q_norm,
                               .k_norm = w.k_norm,
                               .eps = config_.rms_norm_eps,
                               .cos = p.cos,
                               .sin = p.sin});
  const Rows attended = p.rows(q_cols);
  ops_.attention_window(p.stream,
                        {.q = q, .kv = p.kv, .requests = *p.requests, .head_dim = E, .out = attended});
  ops_.attention_gate(p.stream, attended, q_gate, E, attended);
  ops_.linear(p.stream, attended, w.o_proj, {}, p.y);
}

void MtpHead::mlp(Pass& p) {
  const Arena::Scope scope(p.arena);
  const TextLayerWeights& w = weights_.layer;
  const Rows spare = p.rows(config_.intermediate_size), gated = p.rows(config_.intermediate_size);
  ops_.project_swiglu(p.stream, p.h, w.gate_proj, w.up_proj, spare, gated);
  ops_.linear(p.stream, gated, w.down_proj, {}, p.y);
}

}  // namespace quire
