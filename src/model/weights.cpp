#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <string_view>

#include "core/error.h"

namespace quire {

using Shape = std::vector<std::int64_t>;

class WeightBinder {
 public:
  virtual ~WeightBinder() = default;
  virtual bool has(const std::string& name) const = 0;
  // A matrix stored as `stored`, which is [out, in] or folds to it.
  virtual Weight matrix(const std::string& name, const Shape& stored) = 0;
  // Held less `offset`: operations take the weights of norms as their distance from one.
  virtual Vector vector(const std::string& name, const Shape& stored, float offset = 0) = 0;
};

namespace {

// Checkpoints differ in the prefixes of their tensor names. Here text tensors are `layers.0...`, vision
// tensors `visual...`.
std::string canonical(std::string_view name) {
  for (std::string_view prefix :
       {"model.language_model.", "language_model.model.", "language_model.", "model."})
    if (name.starts_with(prefix)) return std::string(name.substr(prefix.size()));
  return std::string(name);
}

// Of the head that predicts one token more.
bool is_mtp(std::string_view name) {
  return name.starts_with("mtp.");
}
// What the forward pass reads of a checkpoint: all but that head, and rotary frequencies, which follow from
// the configuration.
bool is_main(std::string_view name) {
  return !is_mtp(name) && !name.ends_with("inv_freq");
}

bool is_float(DType t) {
  return t == DType::bf16 || t == DType::f16 || t == DType::f32;
}

// Element `i`; the file aligns nothing.
float load(const Tensor& t, std::int64_t i) {
  const std::byte* at = t.data + i * size_of(t.dtype);
  if (t.dtype == DType::f32) {
    float x;
    std::memcpy(&x, at, sizeof(x));
    return x;
  }
  std::uint16_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return t.dtype == DType::bf16 ? to_float(bf16{bits}) : f16_to_float(bits);
}

// Puts weights after each other in a backend's memory. Counts first: a store without memory only adds up.
class WeightStore {
 public:
  explicit WeightStore(const Backend& backend) : backend_(backend) {}
  WeightStore(const Backend& backend, Stream& stream, Memory& memory, const LoadProgress& progress)
      : backend_(backend), stream_(&stream), memory_(&memory), progress_(progress) {
    if (backend.host_memory) return;
    for (Piece& piece : pieces_)
      piece = {Memory::staging(backend, kPieceBytes), Handle(backend.new_event(), backend.delete_event),
               false};
  }
  ~WeightStore() {
    if (stream_) backend_.synchronize(*stream_);
  }
  WeightStore(const WeightStore&) = delete;
  WeightStore& operator=(const WeightStore&) = delete;

  const Backend& backend() const { return backend_; }
  bool counting() const { return memory_ == nullptr; }
  std::size_t used() const { return used_; }

  // The place of `bytes` bytes, which `write` fills: pieces [begin, end) of them, in order, at `to`.
  template <typename Write>
  const void* place(std::size_t bytes, Write write) {
    const std::size_t begin = used_;
    used_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (counting()) return nullptr;
    std::byte* to = memory_->data() + begin;
    for (std::size_t at = 0; at < bytes; at += kPieceBytes) {
      const std::size_t end = std::min(at + kPieceBytes, bytes);
      if (backend_.host_memory) {
        write(at, end, to + at);
        continue;
      }
      Piece& piece = pieces_[next_];
      next_ = 1 - next_;
      if (piece.busy) backend_.wait(*stream_, piece.copied.get());
      write(at, end, piece.memory.data());
      backend_.begin_upload(*stream_, to + at, piece.memory.data(), end - at);
      backend_.record(*stream_, piece.copied.get());
      piece.busy = true;
    }
    if (progress_) progress_(used_, memory_->size());
    return to;
  }

 private:
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t kPieceBytes = std::size_t{32} << 20;  // filled while the other is copied
  struct Piece {
    Memory memory;
    Handle copied;
    bool busy = false;
  };

