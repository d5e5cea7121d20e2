// Normalisations: shape checks and references of Ops::rms_norm, add_rms_norm, gated_rms_norm and layer_norm.
// Squares of the inputs must not overflow f32: beyond |x| = 1e18 no backend promises anything.
#pragma once

#include "ops/ops.h"

namespace quire {

// x and y [T, D], one format; w [D].
void check_rms_norm(const Rows& x, std::span<const float> w, const Rows& y);
// x, r, sum and y [T, D], one format; w [D].
void check_add_rms_norm(const Rows& x, const Rows& r, const Rows& sum, std::span<const float> w,
                        const Rows& y);
// x, z and y [T, Hv Ev], one format; w [Ev].
void check_gated_rms_norm(const Rows& x, const Rows& z, std::span<const float> w, const Rows& y);
// x and y [T, D], one format; w and b [D].
void check_layer_norm(const Rows& x, std::span<const float> w, std::span<const float> b, const Rows& y);

namespace reference {

void rms_norm(Stream&, Rows x, std::span<const float> w, float eps, Rows y);
void add_rms_norm(Stream&, Rows x, Rows r, Rows sum, std::span<const float> w, float eps, Rows y);
void gated_rms_norm(Stream&, Rows x, Rows z, std::span<const float> w, float eps, Rows y);
void layer_norm(Stream&, Rows x, std::span<const float> w, std::span<const float> b, float eps, Rows y);

}  // namespace reference
}  // namespace quire
