#include "ops/check.h"

#include "core/error.h"

namespace quire {

void check_rows(const char* op, const char* name, const Rows& r, std::int64_t rows, std::int64_t cols,
                Format format) {
  QUIRE_CHECK(r.rows == rows && r.cols == cols, "{}: {} is [{}, {}], expected [{}, {}]", op, name, r.rows,
              r.cols, rows, cols);
  QUIRE_CHECK(rows >= 0 && cols >= 0, "{}: {} is [{}, {}], expected no negative size", op, name, rows, cols);
  QUIRE_CHECK(r.format == format, "{}: {} has {} bytes an element, expected {}", op, name, size_of(r.format),
              size_of(format));
  QUIRE_CHECK(r.stride >= cols, "{}: {} has stride {}, expected at least its {} columns", op, name, r.stride,
              cols);
  QUIRE_CHECK(r.data != nullptr || rows == 0 || cols == 0, "{}: {} [{}, {}] has no memory", op, name, rows,
              cols);
  QUIRE_CHECK(r.scales == nullptr, "{}: {} has scales, which bf16 and f32 do not use", op, name);
}

void check_weight(const char* op, const char* name, const Weight& w) {
  QUIRE_CHECK(w.out > 0 && w.in > 0, "{}: {} is [{}, {}], expected positive sizes", op, name, w.out, w.in);
  QUIRE_CHECK(w.data != nullptr, "{}: {} [{}, {}] has no memory", op, name, w.out, w.in);
  QUIRE_CHECK(w.scales == nullptr && w.row_scale == nullptr,
              "{}: {} has scales, which bf16 and f32 do not use", op, name);
}

void check_size(const char* op, const char* name, std::size_t size, std::int64_t expected) {
  QUIRE_CHECK(static_cast<std::int64_t>(size) == expected, "{}: {} has {} elements, expected {}", op, name,
              size, expected);
}

}  // namespace quire
