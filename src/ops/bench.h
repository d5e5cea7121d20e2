// What the benchmarks of the operations share. Each measures the vectorised tables of this CPU on all its
// cores; the reference is a specification and has no speed. FLOP and bytes are the least that any algorithm
// known here needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/thread_pool.h"
#include "ops/cpu/table.h"
#include "ops/matrix.h"
#include "ops/ops.h"

namespace quire {

// Of one call.
struct Work {
  double flop = 0;
  double bytes = 0;
};

// Times body(i), i = 0, 1, 2, ..., and reports microseconds, GFLOP/s and GB/s.
template <typename Body>
void measure(benchmark::State& state, Work work, Body body) {
  std::int64_t i = 0;
  for (auto _ : state) {
    body(i++);
    benchmark::ClobberMemory();
  }
  using benchmark::Counter;
  state.counters["GFLOP/s"] = Counter(work.flop * 1e-9, Counter::kIsIterationInvariantRate);
  state.counters["GB/s"] = Counter(work.bytes * 1e-9, Counter::kIsIterationInvariantRate);
}

// Registers run(state, ops, stream) as "<operation>/<table>/<what>" for each table.
template <typename Run>
void register_for_tables(const std::string& operation, const std::string& what, Run run) {
  for (const Ops* ops : cpu_tables())
    benchmark::RegisterBenchmark((operation + "/" + ops->name + "/" + what).c_str(),
                                 [ops, run](benchmark::State& state) {
                                   ThreadPool pool;
                                   Stream stream{&pool, {}};
                                   run(state, *ops, stream);
                                 })
        ->Unit(benchmark::kMicrosecond)
        ->UseRealTime();
}

}  // namespace quire
