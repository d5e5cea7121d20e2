#include "cache/state_slots.h"

#include "core/error.h"

namespace quire {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr int kCursors = 6;

std::size_t aligned(std::int64_t bytes) {
  return (static_cast<std::size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

// Where the arrays of one layer begin, in bytes, all slots after each other in each.
struct StateSlots::Layout {
  std::size_t state, conv, ring_k, ring_u, ring_g, end;
};

StateSlots::Layout StateSlots::layout() const {
  const GdnShape& g = shape_.gdn;
  const std::int64_t slots = shape_.slots, ring = slots * kGdnRing, a = size_of(shape_.format);
  Layout l{};
  l.conv = l.state + aligned(slots * g.state_floats() * 4);
  l.ring_k = l.conv + aligned(slots * gdn_conv_rows(shape_.taps) * g.conv_cols() * a);
  l.ring_u = l.ring_k + aligned(ring * g.key_cols() * a);
  l.ring_g = l.ring_u + aligned(ring * g.value_cols() * size_of(shape_.ring_u));
  l.end = l.ring_g + aligned(ring * g.value_heads * 4);
  return l;
}

std::size_t StateSlots::Shape::slot_bytes() const {
  const std::int64_t a = size_of(format);
  const std::int64_t bytes =
      gdn.state_floats() * 4 + gdn_conv_rows(taps) * gdn.conv_cols() * a +
      kGdnRing * (gdn.key_cols() * a + gdn.value_cols() * size_of(ring_u) + gdn.value_heads * 4);
  return static_cast<std::size_t>(layers * bytes);
}

StateSlots::StateSlots(const Backend& backend, Stream& stream, const Shape& shape)
    : backend_(backend),
      shape_(shape),
      layers_(backend, layout().end * static_cast<std::size_t>(shape.layers)),
      cursor_memory_(backend, static_cast<std::size_t>(kCursors * shape.slots) * sizeof(std::int32_t)),
      uploader_(backend) {
  backend.clear(stream, layers_.data(), layers_.size());
  backend.clear(stream, cursor_memory_.data(), cursor_memory_.size());
  const auto cursor = [&](int i) { return cursor_memory_.as<std::int32_t>() + i * shape.slots; };
  cursors_ = {.length = cursor(0),
              .generated = cursor(1),
              .previous = cursor(2),
              .accepted = cursor(3),
              .delta = cursor(4),
              .token = cursor(5)};
}

GdnSlots StateSlots::layer(int layer) const {
  const GdnShape& g = shape_.gdn;
  const Layout l = layout();
  std::byte* base = layers_.data() + l.end * static_cast<std::size_t>(layer);
  const auto rows = [&](std::size_t at, std::int64_t per_slot, std::int64_t cols, Format format) {
    return Rows{
        .data = base + at, .format = format, .rows = shape_.slots * per_slot, .cols = cols, .stride = cols};
  };
  return {.state = {reinterpret_cast<float*>(base + l.state),
                    static_cast<std::size_t>(shape_.slots * g.state_floats())},
          .conv = rows(l.conv, gdn_conv_rows(shape_.taps), g.conv_cols(), shape_.format),
          .ring_k = rows(l.ring_k, kGdnRing, g.key_cols(), shape_.format),
          .ring_u = rows(l.ring_u, kGdnRing, g.value_cols(), shape_.ring_u),
          .ring_g = rows(l.ring_g, kGdnRing, g.value_heads, Format::f32)};
}

std::span<float> StateSlots::state(int layer, int slot) const {
  const auto floats = static_cast<std::size_t>(shape_.gdn.state_floats());
  return this->layer(layer).state.subspan(static_cast<std::size_t>(slot) * floats, floats);
}

// Tokens -(W-1) .. -1 of gdn_window: rows 0 .. W-2 of the slot's ring.
Rows StateSlots::prompt_conv(int layer, int slot) const {
  return this->layer(layer).conv.slice_rows(std::int64_t{slot} * gdn_conv_rows(shape_.taps), shape_.taps - 1);
}

std::vector<std::span<std::byte>> StateSlots::regions(int slot) const {
  std::vector<std::span<std::byte>> regions;
  const auto add = [&](const Rows& rows, std::int64_t per_slot) {
    const auto bytes = static_cast<std::size_t>(per_slot * rows.cols * size_of(rows.format));
    regions.emplace_back(static_cast<std::byte*>(rows.data) + static_cast<std::size_t>(slot) * bytes, bytes);
  };
  for (int l = 0; l < shape_.layers; ++l) {
    regions.push_back(std::as_writable_bytes(state(l, slot)));
    const GdnSlots slots = layer(l);
    add(slots.conv, gdn_conv_rows(shape_.taps));
    add(slots.ring_k, kGdnRing);
    add(slots.ring_u, kGdnRing);
    add(slots.ring_g, kGdnRing);
  }
  for (int i = 0; i < kCursors; ++i)
    regions.push_back(
        std::as_writable_bytes(std::span(cursor_memory_.as<std::int32_t>() + i * shape_.slots + slot, 1)));
  return regions;
}

std::vector<std::span<std::byte>> StateSlots::prompt_regions(int slot) const {
  std::vector<std::span<std::byte>> regions;
  for (int l = 0; l < shape_.layers; ++l) {
    const Rows conv = prompt_conv(l, slot);
    regions.push_back(std::as_writable_bytes(state(l, slot)));
    regions.emplace_back(static_cast<std::byte*>(conv.data),
                         static_cast<std::size_t>(conv.rows * conv.cols * size_of(conv.format)));
  }
  return regions;
}

void StateSlots::clear(Stream& stream, int slot) {
  for (const std::span<std::byte> region : prompt_regions(slot))
    backend_.clear(stream, region.data(), region.size());
}

void StateSlots::end_prompt(Stream& stream, int slot, std::int32_t length, std::int32_t delta) {
  const auto set = [&](std::int32_t* cursor, std::int32_t value) {
    uploader_.send(stream, cursor + slot, &value, sizeof(value));
  };
  set(cursors_.length, length);
  set(cursors_.generated, 0);
  set(cursors_.previous, 0);
  set(cursors_.accepted, 0);
  set(cursors_.delta, delta);
}

}  // namespace quire
