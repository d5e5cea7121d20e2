#include "ops/cuda/on_host.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <tuple>
#include <type_traits>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/cuda/device_memory.h"
#include "ops/embed/embed.h"
#include "ops/gdn/gdn.h"
#include "ops/linear/linear.h"
#include "ops/lookup/lookup.h"
#include "ops/rope/rope.h"
#include "ops/sample/sample.h"
#include "ops/select/select.h"
#include "ops/step/step.h"

namespace quire::cuda {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{256} << 20;

// The operands of one call, on the device. finish() brings them back.
class Staged {
 public:
  // A host stream that names a size of scratch memory gets that.
  explicit Staged(Stream& host)
      : scratch_(host.cuda_scratch_bytes ? host.cuda_scratch_bytes : kScratchBytes) {
    stream.threads = host.threads;
    stream.cuda_scratch = scratch_.data();
    stream.cuda_scratch_bytes = scratch_.size();
  }

  Rows operator()(Rows x) {
    if (x.rows > 0 && x.cols > 0) {
      const auto bytes = [&](std::int64_t elements) {
        return static_cast<std::size_t>(elements * size_of(x.format));
      };
      x.data = copy(x.data, bytes((x.rows - 1) * x.stride + x.cols), bytes(x.stride), bytes(x.cols));
    }
    return x;
  }
  Weight operator()(Weight w) {
    w.data = copy(const_cast<void*>(w.data), static_cast<std::size_t>(w.out * w.in * size_of(w.format)));
    return w;
  }
  template <typename T>
  std::span<T> operator()(std::span<T> x) {
    if (x.empty()) return x;
    return {static_cast<T*>(copy(const_cast<std::remove_const_t<T>*>(x.data()), x.size_bytes())), x.size()};
  }
  const std::int32_t* operator()(const std::int32_t* x, std::int64_t count) {
    return (*this)(std::span(x, x ? static_cast<std::size_t>(count) : 0)).data();
  }
  Requests operator()(Requests r) {
    r.first_row = (*this)(r.first_row, r.count + 1);
    r.start = (*this)(r.start, r.count);
    r.slot = (*this)(r.slot, r.count);
    return r;
  }
  // The pools, and the block tables of the first `slots` slots.
  KvPages operator()(KvPages kv, std::int64_t slots) {
    kv.k = (*this)(kv.k), kv.v = (*this)(kv.v);
    kv.block_table = (*this)(kv.block_table, slots * kv.pages_per_slot);
    return kv;
  }

  // Row by row, without what stands between rows: it may belong to another operand.
  void finish() {
    std::vector<std::byte> bytes;
    for (const Copy& c : copies_) {
      bytes.resize(c.device.size());
      download(stream, bytes.data(), c.device.data(), bytes.size());
      for (std::size_t at = 0; at < bytes.size(); at += c.stride) {
        std::memcpy(static_cast<std::byte*>(c.host) + at, bytes.data() + at, c.width);
      }
    }
  }

  Stream stream;

 private:
  struct Copy {
    void* host;
    DeviceBuffer device;
    std::size_t stride, width;  // of a row, bytes
  };
  void* copy(void* host, std::size_t bytes, std::size_t stride, std::size_t width) {
    copies_.push_back({host, DeviceBuffer(bytes), stride, width});
    upload(stream, copies_.back().device.data(), host, bytes);
    return copies_.back().device.data();
  }
  void* copy(void* host, std::size_t bytes) { return copy(host, bytes, bytes, bytes); }

