// CUDA devices: whether there is one, and what it is. A build without CUDA has no_cuda.cpp, and says that
// there is none. Memory, copies and operations: backend.h.
#pragma once

#include <cstddef>
#include <string>

namespace quire::cuda {

struct DeviceFacts {
  std::string name;
  int compute_capability = 0;  // 10 * major + minor: 90 for Hopper
  int multiprocessors = 0;
  std::size_t memory_bytes = 0;
  std::size_t free_bytes = 0;
  std::size_t l2_bytes = 0;
};

// How many devices Quire can run on. 0 without a driver, and in a build without CUDA.
int device_count();
// Throws Error{not_found} for an index that is not below device_count().
DeviceFacts device_facts(int device);

}  // namespace quire::cuda
