// Softmax attention over a cache (text) and over all patches of a page (vision).
//   out = softmax(q K^T E^-1/2) V
// Plan: a task takes a few query rows of one head and holds their whole score rows [rows, keys] in f32 (L2):
// scores, then the softmax of each row up to its own last key, then the weighted sum of V, keys in order. No
// running maximum, so nothing is rescaled and a row's bits depend on the row alone. Text: K and V are used
// in the pages that hold them (a page is a multiple of the 4 keys of a tile of scores, so that placement does
// not change a bit), queries are widened to f32 once. Vision: one head at a time, K^T and V widened
// to f32 once for all queries, keys as lanes: with E = 64 the lane sums of a dot product would cost more than
// the product. FLOP: 4 T keys E a head, the wall for pages; bytes for a decode step: K and V once.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ops/attention/attention.h"
#include "ops/cpu/dot_tile.h"
#include "ops/cpu/entries.h"
#include "ops/cpu/rows.h"

namespace quire::QUIRE_ISA {
namespace {

constexpr std::int64_t kVectors = kVectorRegisters == 32 ? 4 : 2;  // of one output tile
constexpr std::int64_t kTileWidth = kVectors * kLanes;
constexpr std::int64_t kTaskRows = 4 * kTileRows;

std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// scores[0..n) -> unnormalised weights rounded to T; returns the sum before the rounding.
template <typename T>
float softmax_weights(float* scores, std::int64_t n) {
  Vf largest = set1(-std::numeric_limits<float>::infinity());
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) largest = max(load(scores + j), largest);
  float top = max_lane(largest);
  for (; j < n; ++j) top = scores[j] > top ? scores[j] : top;
  Vf total = zero();
  for_lanes(n, [&](std::int64_t k, int lanes) {
    Vf e = exp(sub(load_lanes(scores + k, lanes), set1(top)));
    if (lanes != kLanes) e = masked(e, lanes);
    total = QUIRE_ISA::add(total, e);
    store_lanes(scores + k, round_to<T>(e), lanes);
  });
  return sum(total);
}

// Rows that stand in pages: row j is row j % size of page j / size.
template <typename V>
struct Pages {
  const V* rows;
  std::int64_t stride;
  std::int64_t size;          // at least the number of rows when there is no table
  const std::int32_t* table;  // of page numbers; nullptr: the only page is the first

  const V* page(std::int64_t i) const { return rows + (table ? table[i] : i) * size * stride; }
};

// R rows of weights times V: emit(row, column, vector, lanes). Row r sums its first n[r] keys in order.
template <int R, typename V, typename Emit>
void weighted_sum(const float* weights, std::int64_t weights_stride, const std::int64_t* n, const Pages<V>& v,
                  std::int64_t E, Emit emit) {
  std::int64_t common = n[0], longest = n[0];
  for (int r = 1; r < R; ++r) {
    common = std::min(common, n[r]);
    longest = std::max(longest, n[r]);
  }
  const auto columns = [&](auto vectors, std::int64_t e, int lanes) {
    constexpr int kN = decltype(vectors)::value;
    Vf acc[R][kN];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kN; ++c) acc[r][c] = zero();
    }
    for (std::int64_t page = 0; page * v.size < longest; ++page) {
      const std::int64_t end = std::min(longest, (page + 1) * v.size);
      const V* p = v.page(page) + e;
      const V* next = end < longest ? v.page(page + 1) + e : nullptr;
      for (std::int64_t j = page * v.size; j < end; ++j, p += v.stride) {
        if (next) prefetch(std::exchange(next, next + v.stride), kN * kLanes);
        Vf value[kN];
        for (int c = 0; c < kN; ++c) {
          value[c] = kN == 1 ? load_lanes(p + c * kLanes, lanes) : load(p + c * kLanes);
        }
        for (int r = 0; r < R; ++r) {
          if (j >= common && j >= n[r]) continue;
          const Vf w = set1(weights[r * weights_stride + j]);
          for (int c = 0; c < kN; ++c) acc[r][c] = fma(w, value[c], acc[r][c]);
        }
      }
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kN; ++c) emit(r, e + c * kLanes, acc[r][c], kN == 1 ? lanes : kLanes);
    }
  };
  constexpr int kWide = R == 1 ? 4 * kVectors : 2 * R <= kTileRows ? 2 * kVectors : kVectors;
  std::int64_t e = 0;
  for (; e + kWide * kLanes <= E; e += kWide * kLanes)
    columns(std::integral_constant<int, kWide>{}, e, kLanes);
  for (; e + kTileWidth <= E; e += kTileWidth) columns(std::integral_constant<int, kVectors>{}, e, kLanes);
  for (; e < E; e += kLanes) {
    columns(std::integral_constant<int, 1>{}, e, static_cast<int>(std::min<std::int64_t>(kLanes, E - e)));
  }
}

