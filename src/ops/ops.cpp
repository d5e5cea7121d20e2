#include "ops/ops.h"

#include "core/error.h"
#include "ops/attention/attention.h"
#include "ops/block_conv/block_conv.h"
#include "ops/conv1d/conv1d.h"
#include "ops/elementwise/elementwise.h"
#include "ops/embed/embed.h"
#include "ops/gdn/gdn.h"
#include "ops/linear/linear.h"
#include "ops/lookup/lookup.h"
#include "ops/norm/norm.h"
#include "ops/position_embedding/position_embedding.h"
#include "ops/rope/rope.h"
#include "ops/sample/sample.h"
#include "ops/select/select.h"
#include "ops/step/step.h"

namespace quire {
namespace {

// `x` without its first `elements` elements.
Rows skip(Rows x, std::int64_t elements) {
  if (x.data) x.data = static_cast<std::byte*>(x.data) + elements * size_of(x.format);
  return x;
}

}  // namespace

Rows Rows::slice_rows(std::int64_t begin, std::int64_t count) const {
  QUIRE_CHECK(begin >= 0 && count >= 0 && begin <= rows - count, "rows [{}, {} + {}) of {}", begin, begin,
              count, rows);
  Rows slice = skip(*this, begin * stride);
  slice.rows = count;
  return slice;
}

Rows Rows::slice_cols(std::int64_t begin, std::int64_t count) const {
  QUIRE_CHECK(begin >= 0 && count >= 0 && begin <= cols - count, "columns [{}, {} + {}) of {}", begin, begin,
              count, cols);
  Rows slice = skip(*this, begin);
  slice.cols = count;
  return slice;
}

const Ops& reference_ops() {
  static constexpr Ops kOps = {
      .name = "reference",
      .state_order = StateOrder::plain,
      .linear = reference::linear,
      .project = reference::project,
      .project_swiglu = reference::project_swiglu,
      .add = reference::add,
      .convert = reference::convert,
      .embed = reference::embed,
      .scatter_rows = reference::scatter_rows,
      .rms_norm = reference::rms_norm,
      .add_rms_norm = reference::add_rms_norm,
      .block_conv = reference::block_conv,
      .add_conv_rms_norm = reference::add_conv_rms_norm,
      .swiglu = reference::swiglu,
      .rotary = reference::rotary,
      .qk_norm_rope = reference::qk_norm_rope,
      .join_kv = reference::join_kv,
      .attention_prefill = reference::attention,
      .attention_window = reference::attention,
      .attention_gate = reference::attention_gate,
      .conv1d_silu = reference::conv1d_silu,
      .gdn_gates = reference::gdn_gates,
      .gdn_prefill = reference::gdn_recurrent,
      .gdn_window = reference::gdn_window,
      .gated_rms_norm = reference::gated_rms_norm,
      .step_begin = reference::step_begin,
      .place_drafts = reference::place_drafts,
      .select_drafts = reference::select_drafts,
      .commit = reference::commit,
      .lookup_drafts = reference::lookup_drafts,
      .sample = reference::sample,
      .add_position_embedding = reference::add_position_embedding,
      .layer_norm = reference::layer_norm,
      .vision_rope = reference::vision_rope,
      .vision_attention = reference::vision_attention,
      .gelu = reference::gelu,
  };
  return kOps;
}

}  // namespace quire
