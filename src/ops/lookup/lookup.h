// Drafts from the sequence itself: shape checks and reference of Ops::lookup_drafts. For each request with
// rows, h[0 .. n-1] being the tokens that its sequence has generated, of which the history holds the last
// min(n, capacity):
//
// - m(p), of a distance p: how many of the latest tokens have stood p places before, counted back from the
//   last one, where the history reaches; at most kLongestMatch.
// - p: that with the largest m(p), of equal ones the least: the last time that the longest n-gram was said.
// - matched = m(p) when that is kShortestMatch or more; else nothing is found: matched = 0 and p = 1.
// - drafts[i] = h[n - p + i mod p]: what followed; where that reaches the end, what it says again.
//
// Tokens of the prompt are none of h, so that no image token is ever found. Integers: every table gives the
// same.
#pragma once

#include "ops/ops.h"

namespace quire {

void check_lookup_drafts(const LookupDrafts& a);

namespace reference {

void lookup_drafts(Stream&, const LookupDrafts& a);

}  // namespace reference
}  // namespace quire
