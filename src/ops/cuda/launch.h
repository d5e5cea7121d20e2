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

// How many blocks of how many threads, with how much dynamic shared memory.
struct Grid {
  dim3 blocks{1};
  unsigned threads = 0;
  std::size_t shared = 0;
  unsigned cluster = 1;  // blocks of a cluster, along x
  bool alone = false;    // starts when everything before it is complete: the first kernel of a step
};

// Launches a kernel that keeps the rule of wait_for_predecessor() (common.cuh). With dependent launch it may start beside
// the tail of the kernel before, and hides its own start so.
template <typename... Parameters, typename... Arguments>
void launch(Stream& s, const char* op, const Grid& grid, void (*kernel)(Parameters...), Arguments... arguments) {
  if (grid.shared > 48 * 1024) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared)), op);
  }
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(grid.threads);
  config.dynamicSmemBytes = grid.shared;
  config.stream = handle(s);
  config.attrs = attributes;
  if (s.dependent_launch && !grid.alone) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    a.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    cudaLaunchAttribute& a = attributes[config.numAttrs++];
    a.id = cudaLaunchAttributeClusterDimension;
    a.val.clusterDim.x = grid.cluster;
    a.val.clusterDim.y = a.val.clusterDim.z = 1;
  }
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...), op);
  ++s.counts.kernels;
}

inline unsigned blocks(std::int64_t n, std::int64_t per_block) {
  return static_cast<unsigned>((n + per_block - 1) / per_block);
}

}  // namespace quire::cuda
