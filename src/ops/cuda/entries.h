// What the <op>_cuda.cu files define.
#pragma once

#include "ops/ops.h"

namespace quire::cuda {

#include "ops/entries.inc"

}  // namespace quire::cuda
