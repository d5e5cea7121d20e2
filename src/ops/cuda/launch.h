// Launching kernels: the stream, errors, grids. Included by .cu files only; no fmt here, nvcc compiles it
// slowly.
#pragma once

#include <cstdint>
#include <string>

#include <cuda_runtime.h>

#include "ops/ops.h"
#include "quire/quire.h"

namespace quire::cuda {

inline cudaStream_t handle(const Stream& s) {
  return static_cast<cudaStream_t>(s.cuda_stream);
}

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw Error(ErrorCode::device, std::string(what) + ": " + cudaGetErrorString(status));
  }
}
// After <<<>>>: what the launch itself refused. What goes wrong inside is seen by synchronize().
inline void check_launch(const char* op) {
  check(cudaGetLastError(), op);
}

inline unsigned blocks(std::int64_t n, std::int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

}  // namespace quire::cuda
