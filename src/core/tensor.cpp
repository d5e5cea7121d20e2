#include "core/tensor.h"

#include <fmt/format.h>

namespace quire {

std::string shape_string(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace quire
