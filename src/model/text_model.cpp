// The decoder of the Qwen3.5 family, top to bottom. Equations and shapes: MODEL.md; each operation:
// ops/ops.h.
#include "model/text_model.h"

#include <algorithm>

#include "core/error.h"

namespace quire {
namespace {

// Bytes of activations for a step of T rows that gives logits of n: the rows that forward() holds throughout,
// and those of its widest layer.
std::size_t step_bytes(const TextConfig& c, Format format, std::int64_t T, std::int64_t n) {
  const std::int64_t D = c.hidden_size, Hv = c.linear_num_value_heads;
  const std::int64_t q = std::int64_t{c.num_attention_heads} * c.head_dim;
  const std::int64_t kv = 2 * std::int64_t{c.num_key_value_heads} * c.head_dim;
  const std::int64_t full = 4 * q + kv;                                       // q_gate, q, attended; k, v
  const std::int64_t linear = 2 * c.conv_dim() + 2 * c.value_dim() + 2 * Hv;  // qkv, convolved, z, read, a, b
  const std::int64_t mlp = 2 * c.intermediate_size;                           // spare, gated
  const std::int64_t widest = std::max({full, linear, mlp});
  const std::int64_t bytes = T * (3 * D + widest) * size_of(format) +
                             (T * (2 * Hv + c.rotary_dim) + n * c.vocab_size) * std::int64_t{sizeof(float)};
  return static_cast<std::size_t>(bytes) + 24 * Arena::kAlignment;
}

GdnShape gdn_shape(const TextConfig& c) {
  return {.key_heads = c.linear_num_key_heads,
          .value_heads = c.linear_num_value_heads,
          .key_dim = c.linear_key_head_dim,
          .value_dim = c.linear_value_head_dim};
}

int layers_of(const TextConfig& c, LayerKind kind) {
  return static_cast<int>(std::count(c.layer_types.begin(), c.layer_types.end(), kind));
}

}  // namespace

KvPool::Shape kv_shape(const TextConfig& c, Format format) {
  return {.layers = layers_of(c, LayerKind::full_attention),
          .cols = std::int64_t{c.num_key_value_heads} * c.head_dim,
          .format = format};
}

StateSlots::Shape state_shape(const TextConfig& c, Format format) {
  return {.layers = layers_of(c, LayerKind::linear_attention),
          .gdn = gdn_shape(c),
          .taps = c.linear_conv_kernel_dim,
          .format = format,
          .ring_u = format};
}

TextModel::TextModel(const TextConfig& config, const TextWeights& weights, const Backend& backend,
                     Format format, const Limits& limits)
    : config_(config),
      weights_(weights),
      ops_(*backend.ops),
      format_(format),
      taps_(limits.taps),
      memory_(backend, std::max(step_bytes(config, format, limits.prompt_rows, 1),
                                step_bytes(config, format, limits.window_rows, limits.window_rows))),
      arena_(memory_.data(), memory_.size()),
      feature_memory_(backend,
                      static_cast<std::size_t>(std::max(limits.prompt_rows, limits.window_rows) *
                                               std::ssize(taps_) * config.hidden_size * size_of(format))) {}

Rows TextModel::forward(Stream& stream, const Step& step) {
  const Arena::Scope scope(arena_);
  const float eps = config_.rms_norm_eps;
  Pass p{stream, ops_, arena_, step, format_, eps, std::ssize(step.ids)};
  QUIRE_CHECK(p.T > 0, "a step needs tokens");
  p.rotary(mrope(config_, step.position, p.T));
  for (Rows* rows : {&p.x, &p.h, &p.y}) *rows = p.rows(config_.hidden_size);
  const Rows residual = p.x;
  const auto probe = [&](std::string_view name, const Rows& value) {
    if (step.probe) (*step.probe)(name, value);
  };

  ops_.embed(stream, step.ids, weights_.embed_tokens, p.x);
  ops_.scatter_rows(stream, step.images.features, step.images.rows, p.x);
  probe("embed", p.x);

  const std::int64_t features = std::ssize(taps_) * config_.hidden_size;
  features_ = {
      .data = feature_memory_.data(), .format = format_, .rows = p.T, .cols = features, .stride = features};
  // x += y, and h is the norm of that. From now on x stands in `to`.
  const auto add = [&](Rows to, Vector norm) {
    ops_.add_rms_norm(stream, p.x, p.y, to, norm, eps, p.h);
    p.x = to;
  };

  ops_.rms_norm(stream, p.x, weights_.layers.front().input_layernorm, eps, p.h);
  int full = 0, linear = 0, tapped = 0;  // layers of each kind so far
  for (std::size_t l = 0; l < weights_.layers.size(); ++l) {
    const TextLayerWeights& w = weights_.layers[l];
    if (config_.layer_types[l] == LayerKind::full_attention) {
      attention(p, w.self_attn, step.kv->layer(full++));
    } else {
      linear_attention(p, w.linear_attn, linear++);
    }
    probe(fmt::format("layers.{}.mixer", l), p.y);

    add(residual, w.post_attention_layernorm);
    mlp(p, w.mlp);
    probe(fmt::format("layers.{}.mlp", l), p.y);

    const bool tap =
        tapped < std::ssize(taps_) && taps_[static_cast<std::size_t>(tapped)] == static_cast<int>(l);
    const bool end = l + 1 == weights_.layers.size();
    add(tap ? features_.slice_cols(tapped++ * config_.hidden_size, config_.hidden_size) : residual,
        end ? weights_.norm : weights_.layers[l + 1].input_layernorm);
    probe(fmt::format("layers.{}", l), p.x);
  }

  outputs_ = p.h;
  const std::int64_t n =
      step.path == Path::prefill ? 1 : p.T;  // of a prompt only the last token is asked for
  const Rows last = outputs_.slice_rows(p.T - n, n);
  const Rows logits = take_rows(arena_, n, config_.vocab_size, Format::f32);
  probe("norm", last);
  ops_.linear(stream, last, weights_.lm_head, {}, logits);
  probe("logits", logits);
  return logits;
}

void TextModel::linear_attention(Pass& p, const LinearAttentionWeights& w, int index) {
  const Arena::Scope scope(p.arena);
  const int Hv = config_.linear_num_value_heads;

  const Rows qkv = p.rows(config_.conv_dim());  // q | k | v
  const Rows z = p.rows(config_.value_dim());
  const Rows b = p.rows(Hv), a = p.rows(Hv);
  const Projection projections[] = {
      {&w.in_proj_qkv, qkv}, {&w.in_proj_z, z}, {&w.in_proj_b, b}, {&w.in_proj_a, a}};
  ops_.project(p.stream, p.h, std::span(projections));

  const Rows read = p.rows(config_.value_dim());
  if (p.step.path == Path::prefill) {
    linear_attention_prompt(p, w, index, qkv, z, a, b, read);
  } else {
    ops_.gdn_window(p.stream, {.shape = gdn_shape(config_),
                               .qkv = qkv,
                               .z = z,
                               .a = a,
                               .b = b,
                               .conv1d = w.conv1d,
                               .A_log = w.A_log,
                               .dt_bias = w.dt_bias,
                               .norm = w.norm,
                               .eps = config_.rms_norm_eps,
                               .slots = p.step.states->layer(index),
                               .requests = p.step.requests,
                               .generated = p.step.generated,
                               .previous = p.step.previous,
                               .out = read});
  }
  ops_.linear(p.stream, read, w.out_proj, {}, p.y);
}

// What gdn_window does in one operation, for the tokens of a prompt.
void TextModel::linear_attention_prompt(Pass& p, const LinearAttentionWeights& w, int index, Rows qkv, Rows z,
                                        Rows a, Rows b, Rows read) {
  const Arena::Scope scope(p.arena);
  const int Hv = config_.linear_num_value_heads;
  const Rows convolved = p.rows(config_.conv_dim());
  ops_.conv1d_silu(p.stream, qkv, w.conv1d, p.step.states->prompt_conv(index, p.step.slot), convolved);
  const std::span<float> g = p.floats(p.T * Hv), beta = p.floats(p.T * Hv);
  ops_.gdn_gates(p.stream, a, b, w.A_log, w.dt_bias, g, beta);
  ops_.gdn_prefill(p.stream, {.shape = gdn_shape(config_),
                              .qkv = convolved,
                              .g = g,
                              .beta = beta,
                              .state = p.step.states->state(index, p.step.slot),
                              .out = read});
  ops_.gated_rms_norm(p.stream, read, z, w.norm, config_.rms_norm_eps, read);
}

}  // namespace quire
