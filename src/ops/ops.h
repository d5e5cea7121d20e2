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

struct OpTrace;
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

// What the host has asked of a stream so far. A CPU runs what it is asked for at once: all stay 0.
struct StreamCounts {
  std::int64_t kernels = 0;                 // launched one by one; clearing or copying memory counts as one
  std::int64_t graphs = 0;                  // launched; the kernels in them are not counted
  std::int64_t uploads = 0, downloads = 0;  // copies to the device and from it
  std::int64_t waits = 0;                   // of the host for the device

  std::int64_t launches() const { return kernels + graphs; }
  std::int64_t copies() const { return uploads + downloads; }
  StreamCounts operator-(const StreamCounts& before) const {
    return {kernels - before.kernels, graphs - before.graphs, uploads - before.uploads,
            downloads - before.downloads, waits - before.waits};
  }
};

// What an operation runs on. One stream runs one operation at a time, in order.
struct Stream {
  ThreadPool* threads = nullptr;  // of the CPU tables
  Buffer scratch;                 // host memory, grown by operations, reused
  void* cuda_stream = nullptr;    // a cudaStream_t, of the CUDA table; nullptr: the default stream
  void* cuda_scratch = nullptr;   // device memory that operations of the CUDA table may overwrite
  std::size_t cuda_scratch_bytes = 0;
  bool dependent_launch = true;    // CUDA: a kernel may start beside the tail of the one before (launch.h)
  const OpTrace* trace = nullptr;  // of traced_ops() (ops/trace.h)
  StreamCounts counts{};

  std::byte* scratch_bytes(std::size_t bytes) {
    if (scratch.size() < bytes) scratch = Buffer(bytes);
    return scratch.data();
  }
};

enum class Gelu { tanh, erf };

inline constexpr int kMostProjections = 10;  // keys and values of five layers of a drafter
inline constexpr int kMaximaColumns = 32;
// From so many rows on maxima are found as a product is stored, for next to nothing, where that can be.
inline constexpr int kFewestForMaxima = 96;
constexpr std::int64_t maxima_cols(std::int64_t cols) {
  return (cols + kMaximaColumns - 1) / kMaximaColumns;
}
// One of several products of the same rows.
struct Projection {
  const Weight* weight = nullptr;
  Rows y;
  // f32 [T, maxima_cols(out)]: of each row of y, which then is f32, the largest of every kMaximaColumns
  // neighbours, -inf where none of them is a number. Without memory: not found.
  Rows maxima{};
};

// Which rows of a step belong to which request. The arrays are in the backend's memory, so that a captured
// graph finds the numbers of each step there; `count` and `longest` size its launches. A request may have no
// rows (padding). Rows from first_row[count] on belong to nobody: outputs there are unspecified, nothing else
// is written for them.
struct Requests {
  std::int32_t count = 0;                   // R
  std::int32_t longest = 0;                 // at least the rows of any one request
  const std::int32_t* first_row = nullptr;  // [R + 1]: request r has rows first_row[r] .. first_row[r+1]-1
  const std::int32_t* start = nullptr;      // [R]: sequence index of its first row
  const std::int32_t* slot = nullptr;       // [R]: its slot in the pools
};

// The keys and values of every sequence in one layer: pools of pages of P rows. Token j of the sequence in
// slot s stands in row block_table[s * pages_per_slot + j / P] * P + j % P.
struct KvPages {
  Rows k, v;                                  // [pages * P, G * E] in A
  std::int32_t page_size = 0;                 // P, a multiple of 64
  const std::int32_t* block_table = nullptr;  // [slots, pages_per_slot], in the backend's memory
  std::int32_t pages_per_slot = 0;            // bounds the length of a sequence: pages_per_slot * P
};

