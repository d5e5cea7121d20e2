// The decoder of the Qwen3.5 family, top to bottom. Equations and shapes: MODEL.md; each operation:
// ops/ops.h.
#include "model/text_model.h"

#include "core/error.h"
#include "model/mrope.h"

namespace quire {
namespace {

// Bytes of activations for a step of T tokens: the rows that forward() holds throughout, and those of its
// widest layer.
std::size_t activation_bytes(const TextConfig& c, Format format, std::int64_t T) {
  const std::int64_t D = c.hidden_size, Hv = c.linear_num_value_heads;
  const std::int64_t q = std::int64_t{c.num_attention_heads} * c.head_dim;
  const std::int64_t full = 4 * q;                                            // q_gate, q, attended
  const std::int64_t linear = 2 * c.conv_dim() + 2 * c.value_dim() + 2 * Hv;  // qkv, convolved, z, read, a, b
  const std::int64_t mlp = 2 * c.intermediate_size;                           // gate, up
  const std::int64_t widest = std::max({full, linear, mlp});
  const std::int64_t bytes = T * (3 * D + widest) * size_of(format) + (T * 2 * Hv + D + c.vocab_size) * 4;
  return static_cast<std::size_t>(bytes) + 32 * 64;  // alignment
}

}  // namespace

struct TextModel::Pass {
  Stream& stream;
  const Step& step;
  Arena& arena;
  Format format;
  std::int64_t T;
  RotaryTables rotary{};
  Rows h{};  // [T, D] input of a mixer or MLP
  Rows y{};  // [T, D] its output

