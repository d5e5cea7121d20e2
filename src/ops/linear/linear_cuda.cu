// y = x W^T + bias, for one weight or for several that meet the same x, or swiglu of two of them
// x [T, K] bf16, W [N, K] bf16, y [T, N] bf16 or f32: tensor cores. f32 in x or W: plain, for comparisons.
// Bytes: W once, 2 N K, the wall up to some 128 rows; FLOP: 2 T N K, the wall above.
// Plan: weights are the M operand of m16n8k16, tokens the N operand; the copy engine brings both into a ring in shared
// memory. Up to 128 tokens a block has all of them, and of the weight rows what makes one block for each
// multiprocessor, by all of K or by a quarter (a cluster adds up the four); above, tiles of 128 tokens. Its first steps
// of weights are on their way before the kernel before has ended. From 96 tokens on, on Hopper, wgmma instead, with
// tiles whose size fits the number of multiprocessors, and which may be of two weights (linear_wgmma.cuh); there swiglu
// is part of storing, and so are maxima (for rows beyond the copy engine, or fewer: a kernel of their own).
// Measured on one H200, 2026-11-29: the products of a GDN layer of the 4B shape in a chain (timed as "layer products"
// in cuda_bench) take 86 % of the read limit of 4.5 TB/s at 1 row, 84 at 16, 79 at 32, 71 at 64, 48 at 128; prompts of
// 512 to 4096 rows 41 to 49 % of the matrix limit of 771 TFLOP/s. With wgmma, 2026-11-30: products of 512 rows
// with 2560 outputs and more 530 to 714 TFLOP/s (mma.sync: 210 to 400); the head of the vocabulary about 700 in a step,
// 570 where each plan of it ran for long.
// Precision: bf16 products, f32 sums, silu by the fast instructions. The order of summation is a function of K alone:
// see linear_mma.cuh.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "ops/cuda/entries.h"
#include "ops/linear/linear.h"
#include "ops/linear/linear_tile.cuh"
#include "ops/linear/linear_wgmma.cuh"

namespace quire::cuda {
namespace {

// --- bf16, few rows --------------------------------------------------------------------------------------------------

int device_attribute(cudaDeviceAttr attribute) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&value, attribute, device), "cudaDeviceGetAttribute");
  return value;
}

// Tiles of so many rows of a factor.
int count_tiles(Product& a, int rows) {
  int tiles = 0;
  for (int i = 0; i < a.count; ++i) {
    a.factors[i].first_tile = tiles;
    tiles += blocks_of(a.factors[i].N, rows);
  }
  return tiles;
}

// The tile that gives the busiest multiprocessor the least to read: weight rows count in full, tokens, which come from
// the second-level cache, by half. Of equals the larger.
template <typename Shape, bool kSplit>
Plan plan_for(Product& a) {
  const int columns = blocks_of(a.T, Shape::kTokens);
  const int multiprocessors = device_attribute(cudaDevAttrMultiProcessorCount);
  const int shared = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - kHeaderBytes;
  Plan plan = {.rounds = 0, .work = std::numeric_limits<int>::max()};
  for (int across = 1; across <= Shape::kMostAcross; ++across) {
    const int rows = across * Shape::kRows, tiles = count_tiles(a, rows), reads = rows + Shape::kTokens / 2;
    const int laps = kSplit ? 1 : blocks_of(tiles, std::max(1, multiprocessors / columns));
    const int rounds = kSplit ? blocks_of(tiles * columns * kSegments, multiprocessors) : laps * kSegments;
    if (rounds * reads <= plan.work)
      plan = {.across = across, .laps = laps, .tiles = tiles, .rounds = rounds, .work = rounds * reads};
  }
  count_tiles(a, plan.across * Shape::kRows);
  const int fitting = std::min(Shape::kRing * 1024, shared) / Ring<Shape>::bytes_of(plan.across);
  const int steps = blocks_of(kSplit ? a.segment : a.K, kBoxColumns) * plan.laps;
  plan.depth = std::min({fitting, steps, kMostDepth});
  plan.trigger = plan.depth;
  return plan;
}

