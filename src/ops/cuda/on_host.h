// The CUDA table for operands in host memory: each call copies them to the device, runs the operation and
// copies all of them back. For tests, which then run on CUDA as they are.
#pragma once

#include "ops/ops.h"

namespace quire::cuda {

// nullptr when there is no device.
const Ops* ops_on_host();

}  // namespace quire::cuda
