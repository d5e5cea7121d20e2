#include <algorithm>

#include "core/error.h"
#include "ops/lookup/lookup.h"

namespace quire {

void check_lookup_drafts(const LookupDrafts& a) {
  QUIRE_CHECK(a.cursors.generated && a.cursors.accepted, "lookup_drafts: no cursors");
  QUIRE_CHECK(a.requests.count >= 0 && a.requests.first_row && a.requests.slot,
              "lookup_drafts: {} requests without first rows or slots", a.requests.count);
  QUIRE_CHECK(a.history.tokens && a.history.capacity > 0, "lookup_drafts: a history of {} tokens",
              a.history.capacity);
  QUIRE_CHECK(a.drafts && a.matched, "lookup_drafts: an output has no memory");
}

void reference::lookup_drafts(Stream&, const LookupDrafts& a) {
  check_lookup_drafts(a);
  const std::int32_t capacity = a.history.capacity;
  for (std::int32_t r = 0; r < a.requests.count; ++r) {
    a.matched[r] = 0;
    if (a.requests.first_row[r] == a.requests.first_row[r + 1]) continue;
    const std::int32_t slot = a.requests.slot[r];
    const std::int32_t n = a.cursors.generated[slot] + a.cursors.accepted[slot] + 1;
    const std::int32_t held = std::min(n, capacity);
    const auto back = [&](std::int32_t i) {  // token n - i
      return a.history.tokens[std::int64_t{slot} * capacity + (n - i) % capacity];
    };
    std::int32_t distance = 1;
    for (std::int32_t p = 1; p < held; ++p) {
      std::int32_t m = 0;
      while (m < kLongestMatch && p + m + 1 <= held && back(p + m + 1) == back(m + 1)) ++m;
      if (m >= kShortestMatch && m > a.matched[r]) a.matched[r] = m, distance = p;
    }
    for (std::int32_t i = 0; i < kMostWindow - 1; ++i)
      a.drafts[slot * (kMostWindow - 1) + i] = back(distance - i % distance);
  }
}

}  // namespace quire
