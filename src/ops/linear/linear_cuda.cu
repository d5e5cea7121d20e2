// y = x W^T + bias
// x [T, K] bf16, W [N, K] bf16, y [T, N] bf16 or f32: tensor cores. f32 in x or W: plain, for comparisons.
// Bytes: W once, 2 N K, the wall up to some 128 rows; FLOP: 2 T N K, the wall above.
// Plan: weights are the M operand of m16n8k16, tokens the N operand. Up to 32 tokens a block has 16 or 32
// weight rows and a warp for each part of K, which streams weights and tokens through slots of its own
// (window_kernel). Above, tiles of 128 weight rows and 64 or 128 tokens in shared memory (tiled_kernel,
// linear_tiled.cuh). Precision: bf16 products, f32 sums. The order of summation is a function of K alone: see
// part_columns.
#include <algorithm>

#include "ops/cuda/entries.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_tiled.cuh"

namespace quire::cuda {
namespace {

// --- up to 32 tokens -------------------------------------------------------------------------------------

// A block: 16 kM weight rows, all tokens (at most 8 kN), all of K; warp p sums part p. A lane's slots in
// shared memory are written and read by that lane only, so that warps meet once, to add up the parts.
template <int kM, int kN, int kStages, int kBlocks, bool kAligned>
__global__ void __launch_bounds__(32 * kMostParts, kBlocks) window_kernel(Product a, Output out) {
  constexpr int kFetches = 2 * kM + kN, kWarpSlots = kStages * kFetches * 32;
  static_assert(kM * kN <= kStages * kFetches, "a warp's sums take the place of its slots");
  extern __shared__ uint4 shared[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const std::int64_t row0 = std::int64_t{blockIdx.x} * (16 * kM);
  uint4* slots = shared + warp * kWarpSlots + lane;

  Source from[kFetches];
#pragma unroll
  for (int i = 0; i < 2 * kM; ++i) from[i] = weight_row(a, row0 + 8 * i + g);
#pragma unroll
  for (int i = 0; i < kN; ++i) from[2 * kM + i] = token_row(a, 8 * i + g);

  const int begin = warp * a.part, steps = blocks_of(min(a.part, a.K - begin), kStep);
  const auto fetch_step = [&](int step) {
    if (step < steps) {
      uint4* to = slots + step % kStages * (kFetches * 32);
#pragma unroll
      for (int i = 0; i < kFetches; ++i)
        fetch<kAligned>(to + i * 32, from[i], begin + step * kStep + 8 * q, a.K);
    }
    commit_fetches();
  };

  float sums[kM][kN][4] = {};
  for (int step = 0; step < kStages - 1; ++step) fetch_step(step);
  for (int step = 0; step < steps; ++step) {
    wait_for_fetches<kStages - 2>();
    const uint4* slot = slots + step % kStages * (kFetches * 32);
    uint4 x[kN];
#pragma unroll
    for (int n = 0; n < kN; ++n) x[n] = slot[(2 * kM + n) * 32];
#pragma unroll
    for (int m = 0; m < kM; ++m) {
      const uint4 upper = slot[2 * m * 32], lower = slot[(2 * m + 1) * 32];
#pragma unroll
      for (int n = 0; n < kN; ++n) multiply_add(sums[m][n], upper, lower, x[n]);
    }
    fetch_step(step + kStages - 1);  // into the slots of the step before
  }

  float4* parts = reinterpret_cast<float4*>(shared);
#pragma unroll
  for (int i = 0; i < kM * kN; ++i) {
    const float* s = sums[i / kN][i % kN];
    parts[warp * kWarpSlots + i * 32 + lane] = {s[0], s[1], s[2], s[3]};
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kM * kN * 32; i += blockDim.x) {
    float total[4] = {};
    for (int p = 0; p < static_cast<int>(blockDim.x / 32); ++p) {
      const float4 s = parts[p * kWarpSlots + i];
      add_part(total[0], s.x), add_part(total[1], s.y), add_part(total[2], s.z), add_part(total[3], s.w);
    }
    const int tile = i / 32;
    for_sums(i % 32, row0 + 16 * (tile / kN), 8 * (tile % kN), total,
             [&](std::int64_t row, std::int64_t token, float sum) { out.store(row, token, sum); });
  }
}

template <int kM, int kN, int kStages, int kBlocks>
void launch_window(Stream& s, const Product& a, const Output& out, bool aligned) {
  const int parts = blocks_of(a.K, a.part);
  const int bytes = parts * kStages * (2 * kM + kN) * 512;
  const auto kernel = aligned ? window_kernel<kM, kN, kStages, kBlocks, true>
                              : window_kernel<kM, kN, kStages, kBlocks, false>;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "linear");
  kernel<<<blocks(a.N, 16 * kM), 32 * parts, bytes, handle(s)>>>(a, out);
  check_launch("linear");
}

// --- f32 -------------------------------------------------------------------------------------------------

constexpr int kPlainTile = 32;

// A block: 32 weight rows, 32 tokens; a thread: 2 of each. Every sum runs over K in order.
template <typename X, typename W>
__global__ void __launch_bounds__(256)
    plain_kernel(Matrix<const X> x, const W* w, std::int64_t K, Output out) {
  __shared__ float xs[kPlainTile][kPlainTile + 1], ws[kPlainTile][kPlainTile + 1];
  const std::int64_t row0 = std::int64_t{blockIdx.y} * kPlainTile,
                     token0 = std::int64_t{blockIdx.x} * kPlainTile;
  const int column = threadIdx.x % 32, line = threadIdx.x / 32;  // of a load
  const int i = threadIdx.x % 16, j = threadIdx.x / 16;          // of a sum
  float sums[2][2] = {};
  for (std::int64_t k0 = 0; k0 < K; k0 += kPlainTile) {
    const std::int64_t k = k0 + column;
    for (int r = line; r < kPlainTile; r += 8) {
      ws[r][column] = k < K && row0 + r < out.N ? to_f32(w[(row0 + r) * K + k]) : 0.0f;
      xs[r][column] = k < K && token0 + r < out.T ? to_f32(x.row(token0 + r)[k]) : 0.0f;
    }
    __syncthreads();
    for (int c = 0; c < kPlainTile; ++c) {
#pragma unroll
      for (int m = 0; m < 2; ++m)
#pragma unroll
        for (int n = 0; n < 2; ++n) sums[m][n] = __fmaf_rn(xs[j + 16 * n][c], ws[i + 16 * m][c], sums[m][n]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 2; ++n) out.store(row0 + i + 16 * m, token0 + j + 16 * n, sums[m][n]);
}

template <typename X, typename W>
void launch_plain(Stream& s, const Rows& x, const Weight& w, const Output& out) {
  const dim3 grid(blocks(out.T, kPlainTile), blocks(out.N, kPlainTile));
  plain_kernel<X, W>
      <<<grid, 256, 0, handle(s)>>>(matrix<const X>(x), static_cast<const W*>(w.data), w.in, out);
  check_launch("linear");
}

// --- which kernel ----------------------------------------------------------------------------------------

// Every choice here is one of speed: all kernels for bf16 give the same bits.
void multiply(Stream& s, const Product& a, const Output& out) {
  const auto at_16_bytes = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const bool aligned =
      at_16_bytes(a.w) && at_16_bytes(a.x) && a.K % 8 == 0 && (a.x_stride % 8 == 0 || a.T == 1);
  if (a.T <= 8) {
    launch_window<1, 1, 4, 2>(s, a, out, aligned);
  } else if (a.T <= 16) {
    launch_window<1, 2, 3, 2>(s, a, out, aligned);
  } else if (a.T <= 32) {
    launch_window<2, 4, 3, 1>(s, a, out, aligned);
  } else if (a.T <= 64) {
    launch_tiled<SmallTile>(s, a, out, aligned);
  } else {
    launch_tiled<LargeTile>(s, a, out, aligned);
  }
}

}  // namespace

void linear(Stream& s, Rows x, const Weight& w, std::span<const float> bias, Rows y) {
  check_linear(x, w, bias, y);
  if (x.rows == 0) return;
  const Output out = {.y = y.data,
                      .bf16 = y.format == Format::bf16,
                      .y_stride = y.stride,
                      .bias = bias.empty() ? nullptr : bias.data(),
                      .N = w.out,
                      .T = x.rows};
  if (x.format == Format::bf16 && w.format == Format::bf16) {
    const Product a = {.w = static_cast<const bfloat*>(w.data),
                       .x = static_cast<const bfloat*>(x.data),
                       .x_stride = x.stride,
                       .N = w.out,
                       .T = x.rows,
                       .K = static_cast<int>(w.in),
                       .part = part_columns(w.in)};
    return multiply(s, a, out);
  }
  with_type(x.format, [&](auto tx) {
    with_type(w.format, [&](auto tw) {
      using X = decltype(tx);
      using W = decltype(tw);
      if constexpr (sizeof(X) + sizeof(W) > 4) launch_plain<X, W>(s, x, w, out);
    });
  });
}

}  // namespace quire::cuda