// Softmax and weighted sum of `rows` score rows, row i over its first first_keys + i * more_keys keys. Scores
// of minus infinity have no weight.
template <typename T, typename V>
void finish_rows(float* scores, std::int64_t scores_stride, std::int64_t rows, std::int64_t first_keys,
                 std::int64_t more_keys, const Pages<V>& v, std::int64_t E, T* out, std::int64_t out_stride) {
  const auto tile = [&](auto tile_rows, std::int64_t i0) {
    constexpr int kR = decltype(tile_rows)::value;
    std::int64_t n[kR];
    float total[kR];
    for (int r = 0; r < kR; ++r) {
      n[r] = first_keys + (i0 + r) * more_keys;
      total[r] = softmax_weights<T>(scores + (i0 + r) * scores_stride, n[r]);
    }
    weighted_sum<kR>(scores + i0 * scores_stride, scores_stride, n, v, E,
                     [&](int r, std::int64_t e, Vf acc, int lanes) {
                       store_lanes(out + (i0 + r) * out_stride + e, div(acc, set1(total[r])), lanes);
                     });
  };
  for (std::int64_t i = 0; i < rows; i += kTileRows)
    with_rows<kTileRows>(rows - i, [&](auto tile_rows) { tile(tile_rows, i); });
}

// Rows i0 .. i0 + rows - 1 of request r in head h. `scores` has room for so many score rows, `q` for so many
// queries.
template <typename A>
void attend(const Attention& a, std::int32_t r, std::int64_t i0, std::int64_t rows, std::int64_t h,
            float* scores, std::int64_t stride, float* q) {
  const std::int64_t E = a.head_dim, group = a.q.cols / a.kv.k.cols, column = h / group * E;
  const std::int64_t P = a.kv.page_size, first = a.requests.first_row[r] + i0;
  const std::int64_t start = a.requests.start[r],
                     all_rows = a.requests.first_row[r + 1] - a.requests.first_row[r];
  const std::int64_t keys = start + (a.causal ? i0 + rows : all_rows);  // seen by the last row
  const std::int32_t* table = a.kv.block_table + std::int64_t{a.requests.slot[r]} * a.kv.pages_per_slot;
  const Pages<A> k{row<const A>(a.kv.k, 0) + column, a.kv.k.stride, P, table};
  const Pages<A> v{row<const A>(a.kv.v, 0) + column, a.kv.v.stride, P, table};
  const float scale = 1.0f / std::sqrt(static_cast<float>(E));
  for (std::int64_t i = 0; i < rows; ++i) widen_row(row<const A>(a.q, first + i) + h * E, E, q + i * E);
  for (std::int64_t page = 0; page * P < keys; ++page) {
    float* const to = scores + page * P;
    const std::int64_t later = keys - (page + 1) * P;
    const Next<A> next = {later > 0 ? k.page(page + 1) : nullptr, later};
    dot_block(q, E, rows, k.page(page), k.stride, std::min(P, keys - page * P), E, next,
              [&](std::int64_t i, std::int64_t j, __m128 sums, int n) {
                store4(to + i * stride + j, _mm_mul_ps(sums, _mm_set1_ps(scale)), n);
              });
  }
  if (a.sliding_window > 0) {
    for (std::int64_t i = 0; i < rows; ++i) {
      std::fill_n(scores + i * stride, first_key_seen(a.sliding_window, start, start + i0 + i),
                  -std::numeric_limits<float>::infinity());
    }
  }
  finish_rows(scores, stride, rows, a.causal ? keys - rows + 1 : keys, a.causal ? 1 : 0, v, E,
              row<A>(a.out, first) + h * E, a.out.stride);
}