// Boxes of `box_rows` rows of a matrix [rows, K].
CUtensorMap map_for(const bfloat* data, int K, std::int64_t rows, std::int64_t stride, int box_rows) {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found),
          "cuTensorMapEncodeTiled");
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  CUtensorMap map;
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(K), static_cast<cuuint64_t>(rows)};
  const cuuint64_t row_bytes = 2 * static_cast<cuuint64_t>(stride);
  const cuuint32_t box[] = {kBoxColumns, static_cast<cuuint32_t>(box_rows)}, every[] = {1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<bfloat*>(data), sizes,
                                 &row_bytes, box, every, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    throw Error(ErrorCode::device, "linear: no tensor map for rows of " + std::to_string(K) + " columns, stride " +
                                       std::to_string(stride) + ": driver error " + std::to_string(result));
  }
  return map;
}

template <typename Shape, bool kSplit>
void launch_product(Stream& s, const Product& a, const Plan& plan) {
  constexpr int kBlocks = kSplit ? kSegments : 1;
  Maps maps = {};
  for (int i = 0; i < a.count; ++i) {
    maps.weights[i] = map_for(a.factors[i].w, a.K, a.factors[i].N, a.K, plan.across * Shape::kRows);
  }
  maps.tokens = map_for(a.x, a.K, a.T, a.T == 1 ? a.K : a.x_stride, Shape::kTokens);
  const int warps = plan.across * Shape::kDown;
  const int ring = plan.depth * Ring<Shape>::bytes_of(plan.across);
  const int sums = kSplit ? warps * Shape::kM * Shape::kN * 512 : 0;
  const Grid grid = {.blocks = dim3(blocks(plan.tiles, plan.laps) * kBlocks, blocks(a.T, Shape::kTokens)),
                     .threads = 32u * static_cast<unsigned>(warps + 1),
                     .shared = static_cast<std::size_t>(kHeaderBytes + std::max(ring, sums)),
                     .cluster = kBlocks};
  launch(s, "linear", grid, product_kernel<Shape, kSplit>, a, maps, plan);
}

// Whole: for blocks that have all of K; Split: for those that have a segment. The latter where they have less to do,
// and much less where they cannot all run at once: clusters have to meet, and leave little to those that come after
// them.
template <typename Whole, typename Split>
void multiply(Stream& s, Product& a) {
  const int whole = plan_for<Whole, false>(a).work;
  const Plan split = plan_for<Split, true>(a);
  const bool better = split.rounds == 1 ? 20 * split.work < 19 * whole : 4 * split.work < 3 * whole;
  if (better && blocks_of(a.K, a.segment) == kSegments) return launch_product<Split, true>(s, a, split);
  launch_product<Whole, false>(s, a, plan_for<Whole, false>(a));
}

// --- bf16, many rows -------------------------------------------------------------------------------------------------

// From here on wgmma is faster in every product of the 4B shape, by 1.09 to 1.94 times (H200, 2026-11-30).
constexpr int kFewestForWgmma = 96;
static_assert(kFewestForMaxima >= kFewestForWgmma, "only wgmma_kernel finds maxima as it stores");

bool is_many(const Product& a) {
  return a.T >= kFewestForWgmma && device_attribute(cudaDevAttrComputeCapabilityMajor) == 9;
}

template <int kN>
Grid wgmma_grid(const WgmmaPlan& plan) {
  return {.blocks = dim3(static_cast<unsigned>(plan.clusters * plan.split)),
          .threads = kWgmmaThreads,
          .shared = WgmmaRing<kN>::kBytes,
          .cluster = static_cast<unsigned>(plan.split)};
}

// How many clusters of so many blocks run at once, of any of the kernels: a multiprocessor has room for one block.
int running_clusters(int split) {
  static const auto counts = [] {
    const auto kernel = wgmma_kernel<128, false>;
    std::array<int, kSegments + 1> n = {0, device_attribute(cudaDevAttrMultiProcessorCount)};
    for (int blocks = 2; blocks <= kSegments; blocks *= 2) {
      const Grid grid = wgmma_grid<128>({.split = blocks, .clusters = 1});
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared)),
            "linear");
      cudaLaunchAttribute cluster = {.id = cudaLaunchAttributeClusterDimension, .val = {}};
      cluster.val.clusterDim = {.x = grid.cluster, .y = 1, .z = 1};
      cudaLaunchConfig_t config = {};
      config.gridDim = grid.blocks, config.blockDim = dim3(grid.threads), config.dynamicSmemBytes = grid.shared;
      config.attrs = &cluster, config.numAttrs = 1;
      check(cudaOccupancyMaxActiveClusters(&n[static_cast<std::size_t>(blocks)], kernel, &config), "linear");
    }
    return n;
  }();
  return counts[static_cast<std::size_t>(split)];
}