  const Backend& backend_;
  Stream* stream_ = nullptr;
  Memory* memory_ = nullptr;
  LoadProgress progress_;
  std::size_t used_ = 0;
  Piece pieces_[2];
  int next_ = 0;
};

// Elements [begin, end) of a tensor as T, by bytes of the result.
template <typename T, typename Convert>
auto converter(const Tensor& t, Convert convert) {
  return [&t, convert](std::size_t begin, std::size_t end, std::byte* to) {
    T* out = reinterpret_cast<T*>(to);
    for (std::size_t i = begin / sizeof(T); i < end / sizeof(T); ++i)
      *out++ = convert(load(t, static_cast<std::int64_t>(i)));
  };
}

// A tensor as a matrix of bf16: where the file is mapped, when the backend reaches that and nothing has to
// change.
const void* place_matrix(WeightStore& store, const Tensor& t) {
  const bool as_is = t.dtype == DType::bf16 && reinterpret_cast<std::uintptr_t>(t.data) % alignof(bf16) == 0;
  if (as_is && store.backend().host_memory) return t.data;
  const std::size_t bytes = static_cast<std::size_t>(t.elements()) * sizeof(bf16);
  if (t.dtype == DType::bf16) {
    return store.place(bytes, [&](std::size_t begin, std::size_t end, std::byte* to) {
      std::memcpy(to, t.data + begin, end - begin);
    });
  }
  return store.place(bytes, converter<bf16>(t, to_bf16));
}

Vector place_vector(WeightStore& store, const Tensor& t, float offset) {
  const auto elements = static_cast<std::size_t>(t.elements());
  const void* at =
      store.place(elements * sizeof(float), converter<float>(t, [offset](float x) { return x - offset; }));
  return {static_cast<const float*>(at), elements};
}

// Takes those tensors of a checkpoint that are `wanted`, and remembers what did not fit until all are asked
// for.
class CheckpointBinder : public WeightBinder {
 public:
  CheckpointBinder(const Checkpoint& checkpoint, std::string directory, WeightStore& store,
                   bool (*wanted)(std::string_view))
      : directory_(std::move(directory)), store_(store) {
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      if (!wanted(canonical(name))) continue;
      const auto [place, fresh] = unbound_.emplace(canonical(name), Named{name, &tensor});
      if (!fresh)
        fail(ErrorCode::invalid_input, "{}: {} and {} are two names of one tensor", directory_,
             place->second.name, name);
    }
  }

  bool has(const std::string& name) const override { return unbound_.contains(name); }

  Weight matrix(const std::string& name, const Shape& stored) override {
    Weight weight;
    if (const Tensor* t = take(name, stored)) {
      weight.data = place_matrix(store_, *t);
      weight.out = stored[0];
      weight.in = stored[0] ? t->elements() / stored[0] : 0;
    }
    return weight;
  }

  Vector vector(const std::string& name, const Shape& stored, float offset) override {
    const Tensor* t = take(name, stored);
    return t ? place_vector(store_, *t, offset) : Vector();
  }

  std::int64_t elements() const { return elements_; }

  // Throws one error that lists everything that was wrong.
  void finish() const {
    std::vector<std::string> unexpected;
    for (const auto& [name, found] : unbound_)
      unexpected.push_back(fmt::format("{} {}", found.name, shape_string(found.tensor->shape)));
    if (missing_.empty() && unexpected.empty() && wrong_.empty()) return;
    fail(ErrorCode::invalid_input,
         "{}: the tensors do not fit config.json{}{}{}\nCheck that all files are of one model.", directory_,
         list("missing", missing_), list("unexpected", unexpected), list("of a wrong shape or type", wrong_));
  }

 private:
  struct Named {
    std::string name;  // in the file
    const Tensor* tensor = nullptr;
  };

  const Tensor* take(const std::string& name, const Shape& expected) {
    const auto it = unbound_.find(name);
    if (it == unbound_.end()) {
      missing_.push_back(fmt::format("{} {}", name, shape_string(expected)));
      return nullptr;
    }
    const Named found = it->second;
    unbound_.erase(it);
    if (found.tensor->shape != expected)
      wrong_.push_back(fmt::format("{}: shape {}, expected {}", found.name, shape_string(found.tensor->shape),
                                   shape_string(expected)));
    else if (!is_float(found.tensor->dtype))
      wrong_.push_back(
          fmt::format("{}: type {}, expected BF16, F16 or F32", found.name, to_string(found.tensor->dtype)));
    else
      return elements_ += found.tensor->elements(), found.tensor;
    return nullptr;
  }

