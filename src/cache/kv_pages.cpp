#include "cache/kv_pages.h"

#include <ranges>
#include <utility>

#include "core/error.h"

namespace quire {

std::size_t KvPool::Shape::page_bytes() const {
  return static_cast<std::size_t>(2 * kPageSize * (layers * cols + draft_layers * draft_cols) *
                                  size_of(format));
}

KvPool::KvPool(const Backend& backend, Stream& stream, const Shape& shape)
    : backend_(backend),
      shape_(shape),
      rows_(backend, shape.page_bytes() * static_cast<std::size_t>(shape.pages)),
      table_(backend, static_cast<std::size_t>(shape.slots * shape.pages_per_slot) * sizeof(std::int32_t)),
      held_(static_cast<std::size_t>(shape.slots)),
      users_(static_cast<std::size_t>(shape.pages)),
      uploader_(backend) {
  const std::vector<std::int32_t> none(static_cast<std::size_t>(shape.slots * shape.pages_per_slot), -1);
  backend.upload(stream, table_.data(), none.data(), table_.size());
  for (std::int32_t page = shape.pages; page-- > 0;) free_.push_back(page);
}

void KvPool::hold(Stream& stream, int slot, std::int64_t tokens, std::span<const std::int32_t> shared) {
  release(slot);
  const std::int32_t pages = pages_for(tokens), more = pages - static_cast<std::int32_t>(shared.size());
  if (pages > shape_.pages_per_slot || more > free_pages()) {
    fail(ErrorCode::out_of_memory,
         "{} tokens need {} pages of keys and values; {} are free, and one sequence may have {}", tokens,
         more, free_pages(), shape_.pages_per_slot);
  }
  std::vector<std::int32_t>& held = held_[static_cast<std::size_t>(slot)];
  held.assign(shared.begin(), shared.end());
  for (const std::int32_t page : shared) ++users_[static_cast<std::size_t>(page)];
  take_free(held, more);
  send_table(stream, slot);
}

// In rising order, as long as nobody has mixed them.
void KvPool::take_free(std::vector<std::int32_t>& held, std::int32_t count) {
  for (; count > 0; --count) {
    held.push_back(free_.back());
    users_[static_cast<std::size_t>(free_.back())] = 1;
    free_.pop_back();
  }
}

bool KvPool::grow(Stream& stream, int slot, std::int64_t tokens) {
  std::vector<std::int32_t>& held = held_[static_cast<std::size_t>(slot)];
  const std::int32_t pages = pages_for(tokens), more = pages - static_cast<std::int32_t>(held.size());
  if (more <= 0) return true;
  if (pages > shape_.pages_per_slot || more > free_pages()) return false;
  const auto had = static_cast<std::int32_t>(held.size());
  take_free(held, more);
  if (std::ssize(new_pages_) + more > kMostNewPages) {
    send_table(stream, slot);
    return true;
  }
  for (std::int32_t i = had; i < pages; ++i)
    new_pages_.push_back({slot * shape_.pages_per_slot + i, held[static_cast<std::size_t>(i)]});
  return true;
}

void KvPool::send_table(Stream& stream, int slot) {
  std::vector<std::int32_t> row = held_[static_cast<std::size_t>(slot)];
  row.resize(static_cast<std::size_t>(shape_.pages_per_slot), -1);
  uploader_.send(stream, block_table() + slot * shape_.pages_per_slot, row.data(),
                 row.size() * sizeof(std::int32_t));
}

std::vector<std::span<std::byte>> KvPool::regions(int slot) const {
  std::vector<std::span<std::byte>> regions;
  const auto add = [&](const Rows& rows, std::int32_t page) {
    const auto bytes = static_cast<std::size_t>(kPageSize * rows.cols * size_of(rows.format));
    regions.emplace_back(static_cast<std::byte*>(rows.data) + static_cast<std::size_t>(page) * bytes, bytes);
  };
  const auto add_layer = [&](const KvPages& layer) {
    for (const std::int32_t page : held_[static_cast<std::size_t>(slot)])
      add(layer.k, page), add(layer.v, page);
  };
  for (int l = 0; l < shape_.layers; ++l) add_layer(layer(l));
  for (int l = 0; l < shape_.draft_layers; ++l) add_layer(draft_layer(l));
  return regions;
}

void KvPool::release(int slot) {
  std::erase_if(new_pages_, [&](const NewPage& n) { return n.place / shape_.pages_per_slot == slot; });
  drop(std::exchange(held_[static_cast<std::size_t>(slot)], {}));
}

std::vector<std::int32_t> KvPool::keep(int slot, std::int64_t tokens) {
  const std::vector<std::int32_t>& held = held_[static_cast<std::size_t>(slot)];
  QUIRE_CHECK(tokens % kPageSize == 0 && tokens <= held_tokens(slot), "{} of {} tokens are to be kept",
              tokens, held_tokens(slot));
  std::vector<std::int32_t> pages(held.begin(), held.begin() + tokens / kPageSize);
  for (const std::int32_t page : pages) ++users_[static_cast<std::size_t>(page)];
  return pages;
}

void KvPool::drop(std::span<const std::int32_t> pages) {
  for (const std::int32_t page : std::views::reverse(pages))
    if (--users_[static_cast<std::size_t>(page)] == 0) free_.push_back(page);
}

std::int32_t KvPool::row(int slot, std::int64_t index) const {
  const std::vector<std::int32_t>& held = held_[static_cast<std::size_t>(slot)];
  const auto page = static_cast<std::size_t>(index / kPageSize);
  QUIRE_CHECK(page < held.size(), "token {} of slot {}, which holds {} pages", index, slot, held.size());
  return held[page] * kPageSize + static_cast<std::int32_t>(index % kPageSize);
}

KvPages KvPool::layer(int layer) const {
  const std::int64_t bytes = std::int64_t{shape_.pages} * kPageSize * shape_.cols * size_of(shape_.format);
  return pages(2 * layer * bytes, shape_.cols);
}

KvPages KvPool::draft_layer(int layer) const {
  const std::int64_t rows = std::int64_t{shape_.pages} * kPageSize;
  const std::int64_t before = 2 * shape_.layers * shape_.cols + 2 * layer * shape_.draft_cols;
  return pages(rows * before * size_of(shape_.format), shape_.draft_cols);
}

KvPages KvPool::pages(std::int64_t first_byte, std::int64_t cols) const {
  const std::int64_t rows = std::int64_t{shape_.pages} * kPageSize;
  const auto pool = [&](int which) {
    return Rows{.data = rows_.data() + first_byte + which * rows * cols * size_of(shape_.format),
                .format = shape_.format,
                .rows = rows,
                .cols = cols,
                .stride = cols};
  };
  return {.k = pool(0),
          .v = pool(1),
          .page_size = kPageSize,
          .block_table = block_table(),
          .pages_per_slot = shape_.pages_per_slot};
}

}  // namespace quire
