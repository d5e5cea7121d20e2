// What each <op>_cuda.cu defines; contracts in ops/ops.h.
#pragma once

#include "ops/ops.h"

namespace quire::cuda {

void linear(Stream&, Rows x, const Weight& w, std::span<const float> bias, Rows y);
void add(Stream&, Rows x, Rows y);
void convert(Stream&, Rows x, Rows y);
void embed(Stream&, std::span<const std::int32_t> ids, const Weight& table, Rows y);
void scatter_rows(Stream&, Rows from, std::span<const std::int32_t> rows, Rows x);
void rms_norm(Stream&, Rows x, std::span<const float> w, float eps, Rows y);
void add_rms_norm(Stream&, Rows x, Rows r, std::span<const float> w, float eps, Rows y);
void swiglu(Stream&, Rows gate, Rows up, Rows y);
void qk_norm_rope(Stream&, const QkNormRope&);
void attention(Stream&, const Attention&);
void attention_gate(Stream&, Rows x, Rows q_gate, int head_dim, Rows y);
void conv1d_silu(Stream&, Rows x, std::span<const float> w, std::span<float> state, Rows y);
void gdn_gates(Stream&, Rows a, Rows b, std::span<const float> A_log, std::span<const float> dt_bias,
               std::span<float> g, std::span<float> beta);
void gdn_prefill(Stream&, const GatedDelta&);
void gdn_window(Stream&, const GatedDelta&);
void gated_rms_norm(Stream&, Rows x, Rows z, std::span<const float> w, float eps, Rows y);
void argmax(Stream&, Rows logits, std::span<Sampled> out);
void add_position_embedding(Stream&, Rows x, const Weight& table, int grid_height, int grid_width, int merge);
void layer_norm(Stream&, Rows x, std::span<const float> w, std::span<const float> b, float eps, Rows y);
void vision_rope(Stream&, Rows qkv, int heads, std::span<const float> cos, std::span<const float> sin);
void vision_attention(Stream&, const VisionAttention&);
void gelu(Stream&, Rows x, Gelu kind);

}  // namespace quire::cuda
