// The candidate selector of DFlash2's drafters: shape checks and reference of Ops::select_drafts. Of the rows
// t of a request after its first, in order, with p the id of the row before (for the first of them the
// anchor, which stands in ids; then the draft just chosen):
//
// - C: the K tokens with the largest logits, of equal ones the lowest ids.
// - u(c) = multiplier * logits[t, c]; with a cap, cap * tanh(u / cap).
// - score(c) = u(c) + sum_k predecessor[p, k] * projected[t, k] * successor[c, k], over the rank R.
// - ids[t] = the c in C with the largest score, of equal ones the lowest id.
//
// Maxima of the logits, where they are given, only say where candidates are.
//
// All in f32; a logit or a score that is not a number counts as -inf. A greedy walk: no draft is taken back
// for the sake of a later one. The equation is that of the published drafters (MODEL.md).
#pragma once

#include "ops/ops.h"

namespace quire {

// logits [T, V], maxima [T, maxima_cols(V)] or none, and projected [T, R] f32; predecessor and successor [V,
// R] of one format, 1 <= R <= kMostRank; 1 <= K <= min(V, kMostCandidates); at most kMostWindow rows a
// request.
void check_select_drafts(const SelectDrafts&);
// Where the requests are in host memory: the anchors are tokens.
void check_select_anchors(const SelectDrafts&);

namespace reference {

void select_drafts(Stream&, const SelectDrafts&);

}  // namespace reference
}  // namespace quire
