// Optimizations and choices of arithmetic by name, so that each can be measured alone:
// "graphs=off,gdn_ring=f32".
#pragma once

#include <string_view>

#include "ops/ops.h"

namespace quire {

struct Switches {
  bool graphs = true;            // CUDA: a step is one graph
  bool dependent_launch = true;  // CUDA: a kernel starts beside the tail of the one before
  Format gdn_ring =
      Format::bf16;  // how updates of Gated DeltaNet wait for their fold; f32: closer, more bytes
  // Rows of every step with a drafter, as far as its blocks go; 0: as many as pay (engine/window_policy.h).
  int window = 0;

  // Throws Error{invalid_input} that lists the switches.
  static Switches parse(std::string_view text);
};

}  // namespace quire
