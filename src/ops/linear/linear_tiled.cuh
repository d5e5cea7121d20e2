// `linear` for many tokens: tiles of weight rows by tokens, both operands in shared memory. Where there are
// too few tiles for the multiprocessors, blocks share the parts of a tile through scratch memory.
#pragma once

#include "ops/linear/linear_mma.cuh"

namespace quire::cuda {

// A warp has 16 kM weight rows by 8 kN tokens; a block kAcross warps along weight rows, kDown along tokens.
template <int kM_, int kN_, int kAcross_, int kDown_, int kBlocks_>
struct Tile {
  static constexpr int kM = kM_, kN = kN_, kAcross = kAcross_, kDown = kDown_;
  static constexpr int kBlocks = kBlocks_;  // on a multiprocessor
  static constexpr int kRows = 16 * kM * kAcross, kTokens = 8 * kN * kDown;
};
using SmallTile = Tile<2, 4, 4, 2, 2>;  // 128 x 64
using LargeTile = Tile<4, 4, 2, 4, 1>;  // 128 x 128

constexpr int kTiledThreads = 256, kTiledStages = 4;

// The sums of each part, [parts, T, N]; `per_block` parts to a block.
struct Parts {
  float* data;
  int per_block;
};

// store(row, token, sum) for the sums of a warp whose first row and token are given.
template <int kM, int kN, typename Store>
__device__ inline void for_warp_sums(int lane, std::int64_t row, std::int64_t token,
                                     const float (&sums)[kM][kN][4], Store store) {
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int n = 0; n < kN; ++n) for_sums(lane, row + 16 * m, token + 8 * n, sums[m][n], store);
}

// kSplit: parts go to scratch memory one by one, for add_parts_kernel; else to `out`, added up.
template <typename Shape, bool kAligned, bool kSplit>
__global__ void __launch_bounds__(kTiledThreads, Shape::kBlocks)
    tiled_kernel(Product a, Output out, Parts parts) {
  constexpr int kM = Shape::kM, kN = Shape::kN, kRows = Shape::kRows, kTokens = Shape::kTokens;
  static_assert(Shape::kAcross * Shape::kDown * 32 == kTiledThreads);
  // A stage: rows of 32 columns, 64 bytes; the 8 lanes that read at once read 128 bytes in a row.
  constexpr int kQuads = kTiledThreads / 4, kFetches = (kRows + kTokens) / kQuads,
                kStage = (kRows + kTokens) * 4;
  static_assert(kRows % kQuads == 0 && kTokens % kQuads == 0);
  extern __shared__ uint4 shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const std::int64_t row0 = std::int64_t{blockIdx.y} * kRows, token0 = std::int64_t{blockIdx.x} * kTokens;

  Source from[kFetches];
#pragma unroll
  for (int i = 0; i < kFetches; ++i) {
    const int line = i * kQuads + threadIdx.x / 4;
    from[i] = i * kQuads < kRows ? weight_row(a, row0 + line) : token_row(a, token0 + line - kRows);
  }

  int part = blockIdx.z * parts.per_block;
  const int begin = part * a.part;
  const int end = static_cast<int>(min(std::int64_t{a.K}, begin + std::int64_t{parts.per_block} * a.part));
  const int steps = blocks_of(end - begin, kStep);
  const auto fetch_step = [&](int step) {
    if (step < steps) {
      uint4* to = shared + step % kTiledStages * kStage + threadIdx.x;
#pragma unroll
      for (int i = 0; i < kFetches; ++i)
        fetch<kAligned>(to + i * kTiledThreads, from[i], begin + step * kStep + 8 * (threadIdx.x % 4), a.K);
    }
    commit_fetches();
  };

  const int warp_row = warp % Shape::kAcross * (16 * kM), warp_token = warp / Shape::kAcross * (8 * kN);
  float sums[kM][kN][4] = {}, totals[kM][kN][4] = {};
  for (int step = 0; step < kTiledStages - 1; ++step) fetch_step(step);
  int left = a.part / kStep;  // steps of this part
  for (int step = 0; step < steps; ++step) {
    wait_for_fetches<kTiledStages - 2>();
    __syncthreads();  // the step is there for all; all have read the one before
    fetch_step(step + kTiledStages - 1);
    const uint4* w = shared + step % kTiledStages * kStage + (warp_row + g) * 4 + q;
    const uint4* x = shared + step % kTiledStages * kStage + (kRows + warp_token + g) * 4 + q;
    uint4 tokens[kN];
#pragma unroll
    for (int n = 0; n < kN; ++n) tokens[n] = x[8 * n * 4];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const uint4 upper = w[16 * m * 4], lower = w[(16 * m + 8) * 4];
#pragma unroll
      for (int n = 0; n < kN; ++n) multiply_add(sums[m][n], upper, lower, tokens[n]);
    }

    if (--left > 0 && step + 1 < steps) continue;
    if constexpr (kSplit) {
      for_warp_sums(lane, row0 + warp_row, token0 + warp_token, sums,
                    [&](std::int64_t row, std::int64_t token, float sum) {
                      if (row < a.N && token < a.T) parts.data[(part * a.T + token) * a.N + row] = sum;
                    });
    }
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          if constexpr (!kSplit) add_part(totals[m][n][i], sums[m][n][i]);
          sums[m][n][i] = 0;
        }
    left = a.part / kStep;
    ++part;
  }
  if constexpr (!kSplit) {
    for_warp_sums(lane, row0 + warp_row, token0 + warp_token, totals,
                  [&](std::int64_t row, std::int64_t token, float sum) { out.store(row, token, sum); });
  }
}

