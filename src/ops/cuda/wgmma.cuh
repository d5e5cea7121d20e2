// Products by warpgroups (wgmma: Hopper): barriers in shared memory, how operands lie there, instructions. m64nNk16
// gives the bits of m16n8k16 (mma.cuh): wgmma_test.cu in ops/linear, wgmma_rows_test.cu.
#pragma once

#include <cstdint>

#include "ops/cuda/common.cuh"

namespace quire::cuda {

// --- barriers in shared memory ---------------------------------------------------------------------------------------

__device__ inline void init_barrier(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialised barriers known to the copy engine.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ inline void arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline bool has_ended(unsigned barrier, unsigned parity) {
  unsigned ended;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(ended)
               : "r"(barrier), "r"(parity)
               : "memory");
  return ended;
}
// Until the phase of that parity has ended.
__device__ inline void wait_for(unsigned barrier, unsigned parity) {
  while (!has_ended(barrier, parity)) {
  }
}
// Arrives when what this thread has copied in the background so far is there.
__device__ inline void arrive_when_copied(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

// A place in a ring.
struct Turn {
  int slot = 0;
  unsigned parity = 0;

  __device__ void next(int depth) {
    if (++slot == depth) slot = 0, parity ^= 1;
  }
};

// --- operands --------------------------------------------------------------------------------------------------------

// A box: rows of 64 columns, 128 bytes, in pieces of 16. So that eight rows at one piece lie in different banks, piece p
// of row r stands at place p ^ r % 8.
constexpr int kBoxColumns = 64, kBoxRowBytes = 128, kPieceBytes = 16;
__device__ inline unsigned place_of(int row, int piece) {
  return (piece ^ row % 8) * kPieceBytes;
}
// What was written to shared memory, as far as this thread knows, is what the next products read.
__device__ inline void show_products() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// --- instructions ----------------------------------------------------------------------------------------------------

// Describes rows of a box to wgmma, from a multiple of eight rows and 16 columns on: 128-byte swizzle, eight rows every
// 1024 bytes; where an operand takes several boxes, the next is `apart` bytes further. All in units of 16 bytes.
__device__ inline std::uint64_t operand_at(unsigned address, unsigned apart = 16) {
  return (address & 0x3ffff) >> 4 | std::uint64_t{apart >> 4} << 16 | std::uint64_t{1024 >> 4} << 32 |
         std::uint64_t{1} << 62;
}

#define QUIRE_FLOATS(i)                                                                                               \
  "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3]), "+f"(sums[i + 4]), "+f"(sums[i + 5]),       \
      "+f"(sums[i + 6]), "+f"(sums[i + 7]), "+f"(sums[i + 8]), "+f"(sums[i + 9]), "+f"(sums[i + 10]),                 \
      "+f"(sums[i + 11]), "+f"(sums[i + 12]), "+f"(sums[i + 13]), "+f"(sums[i + 14]), "+f"(sums[i + 15])
#define QUIRE_64_NAMES                                                                                                \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "    \
  "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "    \
  "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define QUIRE_80_NAMES                                                                                                \
  QUIRE_64_NAMES ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define QUIRE_96_NAMES                                                                                                \
  QUIRE_80_NAMES ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define QUIRE_WGMMA(shape, names, operands, flag)                                                                     \
  "{\n.reg .pred adds;\nsetp.ne.u32 adds, " flag ", 0;\nwgmma.mma_async.sync.aligned." shape ".f32.bf16.bf16 {" names  \
  "}, " operands ";\n}"

// 64 rows of `tokens` by kN rows of `weights`, 16 columns, in the background. A lane has of rows lane / 4 and
// lane / 4 + 8 of its warp's 16 columns 2 (lane % 4) and the next of each eight: sums[4 j ..] of the eight j. Unless it
// `adds`, what stood in the sums is of no consequence.
template <int kN>
__device__ inline void multiply_add(float (&sums)[kN / 2], std::uint64_t tokens, std::uint64_t weights,
                                    unsigned adds = 1) {
  static_assert(kN == 128 || kN == 160 || kN == 192);
  if constexpr (kN == 128) {
    asm volatile(QUIRE_WGMMA("m64n128k16", QUIRE_64_NAMES, "%64, %65, adds, 1, 1, 0, 0", "%66")
                 : QUIRE_FLOATS(0), QUIRE_FLOATS(16), QUIRE_FLOATS(32), QUIRE_FLOATS(48)
                 : "l"(tokens), "l"(weights), "r"(adds));
  } else if constexpr (kN == 160) {
    asm volatile(QUIRE_WGMMA("m64n160k16", QUIRE_80_NAMES, "%80, %81, adds, 1, 1, 0, 0", "%82")
                 : QUIRE_FLOATS(0), QUIRE_FLOATS(16), QUIRE_FLOATS(32), QUIRE_FLOATS(48), QUIRE_FLOATS(64)
                 : "l"(tokens), "l"(weights), "r"(adds));
  } else {
    asm volatile(QUIRE_WGMMA("m64n192k16", QUIRE_96_NAMES, "%96, %97, adds, 1, 1, 0, 0", "%98")
                 : QUIRE_FLOATS(0), QUIRE_FLOATS(16), QUIRE_FLOATS(32), QUIRE_FLOATS(48), QUIRE_FLOATS(64),
                   QUIRE_FLOATS(80)
                 : "l"(tokens), "l"(weights), "r"(adds));
  }
}

// 64 rows by 128 columns, 16 of depth: on the left each warp has its 16 rows in registers, as in mma.cuh; on the right
// a row of a box is 64 columns at one depth.
__device__ inline void multiply_add_rows(float (&sums)[64], const std::uint32_t (&left)[4], std::uint64_t right) {
  asm volatile(QUIRE_WGMMA("m64n128k16", QUIRE_64_NAMES, "{%64, %65, %66, %67}, %68, adds, 1, 1, 1", "1")
               : QUIRE_FLOATS(0), QUIRE_FLOATS(16), QUIRE_FLOATS(32), QUIRE_FLOATS(48)
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right));
}

#undef QUIRE_FLOATS
#undef QUIRE_64_NAMES
#undef QUIRE_80_NAMES
#undef QUIRE_96_NAMES
#undef QUIRE_WGMMA

// Registers and shared memory as written so far are what the next products see.
__device__ inline void open_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
// Ends a group of products.
__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until all groups but the last kGroups are there.
template <int kGroups>
__device__ inline void wait_for_products_but() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kGroups) : "memory");
}
// Keeps the compiler from moving what touches the sums across this place.
template <int kCount>
__device__ inline void hold(float (&sums)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}
// What a product reads has to stay as long.
__device__ inline void hold(std::uint32_t (&left)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) asm volatile("" : "+r"(left[i])::"memory");
}

// The threads of this warpgroup get more, or fewer, registers.
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void leave_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace quire::cuda
