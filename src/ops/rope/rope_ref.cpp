#include <cmath>
#include <vector>

#include "core/error.h"
#include "ops/check.h"
#include "ops/element.h"
#include "ops/rope/rope.h"

namespace quire {
namespace {

// One head: row t of `x`, columns from `from` on, to row `row` of `y`, columns from `to` on. n is rounded
// like every rms_norm, and so are the products of the rotation: HF computes them in the activation's type.
void norm_rope_head(const Rows& x, std::int64_t t, std::int64_t from, const Rows& y, std::int64_t row,
                    std::int64_t to, std::span<const float> w, float eps, std::span<const float> cos,
                    std::span<const float> sin) {
  const auto width = static_cast<std::int64_t>(w.size()), half = static_cast<std::int64_t>(cos.size());
  double sum = 0;
  for (std::int64_t e = 0; e < width; ++e) {
    const double v = load(x, t, from + e);
    sum += v * v;
  }
  const double scale = 1 / std::sqrt(sum / static_cast<double>(width) + eps);
  for (std::int64_t e = 0; e < width; ++e) store(y, row, to + e, load(x, t, from + e) * scale * (1.0 + w[e]));

  const Format f = y.format;
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = load(y, row, to + i), b = load(y, row, to + i + half);
    store(y, row, to + i, round_to(f, a * cos[i]) - round_to(f, b * sin[i]));
    store(y, row, to + i + half, round_to(f, b * cos[i]) + round_to(f, a * sin[i]));
  }
}

}  // namespace

void check_rotary(const Rotary& a) {
  QUIRE_CHECK(a.dims >= 0 && a.dims % 2 == 0, "rotary: {} rotated dims, expected an even number", a.dims);
  QUIRE_CHECK(a.rows >= 0 && (a.rows == 0 || a.position), "rotary: {} rows without positions", a.rows);
  check_size("rotary", "cos", a.cos.size(), a.rows * (a.dims / 2));
  check_size("rotary", "sin", a.sin.size(), a.rows * (a.dims / 2));
}

void check_qk_norm_rope(const QkNormRope& a) {
  const std::int64_t T = a.q.rows, E = a.head_dim;
  QUIRE_CHECK(E > 0 && a.q.cols % E == 0 && a.k.cols % E == 0,
              "qk_norm_rope: {} query and {} key columns are not heads of {}", a.q.cols, a.k.cols, E);
  check_rows("qk_norm_rope", "q", a.q, T, a.q.cols, a.q.format);
  check_rows("qk_norm_rope", "q_gate", a.q_gate, T, (a.gated ? 2 : 1) * a.q.cols, a.q.format);
  check_rows("qk_norm_rope", "k", a.k, T, a.k.cols, a.q.format);
  check_rows("qk_norm_rope", "v", a.v, T, a.k.cols, a.q.format);
  check_rows("qk_norm_rope", "kv.k", a.kv.k, a.kv.k.rows, a.k.cols, a.q.format);
  check_rows("qk_norm_rope", "kv.v", a.kv.v, a.kv.k.rows, a.k.cols, a.q.format);
  QUIRE_CHECK(T == 0 || a.kv_row, "qk_norm_rope: {} rows without kv_row", T);
  check_size("qk_norm_rope", "q_norm", a.q_norm.size(), E);
  check_size("qk_norm_rope", "k_norm", a.k_norm.size(), E);
  check_size("qk_norm_rope", "sin", a.sin.size(), static_cast<std::int64_t>(a.cos.size()));
  const std::int64_t half = T == 0 ? 0 : static_cast<std::int64_t>(a.cos.size()) / T;
  check_size("qk_norm_rope", "cos", a.cos.size(), T * half);
  QUIRE_CHECK(2 * half <= E, "qk_norm_rope: {} rotated dims of a head of {}", 2 * half, E);
}

void check_kv_rows(const QkNormRope& a) {
  for (std::int64_t t = 0; t < a.q.rows; ++t) {
    QUIRE_CHECK(a.kv_row[t] >= -1 && a.kv_row[t] < a.kv.k.rows,
                "qk_norm_rope: row {} goes to row {} of the cache, expected -1 or less than {}", t,
                a.kv_row[t], a.kv.k.rows);
  }
}

