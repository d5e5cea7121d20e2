// The seam between the model and the machine: every operation of the forward pass, one table for each
// backend.
//
// Conventions for all operations:
//  - `Rows` are activations [rows, cols] in bf16 or f32, cols contiguous, `stride` elements from row to row.
//    One precision A runs through a model: "round" in a contract means to A (nothing happens when A is f32).
//  - Arithmetic is f32 between the stated rounding points (the table in MODEL.md).
//  - An output row depends on its own inputs only: never on the number of rows, their order, or the threads.
//  - Shapes are checked at entry (QUIRE_CHECK). Outputs do not overlap inputs unless a contract says "in
//  place".
//  - Dimension letters are those of MODEL.md.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/buffer.h"
#include "core/dtype.h"

namespace quire {

class ThreadPool;

// How activations or weights are stored.
enum class Format { f32, bf16 };
constexpr int size_of(Format f) {
  return f == Format::f32 ? 4 : 2;
}

// Activations. `scales` belongs to formats that have them; bf16 and f32 have none.
struct Rows {
  void* data = nullptr;
  void* scales = nullptr;
  Format format = Format::bf16;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // elements

  Rows slice_rows(std::int64_t begin, std::int64_t count) const;
  Rows slice_cols(std::int64_t begin, std::int64_t count) const;
};

// A matrix [out, in], row-major; y = x W^T. `scales` and `row_scale` belong to quantized formats.
struct Weight {
  const void* data = nullptr;
  Format format = Format::bf16;
  std::int64_t out = 0;
  std::int64_t in = 0;
  const void* scales = nullptr;
  const float* row_scale = nullptr;
  Format activation_format = Format::bf16;  // what `linear` expects of its input: the layer's recipe
};

// What an operation runs on. One stream runs one operation at a time, in order.
struct Stream {
  ThreadPool* threads = nullptr;  // of the CPU tables
  Buffer scratch;                 // host memory, grown by operations, reused
  void* cuda_stream = nullptr;    // a cudaStream_t, of the CUDA table; nullptr: the default stream
  void* cuda_scratch = nullptr;   // device memory that operations of the CUDA table may overwrite
  std::size_t cuda_scratch_bytes = 0;
  bool dependent_launch = true;  // CUDA: a kernel may start beside the tail of the one before (launch.h)

  std::byte* scratch_bytes(std::size_t bytes) {
    if (scratch.size() < bytes) scratch = Buffer(bytes);
    return scratch.data();
  }
};

enum class Gelu { tanh, erf };

// The keys and values of one sequence in one layer: k and v [capacity, G * E] in A.
struct KvView {
  Rows k, v;
};

struct QkNormRope {
  Rows q_gate;       // [T, H * 2E]: per head E of query, E of gate; the query part is read
  Rows k;            // [T, G * E], in place
  Rows q;            // out [T, H * E]
  int head_dim = 0;  // E
  std::span<const float> q_norm, k_norm;  // [E], offset from 1
  float eps = 0;
  std::span<const float> cos, sin;  // [T, R/2], R <= E rotated dims, already rounded to A
};

struct Attention {
  Rows q;     // [T, H * E], at sequence positions start .. start+T-1
  KvView kv;  // rows 0 .. start+T-1 are valid
  std::int64_t start = 0;
  int head_dim = 0;  // E
  Rows out;          // [T, H * E]
};

struct GatedDelta {
  Rows qkv;  // [T, 2 Hk Ek + Hv Ev] after convolution and SiLU: q | k | v, head-major
  int key_heads = 0, value_heads = 0;  // Hk, Hv; value head h reads key head h / (Hv/Hk)
  int key_dim = 0, value_dim = 0;      // Ek, Ev
  std::span<const float> g, beta;      // [T, Hv]: log decay (<= 0) and write strength in (0, 1)
  std::span<float> state;              // [Hv, Ek, Ev], in and out
  Rows out;                            // [T, Hv Ev]
};

struct VisionAttention {
  Rows qkv;  // [N, 3 D]: q | k | v, head-major, rotated
  int heads = 0;
  Rows out;  // [N, D]
};

struct Sampled {
  std::int32_t token = 0;
  float logprob = 0;  // natural log of its probability under the model, before any of the settings below
};

// How a request's tokens are drawn. In this order: penalties, temperature, top_k, min_p, top_p.
struct SamplingSettings {
  float temperature = 0;   // 0: the likeliest token, after penalties
  std::int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;               // of the likeliest token's probability
  float repetition_penalty = 1;  // of every token in prompt or output: l / p if l > 0, else l * p
  float presence_penalty = 0;    // of every token in the output
  float frequency_penalty = 0;   // the same, times its count
  std::uint32_t padding = 0;
  std::uint64_t seed = 0;  // of the counter-based random numbers, keyed by (seed, position)
};

// What has been seen of each token by the sequence in a slot: its count in the output, and kInPrompt.
inline constexpr std::uint16_t kInPrompt = 0x8000;

struct Sample {
  Rows logits;                                 // [T, V] f32
  const SamplingSettings* settings = nullptr;  // [slots], in the backend's memory, like all of these
  const std::uint16_t* seen = nullptr;         // [slots, V]; nullptr: no request has penalties
  const std::int32_t* slot = nullptr;          // [T]
  const std::int32_t* position = nullptr;      // [T]: sequence index of the token to be drawn
  std::span<Sampled> out;                      // [T]
};

struct Ops {
  const char* name;  // "reference", "avx2", "avx512"

