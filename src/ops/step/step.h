// The cursors of a step: shape checks and references of Ops::step_begin and commit.
#pragma once

#include "ops/ops.h"

namespace quire {

void check_step_begin(const StepBegin& a);
// requests.count first rows; sampled [T].
void check_commit(const Commit& a);

namespace reference {

void step_begin(Stream&, const StepBegin& a);
void commit(Stream&, const Commit& a);

}  // namespace reference
}  // namespace quire