// A thread adds the parts of one output.
static __global__ void __launch_bounds__(256) add_parts_kernel(const float* data, int parts, Output out) {
  const std::int64_t plane = out.T * out.N, i = std::int64_t{blockIdx.x} * 256 + threadIdx.x;
  if (i >= plane) return;
  float total = 0;
  for (int p = 0; p < parts; ++p) add_part(total, data[p * plane + i]);
  out.store(i % out.N, i / out.N, total);
}

template <typename Shape>
void launch_tiled(Stream& s, const Product& a, const Output& out, bool aligned) {
  constexpr int kBytes = kTiledStages * (Shape::kRows + Shape::kTokens) * 64;
  constexpr std::int64_t kMultiprocessors = 132;  // of an H200; elsewhere a guess that costs no bits
  dim3 grid(blocks(a.T, Shape::kTokens), blocks(a.N, Shape::kRows));
  const int count = blocks_of(a.K, a.part);
  const std::int64_t room = kMultiprocessors / (std::int64_t{grid.x} * grid.y);  // blocks to a tile
  const std::size_t scratch = static_cast<std::size_t>(count * a.T * a.N) * sizeof(float);
  const bool split = count > 1 && room > 1 && scratch <= s.cuda_scratch_bytes;

  Parts parts = {.data = split ? static_cast<float*>(s.cuda_scratch) : nullptr, .per_block = count};
  if (split) {
    parts.per_block = room < count ? blocks_of(count, static_cast<int>(room)) : 1;
    grid.z = static_cast<unsigned>(blocks_of(count, parts.per_block));
  }
  const auto kernel = split
                          ? (aligned ? tiled_kernel<Shape, true, true> : tiled_kernel<Shape, false, true>)
                          : (aligned ? tiled_kernel<Shape, true, false> : tiled_kernel<Shape, false, false>);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes), "linear");
  kernel<<<grid, kTiledThreads, kBytes, handle(s)>>>(a, out, parts);
  check_launch("linear");
  if (!split) return;
  add_parts_kernel<<<blocks(a.T * a.N, 256), 256, 0, handle(s)>>>(parts.data, count, out);
  check_launch("linear: adding parts");
}

}  // namespace quire::cuda