void attention(Stream& s, const Attention& a) {
  check_attention(a);
  check_attention_requests(a);
  const Requests& all = a.requests;
  const std::int64_t heads = a.q.cols / a.head_dim;
  const std::int64_t tiles = (all.longest + kTaskRows - 1) / kTaskRows;  // of a request
  std::int64_t keys = 0;
  for (std::int32_t r = 0; r < all.count; ++r) {
    const std::int32_t rows = all.first_row[r + 1] - all.first_row[r];
    if (rows > 0) keys = std::max<std::int64_t>(keys, all.start[r] + rows);
  }
  const std::int64_t stride = round_up(keys, kLanes);                 // of a score row
  const std::int64_t per_worker = kTaskRows * (stride + a.head_dim);  // scores, then the queries in f32
  float* scratch = reinterpret_cast<float*>(
      s.scratch_bytes(static_cast<std::size_t>(per_worker * s.threads->size()) * sizeof(float)));
  with_type(a.q.format, [&](auto t) {
    s.threads->parallel_for(all.count * heads * tiles, [&](std::int64_t task, int worker) {
      const auto r = static_cast<std::int32_t>(task / heads % all.count);
      const std::int64_t i0 = (tiles - 1 - task / heads / all.count) * kTaskRows;  // longest first
      const std::int64_t rows =
          std::min<std::int64_t>(kTaskRows, all.first_row[r + 1] - all.first_row[r] - i0);
      if (rows <= 0) return;
      float* scores = scratch + per_worker * worker;
      attend<decltype(t)>(a, r, i0, rows, task % heads, scores, stride, scores + kTaskRows * stride);
    });
  });
  if (a.q_gate.data) attention_gate(s, a.out, a.q_gate, a.head_dim, a.out);
}

}  // namespace

void attention_prefill(Stream& s, const Attention& a) {
  attention(s, a);
}
void attention_window(Stream& s, const Attention& a) {
  attention(s, a);
}

void attention_gate(Stream& s, Rows x, Rows q_gate, int head_dim, Rows y) {
  check_attention_gate(x, q_gate, head_dim, y);
  with_type(x.format, [&](auto t) {
    using T = decltype(t);
    for_rows(s, x.rows, 8 * x.cols, [&](std::int64_t i) {
      for (std::int64_t c = 0; c < x.cols; c += head_dim) {
        const T* in = row<T>(x, i) + c;
        const T* gate = row<T>(q_gate, i) + 2 * c + head_dim;
        T* out = row<T>(y, i) + c;
        for_lanes(head_dim, [&](std::int64_t j, int n) {
          store_lanes(out + j, mul(load_lanes(in + j, n), round_to<T>(sigmoid(load_lanes(gate + j, n)))), n);
        });
      }
    });
  });
}

