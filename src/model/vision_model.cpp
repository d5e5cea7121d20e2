// The vision encoder of the Qwen3.5 family, top to bottom. Equations and shapes: MODEL.md; operations:
// ops/ops.h.
#include "model/vision_model.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "model/layer.h"

namespace quire {
namespace {

constexpr float kLayerNormEps = 1e-6f;  // fixed in the family, not in config.json

// Angles of the 2-D rotary embedding: cos and sin [N, E/2]. The first half of the angles turns with the
// patch's row, the second with its column; frequency i of E/4 is theta^(-4i/E). Patches in merge-block order.
struct PatchAngles {
  std::vector<float> cos, sin;
};

PatchAngles patch_angles(const VisionConfig& config, int grid_height, int grid_width) {
  const int quarter = config.head_dim() / 4, merge = config.spatial_merge_size;
  std::vector<double> frequency;
  for (int i = 0; i < quarter; ++i)
    frequency.push_back(std::pow(config.rope_theta, -4.0 * i / config.head_dim()));
  // The cosine and sine of every coordinate at every frequency, once.
  const int longest = std::max(grid_height, grid_width);
  std::vector<float> cos_at, sin_at;
  for (int position = 0; position < longest; ++position) {
    for (const double f : frequency) {
      cos_at.push_back(static_cast<float>(std::cos(position * f)));
      sin_at.push_back(static_cast<float>(std::sin(position * f)));
    }
  }
  PatchAngles out;
  const auto append = [&](int position) {
    const auto begin = static_cast<std::ptrdiff_t>(position) * quarter;
    out.cos.insert(out.cos.end(), cos_at.begin() + begin, cos_at.begin() + begin + quarter);
    out.sin.insert(out.sin.end(), sin_at.begin() + begin, sin_at.begin() + begin + quarter);
  };
  for (int y = 0; y < grid_height; y += merge) {
    for (int x = 0; x < grid_width; x += merge) {
      for (int inside = 0; inside < merge * merge; ++inside) {
        append(y + inside / merge);
        append(x + inside % merge);
      }
    }
  }
  return out;
}

// Of a page of N patches: pixels and angles, features, the rows that encode() holds throughout, those of its
// widest part.
std::size_t page_bytes(const VisionConfig& c, Format format, std::int64_t N) {
  const std::int64_t merged = N / (c.spatial_merge_size * c.spatial_merge_size);
  const std::int64_t widest = std::max({4 * c.hidden_size, c.intermediate_size, c.patch_dim()});
  const std::int64_t floats = N * (c.patch_dim() + c.head_dim());
  const std::int64_t bytes =
      (N * (2 * c.hidden_size + widest) + merged * c.out_hidden_size) * size_of(format) + floats * 4;
  return static_cast<std::size_t>(bytes) + 16 * Arena::kAlignment;
}

}  // namespace

VisionModel::VisionModel(const VisionConfig& config, const VisionWeights& weights, const Backend& backend,
                         Format format)
    : config_(config), weights_(weights), backend_(backend), ops_(*backend.ops), format_(format) {}

Rows VisionModel::encode(Stream& stream, std::span<const float> pixels, int grid_height, int grid_width,
                         const Probe* probe) {
  const std::int64_t N = std::int64_t{grid_height} * grid_width, D = config_.hidden_size;
  const int merge = config_.spatial_merge_size;
  QUIRE_CHECK(static_cast<std::int64_t>(pixels.size()) == N * config_.patch_dim(),
              "{} values for {} patches of {}", pixels.size(), N, config_.patch_dim());
  QUIRE_CHECK(grid_height % merge == 0 && grid_width % merge == 0, "grid {} x {}", grid_height, grid_width);
  const auto show = [&](std::string_view name, const Rows& value) {
    if (probe) (*probe)(name, value);
  };
  if (const std::size_t bytes = page_bytes(config_, format_, N); memory_.size() < bytes) {
    backend_.synchronize(stream);
    memory_ = Memory();  // the old one first
    memory_ = Memory(backend_, bytes);
  }
  Arena arena(memory_.data(), memory_.size());
  const auto place = [&](std::span<const float> values) -> std::span<const float> {
    if (backend_.host_memory) return values;
    auto* to = reinterpret_cast<float*>(arena.take(values.size_bytes()));
    backend_.upload(stream, to, values.data(), values.size_bytes());
    return {to, values.size()};
  };
  const std::int64_t merged = N / (merge * merge);
  const Rows features = take_rows(arena, merged, config_.out_hidden_size, format_);
  const Rows x = take_rows(arena, N, D, format_);  // the residual stream
  const Rows h = take_rows(arena, N, D, format_);
  {
    const Arena::Scope scope(arena);
    const Rows patches = take_rows(arena, N, config_.patch_dim(), format_);
    const Rows values{.data = const_cast<float*>(place(pixels).data()),
                      .format = Format::f32,
                      .rows = N,
                      .cols = config_.patch_dim(),
                      .stride = config_.patch_dim()};
    ops_.convert(stream, values, patches);
    ops_.linear(stream, patches, weights_.patch_embed.weight, weights_.patch_embed.bias, x);
  }
  show("visual.patch_embed", x);
  ops_.add_position_embedding(stream, x, weights_.pos_embed, grid_height, grid_width, merge);
  show("visual.pos_embed", x);

  const PatchAngles angles = patch_angles(config_, grid_height, grid_width);
  const std::span<const float> cos = place(angles.cos), sin = place(angles.sin);
  for (std::size_t i = 0; i < weights_.blocks.size(); ++i) {
    const VisionBlockWeights& w = weights_.blocks[i];
    {
      const Arena::Scope scope(arena);
      const Rows qkv = take_rows(arena, N, 3 * D, format_), attended = take_rows(arena, N, D, format_);
      ops_.layer_norm(stream, x, w.norm1.weight, w.norm1.bias, kLayerNormEps, h);
      ops_.linear(stream, h, w.qkv.weight, w.qkv.bias, qkv);
      ops_.vision_rope(stream, qkv, config_.num_heads, cos, sin);
      ops_.vision_attention(stream, {.qkv = qkv, .heads = config_.num_heads, .out = attended});
      ops_.linear(stream, attended, w.proj.weight, w.proj.bias, h);
      ops_.add(stream, x, h);
    }
    {
      const Arena::Scope scope(arena);
      const Rows hidden = take_rows(arena, N, config_.intermediate_size, format_);
      ops_.layer_norm(stream, x, w.norm2.weight, w.norm2.bias, kLayerNormEps, h);
      ops_.linear(stream, h, w.linear_fc1.weight, w.linear_fc1.bias, hidden);
      ops_.gelu(stream, hidden, Gelu::tanh);
      ops_.linear(stream, hidden, w.linear_fc2.weight, w.linear_fc2.bias, h);
      ops_.add(stream, x, h);
    }
    show(fmt::format("visual.blocks.{}", i), x);
  }

  // Merger: merge x merge neighbouring patches stand in neighbouring rows, so that they read as one row.
  ops_.layer_norm(stream, x, weights_.merger_norm.weight, weights_.merger_norm.bias, kLayerNormEps, h);
  const Rows neighbours{.data = h.data,
                        .format = format_,
                        .rows = merged,
                        .cols = config_.merged_dim(),
                        .stride = config_.merged_dim()};
  const Rows hidden = take_rows(arena, merged, config_.merged_dim(), format_);
  ops_.linear(stream, neighbours, weights_.merger_fc1.weight, weights_.merger_fc1.bias, hidden);
  ops_.gelu(stream, hidden, Gelu::erf);
  ops_.linear(stream, hidden, weights_.merger_fc2.weight, weights_.merger_fc2.bias, features);
  show("visual.merger", features);
  return features;
}

}  // namespace quire