// Where the sequence of each slot stands. Arrays [slots] in the backend's memory, moved by step_begin and
// commit alone, so that the host need not know the outcome of a step to ask for the next.
struct Cursors {
  std::int32_t* length = nullptr;     // tokens in the caches that count; the next row has this sequence index
  std::int32_t* generated = nullptr;  // of them, those since the prompt's end
  std::int32_t* previous = nullptr;   // `generated` as the last step found it
  std::int32_t* accepted = nullptr;   // rows of the last step that count, not yet in `length`
  std::int32_t* delta = nullptr;      // rotary position of sequence index m: m + delta
  std::int32_t* token = nullptr;      // of the next row
};

// Pages that sequences have got since the step before: place[i] of the block table becomes page[i].
struct NewPages {
  std::int32_t* count = nullptr;  // 0 as soon as they are in the table; nullptr: there are never any
  const std::int32_t *place = nullptr, *page = nullptr;  // [most]
  std::int32_t* block_table = nullptr;                   // that of KvPages
  std::int32_t most = 0;
};

struct StepBegin {
  Cursors cursors;
  Requests requests;                     // first_row and slot are read
  NewPages new_pages;                    // go to the block table before anything else
  KvPages kv;                            // its block table is read
  const std::int32_t* drafts = nullptr;  // [slots, kMostWindow - 1]: the rows after a request's first
  std::int64_t rows = 0;                 // T; rows that belong to nobody get token 0 and are not kept
  // The rows begin so many tokens after the sequence's end; none stands before its first token. Asked again
  // in one step, it finds nothing accepted any more and tells of other rows.
  std::int32_t ahead = 0;
  // Out.
  std::int32_t* start = nullptr;                           // [R]: requests.start
  std::int32_t *generated = nullptr, *previous = nullptr;  // [R], as in GdnWindow
  std::int32_t* ids = nullptr;                             // [T]
  std::int32_t* position = nullptr;                        // [3, T]
  std::int32_t* kv_row = nullptr;                          // [T], as in QkNormRope; -1 past the last page
  std::int32_t* row_slot = nullptr;                        // [T], as in Sample
  std::int32_t* index = nullptr;                           // [T]: sequence index of the row
  std::int32_t* next = nullptr;  // [T]: sequence index of the token that a row predicts
};

// Angles of the rotary embedding. Frequency i is theta^(-2i/R); it turns by the h stream if i % 3 == 1 and
// i < 3 * section_h, by w if i % 3 == 2 and i < 3 * section_w, else by t.
struct Rotary {
  const std::int32_t* position = nullptr;  // [3, T]: t, h, w of each row
  std::int64_t rows = 0;                   // T
  int dims = 0;                            // R
  double theta = 0;
  int section_h = 0, section_w = 0;
  Format format = Format::f32;  // A: what cos and sin are rounded to
  std::span<float> cos, sin;    // out [T, R/2]
};

struct QkNormRope {
  Rows q_gate;        // [T, H * 2E]: per head E of query, E of gate; the query part is read
  bool gated = true;  // false: there are no gates, q_gate is [T, H * E]
  Rows k, v;          // [T, G * E]
  Rows q;             // out [T, H * E]
  KvPages kv;         // out: the keys and values of the step, in their rows
  const std::int32_t* kv_row = nullptr;   // [T]: row of kv.k and kv.v, or -1: not kept
  int head_dim = 0;                       // E
  std::span<const float> q_norm, k_norm;  // [E], offset from 1
  float eps = 0;
  std::span<const float> cos, sin;  // [T, R/2], R <= E rotated dims, already rounded to A
};

inline constexpr int kMostJoined = kMostProjections / 2;
// The keys and values that several layers make of the same rows, each as in QkNormRope.
struct JoinKv {
  struct Layer {
    Rows k, v;                      // [T, G * E], in all layers
    KvPages kv;                     // out
    std::span<const float> k_norm;  // [E]
  };
  std::span<const Layer> layers;         // at most kMostJoined
  const std::int32_t* kv_row = nullptr;  // [T]
  int head_dim = 0;
  float eps = 0;
  std::span<const float> cos, sin;  // [T, R/2]
};