  Rows rows(std::int64_t cols) { return rows(T, cols, format); }
  Rows rows(std::int64_t count, std::int64_t cols, Format f) {
    std::byte* data = arena.take(static_cast<std::size_t>(count * cols * size_of(f)));
    return {.data = data, .format = f, .rows = count, .cols = cols, .stride = cols};
  }
  std::span<float> floats(std::int64_t n) {
    return {reinterpret_cast<float*>(arena.take(static_cast<std::size_t>(n) * sizeof(float))),
            static_cast<std::size_t>(n)};
  }
  void probe(std::string_view name, const Rows& value) const {
    if (step.probe) (*step.probe)(name, value);
  }
};

TextModel::TextModel(const TextConfig& config, const TextWeights& weights, const Ops& ops, Format format,
                     std::int64_t max_tokens)
    : config_(config),
      weights_(weights),
      ops_(ops),
      format_(format),
      arena_(activation_bytes(config, format, max_tokens)) {}

Rows TextModel::forward(Stream& stream, const Step& step) {
  const Arena::Scope scope(arena_);
  Pass p{stream, step, arena_, format_, static_cast<std::int64_t>(step.tokens.size())};
  QUIRE_CHECK(p.T > 0, "a step needs tokens");
  p.rotary = rotary_tables(config_, step.position, format_);
  const float eps = config_.rms_norm_eps;
  const Rows x = p.rows(config_.hidden_size);  // the residual stream [T, D]
  p.h = p.rows(config_.hidden_size);
  p.y = p.rows(config_.hidden_size);

  ops_.embed(stream, step.tokens, weights_.embed_tokens, x);
  ops_.scatter_rows(stream, step.images.features, step.images.rows, x);
  p.probe("embed", x);

  for (int l = 0; l < config_.num_hidden_layers; ++l) {
    const TextLayerWeights& w = weights_.layers[static_cast<std::size_t>(l)];
    const Arena::Scope layer_scope(arena_);

    ops_.rms_norm(stream, x, w.input_layernorm, eps, p.h);
    if (config_.layer_types[static_cast<std::size_t>(l)] == LayerKind::full_attention) {
      full_attention(p, w.self_attn, l);
    } else {
      linear_attention(p, w.linear_attn, l);
    }
    p.probe(fmt::format("layers.{}.mixer", l), p.y);

    ops_.add_rms_norm(stream, x, p.y, w.post_attention_layernorm, eps, p.h);
    mlp(p, w);
    p.probe(fmt::format("layers.{}.mlp", l), p.y);

    ops_.add(stream, x, p.y);
    p.probe(fmt::format("layers.{}", l), x);
  }
  step.cache->advance(p.T);

  // Only the last token's logits are asked for.
  const Rows last = p.rows(1, config_.hidden_size, format_);
  const Rows logits = p.rows(1, config_.vocab_size, Format::f32);
  ops_.rms_norm(stream, x.slice_rows(p.T - 1, 1), weights_.norm, eps, last);
  p.probe("norm", last);
  ops_.linear(stream, last, weights_.lm_head, {}, logits);
  p.probe("logits", logits);
  return logits;
}

void TextModel::full_attention(Pass& p, const FullAttentionWeights& w, int layer) {
  const Arena::Scope scope(p.arena);
  const int E = config_.head_dim;
  const std::int64_t q_cols = std::int64_t{config_.num_attention_heads} * E;
  const std::int64_t start = p.step.cache->length();
  const KvView cache = p.step.cache->kv(layer);
  const Rows k = cache.k.slice_rows(start, p.T), v = cache.v.slice_rows(start, p.T);

  const Rows q_gate = p.rows(2 * q_cols);  // for each head E of query, E of gate
  ops_.linear(p.stream, p.h, w.q_proj, {}, q_gate);
  ops_.linear(p.stream, p.h, w.k_proj, {}, k);  // straight into the cache
  ops_.linear(p.stream, p.h, w.v_proj, {}, v);

  const Rows q = p.rows(q_cols);
  ops_.qk_norm_rope(p.stream, {.q_gate = q_gate,
                               .k = k,
                               .q = q,
                               .head_dim = E,
                               .q_norm = w.q_norm,
                               .k_norm = w.k_norm,
                               .eps = config_.rms_norm_eps,
                               .cos = p.rotary.cos,
                               .sin = p.rotary.sin});
  const Rows attended = p.rows(q_cols);
  ops_.attention(p.stream, {.q = q, .kv = cache, .start = start, .head_dim = E, .out = attended});
  ops_.attention_gate(p.stream, attended, q_gate, E, attended);
  ops_.linear(p.stream, attended, w.o_proj, {}, p.y);
}

void TextModel::linear_attention(Pass& p, const LinearAttentionWeights& w, int layer) {
  const Arena::Scope scope(p.arena);
  const int Hv = config_.linear_num_value_heads;

  const Rows qkv = p.rows(config_.conv_dim());  // q | k | v
  const Rows z = p.rows(config_.value_dim());
  const Rows b = p.rows(Hv), a = p.rows(Hv);
  ops_.linear(p.stream, p.h, w.in_proj_qkv, {}, qkv);
  ops_.linear(p.stream, p.h, w.in_proj_z, {}, z);
  ops_.linear(p.stream, p.h, w.in_proj_b, {}, b);
  ops_.linear(p.stream, p.h, w.in_proj_a, {}, a);

  const Rows convolved = p.rows(config_.conv_dim());
  ops_.conv1d_silu(p.stream, qkv, w.conv1d, p.step.cache->conv(layer), convolved);
  const std::span<float> g = p.floats(p.T * Hv), beta = p.floats(p.T * Hv);
  ops_.gdn_gates(p.stream, a, b, w.A_log, w.dt_bias, g, beta);

  const Rows read = p.rows(config_.value_dim());
  const auto gated_delta = p.step.path == Path::prefill ? ops_.gdn_prefill : ops_.gdn_window;
  gated_delta(p.stream, {.qkv = convolved,
                         .key_heads = config_.linear_num_key_heads,
                         .value_heads = Hv,
                         .key_dim = config_.linear_key_head_dim,
                         .value_dim = config_.linear_value_head_dim,
                         .g = g,
                         .beta = beta,
                         .state = p.step.cache->state(layer),
                         .out = read});
  ops_.gated_rms_norm(p.stream, read, z, w.norm, config_.rms_norm_eps, read);
  ops_.linear(p.stream, read, w.out_proj, {}, p.y);
}

void TextModel::mlp(Pass& p, const TextLayerWeights& w) {
  const Arena::Scope scope(p.arena);
  const Rows gate = p.rows(config_.intermediate_size), up = p.rows(config_.intermediate_size);
  ops_.linear(p.stream, p.h, w.gate_proj, {}, gate);
  ops_.linear(p.stream, p.h, w.up_proj, {}, up);
  ops_.swiglu(p.stream, gate, up, gate);
  ops_.linear(p.stream, gate, w.down_proj, {}, p.y);
}

std::vector<LayerCacheShape> TextModel::cache_shape() const {
  std::vector<LayerCacheShape> shape;
  for (const LayerKind kind : config_.layer_types) {
    if (kind == LayerKind::full_attention) {
      shape.push_back({.kv_cols = std::int64_t{config_.num_key_value_heads} * config_.head_dim});
    } else {
      shape.push_back({.conv_floats = std::int64_t{config_.linear_conv_kernel_dim - 1} * config_.conv_dim(),
                       .state_floats = std::int64_t{config_.value_dim()} * config_.linear_key_head_dim});
    }
  }
  return shape;
}

}  // namespace quire