  DeviceBuffer scratch_;
  std::deque<Copy> copies_;
};

// An operation whose arguments are all operands or plain numbers, staged one by one.
template <auto Member, typename... Args>
void on_host(Stream& s, Args... args) {
  Staged stage(s);
  const auto staged = [&](auto x) {
    if constexpr (std::is_invocable_v<Staged&, decltype(x)>) {
      return stage(x);
    } else {
      return x;
    }
  };
  // Braces fix the order; the same memory given twice (an operation in place) would be staged twice, and the
  // contracts of those operations have one operand for it.
  std::tuple<Args...> operands{staged(args)...};
  std::apply([&](auto&... x) { (ops()->*Member)(stage.stream, x...); }, operands);
  stage.finish();
}

void linear(Stream& s, Rows x, const Weight& w, std::span<const float> bias, Rows y) {
  Staged stage(s);
  ops()->linear(stage.stream, stage(x), stage(w), stage(bias), stage(y));
  stage.finish();
}

void project(Stream& s, Rows x, std::span<const Projection> parts) {
  check_project(x, parts);
  Staged stage(s);
  std::deque<Weight> weights;
  std::vector<Projection> staged;
  for (const Projection& p : parts)
    staged.push_back({&weights.emplace_back(stage(*p.weight)), stage(p.y), stage(p.maxima)});
  ops()->project(stage.stream, stage(x), staged);
  stage.finish();
}

void project_swiglu(Stream& s, Rows x, const Weight& gate, const Weight& up, Rows spare, Rows y) {
  Staged stage(s);
  ops()->project_swiglu(stage.stream, stage(x), stage(gate), stage(up), stage(spare), stage(y));
  stage.finish();
}

// Indices can only be checked here, where they are in host memory.
void embed(Stream& s, std::span<const std::int32_t> ids, const Weight& table, Rows y) {
  check_embed(ids, table, y);
  Staged stage(s);
  ops()->embed(stage.stream, stage(ids), stage(table), stage(y));
  stage.finish();
}

void scatter_rows(Stream& s, Rows from, std::span<const std::int32_t> rows, Rows x) {
  check_scatter_rows(from, rows, x);
  Staged stage(s);
  ops()->scatter_rows(stage.stream, stage(from), stage(rows), stage(x));
  stage.finish();
}

void add_position_embedding(Stream& s, Rows x, const Weight& table, int height, int width, int merge) {
  Staged stage(s);
  ops()->add_position_embedding(stage.stream, stage(x), stage(table), height, width, merge);
  stage.finish();
}

void attention_gate(Stream& s, Rows x, Rows q_gate, int head_dim, Rows y) {
  Staged stage(s);
  const Rows in = stage(x), gate = stage(q_gate);
  ops()->attention_gate(stage.stream, in, gate, head_dim, y.data == x.data ? in : stage(y));
  stage.finish();
}

void gated_rms_norm(Stream& s, Rows x, Rows z, std::span<const float> w, float eps, Rows y) {
  Staged stage(s);
  const Rows in = stage(x), gate = stage(z);
  ops()->gated_rms_norm(stage.stream, in, gate, stage(w), eps, y.data == x.data ? in : stage(y));
  stage.finish();
}

void swiglu(Stream& s, Rows gate, Rows up, Rows y) {
  Staged stage(s);
  const Rows g = stage(gate), u = stage(up);
  ops()->swiglu(stage.stream, g, u, y.data == gate.data ? g : stage(y));
  stage.finish();
}

BlockConv stage_conv(Staged& stage, const BlockConv& conv) {
  return {stage(conv.base), stage(conv.chosen), stage(conv.requests)};
}

void block_conv(Stream& s, Rows x, const BlockConv& conv, Rows y) {
  Staged stage(s);
  ops()->block_conv(stage.stream, stage(x), stage_conv(stage, conv), stage(y));
  stage.finish();
}

void add_conv_rms_norm(Stream& s, Rows x, Rows r, const BlockConv& conv, std::span<const float> w, float eps,
                       Rows y) {
  Staged stage(s);
  ops()->add_conv_rms_norm(stage.stream, stage(x), stage(r), stage_conv(stage, conv), stage(w), eps,
                           stage(y));
  stage.finish();
}

void rotary(Stream& s, const Rotary& a) {
  check_rotary(a);
  Staged stage(s);
  Rotary d = a;
  d.position = stage(a.position, 3 * a.rows), d.cos = stage(a.cos), d.sin = stage(a.sin);
  ops()->rotary(stage.stream, d);
  stage.finish();
}

void qk_norm_rope(Stream& s, const QkNormRope& a) {
  check_qk_norm_rope(a);
  check_kv_rows(a);
  Staged stage(s);
  QkNormRope d = a;
  d.q_gate = stage(a.q_gate), d.k = stage(a.k), d.v = stage(a.v), d.q = stage(a.q), d.kv = stage(a.kv, 0);
  d.kv_row = stage(a.kv_row, a.q.rows);
  d.q_norm = stage(a.q_norm), d.k_norm = stage(a.k_norm), d.cos = stage(a.cos), d.sin = stage(a.sin);
  ops()->qk_norm_rope(stage.stream, d);
  stage.finish();
}

void join_kv(Stream& s, const JoinKv& a) {
  check_join_kv(a);
  for (const JoinKv::Layer& l : a.layers) check_kv_rows(keys_alone(a, l));
  Staged stage(s);
  JoinKv d = a;
  std::vector<JoinKv::Layer> layers;
  for (const JoinKv::Layer& l : a.layers)
    layers.push_back({stage(l.k), stage(l.v), stage(l.kv, 0), stage(l.k_norm)});
  d.layers = layers;
  d.kv_row = stage(a.kv_row, layers.empty() ? 0 : layers[0].k.rows);
  d.cos = stage(a.cos), d.sin = stage(a.sin);
  ops()->join_kv(stage.stream, d);
  stage.finish();
}

template <auto Member>
void attention(Stream& s, const Attention& a) {
  check_attention(a);
  check_attention_requests(a);
  std::int32_t slots = 0;
  for (std::int32_t r = 0; r < a.requests.count; ++r) slots = std::max(slots, a.requests.slot[r] + 1);
  Staged stage(s);
  Attention d = a;
  d.q = stage(a.q), d.kv = stage(a.kv, slots), d.requests = stage(a.requests), d.out = stage(a.out);
  d.q_gate = stage(a.q_gate);
  (ops()->*Member)(stage.stream, d);
  stage.finish();
}

void vision_attention(Stream& s, const VisionAttention& a) {
  Staged stage(s);
  ops()->vision_attention(stage.stream, {.qkv = stage(a.qkv), .heads = a.heads, .out = stage(a.out)});
  stage.finish();
}

// The arrays by slot reach as far as the largest slot that a row names.
void sample(Stream& s, const Sample& a) {
  check_sample(a);
  Staged stage(s);
  const auto T = static_cast<std::size_t>(a.logits.rows), V = static_cast<std::size_t>(a.logits.cols);
  const std::size_t slots = T == 0 ? 0 : static_cast<std::size_t>(*std::max_element(a.slot, a.slot + T)) + 1;
  Sample d = a;
  d.logits = stage(a.logits), d.out = stage(a.out);
  d.settings = stage(std::span(a.settings, slots)).data();
  if (a.seen) d.seen = stage(std::span(a.seen, slots * V)).data();
  d.slot = stage(std::span(a.slot, T)).data(), d.position = stage(std::span(a.position, T)).data();
  ops()->sample(stage.stream, d);
  stage.finish();
}

void gdn_prefill(Stream& s, const GdnPrefill& a) {
  Staged stage(s);
  GdnPrefill d = a;
  d.qkv = stage(a.qkv), d.g = stage(a.g), d.beta = stage(a.beta), d.state = stage(a.state);
  d.out = stage(a.out);
  ops()->gdn_prefill(stage.stream, d);
  stage.finish();
}

// Requests can only be checked here, where they are in host memory.
void gdn_window(Stream& s, const GdnWindow& a) {
  check_gdn_window(a);
  check_gdn_requests(a);
  Staged stage(s);
  GdnWindow d = a;
  d.qkv = stage(a.qkv), d.z = stage(a.z), d.a = stage(a.a), d.b = stage(a.b);
  d.conv1d = stage(a.conv1d), d.A_log = stage(a.A_log), d.dt_bias = stage(a.dt_bias), d.norm = stage(a.norm);
  d.slots = {stage(a.slots.state), stage(a.slots.conv), stage(a.slots.ring_k), stage(a.slots.ring_u),
             stage(a.slots.ring_g)};
  d.requests = stage(a.requests);
  d.generated = stage(a.generated, a.requests.count);
  d.previous = stage(a.previous, a.requests.count);
  d.out = stage(a.out);
  ops()->gdn_window(stage.stream, d);
  stage.finish();
}

// Arrays by slot reach as far as the largest slot of a request.
std::size_t slots_of(const Requests& r) {
  return r.count == 0 ? 0 : static_cast<std::size_t>(*std::max_element(r.slot, r.slot + r.count)) + 1;
}

Cursors stage_cursors(Staged& stage, const Cursors& c, std::size_t slots) {
  const auto array = [&](std::int32_t* x) { return stage(std::span(x, slots)).data(); };
  return {array(c.length),   array(c.generated), array(c.previous),
          array(c.accepted), array(c.delta),     array(c.token)};
}

History stage_history(Staged& stage, const History& h, std::size_t slots) {
  return {stage(std::span(h.tokens, slots * static_cast<std::size_t>(h.capacity))).data(), h.capacity};
}

void step_begin(Stream& s, const StepBegin& a) {
  check_step_begin(a);
  Staged stage(s);
  const auto R = static_cast<std::size_t>(a.requests.count), T = static_cast<std::size_t>(a.rows);
  const std::size_t slots = slots_of(a.requests);
  const auto out = [&](std::int32_t* x, std::size_t count) { return stage(std::span(x, count)).data(); };
  StepBegin d = a;
  d.cursors = stage_cursors(stage, a.cursors, slots);
  d.requests = stage(a.requests);
  if (const NewPages& n = a.new_pages; n.count) {
    // Their slots need not be those of the step: the table is as large as they need it.
    std::int64_t entries = static_cast<std::int64_t>(slots) * a.kv.pages_per_slot;
    for (std::int32_t i = 0; i < *n.count; ++i) entries = std::max<std::int64_t>(entries, n.place[i] + 1);
    d.new_pages.count = out(n.count, 1);
    d.new_pages.place = stage(n.place, n.most), d.new_pages.page = stage(n.page, n.most);
    d.kv.block_table = d.new_pages.block_table = out(n.block_table, static_cast<std::size_t>(entries));
  } else {
    d.kv.block_table = stage(a.kv.block_table, static_cast<std::int64_t>(slots) * a.kv.pages_per_slot);
  }
  d.drafts = stage(a.drafts, static_cast<std::int64_t>(slots) * (kMostWindow - 1));
  d.start = out(a.start, R), d.generated = out(a.generated, R), d.previous = out(a.previous, R);
  d.ids = out(a.ids, T), d.position = out(a.position, 3 * T), d.kv_row = out(a.kv_row, T);
  d.row_slot = out(a.row_slot, T), d.index = out(a.index, T), d.next = out(a.next, T);
  ops()->step_begin(stage.stream, d);
  stage.finish();
}

void place_drafts(Stream& s, const PlaceDrafts& a) {
  check_place_drafts(a);
  Staged stage(s);
  PlaceDrafts d = a;
  d.logits = stage(a.logits);
  d.requests = stage(a.requests);
  const std::int64_t ids = a.row == 0 ? a.logits.rows : a.requests.first_row[a.requests.count];
  d.ids = stage(std::span(a.ids, static_cast<std::size_t>(ids))).data();
  ops()->place_drafts(stage.stream, d);
  stage.finish();
}

void select_drafts(Stream& s, const SelectDrafts& a) {
  check_select_drafts(a);
  check_select_anchors(a);
  Staged stage(s);
  SelectDrafts d = a;
  d.logits = stage(a.logits), d.maxima = stage(a.maxima), d.projected = stage(a.projected);
  d.predecessor = stage(a.predecessor), d.successor = stage(a.successor);
  d.requests = stage(a.requests);
  d.ids = stage(std::span(a.ids, static_cast<std::size_t>(a.logits.rows))).data();
  ops()->select_drafts(stage.stream, d);
  stage.finish();
}

void commit(Stream& s, const Commit& a) {
  check_commit(a);
  Staged stage(s);
  const std::size_t slots = slots_of(a.requests);
  Commit d = a;
  d.cursors = stage_cursors(stage, a.cursors, slots);
  d.requests = stage(a.requests);
  d.ids = stage(a.ids, static_cast<std::int64_t>(a.sampled.size()));
  d.sampled = stage(a.sampled);
  if (a.counts) d.counts = stage(std::span(a.counts, static_cast<std::size_t>(a.requests.count))).data();
  if (a.seen) d.seen = stage(std::span(a.seen, slots * static_cast<std::size_t>(a.vocabulary))).data();
  if (a.history.tokens) d.history = stage_history(stage, a.history, slots);
  if (a.last.data) d.outputs = stage(a.outputs), d.last = stage(a.last);
  ops()->commit(stage.stream, d);
  stage.finish();
}

void lookup_drafts(Stream& s, const LookupDrafts& a) {
  check_lookup_drafts(a);
  Staged stage(s);
  const std::size_t slots = slots_of(a.requests);
  LookupDrafts d = a;
  d.cursors = stage_cursors(stage, a.cursors, slots);
  d.requests = stage(a.requests);
  d.history = stage_history(stage, a.history, slots);
  d.drafts = stage(std::span(a.drafts, slots * (kMostWindow - 1))).data();
  d.matched = stage(std::span(a.matched, static_cast<std::size_t>(a.requests.count))).data();
  ops()->lookup_drafts(stage.stream, d);
  stage.finish();
}

constexpr Ops kOnHost = {
    .name = "cuda",
    .state_order = StateOrder::fragments,
    .linear = linear,
    .project = project,
    .project_swiglu = project_swiglu,
    .add = on_host<&Ops::add, Rows, Rows>,
    .convert = on_host<&Ops::convert, Rows, Rows>,
    .embed = embed,
    .scatter_rows = scatter_rows,
    .rms_norm = on_host<&Ops::rms_norm, Rows, std::span<const float>, float, Rows>,
    .add_rms_norm = on_host<&Ops::add_rms_norm, Rows, Rows, Rows, std::span<const float>, float, Rows>,
    .block_conv = block_conv,
    .add_conv_rms_norm = add_conv_rms_norm,
    .swiglu = swiglu,
    .rotary = rotary,
    .qk_norm_rope = qk_norm_rope,
    .join_kv = join_kv,
    .attention_prefill = attention<&Ops::attention_prefill>,
    .attention_window = attention<&Ops::attention_window>,
    .attention_gate = attention_gate,
    .conv1d_silu = on_host<&Ops::conv1d_silu, Rows, std::span<const float>, Rows, Rows>,
    .gdn_gates = on_host<&Ops::gdn_gates, Rows, Rows, std::span<const float>, std::span<const float>,
                         std::span<float>, std::span<float>>,
    .gdn_prefill = gdn_prefill,
    .gdn_window = gdn_window,
    .gated_rms_norm = gated_rms_norm,
    .step_begin = step_begin,
    .place_drafts = place_drafts,
    .select_drafts = select_drafts,
    .commit = commit,
    .lookup_drafts = lookup_drafts,
    .sample = sample,
    .add_position_embedding = add_position_embedding,
    .layer_norm =
        on_host<&Ops::layer_norm, Rows, std::span<const float>, std::span<const float>, float, Rows>,
    .vision_rope = on_host<&Ops::vision_rope, Rows, int, std::span<const float>, std::span<const float>>,
    .vision_attention = vision_attention,
    .gelu = on_host<&Ops::gelu, Rows, Gelu>,
};

}  // namespace

const Ops* ops_on_host() {
  return cuda_backend() ? &kOnHost : nullptr;
}

}  // namespace quire::cuda