  static std::string list(std::string_view title, const std::vector<std::string>& items) {
    constexpr std::size_t kShown = 10;
    if (items.empty()) return {};
    std::string text = fmt::format("\n{} {}:", items.size(), title);
    for (std::size_t i = 0; i < std::min(items.size(), kShown); ++i) text += "\n  " + items[i];
    if (items.size() > kShown) text += fmt::format("\n  and {} more", items.size() - kShown);
    return text;
  }

  std::string directory_;
  WeightStore& store_;
  std::map<std::string, Named> unbound_;  // by canonical name
  std::vector<std::string> missing_, wrong_;
  std::int64_t elements_ = 0;
};

// Makes weights up.
class RandomBinder : public WeightBinder {
 public:
  RandomBinder(std::uint64_t seed, bool tied, WeightStore& store)
      : state_(seed), tied_(tied), store_(store) {}

  bool has(const std::string& name) const override { return !(tied_ && name == "lm_head.weight"); }

  // Of rows of unit length on average. Gigabytes of numbers would take minutes: a matrix repeats a block of
  // them, from a place of its own.
  Weight matrix(const std::string&, const Shape& stored) override {
    const std::int64_t out = stored[0];
    std::int64_t in = 1;
    for (std::size_t i = 1; i < stored.size(); ++i) in *= stored[i];
    elements_ += out * in;
    const std::vector<bf16>* block = store_.counting() ? nullptr : &unit_rows(in);
    const std::size_t offset = next() % kBlock;
    const void* data = store_.place(static_cast<std::size_t>(out * in) * sizeof(bf16),
                                    [&](std::size_t begin, std::size_t end, std::byte* to) {
                                      bf16* element = reinterpret_cast<bf16*>(to);
                                      for (std::size_t i = begin / sizeof(bf16); i < end / sizeof(bf16); ++i)
                                        *element++ = (*block)[(offset + i) % kBlock];
                                    });
    return {.data = data, .out = out, .in = in};
  }

  Vector vector(const std::string& name, const Shape& stored, float) override {
    std::int64_t n = 1;
    for (const std::int64_t d : stored) n *= d;
    elements_ += n;
    const auto elements = static_cast<std::size_t>(n);
    const void* data =
        store_.place(elements * sizeof(float), [&](std::size_t begin, std::size_t end, std::byte* to) {
          float* element = reinterpret_cast<float*>(to);
          for (std::size_t i = begin / sizeof(float); i < end / sizeof(float); ++i) *element++ = value(name);
        });
    return {static_cast<const float*>(data), elements};
  }

  std::int64_t elements() const { return elements_; }

 private:
  static constexpr std::size_t kBlock = (std::size_t{1} << 22) - 3;  // a prime: no row length divides it

  std::uint64_t next() {  // splitmix64
    std::uint64_t x = state_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  }
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }

  // Parameters of the decay in the range of published models (slow and fast heads), norms near their neutral
  // value.
  float value(const std::string& name) {
    if (name.ends_with("A_log")) return std::log(1 + 15 * uniform());
    if (name.ends_with("dt_bias")) return -4 + 2 * uniform();
    if (name.ends_with("linear_attn.norm.weight") ||
        (name.starts_with("visual.") && name.ends_with("weight")))
      return 0.9f + 0.2f * uniform();
    if (name.ends_with("conv1d.weight") || name.ends_with("base_kernel")) return 2 * uniform() - 1;
    return 0.2f * (uniform() - 0.5f);
  }

  const std::vector<bf16>& unit_rows(std::int64_t in) {
    std::vector<bf16>& block = blocks_[in];
    const float width = std::sqrt(12.0f / static_cast<float>(in));  // variance 1 / in
    while (block.size() < kBlock) block.push_back(to_bf16(width * (uniform() - 0.5f)));
    return block;
  }