QkNormRope keys_alone(const JoinKv& a, const JoinKv::Layer& layer) {
  const Rows none{.data = layer.k.data, .format = layer.k.format, .rows = layer.k.rows};
  return {.q_gate = none,
          .gated = false,
          .k = layer.k,
          .v = layer.v,
          .q = none,
          .kv = layer.kv,
          .kv_row = a.kv_row,
          .head_dim = a.head_dim,
          .q_norm = layer.k_norm,
          .k_norm = layer.k_norm,
          .eps = a.eps,
          .cos = a.cos,
          .sin = a.sin};
}

void check_join_kv(const JoinKv& a) {
  QUIRE_CHECK(a.layers.size() <= kMostJoined, "join_kv: {} layers, expected at most {}", a.layers.size(),
              kMostJoined);
  for (const JoinKv::Layer& l : a.layers) {
    const Rows& first = a.layers[0].k;
    check_rows("join_kv", "k", l.k, first.rows, first.cols, first.format);
    check_qk_norm_rope(keys_alone(a, l));
  }
}

void check_vision_rope(const Rows& qkv, int heads, std::span<const float> cos, std::span<const float> sin) {
  QUIRE_CHECK(heads > 0 && qkv.cols % (6 * heads) == 0,
              "vision_rope: {} columns are not q, k and v of {} heads of an even size", qkv.cols, heads);
  check_rows("vision_rope", "qkv", qkv, qkv.rows, qkv.cols, qkv.format);
  check_size("vision_rope", "cos", cos.size(), qkv.rows * (qkv.cols / (6 * heads)));
  check_size("vision_rope", "sin", sin.size(), qkv.rows * (qkv.cols / (6 * heads)));
}

void reference::rotary(Stream&, const Rotary& a) {
  check_rotary(a);
  const int half = a.dims / 2;
  std::vector<double> frequency;
  for (int i = 0; i < half; ++i) frequency.push_back(std::pow(a.theta, -2.0 * i / a.dims));
  for (std::int64_t t = 0; t < a.rows; ++t)
    for (int i = 0; i < half; ++i) {
      const int stream = rotary_stream(i, a.section_h, a.section_w);
      const double angle = a.position[stream * a.rows + t] * frequency[i];
      a.cos[t * half + i] = round_to(a.format, std::cos(angle));
      a.sin[t * half + i] = round_to(a.format, std::sin(angle));
    }
}

void reference::qk_norm_rope(Stream&, const QkNormRope& a) {
  check_qk_norm_rope(a);
  check_kv_rows(a);
  const std::int64_t T = a.q.rows, E = a.head_dim;
  for (std::int64_t t = 0; t < T; ++t) {
    const std::size_t half = a.cos.size() / static_cast<std::size_t>(T);
    const auto cos = a.cos.subspan(t * half, half), sin = a.sin.subspan(t * half, half);
    for (std::int64_t h = 0; h < a.q.cols / E; ++h)
      norm_rope_head(a.q_gate, t, h * (a.gated ? 2 : 1) * E, a.q, t, h * E, a.q_norm, a.eps, cos, sin);
    const std::int64_t row = a.kv_row[t];
    if (row < 0) continue;
    for (std::int64_t g = 0; g < a.k.cols / E; ++g)
      norm_rope_head(a.k, t, g * E, a.kv.k, row, g * E, a.k_norm, a.eps, cos, sin);
    for (std::int64_t c = 0; c < a.v.cols; ++c) store(a.kv.v, row, c, load(a.v, t, c));
  }
}

void reference::join_kv(Stream& s, const JoinKv& a) {
  check_join_kv(a);
  for (const JoinKv::Layer& l : a.layers) qk_norm_rope(s, keys_alone(a, l));
}

void reference::vision_rope(Stream&, Rows qkv, int heads, std::span<const float> cos,
                            std::span<const float> sin) {
  check_vision_rope(qkv, heads, cos, sin);
  const std::int64_t E = qkv.cols / 3 / heads, half = E / 2;
  for (std::int64_t t = 0; t < qkv.rows; ++t)
    for (std::int64_t head = 0; head < 2 * heads; ++head)  // those of q, then those of k
      for (std::int64_t i = 0; i < half; ++i) {
        const std::int64_t first = head * E + i, second = first + half;
        const double a = load(qkv, t, first), b = load(qkv, t, second);
        const double c = cos[t * half + i], s = sin[t * half + i];
        store(qkv, t, first, a * c - b * s);
        store(qkv, t, second, b * c + a * s);
      }
}

}  // namespace quire
