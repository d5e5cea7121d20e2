#include "model/step.h"

#include <algorithm>

#include "core/error.h"

namespace quire {

StepArrays::StepArrays(const Backend& backend, std::int64_t max_rows, int max_requests)
    : uploader_(backend), max_rows_(max_rows), max_requests_(max_requests) {
  const std::int64_t R = max_requests, T = max_rows, N = KvPool::kMostNewPages;
  const std::int64_t sizes[kParts] = {1, N, N, R + 1, R + 1, R, R, R, R, T, 3 * T, T, T, T, T, T};
  begin_[0] = 0;
  for (int i = 0; i < kParts; ++i) begin_[i + 1] = begin_[i] + sizes[i];
  host_.resize(static_cast<std::size_t>(begin_[kParts]));
  memory_ = Memory(backend, host_.size() * sizeof(std::int32_t));
  for (int i = 0; i < kParts; ++i) part_[i] = memory_.as<std::int32_t>() + begin_[i];
}

void StepArrays::set(Part part, std::span<const std::int32_t> values) {
  QUIRE_CHECK(std::ssize(values) <= begin_[part + 1] - begin_[part], "{} values in part {} of a step",
              values.size(), static_cast<int>(part));
  std::copy(values.begin(), values.end(), host_.begin() + begin_[part]);
}

void StepArrays::send(Stream& stream, Part first, Part last) {
  const std::int64_t count = begin_[last + 1] - begin_[first];
  uploader_.send(stream, part_[first], host_.data() + begin_[first],
                 static_cast<std::size_t>(count) * sizeof(std::int32_t));
}

Step StepArrays::prompt(Stream& stream, const KvPool& kv, const StateSlots& states, int slot,
                        std::int64_t start, std::span<const std::int32_t> tokens,
                        const std::span<const std::int32_t> (&position)[3], Rows features,
                        std::span<const std::int32_t> image_rows) {
  const auto T = static_cast<std::int64_t>(tokens.size());
  QUIRE_CHECK(T > 0 && T <= max_rows_, "a step of {} rows, room for {}", T, max_rows_);
  std::vector<std::int32_t> positions, kv_rows, index;
  for (const auto& axis : position) positions.insert(positions.end(), axis.begin(), axis.end());
  for (std::int64_t t = start; t < start + T; ++t) {
    kv_rows.push_back(kv.row(slot, t));
    index.push_back(static_cast<std::int32_t>(t));
  }
  set(kFirstRow, std::vector<std::int32_t>{0, static_cast<std::int32_t>(T)});
  set(kSlot, std::vector<std::int32_t>{slot});
  set(kStart, std::vector<std::int32_t>{static_cast<std::int32_t>(start)});
  set(kIds, tokens);
  set(kPosition, positions);
  set(kKvRow, kv_rows);
  set(kIndex, index);
  set(kImageRows, image_rows);
  // Of the last row alone a token is drawn.
  set(kRowSlot, std::vector<std::int32_t>{slot});
  set(kNext, std::vector<std::int32_t>{static_cast<std::int32_t>(start + T)});
  send(stream, kFirstRow, kImageRows);
  return {.path = Path::prefill,
          .ids = {part_[kIds], tokens.size()},
          .position = part_[kPosition],
          .kv_row = part_[kKvRow],
          .index = part_[kIndex],
          .requests = {.count = 1,
                       .longest = static_cast<std::int32_t>(T),
                       .first_row = part_[kFirstRow],
                       .start = part_[kStart],
                       .slot = part_[kSlot]},
          .slot = slot,
          .images = {features, {part_[kImageRows], image_rows.size()}},
          .kv = &kv,
          .states = &states};
}

void StepArrays::set_batch(Stream& stream, std::span<const int> slots, int window,
                           std::span<const KvPool::NewPage> new_pages) {
  QUIRE_CHECK(static_cast<int>(slots.size()) <= max_requests_, "{} requests, room for {}", slots.size(),
              max_requests_);
  // Places that nobody takes have no rows, and any slot.
  std::vector<std::int32_t> one_row, first_row, slot(slots.begin(), slots.end());
  slot.resize(static_cast<std::size_t>(max_requests_), 0);
  for (int r = 0; r <= max_requests_; ++r) {
    one_row.push_back(std::min(r, static_cast<int>(slots.size())));
    first_row.push_back(one_row.back() * window);
  }
  QUIRE_CHECK(first_row.back() <= max_rows_, "a step of {} rows, room for {}", first_row.back(), max_rows_);
  std::vector<std::int32_t> places, pages;
  for (const KvPool::NewPage& n : new_pages) places.push_back(n.place), pages.push_back(n.page);
  set(kNewPages, std::vector<std::int32_t>{static_cast<std::int32_t>(new_pages.size())});
  set(kNewPlace, places);
  set(kNewPage, pages);
  set(kOneRow, one_row);
  set(kFirstRow, first_row);
  set(kSlot, slot);
  send(stream, kNewPages, kSlot);
}

StepArrays::Window StepArrays::window(const KvPool& kv, const StateSlots& states, const std::int32_t* drafts,
                                      int requests, int window, const StepArrays* batch) const {
  const std::int64_t T = std::int64_t{requests} * window;
  QUIRE_CHECK(requests <= max_requests_ && T <= max_rows_,
              "{} requests of {} rows, room for {} and {} in all", requests, window, max_requests_,
              max_rows_);
  QUIRE_CHECK(!batch || (window == 1 && requests <= batch->max_requests_),
              "{} requests of {} rows of another batch", requests, window);
  const Requests r{.count = requests,
                   .longest = window,
                   .first_row = batch ? batch->part_[kOneRow] : part_[kFirstRow],
                   .start = part_[kStart],
                   .slot = batch ? batch->part_[kSlot] : part_[kSlot]};
  const NewPages new_pages{.count = part_[kNewPages],
                           .place = part_[kNewPlace],
                           .page = part_[kNewPage],
                           .block_table = kv.block_table(),
                           .most = KvPool::kMostNewPages};
  return {.begin = {.cursors = states.cursors(),
                    .requests = r,
                    .new_pages = batch ? NewPages() : new_pages,
                    .kv = kv.layer(0),
                    .drafts = drafts,
                    .rows = T,
                    .start = part_[kStart],
                    .generated = part_[kGenerated],
                    .previous = part_[kPrevious],
                    .ids = part_[kIds],
                    .position = part_[kPosition],
                    .kv_row = part_[kKvRow],
                    .row_slot = part_[kRowSlot],
                    .index = part_[kIndex],
                    .next = part_[kNext]},
          .step = {.path = Path::window,
                   .ids = {part_[kIds], static_cast<std::size_t>(T)},
                   .position = part_[kPosition],
                   .kv_row = part_[kKvRow],
                   .index = part_[kIndex],
                   .requests = r,
                   .generated = part_[kGenerated],
                   .previous = part_[kPrevious],
                   .images = {},
                   .kv = &kv,
                   .states = &states}};
}

}  // namespace quire
