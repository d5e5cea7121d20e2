#include "ops/cuda/on_host.h"

#include <cstring>
#include <deque>
#include <tuple>
#include <type_traits>
#include <vector>

#include "backend/cuda.h"
#include "ops/embed/embed.h"
#include "ops/linear/linear.h"

namespace quire::cuda {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{256} << 20;

// The operands of one call, on the device. finish() brings them back.
class Staged {
 public:
  explicit Staged(Stream& host) : scratch_(kScratchBytes) {
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
  KvView operator()(KvView kv) { return {(*this)(kv.k), (*this)(kv.v)}; }

  // Row by row, without what stands between rows: it may belong to another operand.
  void finish() {
    synchronize(stream);
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
  for (const Projection& p : parts) staged.push_back({&weights.emplace_back(stage(*p.weight)), stage(p.y)});
  ops()->project(stage.stream, stage(x), staged);
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

void qk_norm_rope(Stream& s, const QkNormRope& a) {
  Staged stage(s);
  QkNormRope d = a;
  d.q_gate = stage(a.q_gate), d.k = stage(a.k), d.q = stage(a.q);
  d.q_norm = stage(a.q_norm), d.k_norm = stage(a.k_norm), d.cos = stage(a.cos), d.sin = stage(a.sin);
  ops()->qk_norm_rope(stage.stream, d);
  stage.finish();
}

void attention(Stream& s, const Attention& a) {
  Staged stage(s);
  Attention d = a;
  d.q = stage(a.q), d.kv = stage(a.kv), d.out = stage(a.out);
  ops()->attention(stage.stream, d);
  stage.finish();
}

void vision_attention(Stream& s, const VisionAttention& a) {
  Staged stage(s);
  ops()->vision_attention(stage.stream, {.qkv = stage(a.qkv), .heads = a.heads, .out = stage(a.out)});
  stage.finish();
}

template <auto Member>
void gated_delta(Stream& s, const GatedDelta& a) {
  Staged stage(s);
  GatedDelta d = a;
  d.qkv = stage(a.qkv), d.g = stage(a.g), d.beta = stage(a.beta), d.state = stage(a.state),
  d.out = stage(a.out);
  (ops()->*Member)(stage.stream, d);
  stage.finish();
}

constexpr Ops kOnHost = {
    .name = "cuda",
    .linear = linear,
    .project = project,
    .add = on_host<&Ops::add, Rows, Rows>,
    .convert = on_host<&Ops::convert, Rows, Rows>,
    .embed = embed,
    .scatter_rows = scatter_rows,
    .rms_norm = on_host<&Ops::rms_norm, Rows, std::span<const float>, float, Rows>,
    .add_rms_norm = on_host<&Ops::add_rms_norm, Rows, Rows, std::span<const float>, float, Rows>,
    .swiglu = swiglu,
    .qk_norm_rope = qk_norm_rope,
    .attention = attention,
    .attention_gate = attention_gate,
    .conv1d_silu = on_host<&Ops::conv1d_silu, Rows, std::span<const float>, std::span<float>, Rows>,
    .gdn_gates = on_host<&Ops::gdn_gates, Rows, Rows, std::span<const float>, std::span<const float>,
                         std::span<float>, std::span<float>>,
    .gdn_prefill = gated_delta<&Ops::gdn_prefill>,
    .gdn_window = gated_delta<&Ops::gdn_window>,
    .gated_rms_norm = gated_rms_norm,
    .argmax = on_host<&Ops::argmax, Rows, std::span<Sampled>>,
    .add_position_embedding = add_position_embedding,
    .layer_norm =
        on_host<&Ops::layer_norm, Rows, std::span<const float>, std::span<const float>, float, Rows>,
    .vision_rope = on_host<&Ops::vision_rope, Rows, int, std::span<const float>, std::span<const float>>,
    .vision_attention = vision_attention,
    .gelu = on_host<&Ops::gelu, Rows, Gelu>,
};

}  // namespace

const Ops* ops_on_host() {
  return ops() ? &kOnHost : nullptr;
}

}  // namespace quire::cuda