  std::uint64_t state_;
  bool tied_;
  WeightStore& store_;
  std::map<std::int64_t, std::vector<bf16>> blocks_;  // by length of a row
  std::int64_t elements_ = 0;
};

// The layers of a text model and of a drafter have the same shapes, but for gates: `c` is the config of
// either.
AttentionWeights bind_attention(WeightBinder& b, const std::string& p, const auto& c, bool gated,
                                float offset) {
  const std::int64_t D = c.hidden_size, E = c.head_dim, H = c.num_attention_heads, G = c.num_key_value_heads;
  AttentionWeights w;
  w.q_proj = b.matrix(p + "q_proj.weight", {H * (gated ? 2 : 1) * E, D});
  w.k_proj = b.matrix(p + "k_proj.weight", {G * E, D});
  w.v_proj = b.matrix(p + "v_proj.weight", {G * E, D});
  w.o_proj = b.matrix(p + "o_proj.weight", {D, H * E});
  w.q_norm = b.vector(p + "q_norm.weight", {E}, offset);
  w.k_norm = b.vector(p + "k_norm.weight", {E}, offset);
  return w;
}

MlpWeights bind_mlp(WeightBinder& b, const std::string& p, const auto& c) {
  const std::int64_t D = c.hidden_size, F = c.intermediate_size;
  MlpWeights w;
  w.gate_proj = b.matrix(p + "gate_proj.weight", {F, D});
  w.up_proj = b.matrix(p + "up_proj.weight", {F, D});
  w.down_proj = b.matrix(p + "down_proj.weight", {D, F});
  return w;
}

LinearAttentionWeights bind_linear_attention(WeightBinder& b, const std::string& p, const TextConfig& c) {
  const std::int64_t D = c.hidden_size, Hv = c.linear_num_value_heads;
  LinearAttentionWeights w;
  w.in_proj_qkv = b.matrix(p + "in_proj_qkv.weight", {c.conv_dim(), D});
  w.in_proj_z = b.matrix(p + "in_proj_z.weight", {c.value_dim(), D});
  w.in_proj_b = b.matrix(p + "in_proj_b.weight", {Hv, D});
  w.in_proj_a = b.matrix(p + "in_proj_a.weight", {Hv, D});
  w.conv1d = b.vector(p + "conv1d.weight", {c.conv_dim(), 1, c.linear_conv_kernel_dim});
  w.A_log = b.vector(p + "A_log", {Hv});
  w.dt_bias = b.vector(p + "dt_bias", {Hv});
  w.norm = b.vector(p + "norm.weight", {c.linear_value_head_dim});
  w.out_proj = b.matrix(p + "out_proj.weight", {D, c.value_dim()});
  return w;
}

TextLayerWeights bind_text_layer(WeightBinder& b, const std::string& p, LayerKind kind, const TextConfig& c) {
  const std::int64_t D = c.hidden_size;
  TextLayerWeights w;
  w.input_layernorm = b.vector(p + "input_layernorm.weight", {D});
  w.post_attention_layernorm = b.vector(p + "post_attention_layernorm.weight", {D});
  if (kind == LayerKind::full_attention)
    w.self_attn = bind_attention(b, p + "self_attn.", c, true, 0);
  else
    w.linear_attn = bind_linear_attention(b, p + "linear_attn.", c);
  w.mlp = bind_mlp(b, p + "mlp.", c);
  return w;
}

TextWeights bind_text(WeightBinder& b, const ModelConfig& config) {
  const TextConfig& c = config.text;
  const Shape table{c.vocab_size, c.hidden_size};
  TextWeights w;
  w.embed_tokens = b.matrix("embed_tokens.weight", table);
  for (std::size_t i = 0; i < c.layer_types.size(); ++i)
    w.layers.push_back(bind_text_layer(b, fmt::format("layers.{}.", i), c.layer_types[i], c));
  w.norm = b.vector("norm.weight", {c.hidden_size});
  const bool tied = config.tie_word_embeddings && !b.has("lm_head.weight");
  w.lm_head = tied ? w.embed_tokens : b.matrix("lm_head.weight", table);
  return w;
}

