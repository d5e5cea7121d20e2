// Keys and values of all sequences: pages of tokens, the same pages in every attention layer, and one block
// table that says which slot holds which. Sequences that begin with the same tokens may share the pages of
// these, which nobody writes again.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/uploader.h"

namespace quire {

class KvPool {
 public:
  static constexpr std::int32_t kPageSize = 64;  // tokens

  struct Shape {
    int layers = 0;         // attention layers
    std::int64_t cols = 0;  // G * E: of a key row, and of a value row
    int draft_layers = 0;   // those of a drafter, which stand in the same pages
    std::int64_t draft_cols = 0;
    Format format = Format::bf16;
    int slots = 0;                    // sequences at a time
    std::int32_t pages = 0;           // in all
    std::int32_t pages_per_slot = 0;  // of the longest sequence

    std::size_t page_bytes() const;  // of one page in all layers, keys and values
  };

  // Throws Error{out_of_memory}.
  KvPool(const Backend& backend, Stream& stream, const Shape& shape);

  const Shape& shape() const { return shape_; }
  std::int32_t free_pages() const { return static_cast<std::int32_t>(free_.size()); }
  static std::int32_t pages_for(std::int64_t tokens) {
    return static_cast<std::int32_t>((tokens + kPageSize - 1) / kPageSize);
  }

  // Gives a slot pages for `tokens` tokens, in place of those it had: first the `shared` ones, then free
  // ones. Throws Error{out_of_memory} with the numbers when there are too few of these.
  void hold(Stream& stream, int slot, std::int64_t tokens, std::span<const std::int32_t> shared = {});
  // More pages for a slot, so that there is room for `tokens` tokens in all. False: too few are free. They
  // come into the block table with the next step, unless very many wait for it.
  bool grow(Stream& stream, int slot, std::int64_t tokens);
  // For the next step, with which they go to the device (NewPages in ops/ops.h).
  struct NewPage {
    std::int32_t place, page;
  };
  static constexpr int kMostNewPages = 128;
  const std::vector<NewPage>& new_pages() const { return new_pages_; }
  void clear_new_pages() { new_pages_.clear(); }
  // Whether `hold` would find enough pages in a slot that has none.
  bool fits(std::int64_t tokens) const {
    return pages_for(tokens) <= std::min(shape_.pages_per_slot, free_pages());
  }
  void release(int slot);
  // The pages of a slot's first `tokens` tokens, a multiple of kPageSize, stay as they are until they are
  // dropped, whatever becomes of the slot.
  std::vector<std::int32_t> keep(int slot, std::int64_t tokens);
  void drop(std::span<const std::int32_t> pages);
  std::int64_t held_tokens(int slot) const {
    return kPageSize * std::ssize(held_[static_cast<std::size_t>(slot)]);
  }
  // All that a slot holds, in every layer, in an order that depends on its tokens alone.
  std::vector<std::span<std::byte>> regions(int slot) const;
  // The row of token `index` of a slot's sequence.
  std::int32_t row(int slot, std::int64_t index) const;

  KvPages layer(int layer) const;
  KvPages draft_layer(int layer) const;
  std::int32_t* block_table() const { return table_.as<std::int32_t>(); }

 private:
  const Backend& backend_;
  Shape shape_;
  KvPages pages(std::int64_t first_byte, std::int64_t cols) const;
  void take_free(std::vector<std::int32_t>& held, std::int32_t count);
  void send_table(Stream& stream, int slot);

  Memory rows_;   // [layers][k, v][pages * kPageSize, cols], then the same of the drafter
  Memory table_;  // [slots, pages_per_slot], -1: none
  std::vector<std::vector<std::int32_t>> held_;  // of each slot
  std::vector<std::int32_t> free_;
  std::vector<std::int32_t> users_;  // of each page: slots that hold it, and who keeps it
  std::vector<NewPage> new_pages_;
  Uploader uploader_;
};

}  // namespace quire
