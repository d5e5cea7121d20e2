// The vectorised tables, one for each instruction set that was compiled.
#pragma once

#include <span>

#include "ops/ops.h"

namespace quire {

// Those this CPU can run, the fastest first; empty on a machine without AVX2.
std::span<const Ops* const> cpu_tables();

namespace avx2 {
extern const Ops kOps;
}
namespace avx512 {
extern const Ops kOps;
}

}  // namespace quire
