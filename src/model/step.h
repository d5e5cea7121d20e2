// What one forward pass works on. Passed to the model, never ambient.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "backend/uploader.h"
#include "cache/kv_pages.h"
#include "cache/state_slots.h"

namespace quire {

// Sees named intermediate values, for comparing with a reference: "layers.3.mixer". The names are those of
// oracle/. `value` is in the backend's memory; what the stream was asked for before may still be under way.
using Probe = std::function<void(std::string_view name, const Rows& value)>;

// Which of the two paths a step takes (DESIGN: they need not agree bit for bit, so one token never takes
// both).
enum class Path {
  prefill,  // prompt tokens of one sequence
  window,   // generated tokens of any number of sequences
};

// Vision features in place of the embeddings of some rows of a step.
struct ImageRows {
  Rows features;                       // [n, D]
  std::span<const std::int32_t> rows;  // [n], rows of the step
};

// T rows. Every array is in the backend's memory.
struct Step {
  Path path = Path::prefill;
  std::span<const std::int32_t> ids;        // [T]
  const std::int32_t* position = nullptr;   // [3, T]: t, h, w (mRoPE)
  const std::int32_t* kv_row = nullptr;     // [T], as in QkNormRope
  const std::int32_t* index = nullptr;      // [T]: sequence index
  Requests requests;                        // prefill: one
  const std::int32_t* generated = nullptr;  // [R], of a window: as in GdnWindow
  const std::int32_t* previous = nullptr;
  int slot = 0;  // of a prefill
  ImageRows images;
  const KvPool* kv = nullptr;
  const StateSlots* states = nullptr;
  const Probe* probe = nullptr;
};

// The memory of a step's arrays, one packed block: what the host says of a step is one copy.
class StepArrays {
 public:
  StepArrays(const Backend& backend, std::int64_t max_rows, int max_requests);

  // A chunk of the prompt of the sequence in `slot`, from sequence index `start` on. `position` has a span
  // for each of t, h, w; `image_rows` are the rows that take `features`. Copies.
  Step prompt(Stream& stream, const KvPool& kv, const StateSlots& states, int slot, std::int64_t start,
              std::span<const std::int32_t> tokens, const std::span<const std::int32_t> (&position)[3],
              Rows features, std::span<const std::int32_t> image_rows);

  // From now on windows are of these slots, `window` rows each, and the first brings `new_pages` into the
  // block table. Copies.
  void set_batch(Stream& stream, std::span<const int> slots, int window,
                 std::span<const KvPool::NewPage> new_pages = {});
  // A window step of that batch, or of a bucket that is at least as large: the rest belongs to nobody. What
  // it needs besides is made on the device, by `begin`. `batch`: of the batch of these other arrays, with one
  // row of each request, after `begin` of theirs.
  struct Window {
    StepBegin begin;
    Step step;
  };
  Window window(const KvPool& kv, const StateSlots& states, const std::int32_t* drafts, int requests,
                int window, const StepArrays* batch = nullptr) const;

  const std::int32_t* row_slot() const { return part_[kRowSlot]; }
  const std::int32_t* next() const { return part_[kNext]; }
  std::int32_t* ids() const { return part_[kIds]; }

 private:
  enum Part {
    kNewPages,  // their number
    kNewPlace,
    kNewPage,
    kOneRow,  // first rows, were the windows of one row
    kFirstRow,
    kSlot,
    kStart,
    kGenerated,
    kPrevious,
    kIds,
    kPosition,
    kKvRow,
    kIndex,
    kRowSlot,
    kNext,
    kImageRows,
    kParts
  };
  void set(Part part, std::span<const std::int32_t> values);
  void send(Stream& stream, Part first, Part last);  // everything from one part to another, as set

  Uploader uploader_;
  std::int64_t max_rows_;
  int max_requests_;
  std::vector<std::int32_t> host_;  // what `memory_` is given
  Memory memory_;
  std::int64_t begin_[kParts + 1];  // of each part in both
  std::int32_t* part_[kParts];      // in memory_
};

}  // namespace quire
