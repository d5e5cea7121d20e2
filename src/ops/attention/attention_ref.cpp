#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/attention/attention.h"
#include "ops/check.h"
#include "ops/element.h"

namespace quire {
namespace {

// One query, row t of q and out, against keys row_of(first) .. row_of(keys - 1) of k and v; all are the
// columns of one head. The weights are rounded relative to the largest score of all keys. A backend rounds
// them relative to the largest so far, which moves each by at most one rounding.
template <typename RowOf>
void attend(const Rows& q, const Rows& k, const Rows& v, std::int64_t t, std::int64_t first,
            std::int64_t keys, RowOf row_of, const Rows& out) {
  const std::int64_t E = q.cols;
  const double scale = 1 / std::sqrt(static_cast<double>(E));
  std::vector<double> score;
  for (std::int64_t j = first; j < keys; ++j) {
    double dot = 0;
    for (std::int64_t e = 0; e < E; ++e) dot += double{load(q, t, e)} * load(k, row_of(j), e);
    score.push_back(dot * scale);
  }
  const double highest = *std::max_element(score.begin(), score.end());
  std::vector<double> sum_v(E, 0.0);
  double sum = 0;
  for (std::int64_t j = first; j < keys; ++j) {
    const double weight = std::exp(score[static_cast<std::size_t>(j - first)] - highest);
    const double rounded = round_to(v.format, weight);
    sum += weight;
    for (std::int64_t e = 0; e < E; ++e) sum_v[e] += rounded * load(v, row_of(j), e);
  }
  for (std::int64_t e = 0; e < E; ++e) store(out, t, e, sum_v[e] / sum);
}

}  // namespace

void check_attention(const Attention& a) {
  const std::int64_t T = a.q.rows, E = a.head_dim, kv_cols = a.kv.k.cols;
  QUIRE_CHECK(E > 0 && kv_cols > 0 && a.q.cols % E == 0 && kv_cols % E == 0 && a.q.cols % kv_cols == 0,
              "attention: {} query columns and {} key columns are not groups of heads of {}", a.q.cols,
              kv_cols, E);
  check_rows("attention", "q", a.q, T, a.q.cols, a.q.format);
  check_rows("attention", "out", a.out, T, a.q.cols, a.q.format);
  check_rows("attention", "k", a.kv.k, a.kv.k.rows, kv_cols, a.q.format);
  check_rows("attention", "v", a.kv.v, a.kv.k.rows, kv_cols, a.q.format);
  QUIRE_CHECK(a.kv.page_size > 0 && a.kv.page_size % 64 == 0,
              "attention: pages of {} rows, expected a multiple of 64", a.kv.page_size);
  QUIRE_CHECK(a.kv.k.rows % a.kv.page_size == 0, "attention: {} rows of keys are not pages of {}",
              a.kv.k.rows, a.kv.page_size);
  QUIRE_CHECK(a.requests.count >= 0 && a.requests.longest >= 0 && a.kv.pages_per_slot >= 0,
              "attention: {} requests of at most {} rows with {} pages each", a.requests.count,
              a.requests.longest, a.kv.pages_per_slot);
  QUIRE_CHECK(a.sliding_window >= 0, "attention: a sliding window of {}", a.sliding_window);
  if (a.q_gate.data) check_attention_gate(a.out, a.q_gate, a.head_dim, a.out);
  QUIRE_CHECK(a.requests.count == 0 ||
                  (a.requests.first_row && a.requests.start && a.requests.slot && a.kv.block_table),
              "attention: {} requests without first_row, start, slot or block_table", a.requests.count);
}

void check_attention_requests(const Attention& a) {
  const Requests& all = a.requests;
  const std::int64_t P = a.kv.page_size, pages = a.kv.k.rows / P;
  QUIRE_CHECK(all.count == 0 || (all.first_row[0] >= 0 && all.first_row[all.count] <= a.q.rows),
              "attention: rows {} to {} of the requests, {} queries", all.first_row[0],
              all.first_row[all.count], a.q.rows);
  for (std::int32_t r = 0; r < all.count; ++r) {
    const std::int64_t rows = std::int64_t{all.first_row[r + 1]} - all.first_row[r];
    QUIRE_CHECK(rows >= 0 && rows <= all.longest, "attention: request {} has {} rows, expected 0 to {}", r,
                rows, all.longest);
    if (rows == 0) continue;
    const std::int64_t keys = all.start[r] + rows;
    QUIRE_CHECK(all.start[r] >= 0 && all.slot[r] >= 0 && keys <= a.kv.pages_per_slot * P,
                "attention: request {} in slot {} has rows from {} to {}, a slot holds {}", r, all.slot[r],
                all.start[r], keys, a.kv.pages_per_slot * P);
    for (std::int64_t i = 0; i * P < keys; ++i) {
      const std::int64_t page = a.kv.block_table[std::int64_t{all.slot[r]} * a.kv.pages_per_slot + i];
      QUIRE_CHECK(page >= 0 && page < pages, "attention: page {} of slot {} is {}, there are {}", i,
                  all.slot[r], page, pages);
    }
  }
}

void check_attention_gate(const Rows& x, const Rows& q_gate, int head_dim, const Rows& y) {
  QUIRE_CHECK(head_dim > 0 && x.cols % head_dim == 0, "attention_gate: {} columns are not heads of {}",
              x.cols, head_dim);
  check_rows("attention_gate", "x", x, x.rows, x.cols, x.format);
  check_rows("attention_gate", "q_gate", q_gate, x.rows, 2 * x.cols, x.format);
  check_rows("attention_gate", "y", y, x.rows, x.cols, x.format);
}

void check_vision_attention(const VisionAttention& a) {
  const std::int64_t N = a.out.rows, D = a.out.cols;
  QUIRE_CHECK(a.heads > 0 && D > 0 && D % a.heads == 0, "vision_attention: {} columns are not {} heads", D,
              a.heads);
  check_rows("vision_attention", "qkv", a.qkv, N, 3 * D, a.qkv.format);
  check_rows("vision_attention", "out", a.out, N, D, a.qkv.format);
}

void reference::attention(Stream& s, const Attention& a) {
  check_attention(a);
  check_attention_requests(a);
  const std::int64_t E = a.head_dim, H = a.q.cols / E, G = a.kv.k.cols / E, P = a.kv.page_size;
  for (std::int32_t r = 0; r < a.requests.count; ++r) {
    const std::int32_t* pages = a.kv.block_table + std::int64_t{a.requests.slot[r]} * a.kv.pages_per_slot;
    const auto row_of = [&](std::int64_t j) { return pages[j / P] * P + j % P; };
    const std::int64_t start = a.requests.start[r], first_row = a.requests.first_row[r];
    const std::int64_t end = start + a.requests.first_row[r + 1] - first_row;
    for (std::int64_t t = first_row; t < a.requests.first_row[r + 1]; ++t) {
      const std::int64_t index = start + t - first_row;
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t g = h / (H / G);
        attend(a.q.slice_cols(h * E, E), a.kv.k.slice_cols(g * E, E), a.kv.v.slice_cols(g * E, E), t,
               first_key_seen(a.sliding_window, start, index), a.causal ? index + 1 : end, row_of,
               a.out.slice_cols(h * E, E));
      }
    }
  }
  if (a.q_gate.data) attention_gate(s, a.out, a.q_gate, a.head_dim, a.out);
}

void reference::attention_gate(Stream&, Rows x, Rows q_gate, int head_dim, Rows y) {
  check_attention_gate(x, q_gate, head_dim, y);
  for (std::int64_t t = 0; t < x.rows; ++t)
    for (std::int64_t c = 0; c < x.cols; ++c) {
      const std::int64_t head = c / head_dim, e = c % head_dim;
      const double gate = load(q_gate, t, (2 * head + 1) * head_dim + e);
      store(y, t, c, load(x, t, c) * round_to(x.format, 1 / (1 + std::exp(-gate))));
    }
}

void reference::vision_attention(Stream&, const VisionAttention& a) {
  check_vision_attention(a);
  const std::int64_t N = a.out.rows, D = a.out.cols, E = D / a.heads;
  for (std::int64_t h = 0; h < a.heads; ++h) {
    const Rows q = a.qkv.slice_cols(h * E, E), k = a.qkv.slice_cols(D + h * E, E),
               v = a.qkv.slice_cols(2 * D + h * E, E), out = a.out.slice_cols(h * E, E);
    for (std::int64_t t = 0; t < N; ++t)
      attend(
          q, k, v, t, 0, N, [](std::int64_t j) { return j; }, out);
  }
}

}  // namespace quire
