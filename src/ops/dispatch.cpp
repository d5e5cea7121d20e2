#include <vector>

#include "ops/cpu/table.h"

namespace quire {

std::span<const Ops* const> cpu_tables() {
  static const std::vector<const Ops*> tables = [] {
    std::vector<const Ops*> t;
#if defined(QUIRE_X86)
    if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni")) {
      t.push_back(&avx512::kOps);
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) t.push_back(&avx2::kOps);
#endif
    return t;
  }();
  return tables;
}

const Ops& cpu_ops() {
  return cpu_tables().empty() ? reference_ops() : *cpu_tables().front();
}

}  // namespace quire
