// What a sequence keeps besides keys and values: in every Gated-DeltaNet layer one checkpoint of the state
// and a short tape of records and inputs since (GdnSlots in ops/ops.h), and the cursors that say where it
// stands.
#pragma once

#include <span>
#include <vector>

#include "backend/uploader.h"

namespace quire {

class StateSlots {
 public:
  struct Shape {
    int layers = 0;  // Gated-DeltaNet layers
    GdnShape gdn;
    int taps = 4;                  // W
    Format format = Format::bf16;  // A
    Format ring_u = Format::bf16;  // of the records' updates
    int slots = 0;

    std::size_t slot_bytes() const;  // of one slot in all layers
    // Of its states alone, without what windows need.
    std::size_t bare_bytes() const {
      return static_cast<std::size_t>(layers * gdn.state_floats()) * sizeof(float);
    }
  };

  // Throws Error{out_of_memory}.
  StateSlots(const Backend& backend, Stream& stream, const Shape& shape);

  const Shape& shape() const { return shape_; }
  GdnSlots layer(int layer) const;
  // Of one slot in one layer: the checkpoint, and the rows where a prompt leaves its last W-1 inputs.
  std::span<float> state(int layer, int slot) const;
  Rows prompt_conv(int layer, int slot) const;
  const Cursors& cursors() const { return cursors_; }

  // All that a slot holds, in every layer, and its cursors.
  std::vector<std::span<std::byte>> regions(int slot) const;

  // What a prompt leaves in a slot, in every layer: the state and its last inputs.
  std::vector<std::span<std::byte>> prompt_regions(int slot) const;

  // A sequence begins: states and inputs are zero.
  void clear(Stream& stream, int slot);
  // Its prompt of `length` tokens is in the caches; generated tokens have rotary position index + delta.
  void end_prompt(Stream& stream, int slot, std::int32_t length, std::int32_t delta);

 private:
  struct Layout;  // of a layer's memory
  Layout layout() const;

  const Backend& backend_;
  Shape shape_;
  Memory layers_;
  Memory cursor_memory_;  // [6, slots]
  Cursors cursors_;
  Uploader uploader_;
};

}  // namespace quire
