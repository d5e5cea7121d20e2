// A named, contiguous, read-only tensor as a checkpoint stores it. A view: it owns nothing and computes
// nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace quire {

struct Tensor {
  const std::byte* data = nullptr;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // row-major, outermost first

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (std::int64_t d : shape) n *= d;
    return n;
  }
};

// "[4096, 256]"
std::string shape_string(const std::vector<std::int64_t>& shape);

}  // namespace quire
