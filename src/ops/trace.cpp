#include "ops/trace.h"

#include "core/error.h"

namespace quire {
namespace {

double bytes_of(const Rows& x) {
  return static_cast<double>(x.rows * x.cols * size_of(x.format));
}
double bytes_of(const Weight& w) {
  return static_cast<double>(w.out * w.in * size_of(w.format));
}
template <typename T>
double bytes_of(std::span<T> x) {
  return static_cast<double>(x.size_bytes());
}
double bytes_of(float) {
  return 0;
}
double bytes_of(int) {
  return 0;
}
double bytes_of(Gelu) {
  return 0;
}
double bytes_of(const BlockConv& x) {
  return bytes_of(x.base) + bytes_of(x.chosen);
}

std::string shape_of(const Rows& x) {
  return fmt::format("{} x {}", x.rows, x.cols);
}

// --- what a call is --------------------------------------------------------------------------------------

// Operations that pass over their operands once.
constexpr auto kPass = [](const OpTrace&, const auto& first, const auto&... rest) {
  OpCall call{.op = {}, .shape = {}, .bytes = bytes_of(first) + (bytes_of(rest) + ... + 0.0)};
  if constexpr (std::is_same_v<decltype(first), const Rows&>) call.shape = shape_of(first);
  return call;
};
// Operations on a few numbers.
constexpr auto kSmall = [](const OpTrace&, const auto&...) { return OpCall(); };

OpCall linear(const OpTrace&, const Rows& x, const Weight& w, std::span<const float> bias, const Rows& y) {
  return {.shape = fmt::format("{} x {} -> {}", x.rows, w.in, w.out),
          .bytes = bytes_of(x) + bytes_of(w) + bytes_of(bias) + bytes_of(y),
          .flop = 2.0 * static_cast<double>(x.rows * w.in * w.out)};
}

OpCall project(const OpTrace&, const Rows& x, std::span<const Projection> parts) {
  OpCall call{.shape = fmt::format("{} x {} ->", x.rows, x.cols), .bytes = bytes_of(x)};
  for (const Projection& p : parts) {
    call.shape += fmt::format(" {}", p.weight->out);
    call.bytes += bytes_of(*p.weight) + bytes_of(p.y) + bytes_of(p.maxima);
    call.flop += 2.0 * static_cast<double>(x.rows * p.weight->in * p.weight->out);
  }
  return call;
}

OpCall project_swiglu(const OpTrace&, const Rows& x, const Weight& gate, const Weight& up, const Rows&,
                      const Rows& y) {
  return {.shape = fmt::format("{} x {} -> {} {}", x.rows, x.cols, gate.out, up.out),
          .bytes = bytes_of(x) + bytes_of(gate) + bytes_of(up) + bytes_of(y),
          .flop = 2.0 * static_cast<double>(x.rows * x.cols * (gate.out + up.out))};
}

OpCall embed(const OpTrace&, std::span<const std::int32_t> ids, const Weight&, const Rows& y) {
  return {.shape = shape_of(y), .bytes = bytes_of(ids) + 2 * bytes_of(y)};
}

OpCall scatter_rows(const OpTrace&, const Rows& from, std::span<const std::int32_t> rows, const Rows&) {
  return {.shape = shape_of(from), .bytes = bytes_of(rows) + 2 * bytes_of(from)};
}

OpCall rotary(const OpTrace&, const Rotary& a) {
  return {.shape = fmt::format("{} x {}", a.rows, a.dims), .bytes = bytes_of(a.cos) + bytes_of(a.sin)};
}

OpCall qk_norm_rope(const OpTrace&, const QkNormRope& a) {
  return {.shape = shape_of(a.q), .bytes = 2 * (bytes_of(a.q) + bytes_of(a.k) + bytes_of(a.v))};
}

OpCall join_kv(const OpTrace&, const JoinKv& a) {
  OpCall call;
  for (const JoinKv::Layer& l : a.layers) call.bytes += 2 * (bytes_of(l.k) + bytes_of(l.v));
  if (!a.layers.empty()) call.shape = fmt::format("{}, {} layers", shape_of(a.layers[0].k), a.layers.size());
  return call;
}

OpCall attention(const OpTrace& trace, const Attention& a) {
  const double sequences = a.requests.count, keys = static_cast<double>(trace.context);
  const double kv = sequences * keys * static_cast<double>(2 * a.kv.k.cols * size_of(a.kv.k.format));
  return {.shape = fmt::format("{} x {}, {} requests of {} keys", a.q.rows, a.q.cols, a.requests.count,
                               trace.context),
          .bytes = kv + bytes_of(a.q) + bytes_of(a.out) + bytes_of(a.q_gate) / 2,
          .flop = 4.0 * static_cast<double>(a.q.rows * a.q.cols) * keys};
}

OpCall attention_gate(const OpTrace&, const Rows& x, const Rows&, int, const Rows&) {
  return {.shape = shape_of(x), .bytes = 3 * bytes_of(x)};
}

OpCall gdn_prefill(const OpTrace&, const GdnPrefill& a) {
  const double chunk = 64, T = static_cast<double>(a.qkv.rows);
  const double head =
      2 * chunk * (2 * a.shape.key_dim + 0.5 * (a.shape.key_dim + a.shape.value_dim) + a.shape.value_dim) +
      6.0 * a.shape.key_dim * a.shape.value_dim;  // of a token
  return {
      .shape = shape_of(a.qkv),
      .bytes = bytes_of(a.qkv) + bytes_of(a.out) + bytes_of(a.g) + bytes_of(a.beta) + 2 * bytes_of(a.state),
      .flop = T * a.shape.value_heads * head};
}

// Half a block of records on average; every fold reads and writes a state, once in a block of generated
// tokens.
OpCall gdn_window(const OpTrace&, const GdnWindow& a) {
  const double record =
      static_cast<double>(a.shape.key_cols() * size_of(a.slots.ring_k.format) +
                          a.shape.value_cols() * size_of(a.slots.ring_u.format) + 4 * a.shape.value_heads);
  const double state = 4.0 * static_cast<double>(a.shape.state_floats());
  const double folds = 1.0 / kGdnBlock;  // of an accepted token
  const double R = a.requests.count, T = static_cast<double>(a.qkv.rows);
  return {.shape = fmt::format("{} x {}, {} requests", a.qkv.rows, a.qkv.cols, a.requests.count),
          .bytes = R * (state * (1 + folds) + record * kGdnBlock / 2) + T * record + bytes_of(a.qkv) * 2 +
                   bytes_of(a.z) + bytes_of(a.a) + bytes_of(a.b) + bytes_of(a.out),
          .flop = T * a.shape.value_heads * 4.0 * a.shape.key_dim * a.shape.value_dim};
}

OpCall sample(const OpTrace&, const Sample& a) {
  return {.shape = shape_of(a.logits), .bytes = bytes_of(a.logits)};
}

// Every row after a request's first has K candidates and as many that may stand before them.
OpCall select_drafts(const OpTrace&, const SelectDrafts& a) {
  const double rows = static_cast<double>(a.logits.rows - a.requests.count), K = a.candidates;
  const double rank = static_cast<double>(a.predecessor.in);
  const double searched =
      a.maxima.data ? bytes_of(a.maxima) + rows * K * kMaximaColumns * sizeof(float) : bytes_of(a.logits);
  return {.shape = fmt::format("{}, {} candidates", shape_of(a.logits), a.candidates),
          .bytes = searched + bytes_of(a.projected) + rows * 2 * K * rank * size_of(a.successor.format),
          .flop = rows * 2 * K * K * rank};
}

OpCall vision_attention(const OpTrace&, const VisionAttention& a) {
  return {.shape = shape_of(a.out),
          .bytes = bytes_of(a.qkv) + bytes_of(a.out),
          .flop = 4.0 * static_cast<double>(a.out.rows * a.out.rows * a.out.cols)};
}

// --- the table -------------------------------------------------------------------------------------------

struct Name {
  char text[32] = {};
  template <std::size_t kSize>
  constexpr Name(const char (&name)[kSize]) {  // from a literal, where a template asks for a Name
    for (std::size_t i = 0; i < kSize; ++i) text[i] = name[i];
  }
};

template <Name kName, auto kMember, auto kDescribe, typename... Arguments>
void traced(Stream& s, Arguments... arguments) {
  const OpTrace& trace = *s.trace;
  OpCall call = kDescribe(trace, arguments...);
  call.op = kName.text;
  trace.before(call);
  (trace.ops->*kMember)(s, arguments...);
  trace.after();
}

}  // namespace

const Ops& traced_ops() {
  static constexpr Ops kOps = {
      .name = "traced",
      .state_order = StateOrder::plain,
      .linear = traced<"linear", &Ops::linear, linear>,
      .project = traced<"project", &Ops::project, project>,
      .project_swiglu = traced<"project_swiglu", &Ops::project_swiglu, project_swiglu>,
      .add = traced<"add", &Ops::add, kPass>,
      .convert = traced<"convert", &Ops::convert, kPass>,
      .embed = traced<"embed", &Ops::embed, embed>,
      .scatter_rows = traced<"scatter_rows", &Ops::scatter_rows, scatter_rows>,
      .rms_norm = traced<"rms_norm", &Ops::rms_norm, kPass>,
      .add_rms_norm = traced<"add_rms_norm", &Ops::add_rms_norm, kPass>,
      .block_conv = traced<"block_conv", &Ops::block_conv, kPass>,
      .add_conv_rms_norm = traced<"add_conv_rms_norm", &Ops::add_conv_rms_norm, kPass>,
      .swiglu = traced<"swiglu", &Ops::swiglu, kPass>,
      .rotary = traced<"rotary", &Ops::rotary, rotary>,
      .qk_norm_rope = traced<"qk_norm_rope", &Ops::qk_norm_rope, qk_norm_rope>,
      .join_kv = traced<"join_kv", &Ops::join_kv, join_kv>,
      .attention_prefill = traced<"attention_prefill", &Ops::attention_prefill, attention>,
      .attention_window = traced<"attention_window", &Ops::attention_window, attention>,
      .attention_gate = traced<"attention_gate", &Ops::attention_gate, attention_gate>,
      .conv1d_silu = traced<"conv1d_silu", &Ops::conv1d_silu, kPass>,
      .gdn_gates = traced<"gdn_gates", &Ops::gdn_gates, kPass>,
      .gdn_prefill = traced<"gdn_prefill", &Ops::gdn_prefill, gdn_prefill>,
      .gdn_window = traced<"gdn_window", &Ops::gdn_window, gdn_window>,
      .gated_rms_norm = traced<"gated_rms_norm", &Ops::gated_rms_norm, kPass>,
      .step_begin = traced<"step_begin", &Ops::step_begin, kSmall>,
      .place_drafts = traced<"place_drafts", &Ops::place_drafts, kSmall>,
      .select_drafts = traced<"select_drafts", &Ops::select_drafts, select_drafts>,
      .commit = traced<"commit", &Ops::commit, kSmall>,
      .lookup_drafts = traced<"lookup_drafts", &Ops::lookup_drafts, kSmall>,
      .sample = traced<"sample", &Ops::sample, sample>,
      .add_position_embedding = traced<"add_position_embedding", &Ops::add_position_embedding, kPass>,
      .layer_norm = traced<"layer_norm", &Ops::layer_norm, kPass>,
      .vision_rope = traced<"vision_rope", &Ops::vision_rope, kPass>,
      .vision_attention = traced<"vision_attention", &Ops::vision_attention, vision_attention>,
      .gelu = traced<"gelu", &Ops::gelu, kPass>,
  };
  return kOps;
}

}  // namespace quire
