// The table of one instruction set.
#include "ops/cpu/entries.h"
#include "ops/cpu/table.h"
#include "ops/lookup/lookup.h"
#include "ops/step/step.h"

#define QUIRE_STRING(x) #x
#define QUIRE_NAME(x) QUIRE_STRING(x)

namespace quire::QUIRE_ISA {

const Ops kOps = {
    .name = QUIRE_NAME(QUIRE_ISA),
    .state_order = StateOrder::plain,
    .linear = linear,
    .project = project,
    .project_swiglu = project_swiglu,
    .add = add,
    .convert = convert,
    .embed = embed,
    .scatter_rows = scatter_rows,
    .rms_norm = rms_norm,
    .add_rms_norm = add_rms_norm,
    .block_conv = block_conv,
    .add_conv_rms_norm = add_conv_rms_norm,
    .swiglu = swiglu,
    .rotary = rotary,
    .qk_norm_rope = qk_norm_rope,
    .join_kv = join_kv,
    .attention_prefill = attention_prefill,
    .attention_window = attention_window,
    .attention_gate = attention_gate,
    .conv1d_silu = conv1d_silu,
    .gdn_gates = gdn_gates,
    .gdn_prefill = gdn_prefill,
    .gdn_window = gdn_window,
    .gated_rms_norm = gated_rms_norm,
    .step_begin = reference::step_begin,
    .place_drafts = reference::place_drafts,
    .select_drafts = select_drafts,
    .commit = reference::commit,
    .lookup_drafts = reference::lookup_drafts,
    .sample = sample,
    .add_position_embedding = add_position_embedding,
    .layer_norm = layer_norm,
    .vision_rope = vision_rope,
    .vision_attention = vision_attention,
    .gelu = gelu,
};

}  // namespace quire::QUIRE_ISA
