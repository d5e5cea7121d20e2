// Every backend of this machine, and the CPU with each of its tables.
#pragma once

#include <string>
#include <vector>

#include "backend/backend.h"
#include "ops/cpu/table.h"

namespace quire {

inline const std::vector<Backend>& backends() {
  static const std::vector<Backend> all = [] {
    std::vector<Backend> b = {cpu_backend(reference_ops())};
    for (const Ops* ops : cpu_tables()) b.push_back(cpu_backend(*ops));
    if (const Backend* cuda = cuda_backend()) b.push_back(*cuda);
    return b;
  }();
  return all;
}

// The CPU with its fastest table, and the GPU.
inline std::vector<const Backend*> main_backends() {
  std::vector<const Backend*> b = {&cpu_backend()};
  if (const Backend* cuda = cuda_backend()) b.push_back(cuda);
  return b;
}

// Which of the two, for the names of tests.
inline std::string processor(const Backend& backend) {
  return backend.host_memory ? "cpu" : "cuda";
}

}  // namespace quire