// A row sees the keys of its own sequence up to itself.
struct Attention {
  Rows q;      // [T, H * E]
  KvPages kv;  // holds every key that is seen, those of this step too
  Requests requests;
  int head_dim = 0;    // E
  bool causal = true;  // false: a row sees all rows of its request in this step, and what was before them
  std::int32_t sliding_window =
      0;          // of keys before the step, a row sees those less than this behind it; 0: all
  Rows out;       // [T, H * E]
  Rows q_gate{};  // as in QkNormRope: out is what attention_gate makes of it; without memory there are no
                  // gates
};

// Dimensions of a Gated-DeltaNet layer.
struct GdnShape {
  int key_heads = 0, value_heads = 0;  // Hk, Hv; value head h reads key head h / (Hv/Hk)
  int key_dim = 0, value_dim = 0;      // Ek, Ev

  std::int64_t key_cols() const { return std::int64_t{key_heads} * key_dim; }
  std::int64_t value_cols() const { return std::int64_t{value_heads} * value_dim; }
  std::int64_t conv_cols() const { return 2 * key_cols() + value_cols(); }  // C: q | k | v, each head-major
  std::int64_t state_floats() const { return value_cols() * key_dim; }
};

struct GdnPrefill {
  GdnShape shape;
  Rows qkv;                        // [T, C] after convolution and SiLU
  std::span<const float> g, beta;  // [T, Hv]: log decay (<= 0) and write strength in (0, 1)
  std::span<float> state;          // [Hv, Ek, Ev] in the table's order of a state (state_index), in and out
  Rows out;                        // [T, Hv Ev]
};

// Windows of generated tokens go by blocks of kGdnBlock tokens, counted from the first generated one.
inline constexpr int kGdnBlock = 32;
inline constexpr int kMostWindow = 16;                        // rows of a request in one step
inline constexpr int kGdnRing = kGdnBlock + 2 * kMostWindow;  // rows of the ring of records
// Rows of the ring of inputs, for W taps.
constexpr int gdn_conv_rows(int taps) {
  return taps + kMostWindow;
}

// What every slot keeps in one Gated-DeltaNet layer. Generated token t has ring row t mod kGdnRing and
// convolution row (t + W - 1) mod gdn_conv_rows(W); the last W-1 tokens of the prompt count as t = -(W-1) ..
// -1.
struct GdnSlots {
  std::span<float> state;  // [slots, Hv, Ek, Ev]: the checkpoint, each in the table's order of a state
  Rows conv;               // [slots * gdn_conv_rows, C]: rows before the convolution, in A
  Rows ring_k;             // [slots * kGdnRing, Hk Ek] in A: normalised keys
  Rows ring_u;             // [slots * kGdnRing, Hv Ev] bf16 or f32: updates
  Rows ring_g;             // [slots * kGdnRing, Hv] f32: sums of the log decay from the block's start
};

