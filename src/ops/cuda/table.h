// The table of operations on CUDA, assembled in table_cuda.cu; use backend/cuda.h to get it.
#pragma once

#include "ops/ops.h"

namespace quire::cuda {

extern const Ops kOps;

}  // namespace quire::cuda
