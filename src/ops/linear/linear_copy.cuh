// Between memories, for `linear`: the copy engine of Hopper and its barriers, operands in shared memory, clusters.
#pragma once

#include <cuda.h>

#include "ops/cuda/wgmma.cuh"
#include "ops/linear/linear_mma.cuh"

namespace quire::cuda {

// --- barriers in shared memory ---------------------------------------------------------------------------------------

constexpr int kHeaderBytes = 1024;  // where they are: before everything else

// Arrives, and lets the phase wait for so many bytes of copies.
__device__ inline void arrive_for_bytes(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Holds in one lane of a warp.
__device__ inline bool elect_lane() {
  unsigned elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected;
}
// The first `threads` threads of the block wait for each other.
__device__ inline void wait_for_warps(int threads) {
  asm volatile("bar.sync 1, %0;" ::"r"(threads) : "memory");
}

// --- boxes -----------------------------------------------------------------------------------------------------------

struct Maps {
  CUtensorMap weights[kMostProjections], tokens;
};

// The copy engine will need it.
__device__ inline void fetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// The box of a matrix from (row, column) on, with zeros for what it does not have; its bytes count for the barrier.
__device__ inline void copy_box(unsigned to, const CUtensorMap* from, int column, int row, unsigned barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          to),
      "l"(from), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// Four 8 x 8 matrices; lane i has the address of row i % 8 of matrix i / 8.
__device__ inline Fragment load_fragment(unsigned address) {
  Fragment f;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])
               : "r"(address)
               : "memory");
  return f;
}

// --- clusters --------------------------------------------------------------------------------------------------------

// All threads of the cluster have come here, and see what the others wrote before.
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same, without seeing anything.
__device__ inline void leave_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
// What stands at `p`, an address of this block's shared memory, in block `rank` of the cluster.
__device__ inline float4 load_from(const float4* p, int rank) {
  float4 v;
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "r"(static_cast<unsigned>(__cvta_generic_to_shared(p))), "r"(rank)
      : "memory");
  return v;
}

}  // namespace quire::cuda
