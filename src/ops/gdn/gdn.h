// Gated DeltaNet: the rule of Ops::gdn_window, the layout of a state, shape checks and references of
// Ops::gdn_gates, gdn_prefill and gdn_window.
//
// Windows of generated tokens. A step hands over up to kMostWindow tokens of a request; how many of them
// count is known only when the next step starts (`generated` has moved by that many). The bits of a token's
// result must not depend on how tokens were cut into windows, so nothing below names a window:
//
//   t = 0, 1, ...     generated tokens; L = kGdnBlock; m = t / L the token's block
//   C_0               the state that prefill left; C_{m+1} = fold(C_m, records mL .. mL+L-1)
//   record t          (k_t, u_t, G_t); G_t = g_t in the first token of a block, else G_{t-1} + g_t, in f32
//
// Token t, in this order:
//
//   1  Row t of the ring of inputs takes its row of qkv; x = round(silu(sum over taps)), taps ascending over
//      the rows t-W+1 .. t of the ring (negative t: the last rows of the prompt).
//   2  g and beta as gdn_gates gives them; q and k of the key head are normalised in f32, q scaled by
//      Ek^-1/2, then both are rounded.
//   3  hk = C_m^T k_t, hq = C_m^T q_t: the checkpoint of the token's own block.
//   4  u = beta fma(-exp(G_t), hk, v); for j = mL .. t-1, ascending: u = fma(-a_j, u_j, u) with
//      a_j = (beta exp(G_t - G_j)) (k_t . k_j). Then u is rounded to the format of ring_u, before anything
//      reads it.
//   5  o = exp(G_t) hq; for j = mL .. t, ascending: o = fma(f_j, u_j, o) with
//      f_j = exp(G_t - G_j) (q_t . k_j).
//   6  o is rounded, then gated_rms_norm.
//   7  Row t mod kGdnRing of the rings takes the record.
//
// fold(C, records): c = G of the last one; C = exp(c) C; for each record, ascending: C += k_j y_j^T with
// y_j = exp(c - G_j) u_j. All exponents are <= 0.
//
// "Round" is to A, as everywhere: with f32 activations nothing is rounded, and ring_u must be f32. Products
// (3, the dots, the fold) are f32 sums whose order belongs to the backend, but never to the window, the batch
// or a place in it. A backend may take the records of a block's first half together for all tokens of its
// second half, since that too is a matter of position alone. CUDA does, and splits C, y and those weights
// into two bf16 parts each.
//
// The checkpoint in memory is that of the block of `previous`. A step that starts in a later block (it can
// only be the next one) folds first and writes the result over it: all records of the block before are
// committed by then. A window that crosses into a block folds for its later tokens and keeps that to itself,
// since its own records may yet be rejected. Hence one checkpoint, and rejection needs no repair: rejected
// rows are overwritten by later windows. A step reads the ring rows of the tokens previous / L * L ..
// generated-1, fewer than L + kMostWindow, and writes up to kMostWindow others. Rows that are stale may hold
// anything: they are never summed, not even times zero.
#pragma once

#include "ops/ops.h"

namespace quire {

// Where element (k, v) of a head's state [Ek, Ev] lies. `fragments`: the operand A of mma.m16n8k16 with v as
// its rows. A tile of 16 values x 16 keys is 256 floats in a row, tiles run along k first; in a tile, first
// the rows 0 .. 7 of all 32 lanes, then 8 .. 15; lane 4 (v mod 8) + c holds the keys 2c, 2c+1, 2c+8, 2c+9 as
// 4 floats. The accumulators of two neighbouring tiles of a product with v as rows and k as columns are the
// same elements in the same lane. Dims that are no multiples of 16 are plain.
constexpr std::int64_t state_index(StateOrder order, int key_dim, int value_dim, int k, int v) {
  if (order == StateOrder::plain || key_dim % 16 != 0 || value_dim % 16 != 0) {
    return std::int64_t{k} * value_dim + v;
  }
  const int tile = v / 16 * (key_dim / 16) + k / 16, half = v % 16 / 8, lane = v % 8 * 4 + k % 8 / 2;
  return std::int64_t{tile} * 256 + half * 128 + lane * 4 + k % 16 / 8 * 2 + k % 2;
}

// a and b [T, Hv], one format; A_log and dt_bias [Hv]; g and beta [T, Hv].
void check_gdn_gates(const Rows& a, const Rows& b, std::span<const float> A_log,
                     std::span<const float> dt_bias, std::span<float> g, std::span<float> beta);
// Positive sizes, Hv a multiple of Hk.
void check_gdn_shape(const char* op, const GdnShape& s);
// Shapes as in GdnPrefill, one format.
void check_gdn_prefill(const GdnPrefill& a);
// Shapes as in GdnWindow, one format but for ring_u; the same number of slots in every pool.
void check_gdn_window(const GdnWindow& a);
// The numbers of the requests, where they are in host memory: rows within qkv and kMostWindow, slots within
// the pools and each at most once, `generated` in the block of `previous` or the next.
void check_gdn_requests(const GdnWindow& a);

namespace reference {

void gdn_gates(Stream&, Rows a, Rows b, std::span<const float> A_log, std::span<const float> dt_bias,
               std::span<float> g, std::span<float> beta);
// The recurrence, token by token: the definition of gdn_prefill, and of gdn_window but for its rounding
// points.
void gdn_recurrent(Stream&, const GdnPrefill& a);
// The same values in chunks of 64 tokens (WY form). Not in the table: it shows that the two forms agree.
void gdn_chunked(Stream&, const GdnPrefill& a);
// The rule above, token by token.
void gdn_window(Stream&, const GdnWindow& a);

}  // namespace reference
}  // namespace quire
