// The dimensions of published models, for measuring without their weights.
#pragma once

#include <string_view>

#include "model/config.h"

namespace quire {

// "qwen3.5-0.8b", "-2b", "-4b", "-9b" or "-27b". Throws Error{not_found} that lists them.
ModelConfig published_shape(std::string_view name);

}  // namespace quire