struct GdnWindow {
  GdnShape shape;
  Rows qkv;                                     // [T, C] before the convolution
  Rows z;                                       // [T, Hv Ev]
  Rows a, b;                                    // [T, Hv]
  std::span<const float> conv1d;                // [C, W], the last tap meets the current token
  std::span<const float> A_log, dt_bias, norm;  // [Hv], [Hv], [Ev]
  float eps = 0;
  GdnSlots slots;
  Requests requests;
  const std::int32_t* generated = nullptr;  // [R]: t of the request's first row
  // [R]: t of the first row of its step before; the checkpoint is that of this token's block.
  const std::int32_t* previous = nullptr;
  Rows out;  // [T, Hv Ev]
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

// The newest tokens that each sequence has generated: token i, counted from 0, in place i mod `capacity`.
struct History {
  std::int32_t* tokens = nullptr;  // [slots, capacity], in the backend's memory
  std::int32_t capacity = 0;
};

struct Commit {
  Cursors cursors;
  Requests requests;                  // first_row and slot are read
  const std::int32_t* ids = nullptr;  // [T]: what was run
  std::span<const Sampled> sampled;   // [T]: what was drawn after each row
  bool prompt = false;                // the row is the last of a prompt: only its token is taken
  std::int32_t assumed = 0;           // not 0: so many rows count, whatever was drawn (for measuring)
  std::int32_t* counts = nullptr;     // out [R]: rows of each request whose tokens count; nullptr: not said
  std::uint16_t* seen = nullptr;      // [slots, V], as in Sample; nullptr: not counted
  std::int64_t vocabulary = 0;        // V
  History history;                    // gets the tokens that count; without memory: not kept
  // `outputs` [T, D]: what the rows' tokens were drawn from. That of each request's last row that counts goes
  // to `last` [slots, D], one format; without memory: not kept.
  Rows outputs{}, last{};
};

inline constexpr int kShortestMatch = 2, kLongestMatch = 4;
// What followed the latest tokens of a sequence when they last stood in it: drafts of its next window
// (ops/lookup/lookup.h).
struct LookupDrafts {
  Cursors cursors;                  // as commit left them; generated and accepted are read
  Requests requests;                // first_row and slot are read
  History history;                  // with what was committed
  std::int32_t* drafts = nullptr;   // out [slots, kMostWindow - 1], as in StepBegin
  std::int32_t* matched = nullptr;  // out [R]: how many of the latest tokens have stood there before; 0: none
};

// The likeliest token of each row of a block becomes the draft that the next model runs in that row.
struct PlaceDrafts {
  Rows logits;                  // [T, V] f32
  Requests requests;            // first_row is read
  std::int32_t* ids = nullptr;  // [T]: the rows after a request's first are written
  // Not 0: logits are [R, V], and each request's go to this row of its own, if it has so many.
  std::int32_t row = 0;
};

// A convolution along the rows of each request, of D channels and W taps. Neighbouring channels share, in so
// many groups, what their row chooses (ops/block_conv/block_conv.h).
struct BlockConv {
  std::span<const float> base;  // [W, D]: tap t meets the row t before
  Rows chosen;                  // [T, W * groups]: what a row adds to the base
  Requests requests;            // first_row is read
};

inline constexpr int kMostCandidates = 32;
inline constexpr int kMostRank = 512;
// As PlaceDrafts, with a choice: the K likeliest tokens of each row are candidates, and how well one of them
// follows the draft of the row before counts, too (ops/select/select.h).
struct SelectDrafts {
  Rows logits;                    // [T, V] f32
  Rows maxima{};                  // of the logits (Projection), for speed alone; without memory: not known
  Rows projected;                 // [T, R] f32: of the rows that the logits are of
  Weight predecessor, successor;  // [V, R]
  int candidates = 0;             // K
  float multiplier = 1;           // of logits
  float cap = 0;                  // of their size, softly, after that; 0: none
  Requests requests;              // first_row is read
  std::int32_t* ids = nullptr;    // [T]: a request's first row is read, the rows after it are written
};

// How a table lays out the state [Ek, Ev] of a head in memory.
enum class StateOrder {
  plain,      // row-major
  fragments,  // as tensor cores read it (state_index in ops/gdn/gdn.h)
};

struct Ops {
  const char* name;  // "reference", "avx2", "avx512", "cuda"
  StateOrder state_order;

