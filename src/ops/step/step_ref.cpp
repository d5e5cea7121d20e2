#include <algorithm>

#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/step/step.h"

namespace quire {
namespace {

void check_cursors(const char* op, const Cursors& c) {
  QUIRE_CHECK(c.length && c.generated && c.previous && c.accepted && c.delta && c.token, "{}: no cursors",
              op);
}

}  // namespace

void check_step_begin(const StepBegin& a) {
  check_cursors("step_begin", a.cursors);
  const Requests& r = a.requests;
  QUIRE_CHECK(r.count >= 0 && r.first_row && r.slot, "step_begin: {} requests without first rows or slots",
              r.count);
  QUIRE_CHECK(r.longest >= 1 && r.longest <= kMostWindow,
              "step_begin: windows of up to {} rows, expected 1 to {}", r.longest, kMostWindow);
  QUIRE_CHECK(a.kv.block_table && a.kv.page_size > 0, "step_begin: no block table");
  const NewPages& n = a.new_pages;
  QUIRE_CHECK(!n.count || (n.place && n.page && n.most >= 0 && n.block_table == a.kv.block_table),
              "step_begin: new pages without memory, or for another block table");
  QUIRE_CHECK(a.drafts || r.longest == 1, "step_begin: windows of {} rows and no drafts", r.longest);
  QUIRE_CHECK(a.start && a.generated && a.previous && a.ids && a.position && a.kv_row && a.row_slot &&
                  a.index && a.next,
              "step_begin: an output has no memory");
}

void check_place_drafts(const PlaceDrafts& a) {
  check_rows("place_drafts", "logits", a.logits, a.logits.rows, a.logits.cols, Format::f32);
  QUIRE_CHECK(a.logits.cols > 0 && a.requests.first_row && a.ids, "place_drafts: an operand has no memory");
  QUIRE_CHECK(a.row >= 0 && (a.row == 0 || a.logits.rows == a.requests.count),
              "place_drafts: {} rows of logits for row {} of {} requests", a.logits.rows, a.row,
              a.requests.count);
}

void check_commit(const Commit& a) {
  check_cursors("commit", a.cursors);
  QUIRE_CHECK(a.requests.first_row && a.requests.slot && a.ids && a.sampled.data(),
              "commit: an operand has no memory");
  QUIRE_CHECK(!a.seen || a.vocabulary > 0, "commit: a vocabulary of {}", a.vocabulary);
  QUIRE_CHECK(!a.history.tokens || a.history.capacity > 0, "commit: a history of {} tokens",
              a.history.capacity);
  if (!a.last.data) return;
  check_rows("commit", "outputs", a.outputs, std::ssize(a.sampled), a.last.cols, a.last.format);
  check_rows("commit", "last", a.last, a.last.rows, a.last.cols, a.last.format);
}

void reference::step_begin(Stream&, const StepBegin& a) {
  check_step_begin(a);
  if (const NewPages& n = a.new_pages; n.count) {
    for (std::int32_t i = 0; i < *n.count; ++i) n.block_table[n.place[i]] = n.page[i];
    *n.count = 0;
  }
  const Cursors& c = a.cursors;
  const std::int64_t T = a.rows;
  const auto row = [&](std::int64_t t, std::int32_t slot, std::int32_t token, std::int32_t index,
                       std::int32_t position, std::int32_t kv_row) {
    a.ids[t] = token, a.row_slot[t] = slot, a.index[t] = index, a.next[t] = index + 1, a.kv_row[t] = kv_row;
    for (int axis = 0; axis < 3; ++axis) a.position[axis * T + t] = position;
  };
  for (std::int32_t r = 0; r < a.requests.count; ++r) {
    const std::int32_t slot = a.requests.slot[r], first = a.requests.first_row[r],
                       end = a.requests.first_row[r + 1];
    if (first == end) {  // a place that nobody takes in this step
      a.start[r] = a.generated[r] = a.previous[r] = 0;
      continue;
    }
    const std::int32_t accepted = c.accepted[slot];
    c.accepted[slot] = 0;
    c.previous[slot] = c.generated[slot];
    c.generated[slot] += accepted;
    c.length[slot] += accepted;
    a.start[r] = std::max(c.length[slot] + a.ahead, 0);
    a.generated[r] = c.generated[slot], a.previous[r] = c.previous[slot];
    for (std::int32_t i = 0; i < end - first; ++i) {
      const std::int32_t token = i == 0 ? c.token[slot] : a.drafts[slot * (kMostWindow - 1) + i - 1];
      const std::int32_t index = c.length[slot] + a.ahead + i, page = index / a.kv.page_size;
      const std::int32_t held =
          index >= 0 && page < a.kv.pages_per_slot ? a.kv.block_table[slot * a.kv.pages_per_slot + page] : -1;
      row(first + i, slot, token, index, index + c.delta[slot],
          held < 0 ? -1 : held * a.kv.page_size + index % a.kv.page_size);
    }
  }
  for (std::int64_t t = a.requests.first_row[a.requests.count]; t < T; ++t) row(t, 0, 0, 0, 0, -1);
}

void reference::place_drafts(Stream&, const PlaceDrafts& a) {
  check_place_drafts(a);
  const auto likeliest = [&](std::int64_t row) {
    std::int64_t best = 0;
    for (std::int64_t v = 1; v < a.logits.cols; ++v)
      if (load(a.logits, row, v) > load(a.logits, row, best)) best = v;
    return static_cast<std::int32_t>(best);
  };
  for (std::int32_t r = 0; r < a.requests.count; ++r) {
    const std::int32_t first = a.requests.first_row[r], end = a.requests.first_row[r + 1];
    if (a.row == 0)
      for (std::int32_t t = first + 1; t < end; ++t) a.ids[t] = likeliest(t);
    else if (first + a.row < end)
      a.ids[first + a.row] = likeliest(r);
  }
}

void reference::commit(Stream&, const Commit& a) {
  check_commit(a);
  for (std::int32_t r = 0; r < a.requests.count; ++r) {
    const std::int32_t slot = a.requests.slot[r], first = a.requests.first_row[r],
                       end = a.requests.first_row[r + 1];
    if (a.counts) a.counts[r] = 0;
    if (first == end) continue;
    std::int32_t last = first;
    while (!a.prompt && last + 1 < end && a.ids[last + 1] == a.sampled[last].token) ++last;
    if (a.assumed > 0 && !a.prompt) last = std::min(first + a.assumed, end) - 1;
    a.cursors.token[slot] = a.sampled[last].token;
    a.cursors.accepted[slot] = a.prompt ? 0 : last - first + 1;
    if (a.counts) a.counts[r] = last - first + 1;
    for (std::int32_t t = first; a.history.tokens && t <= last; ++t) {
      const std::int32_t place = a.cursors.generated[slot] + t - first + (a.prompt ? 0 : 1);
      a.history.tokens[slot * a.history.capacity + place % a.history.capacity] = a.sampled[t].token;
    }
    for (std::int32_t t = first; a.seen && t <= last; ++t) {
      std::uint16_t& seen = a.seen[slot * a.vocabulary + a.sampled[t].token];
      if ((seen & ~kInPrompt) + 1 < kInPrompt) ++seen;
    }
    for (std::int64_t d = 0; a.last.data && d < a.last.cols; ++d)
      store(a.last, slot, d, load(a.outputs, last, d));
  }
}

}  // namespace quire