// Tiles of two halves; those of a gated product have rows of both factors.
template <int kN>
int count_wgmma_tiles(Product& a) {
  const int halves = count_tiles(a, kN / 2);
  return a.gated ? blocks_of(a.factors[0].N, kN / 2) : blocks_of(halves, 2);
}

template <int kN, bool kGated>
void launch_wgmma(Stream& s, Product& a, const WgmmaPlan& plan) {
  count_wgmma_tiles<kN>(a);
  Maps maps = {};
  for (int i = 0; i < a.count; ++i) {
    maps.weights[i] = map_for(a.factors[i].w, a.K, a.factors[i].N, a.K, kN / 2);
  }
  maps.tokens = map_for(a.x, a.K, a.T, a.x_stride, kTileTokens);
  launch(s, "linear", wgmma_grid<kN>(plan), wgmma_kernel<kN, kGated>, a, maps, plan);
}

// In units of 2.5 ns: a step takes one for each weight row; the beginning and the outputs of a tile take kTileEnds, and
// kPartsEnds where parts are added up. Of each of the 4B shape's products of 256 and 512 rows that takes the fastest plan
// (H200, 2026-11-30, `cuda_bench "linear plans"`); how long they take it says less well, of the head least.
constexpr int kTileEnds = 1500, kPartsEnds = 3200;

bool has_maxima(const Product& a) {
  return std::any_of(a.factors, a.factors + a.count, [](const Factor& f) { return f.maxima != nullptr; });
}

// Maxima are found where a warp has whole groups of outputs.
template <int kN>
void add_choices(Product& a, std::vector<WgmmaChoice>& all) {
  const int weight_tiles = count_wgmma_tiles<kN>(a), token_tiles = blocks_of(a.T, kTileTokens);
  const int tiles = weight_tiles * token_tiles;
  for (const int split : {1, 2, kSegments}) {
    const int running = running_clusters(split);
    if (has_maxima(a) && (split > 1 || kN / 2 % kMaximaColumns != 0)) continue;
    if (running == 0 || (split > 1 && blocks_of(a.K, a.segment) < kSegments)) continue;
    const int rounds = blocks_of(tiles, running), steps = blocks_of(a.K, kBoxColumns * split);
    const std::int64_t work = std::int64_t{rounds} * (steps * kN + (split > 1 ? kPartsEnds : kTileEnds));
    const WgmmaPlan plan = {.rows = kN,
                            .split = split,
                            .weight_tiles = weight_tiles,
                            .token_tiles = token_tiles,
                            .clusters = split > 1 ? tiles : blocks_of(tiles, rounds),
                            .depth = WgmmaRing<kN>::kDepth,
                            .work = work};
    all.push_back({plan, a.gated ? launch_wgmma<kN, true> : launch_wgmma<kN, false>});
  }
}

void multiply_many(Stream& s, Product& a) {
  const std::vector<WgmmaChoice> all = wgmma_choices(a);
  const auto best = std::min_element(all.begin(), all.end(), [](const WgmmaChoice& one, const WgmmaChoice& other) {
    return one.plan.work < other.plan.work;
  });
  best->launch(s, a, best->plan);
}

// --- bf16, any rows --------------------------------------------------------------------------------------------------

// For rows that the copy engine cannot read: the same instructions, operands straight from memory. A warp has 16 weight
// rows by 8 tokens, a block 32 tokens.
__global__ void __launch_bounds__(128) scattered_kernel(const __grid_constant__ Product a) {
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const Factor& f = a.factors[a.factor_of(blockIdx.x)];
  const int row = (static_cast<int>(blockIdx.x) - f.first_tile) * 16 + g,
            token0 = (blockIdx.y * 4 + threadIdx.x / 32) * 8;
  const auto pair = [&](const bfloat* from, std::int64_t stride, int r, int rows, int k) -> unsigned {
    const auto element = [&](int i) -> unsigned {
      return r < rows && i < a.K ? __bfloat16_as_ushort(from[r * stride + i]) : 0u;
    };
    return element(k) | element(k + 1) << 16;
  };
  wait_for_predecessor();
  let_successor_start();
  float sums[1][1][4] = {}, totals[1][1][4] = {};
  for (int k = 0; k < a.K; k += 16) {
    if (k % a.segment == 0 && k > 0) end_segment(totals, sums);
    const int low = k + 2 * q, high = low + 8;
    const Fragment w = {pair(f.w, a.K, row, f.N, low), pair(f.w, a.K, row + 8, f.N, low),
                        pair(f.w, a.K, row, f.N, high), pair(f.w, a.K, row + 8, f.N, high)};
    multiply_add(sums[0][0], w, pair(a.x, a.x_stride, token0 + g, a.T, low),
                 pair(a.x, a.x_stride, token0 + g, a.T, high));
  }
  end_segment(totals, sums);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = token0 + 2 * q + i % 2;
    if (token < a.T) f.store(row + i / 2 * 8, token, totals[0][0][i]);
  }
}