  // --- both models -------------------------------------------------------------------------------------
  // y = x W^T + bias, summed in f32 in one order for each (out, in), then + bias, then one round. bias [out]
  // or empty.
  void (*linear)(Stream&, Rows x, const Weight& w, std::span<const float> bias, Rows y);
  // Several products of the same rows, each as `linear` gives it, without bias. At most kMostProjections.
  void (*project)(Stream&, Rows x, std::span<const Projection> parts);
  // y = swiglu of the products with gate and up, in the bits of `project` and `swiglu`, all in one format.
  // `spare` is like y; what it holds afterwards is unspecified.
  void (*project_swiglu)(Stream&, Rows x, const Weight& gate, const Weight& up, Rows spare, Rows y);
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
  // sum = round(x + r), which may be x, then y = rms_norm(sum).
  void (*add_rms_norm)(Stream&, Rows x, Rows r, Rows sum, std::span<const float> w, float eps, Rows y);
  // y = round(conv(x)).
  void (*block_conv)(Stream&, Rows x, const BlockConv& conv, Rows y);
  // x = round(x + round(conv(r))), in place, then y = rms_norm(x).
  void (*add_conv_rms_norm)(Stream&, Rows x, Rows r, const BlockConv& conv, std::span<const float> w,
                            float eps, Rows y);
  // y = round(round(silu(gate)) * up).
  void (*swiglu)(Stream&, Rows gate, Rows up, Rows y);
  // cos and sin of every row's angles, in double, rounded once to f32 and then to A.
  void (*rotary)(Stream&, const Rotary&);
  // Per head: n = rms_norm(q or k); the first R dims rotate in pairs (i, i + R/2):
  // a' = round(round(a cos) - round(b sin)), b' = round(round(b cos) + round(a sin)). Keys, so turned, and
  // values go to their rows of the pools.
  void (*qk_norm_rope)(Stream&, const QkNormRope&);
  // The same for keys and values alone.
  void (*join_kv)(Stream&, const JoinKv&);
  // Causal by sequence index, scale E^-1/2; query head h reads key head h / (H/G). Scores and softmax f32;
  // the unnormalised weights exp(s - m) are rounded before they meet v, their sum is not; one round at the
  // end. Bits are a function of the request's keys and queries alone. The two paths need not agree bit for
  // bit.
  void (*attention_prefill)(Stream&, const Attention&);
  void (*attention_window)(Stream&, const Attention&);
  // y = round(x * round(sigmoid(gate))), gate read from q_gate [T, H * 2E] (second half of each head); x may
  // be y.
  void (*attention_gate)(Stream&, Rows x, Rows q_gate, int head_dim, Rows y);
  // y[t] = round(silu(sum_j w[:, j] x[t - (W-1) + j])), w [C, W]; rows before the first come from `state`
  // [W-1, C], which then holds the last W-1 rows of x. One format.
  void (*conv1d_silu)(Stream&, Rows x, std::span<const float> w, Rows state, Rows y);
  // g = -exp(A_log) softplus(a + dt_bias), beta = sigmoid(b); a, b [T, Hv] in A, g, beta [T * Hv] f32.
  void (*gdn_gates)(Stream&, Rows a, Rows b, std::span<const float> A_log, std::span<const float> dt_bias,
                    std::span<float> g, std::span<float> beta);
  // The gated delta rule, token by token: S <- exp(g) S; S <- S + k beta (v - S^T k)^T; o = S^T q. q, k are
  // L2-normalised (sum + 1e-6) and q scaled by Ek^-1/2 in f32. Prompt tokens: chunks of 64 counted from the
  // first row (WY form, model-spec 2.5), everything f32, out rounded.
  void (*gdn_prefill)(Stream&, const GdnPrefill&);
  // Generated tokens, from the rows of the input projections to the gated norm: conv1d_silu, gdn_gates, the
  // gated delta rule, gated_rms_norm. By blocks: a token reads the checkpoint of its own block and the
  // records since (ops/gdn/gdn.h has the rule, its order and its rounding points), so that its bits do not
  // depend on how tokens were cut into windows. Nothing is committed: the next step's `generated` says how
  // many of these rows count.
  void (*gdn_window)(Stream&, const GdnWindow&);
  // y = round(w * x / sqrt(mean(x^2) + eps) * silu(z)) for each value head; w [Ev].
  void (*gated_rms_norm)(Stream&, Rows x, Rows z, std::span<const float> w, float eps, Rows y);
  // The first and the last operation of a window step, and what makes it one: the first adds the accepted
  // rows to the cursors and tells the operations between what their rows are, the last counts how many of
  // them agree with what was drawn (row i + 1 was run with the token drawn after row i) and keeps the token
  // after those.
  void (*step_begin)(Stream&, const StepBegin&);
  void (*place_drafts)(Stream&, const PlaceDrafts&);    // ties: the lowest id
  void (*select_drafts)(Stream&, const SelectDrafts&);  // ties: the lowest id
  void (*commit)(Stream&, const Commit&);
  // After commit: drafts for the next step from what each sequence has said.
  void (*lookup_drafts)(Stream&, const LookupDrafts&);
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