MtpWeights bind_mtp(WeightBinder& b, const TextConfig& c) {
  const std::int64_t D = c.hidden_size;
  MtpWeights w;
  w.fc = b.matrix("mtp.fc.weight", {D, 2 * D});
  w.pre_fc_norm_embedding = b.vector("mtp.pre_fc_norm_embedding.weight", {D});
  w.pre_fc_norm_hidden = b.vector("mtp.pre_fc_norm_hidden.weight", {D});
  w.layer = bind_text_layer(b, "mtp.layers.0.", LayerKind::full_attention, c);
  w.norm = b.vector("mtp.norm.weight", {D});
  return w;
}

Affine bind_affine(WeightBinder& b, const std::string& p, const Shape& stored) {
  return {b.matrix(p + ".weight", stored), b.vector(p + ".bias", {stored[0]})};
}

LayerNormWeights bind_layer_norm(WeightBinder& b, const std::string& p, std::int64_t width) {
  return {b.vector(p + ".weight", {width}), b.vector(p + ".bias", {width})};
}

VisionWeights bind_vision(WeightBinder& b, const VisionConfig& c) {
  const std::int64_t D = c.hidden_size, F = c.intermediate_size, patch = c.patch_size,
                     merged = c.merged_dim();
  VisionWeights w;
  w.patch_embed =
      bind_affine(b, "visual.patch_embed.proj", {D, c.in_channels, c.temporal_patch_size, patch, patch});
  w.pos_embed = b.matrix("visual.pos_embed.weight", {c.num_position_embeddings, D});
  for (int i = 0; i < c.depth; ++i) {
    const std::string p = fmt::format("visual.blocks.{}.", i);
    VisionBlockWeights& block = w.blocks.emplace_back();
    block.norm1 = bind_layer_norm(b, p + "norm1", D);
    block.norm2 = bind_layer_norm(b, p + "norm2", D);
    block.qkv = bind_affine(b, p + "attn.qkv", {3 * D, D});
    block.proj = bind_affine(b, p + "attn.proj", {D, D});
    block.linear_fc1 = bind_affine(b, p + "mlp.linear_fc1", {F, D});
    block.linear_fc2 = bind_affine(b, p + "mlp.linear_fc2", {D, F});
  }
  w.merger_norm = bind_layer_norm(b, "visual.merger.norm", D);
  w.merger_fc1 = bind_affine(b, "visual.merger.linear_fc1", {merged, merged});
  w.merger_fc2 = bind_affine(b, "visual.merger.linear_fc2", {c.out_hidden_size, merged});
  return w;
}

DrafterConvWeights bind_drafter_conv(WeightBinder& b, const std::string& p, const DrafterConfig& c) {
  const std::int64_t D = c.hidden_size, W = c.conv_kernel_size;
  return {b.vector(p + "base_kernel", {2, W, D}),
          b.matrix(p + "kernel_projection.weight", {2 * W * c.conv_groups(), D})};
}

DrafterWeights bind_drafter(WeightBinder& b, const DrafterConfig& c) {
  const std::int64_t D = c.hidden_size;
  const auto norm = [&](const std::string& name, std::int64_t width) { return b.vector(name, {width}, 1); };
  DrafterWeights w;
  w.fc = b.matrix("fc.weight", {D, static_cast<std::int64_t>(c.taps.size()) * D});
  w.hidden_norm = norm("hidden_norm.weight", D);
  for (std::size_t i = 0; i < c.layers.size(); ++i) {
    const std::string p = fmt::format("layers.{}.", i);
    DrafterLayerWeights& layer = w.layers.emplace_back();
    layer.input_layernorm = norm(p + "input_layernorm.weight", D);
    layer.post_attention_layernorm = norm(p + "post_attention_layernorm.weight", D);
    layer.self_attn = bind_attention(b, p + "self_attn.", c, false, 1);
    layer.mlp = bind_mlp(b, p + "mlp.", c);
    if (c.conv_kernel_size == 0) continue;
    layer.attention_conv = bind_drafter_conv(b, p + "attention_conv.", c);
    layer.mlp_conv = bind_drafter_conv(b, p + "mlp_conv.", c);
  }
  w.norm = norm("norm.weight", D);
  if (c.selector_top_k > 0) {
    const std::string p = "candidate_selector.";
    w.candidate_selector = {b.matrix(p + "predecessor_codebook", {c.vocab_size, c.selector_rank}),
                            b.matrix(p + "successor_codebook", {c.vocab_size, c.selector_rank}),
                            b.matrix(p + "hidden_projection.weight", {c.selector_rank, D})};
  }
  return w;
}