// Whether the copy engine can read all operands.
bool is_aligned(const Product& a) {
  const auto at_16_bytes = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  bool aligned = at_16_bytes(a.x) && a.K % 8 == 0 && (a.x_stride % 8 == 0 || a.T == 1);
  for (int i = 0; i < a.count; ++i) aligned = aligned && at_16_bytes(a.factors[i].w);
  return aligned;
}

// Every choice here and in the plan is one of speed: the bits are the same.
void multiply(Stream& s, Product& a) {
  if (!is_aligned(a)) {
    const dim3 grid(static_cast<unsigned>(count_tiles(a, 16)), blocks(a.T, 32));
    launch(s, "linear", {.blocks = grid, .threads = 128}, scattered_kernel, a);
  } else if (is_many(a)) {
    multiply_many(s, a);
  } else if (a.T <= 8) {
    multiply<Shape<1, 1, 1, 12, 220>, Shape<2, 1, 1, 6, 220>>(s, a);
  } else if (a.T <= 16) {
    multiply<Shape<1, 2, 1, 12, 220>, Shape<2, 2, 1, 6, 220>>(s, a);
  } else if (a.T <= 32) {
    multiply<Shape<1, 4, 1, 12, 220>, Shape<2, 2, 2, 6, 220>>(s, a);
  } else if (a.T <= 64) {
    multiply<Shape<2, 4, 2, 5, 220>, Shape<2, 4, 2, 5, 220>>(s, a);
  } else if (a.T <= 128) {
    multiply<Shape<2, 8, 2, 3, 112>, Shape<2, 8, 2, 3, 112>>(s, a);
  } else {
    multiply<Shape<2, 4, 4, 2, 112>, Shape<2, 8, 2, 3, 112>>(s, a);
  }
}

Factor factor_for(const Weight& w, const float* bias, const Rows& y) {
  return {.w = static_cast<const bfloat*>(w.data),
          .y = y.data,
          .bias = bias,
          .y_stride = y.stride,
          .N = static_cast<int>(w.out),
          .first_tile = 0,
          .bf16 = y.format == Format::bf16};
}

Product product_for(const Rows& x) {
  const auto K = static_cast<int>(x.cols);
  return {.factors = {},
          .count = 0,
          .gated = false,
          .x = static_cast<const bfloat*>(x.data),
          .x_stride = x.stride,
          .T = static_cast<int>(x.rows),
          .K = K,
          .segment = segment_columns(K)};
}

// --- f32 -------------------------------------------------------------------------------------------------------------

constexpr int kPlainTile = 32;