namespace {

// One head's keys as [N / kTileWidth][E][kTileWidth] and values as [N][E padded], both f32.
struct PackedHead {
  float* k;
  float* v;
  std::int64_t v_stride;
};

template <typename A>
void pack_head(Stream& s, const Rows& qkv, std::int64_t k_column, std::int64_t v_column, std::int64_t E,
               const PackedHead& packed) {
  const std::int64_t N = qkv.rows;
  s.threads->parallel_for((N + kTileWidth - 1) / kTileWidth, [&](std::int64_t block, int) {
    float* k = packed.k + block * kTileWidth * E;
    for (std::int64_t l = 0; l < kTileWidth; ++l) {
      const std::int64_t i = block * kTileWidth + l;
      if (i >= N) {
        for (std::int64_t e = 0; e < E; ++e) k[e * kTileWidth + l] = 0;
        continue;
      }
      float wide[kLanes];
      for_lanes(E, [&](std::int64_t e, int n) {
        store(wide, load_lanes(row<const A>(qkv, i) + k_column + e, n));
        for (int c = 0; c < n; ++c) k[(e + c) * kTileWidth + l] = wide[c];
        store_lanes(packed.v + i * packed.v_stride + e, load_lanes(row<const A>(qkv, i) + v_column + e, n),
                    n);
      });
    }
  });
}

// scores[r][0..kTileWidth) of R queries (f32, [R, E]) against one block of packed keys.
template <int R>
void score_tile(const float* q, const float* k, std::int64_t E, float scale, float* scores,
                std::int64_t stride) {
  Vf acc[R][kVectors];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVectors; ++c) acc[r][c] = zero();
  }
  for (std::int64_t e = 0; e < E; ++e) {
    Vf key[kVectors];
    for (int c = 0; c < kVectors; ++c) key[c] = load(k + e * kTileWidth + c * kLanes);
    for (int r = 0; r < R; ++r) {
      const Vf query = set1(q[r * E + e]);
      for (int c = 0; c < kVectors; ++c) acc[r][c] = fma(query, key[c], acc[r][c]);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < kVectors; ++c) store(scores + r * stride + c * kLanes, mul(acc[r][c], set1(scale)));
  }
}

}  // namespace

void vision_attention(Stream& s, const VisionAttention& a) {
  check_vision_attention(a);
  const std::int64_t N = a.qkv.rows, D = a.out.cols, E = D / a.heads;
  if (N == 0) return;
  const std::int64_t padded = round_up(N, kTileWidth), v_stride = round_up(E, kLanes);
  const std::int64_t per_worker = kTaskRows * (padded + E);  // scores, then the queries in f32
  float* scratch = reinterpret_cast<float*>(s.scratch_bytes(
      static_cast<std::size_t>(padded * (E + v_stride) + per_worker * s.threads->size()) * sizeof(float)));
  const PackedHead packed{scratch, scratch + padded * E, v_stride};
  float* const workspace = scratch + padded * (E + v_stride);
  const float scale = 1.0f / std::sqrt(static_cast<float>(E));
  with_type(a.qkv.format, [&](auto t) {
    using A = decltype(t);
    for (std::int64_t h = 0; h < a.heads; ++h) {
      pack_head<A>(s, a.qkv, D + h * E, 2 * D + h * E, E, packed);
      s.threads->parallel_for((N + kTaskRows - 1) / kTaskRows, [&](std::int64_t task, int worker) {
        float* scores = workspace + per_worker * worker;
        float* q = scores + kTaskRows * padded;
        const std::int64_t i0 = task * kTaskRows, rows = std::min(kTaskRows, N - i0);
        for (std::int64_t i = 0; i < rows; ++i) {
          widen_row(row<const A>(a.qkv, i0 + i) + h * E, E, q + i * E);
        }
        for (std::int64_t j = 0; j < padded; j += kTileWidth) {
          const float* k = packed.k + j * E;
          for (std::int64_t i = 0; i < rows; i += kTileRows)
            with_rows<kTileRows>(rows - i, [&](auto tile_rows) {
              score_tile<tile_rows()>(q + i * E, k, E, scale, scores + i * padded + j, padded);
            });
        }
        finish_rows(scores, padded, rows, N, 0, Pages<float>{packed.v, v_stride, N, nullptr}, E,
                    row<A>(a.out, i0) + h * E, a.out.stride);
      });
    }
  });
}

}  // namespace quire::QUIRE_ISA