// Memory with the weights that `bind` puts into a store: it runs once to count them, once to place them.
template <typename Bind>
Memory place_all(const Backend& backend, Stream& stream, const LoadProgress& progress, Bind bind) {
  WeightStore counted(backend);
  bind(counted);
  Memory memory(backend, counted.used());
  WeightStore store(backend, stream, memory, progress);
  bind(store);
  return memory;
}

}  // namespace

void WeightOwner::load(const std::filesystem::path& directory, bool (*wanted)(std::string_view name),
                       const Backend& backend, Stream& stream, const LoadProgress& progress,
                       const Bind& bind) {
  checkpoint_.emplace(directory);
  memory_ = place_all(backend, stream, progress, [&](WeightStore& store) {
    CheckpointBinder binder(*checkpoint_, directory.string(), store, wanted);
    bind(binder);
    binder.finish();
    parameters_ = binder.elements();
  });
}

void WeightOwner::make_up(Random random, bool tied, const Backend& backend, Stream& stream,
                          const Bind& bind) {
  memory_ = place_all(backend, stream, {}, [&](WeightStore& store) {
    RandomBinder binder(random.seed, tied, store);
    bind(binder);
    parameters_ = binder.elements();
  });
}

ModelWeights::ModelWeights(const std::filesystem::path& directory, const ModelConfig& config,
                           const Backend& backend, Stream& stream, const LoadProgress& progress) {
  load(directory, is_main, backend, stream, progress, [&](WeightBinder& b) {
    text = bind_text(b, config);
    vision = bind_vision(b, config.vision);
  });
}

ModelWeights::ModelWeights(Random random, const ModelConfig& config, const Backend& backend, Stream& stream) {
  make_up(random, config.tie_word_embeddings, backend, stream, [&](WeightBinder& b) {
    text = bind_text(b, config);
    vision = bind_vision(b, config.vision);
  });
}

bool MtpCheckpoint::is_in(const std::filesystem::path& model) {
  const Checkpoint checkpoint(model);
  return std::ranges::any_of(checkpoint.tensors(), [](const auto& t) { return is_mtp(canonical(t.first)); });
}

MtpCheckpoint::MtpCheckpoint(const std::filesystem::path& model, const TextConfig& config,
                             const Backend& backend, Stream& stream) {
  if (!is_in(model))
    fail(ErrorCode::not_found,
         "{}: no tensor there is named mtp.*: expected a multi-token-prediction head, as published Qwen3.5 "
         "checkpoints have one. Draft without it: --draft auto, ngram, none or a drafter's directory",
         model.string());
  load(model, is_mtp, backend, stream, {}, [&](WeightBinder& b) { weights = bind_mtp(b, config); });
}

MtpCheckpoint::MtpCheckpoint(Random random, const TextConfig& config, const Backend& backend,
                             Stream& stream) {
  make_up(random, true, backend, stream, [&](WeightBinder& b) { weights = bind_mtp(b, config); });
}

DrafterCheckpoint::DrafterCheckpoint(const std::filesystem::path& directory, const DrafterConfig& config,
                                     const Backend& backend, Stream& stream) {
  load(directory, is_main, backend, stream, {}, [&](WeightBinder& b) { weights = bind_drafter(b, config); });
}

DrafterCheckpoint::DrafterCheckpoint(Random random, const DrafterConfig& config, const Backend& backend,
                                     Stream& stream) {
  make_up(random, true, backend, stream, [&](WeightBinder& b) { weights = bind_drafter(b, config); });
}

}  // namespace quire
