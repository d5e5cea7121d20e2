// A drafter beside a recorded target: what it would have drafted, and how much of that would have been right.
#pragma once

#include "measure/target.h"

namespace quire {

// How a drafter is run.
struct DrafterSetup {
  DrafterConfig config;
  Format format = Format::bf16;
  bool mrope = false;  // rotary positions: the first of the target's three streams, not plain indices
  PromptSetup prompt;
};

// Steps, tokens and drafts as the engine counts them, with windows as long as the blocks. The recording has
// the prompt of the setup, and its taps among others.
DraftCounts replay(Target& target, const DrafterSetup& setup, const DrafterWeights& weights,
                   const Recording& recording);

}  // namespace quire