// A block: 32 weight rows, 32 tokens; a thread: 2 of each. Every sum runs over K in order.
template <typename X, typename W>
__global__ void __launch_bounds__(256)
    plain_kernel(Matrix<const X> x, const W* w, std::int64_t K, std::int64_t T, Factor f) {
  __shared__ float xs[kPlainTile][kPlainTile + 1], ws[kPlainTile][kPlainTile + 1];
  const std::int64_t row0 = std::int64_t{blockIdx.y} * kPlainTile, token0 = std::int64_t{blockIdx.x} * kPlainTile;
  const int column = threadIdx.x % 32, line = threadIdx.x / 32;  // of a load
  const int i = threadIdx.x % 16, j = threadIdx.x / 16;          // of a sum
  wait_for_predecessor();
  let_successor_start();
  float sums[2][2] = {};
  for (std::int64_t k0 = 0; k0 < K; k0 += kPlainTile) {
    const std::int64_t k = k0 + column;
    for (int r = line; r < kPlainTile; r += 8) {
      ws[r][column] = k < K && row0 + r < f.N ? to_f32(w[(row0 + r) * K + k]) : 0.0f;
      xs[r][column] = k < K && token0 + r < T ? to_f32(x.row(token0 + r)[k]) : 0.0f;
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
    for (int n = 0; n < 2; ++n) {
      const std::int64_t token = token0 + j + 16 * n;
      if (token < T) f.store(static_cast<int>(row0) + i + 16 * m, token, sums[m][n]);
    }
}

template <typename X, typename W>
void launch_plain(Stream& s, const Rows& x, const Weight& w, const Factor& f) {
  const Grid grid = {.blocks = dim3(blocks(x.rows, kPlainTile), blocks(w.out, kPlainTile)), .threads = 256};
  launch(s, "linear", grid, plain_kernel<X, W>, matrix<const X>(x), static_cast<const W*>(w.data), w.in, x.rows, f);
}

// --- maxima, where no kernel finds them as it stores -----------------------------------------------------------------

// A warp a group.
__global__ void __launch_bounds__(256) maxima_kernel(Matrix<const float> y, int N, Matrix<float> maxima) {
  const int group = blockIdx.y * 8 + threadIdx.x / 32, column = group * kMaximaColumns + threadIdx.x % 32;
  const std::int64_t token = blockIdx.x;
  static_assert(kMaximaColumns == 32);
  wait_for_predecessor();
  let_successor_start();
  if (group * kMaximaColumns >= N) return;
  float largest = column < N ? fmaxf(y.row(token)[column], -INFINITY) : -INFINITY;
  for (int lanes = 16; lanes > 0; lanes /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, lanes));
  if (threadIdx.x % 32 == 0) maxima.row(token)[group] = largest;
}

void find_maxima(Stream& s, std::span<const Projection> parts) {
  for (const Projection& p : parts) {
    if (!p.maxima.data) continue;
    const Grid grid = {.blocks = dim3(static_cast<unsigned>(p.y.rows), blocks(p.maxima.cols, 8)), .threads = 256};
    launch(s, "linear", grid, maxima_kernel, matrix<const float>(p.y), static_cast<int>(p.y.cols),
           matrix<float>(p.maxima));
  }
}

bool on_tensor_cores(const Rows& x, const Weight& w) {
  return x.format == Format::bf16 && w.format == Format::bf16;
}

}  // namespace

std::vector<WgmmaChoice> wgmma_choices(Product& a) {
  std::vector<WgmmaChoice> all;
  add_choices<192>(a, all);
  add_choices<160>(a, all);
  add_choices<128>(a, all);
  return all;
}

void linear(Stream& s, Rows x, const Weight& w, std::span<const float> bias, Rows y) {
  check_linear(x, w, bias, y);
  if (x.rows == 0) return;
  const Factor f = factor_for(w, bias.empty() ? nullptr : bias.data(), y);
  if (on_tensor_cores(x, w)) {
    Product a = product_for(x);
    a.factors[a.count++] = f;
    return multiply(s, a);
  }
  with_type(x.format, [&](auto tx) {
    with_type(w.format, [&](auto tw) {
      using X = decltype(tx);
      using W = decltype(tw);
      if constexpr (sizeof(X) + sizeof(W) > 4) launch_plain<X, W>(s, x, w, f);
    });
  });
}

void project(Stream& s, Rows x, std::span<const Projection> parts) {
  check_project(x, parts);
  if (x.rows == 0 || parts.empty()) return;
  if (!std::all_of(parts.begin(), parts.end(), [&](const Projection& p) { return on_tensor_cores(x, *p.weight); })) {
    for (const Projection& p : parts) linear(s, x, *p.weight, {}, p.y);
    return find_maxima(s, parts);
  }
  Product a = product_for(x);
  for (const Projection& p : parts) {
    Factor& f = a.factors[a.count++];
    f = factor_for(*p.weight, nullptr, p.y);
    f.maxima = static_cast<float*>(p.maxima.data), f.maxima_stride = p.maxima.stride;
  }
  if (is_aligned(a) && is_many(a)) return multiply_many(s, a);
  multiply(s, a);
  find_maxima(s, parts);
}

// In one kernel where that is wgmma's, which has both products of an output in a lane.
void project_swiglu(Stream& s, Rows x, const Weight& gate, const Weight& up, Rows spare, Rows y) {
  check_project_swiglu(x, gate, up, spare, y);
  if (x.rows == 0) return;
  if (on_tensor_cores(x, gate) && on_tensor_cores(x, up)) {
    Product a = product_for(x);
    a.factors[a.count++] = factor_for(gate, nullptr, y);
    a.factors[a.count++] = factor_for(up, nullptr, spare);
    a.gated = true;
    if (is_aligned(a) && is_many(a)) return multiply_many(s, a);
  }
  const Projection parts[] = {{&gate, y}, {&up, spare}};
  project(s, x, parts);
  swiglu(s, y, spare, y);
}

}  // namespace quire::cuda