  // --- both models -------------------------------------------------------------------------------------
  // y = x W^T + bias, summed in f32 in one order for each (out, in), then + bias, then one round. bias [out]
  // or empty.
  void (*linear)(Stream&, Rows x, const Weight& w, std::span<const float> bias, Rows y);
  // x = round(x + y), in place.
  void (*add)(Stream&, Rows x, Rows y);
  // y = x in y's format, rounded when that is narrower.
  void (*convert)(Stream&, Rows x, Rows y);

  // --- text decoder ------------------------------------------------------------------------------------
  // y[t] = round(table[ids[t]]).
  void (*embed)(Stream&, std::span<const std::int32_t> ids, const Weight& table, Rows y);
  // x[rows[i]] = from[i]: image features take the place of the embeddings of image tokens. One format,
  // distinct rows.
  void (*scatter_rows)(Stream&, Rows from, std::span<const std::int32_t> rows, Rows x);
  // y = round(x / sqrt(mean(x^2) + eps) * (1 + w)).
  void (*rms_norm)(Stream&, Rows x, std::span<const float> w, float eps, Rows y);
  // x = round(x + r), in place, then y = rms_norm(x).
  void (*add_rms_norm)(Stream&, Rows x, Rows r, std::span<const float> w, float eps, Rows y);
  // y = round(round(silu(gate)) * up).
  void (*swiglu)(Stream&, Rows gate, Rows up, Rows y);
  // Per head: n = rms_norm(q or k); the first R dims rotate in pairs (i, i + R/2):
  // a' = round(round(a cos) - round(b sin)), b' = round(round(b cos) + round(a sin)).
  void (*qk_norm_rope)(Stream&, const QkNormRope&);
  // Causal by sequence index, scale E^-1/2; query head h reads key head h / (H/G). Scores and softmax f32;
  // the unnormalised weights exp(s - row maximum) are rounded before they meet v, their sum is not; one round
  // at the end.
  void (*attention)(Stream&, const Attention&);
  // y = round(x * round(sigmoid(gate))), gate read from q_gate [T, H * 2E] (second half of each head); x may
  // be y.
  void (*attention_gate)(Stream&, Rows x, Rows q_gate, int head_dim, Rows y);
  // y[t] = round(silu(sum_j w[:, j] x[t - (W-1) + j])), w [C, W]; rows before the first come from `state`
  // [W-1, C] (f32), which then holds the last W-1 rows of x.
  void (*conv1d_silu)(Stream&, Rows x, std::span<const float> w, std::span<float> state, Rows y);
  // g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b); a, b [T, Hv] in A, g, beta [T * Hv] f32.
  void (*gdn_gates)(Stream&, Rows a, Rows b, std::span<const float> A_log, std::span<const float> dt_bias,
                    std::span<float> g, std::span<float> beta);
  // The gated delta rule. q, k are L2-normalised (sum + 1e-6) and q scaled by Ek^-1/2 in f32; everything f32,
  // out rounded. Prompt tokens: chunks of 64 counted from the first row (WY form, model-spec 2.5).
  void (*gdn_prefill)(Stream&, const GatedDelta&);
  // Generated tokens, one after the other: S <- exp(g) S; S <- S + k beta (v - S^T k)^T; o = S^T q.
  void (*gdn_window)(Stream&, const GatedDelta&);
  // y = round(w * x / sqrt(mean(x^2) + eps) * silu(z)) for each value head; w [Ev].
  void (*gated_rms_norm)(Stream&, Rows x, Rows z, std::span<const float> w, float eps, Rows y);
  // One token for each row (ties: the lowest id). A row with a logit that is not a number gives a logprob
  // that is not finite.
  void (*sample)(Stream&, const Sample&);

  // --- vision encoder ----------------------------------------------------------------------------------
  // x[p] = round(x[p] + bilinear(table, p)), in place; table [G*G, D] sampled with aligned corners at patch
  // (r, c) of the grid; rows of x in merge-block order (blocks of merge x merge patches).
  void (*add_position_embedding)(Stream&, Rows x, const Weight& table, int grid_height, int grid_width,
                                 int merge);
  // y = round((x - mean) / sqrt(var + eps) * w + b).
  void (*layer_norm)(Stream&, Rows x, std::span<const float> w, std::span<const float> b, float eps, Rows y);
  // q and k of qkv [N, 3D], in place, pairs (i, i + E/2) of each head, one round; cos, sin [N, E/2] f32.
  void (*vision_rope)(Stream&, Rows qkv, int heads, std::span<const float> cos, std::span<const float> sin);
  // Every patch sees every patch, scale E^-1/2; rounding as in `attention`.
  void (*vision_attention)(Stream&, const VisionAttention&);
  // x = round(gelu(x)), in place.
  void (*gelu)(Stream&, Rows x, Gelu kind);
};

// The specification: plain loops, no vector code. For tests, and for machines without AVX2.
const Ops& reference_ops();
// The fastest table this CPU can run.
const Ops& cpu_ops();

}  // namespace quire
