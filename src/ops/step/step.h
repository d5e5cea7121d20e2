// The cursors of a step: shape checks and references of Ops::step_begin, place_drafts and commit.
#pragma once

#include "ops/ops.h"

namespace quire {

void check_step_begin(const StepBegin& a);
void check_place_drafts(const PlaceDrafts& a);
// requests.count first rows; sampled [T]; outputs has a row for each of them. Of at most kMostWindow rows
// each, unless the row is the last of a prompt.
void check_commit(const Commit& a);

namespace reference {

void step_begin(Stream&, const StepBegin& a);
void place_drafts(Stream&, const PlaceDrafts& a);
void commit(Stream&, const Commit& a);

}  // namespace reference
}  // namespace quire
