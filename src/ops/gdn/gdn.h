// Gated DeltaNet: shape checks and references of Ops::gdn_gates, gdn_prefill and gdn_window.
#pragma once

#include "ops/ops.h"

namespace quire {

// a and b [T, Hv], one format; A_log and dt_bias [Hv]; g and beta [T, Hv].
void check_gdn_gates(const Rows& a, const Rows& b, std::span<const float> A_log,
                     std::span<const float> dt_bias, std::span<float> g, std::span<float> beta);
// Shapes as in GatedDelta, one format; Hv a multiple of Hk.
void check_gated_delta(const GatedDelta& a);

namespace reference {

void gdn_gates(Stream&, Rows a, Rows b, std::span<const float> A_log, std::span<const float> dt_bias,
               std::span<float> g, std::span<float> beta);
// The recurrence, token by token: the definition of both gdn_prefill and gdn_window.
void gdn_recurrent(Stream&, const GatedDelta& a);
// The same values in chunks of 64 tokens (WY form). Not in the table: it shows that the two forms agree.
void gdn_chunked(Stream&, const GatedDelta& a);

}  // namespace reference
}  // namespace quire
