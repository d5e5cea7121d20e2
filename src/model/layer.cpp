#include "model/layer.h"

namespace quire {

void Pass::rotary(Rotary r) {
  r.format = format;
  r.cos = floats(r.rows * r.dims / 2);
  r.sin = floats(r.rows * r.dims / 2);
  ops.rotary(stream, r);
  const auto n = static_cast<std::size_t>(T * r.dims / 2);
  cos = r.cos.first(n), sin = r.sin.first(n);
}

Rotary mrope(const TextConfig& c, const std::int32_t* position, std::int64_t rows) {
  return {.position = position,
          .rows = rows,
          .dims = c.rotary_dim,
          .theta = c.rope_theta,
          .section_h = c.mrope_section[1],
          .section_w = c.mrope_section[2],
          .cos = {},
          .sin = {}};
}

void attention(Pass& p, const AttentionWeights& w, const KvPages& kv, bool causal,
               std::int32_t sliding_window) {
  const Arena::Scope scope(p.arena);
  const int E = static_cast<int>(w.q_norm.size());
  const Rows q_gate = p.rows(w.q_proj.out);  // for each head E of query, and E of gate if there are gates
  const Rows k = p.rows(w.k_proj.out), v = p.rows(w.v_proj.out);
  const Projection projections[] = {{&w.q_proj, q_gate}, {&w.k_proj, k}, {&w.v_proj, v}};
  p.ops.project(p.stream, p.h, std::span(projections));

  const Rows q = p.rows(w.o_proj.in);
  p.ops.qk_norm_rope(p.stream, {.q_gate = q_gate,
                                .gated = q_gate.cols > q.cols,
                                .k = k,
                                .v = v,
                                .q = q,
                                .kv = kv,
                                .kv_row = p.step.kv_row,
                                .head_dim = E,
                                .q_norm = w.q_norm,
                                .k_norm = w.k_norm,
                                .eps = p.eps,
                                .cos = p.cos,
                                .sin = p.sin});

  const Rows attended = p.rows(q.cols);
  const auto attend = p.step.path == Path::prefill ? p.ops.attention_prefill : p.ops.attention_window;
  attend(p.stream, {.q = q,
                    .kv = kv,
                    .requests = p.step.requests,
                    .head_dim = E,
                    .causal = causal,
                    .sliding_window = sliding_window,
                    .out = attended,
                    .q_gate = q_gate.cols > q.cols ? q_gate : Rows()});
  p.ops.linear(p.stream, attended, w.o_proj, {}, p.y);
}

void join(Pass& p, std::span<const JoinKv::Layer> layers) {
  p.ops.join_kv(p.stream, {.layers = layers,
                           .kv_row = p.step.kv_row,
                           .head_dim = static_cast<int>(layers.front().k_norm.size()),
                           .eps = p.eps,
                           .cos = p.cos,
                           .sin = p.sin});
}

void mlp(Pass& p, const MlpWeights& w) {
  const Arena::Scope scope(p.arena);
  const Rows spare = p.rows(w.gate_proj.out), gated = p.rows(w.gate_proj.out);
  p.ops.project_swiglu(p.stream, p.h, w.gate_proj, w.up_proj, spare, gated);
  p.ops.linear(p.stream, gated, w.down_proj, {}, p.y);
}

}  // namespace quire
