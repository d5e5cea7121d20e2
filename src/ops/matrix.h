// Matrices of random values that own their memory, for tests and benchmarks.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <span>
#include <vector>

#include "core/error.h"
#include "ops/element.h"
#include "ops/ops.h"

namespace quire {

// splitmix64: the same numbers on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  double uniform() {  // in (0, 1)
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (static_cast<double>((z ^ (z >> 31)) >> 12) + 0.5) * 0x1p-52;
  }
  float uniform(double low, double high) { return static_cast<float>(low + (high - low) * uniform()); }
  float normal() {
    const double radius = std::sqrt(-2 * std::log(uniform()));
    return static_cast<float>(radius * std::cos(2 * std::numbers::pi * uniform()));
  }

 private:
  std::uint64_t state_;
};

inline std::vector<float> normals(Random& random, std::int64_t n, float scale = 1) {
  std::vector<float> x(static_cast<std::size_t>(n));
  for (float& v : x) v = scale * random.normal();
  return x;
}

// Rows that own their memory, exactly as much as they need, so that AddressSanitizer sees a read past the
// end. Elements start as NaN, and so does the padding between rows: whoever reads it is found out.
class Matrix {
 public:
  Matrix(Format format, std::int64_t rows, std::int64_t cols, std::int64_t padding = 3) {
    view_ = {.format = format, .rows = rows, .cols = cols, .stride = cols + padding};
    const std::int64_t elements = rows == 0 || cols == 0 ? 0 : (rows - 1) * view_.stride + cols;
    memory_.assign(static_cast<std::size_t>(elements * size_of(format)), kFill);
    view_.data = memory_.data();
  }
  Matrix(const Matrix& other) : memory_(other.memory_), view_(other.view_) { view_.data = memory_.data(); }
  Matrix(Matrix&&) = default;
  Matrix& operator=(const Matrix&) = delete;

  operator Rows() const { return view_; }
  Weight weight() const {
    QUIRE_CHECK(view_.stride == view_.cols, "a weight has no padding");
    return {.data = view_.data, .format = view_.format, .out = view_.rows, .in = view_.cols};
  }
  std::int64_t rows() const { return view_.rows; }
  std::int64_t cols() const { return view_.cols; }
  Format format() const { return view_.format; }

  float get(std::int64_t row, std::int64_t col) const { return load(view_, row, col); }
  void set(std::int64_t row, std::int64_t col, float value) { store(view_, row, col, value); }

  bool padding_untouched() const {
    const std::int64_t size = size_of(view_.format);
    for (std::int64_t r = 0; r + 1 < view_.rows; ++r)
      for (std::int64_t i = (r * view_.stride + view_.cols) * size; i < (r + 1) * view_.stride * size; ++i)
        if (!memory_.empty() && memory_[i] != kFill) return false;
    return true;
  }

 private:
  static constexpr std::byte kFill{0xff};
  std::vector<std::byte> memory_;
  Rows view_;
};

inline Matrix matrix(Format format, std::int64_t rows, std::int64_t cols, std::span<const float> values,
                     std::int64_t padding = 3) {
  Matrix m(format, rows, cols, padding);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < cols; ++c) m.set(r, c, values[r * cols + c]);
  return m;
}
inline Matrix matrix(Format format, std::int64_t rows, std::int64_t cols,
                     std::initializer_list<float> values) {
  return matrix(format, rows, cols, std::span(values.begin(), values.size()));
}
inline Matrix random_matrix(Random& random, Format format, std::int64_t rows, std::int64_t cols,
                            float scale = 1, std::int64_t padding = 3) {
  return matrix(format, rows, cols, normals(random, rows * cols, scale), padding);
}

}  // namespace quire
