// What attention by warpgroups takes for granted beside wgmma_test.cu in ops/linear: with its left side in registers and
// the right side lying by rows, wgmma gives the bits of mma.sync, too. On values that cancel and differ much in size.
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda.h"
#include "core/dtype.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma.cuh"
#include "ops/cuda/wgmma.cuh"

namespace quire::cuda {
namespace {

constexpr int kRows = 64, kColumns = 128, kDepth = 1024;

// What both kernels leave: d[i][j] for lane and warp as wgmma has it.
__device__ void store(float* d, const float (&sums)[kColumns / 2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) {
    d[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * kColumns + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
  }
}

// The 16 rows of a warp of a [kRows, kDepth], 16 columns from `column` on.
__device__ void load_left(std::uint32_t (&left)[4], const bfloat* a, int column) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const bfloat* row = a + (warp * 16 + lane / 4) * kDepth + column + lane % 4 * 2;
#pragma unroll
  for (int i = 0; i < 4; ++i) left[i] = *reinterpret_cast<const std::uint32_t*>(row + i % 2 * 8 * kDepth + i / 2 * 8);
}

// d [kRows, kColumns] = a b with b [kDepth, kColumns], by warpgroup: 64 of depth in two boxes.
__global__ void __launch_bounds__(128) wgmma_product(const bfloat* a, const bfloat* b, float* d) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kStep = 64, kBox = kStep * kBoxRowBytes, kPieces = kColumns / 8;
  __shared__ __align__(1024) unsigned char step[kColumns / kBoxColumns * kBox];
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(step));
  float sums[kColumns / 2] = {};
  hold(sums);
  for (int column = 0; column < kDepth; column += kStep) {
    for (int i = static_cast<int>(threadIdx.x); i < kStep * kPieces; i += 128) {
      const int row = i / kPieces, piece = i % kPieces;
      *reinterpret_cast<uint4*>(step + piece / 8 * kBox + row * kBoxRowBytes + place_of(row, piece % 8)) =
          *reinterpret_cast<const uint4*>(b + (column + row) * kColumns + piece * 8);
    }
    show_products();
    __syncthreads();
    std::uint32_t left[kStep / 16][4];
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) load_left(left[k], a, column + 16 * k);
    open_products();
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) {
      multiply_add_rows(sums, left[k], operand_at(at + k * 16 * kBoxRowBytes, kBox));
    }
    commit_products();
    wait_for_products_but<0>();
    hold(sums);
#pragma unroll
    for (int k = 0; k < kStep / 16; ++k) hold(left[k]);
    __syncthreads();
  }
  store(d, sums);
#endif
}

// The same by warps.
__global__ void __launch_bounds__(128) mma_product(const bfloat* a, const bfloat* b, float* d) {
  const int lane = threadIdx.x % 32;
  const auto element = [&](int row, int column) -> std::uint32_t {
    return __bfloat16_as_ushort(b[row * kColumns + column]);
  };
  const auto pair = [&](int row, int column) { return element(row, column) | element(row + 1, column) << 16; };
  float sums[kColumns / 2] = {};
  for (int k = 0; k < kDepth; k += 16) {
    std::uint32_t left[4];
    load_left(left, a, k);
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const int row = k + lane % 4 * 2, column = n * 8 + lane / 4;
      multiply(reinterpret_cast<float(&)[4]>(sums[4 * n]), left, pair(row, column), pair(row + 8, column));
    }
  }
  store(d, sums);
}

TEST(WgmmaRows, GiveTheBitsOfMma) {
  if (device_count() == 0) GTEST_SKIP() << "there is no CUDA device";
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  if (major != 9) GTEST_SKIP() << "wgmma is Hopper's";
  std::mt19937 random;
  std::normal_distribution<float> normal;
  for (const float range : {0.0f, 4.0f, 12.0f, 30.0f, 60.0f}) {
    // Values of any size within 2^range either way; a quarter of them cancels the value before.
    std::uniform_real_distribution<float> exponent(-range, range);
    const auto values = [&](int count) {
      std::vector<bf16> v;
      for (float x = 0; static_cast<int>(v.size()) < count; v.push_back(to_bf16(x))) {
        x = random() % 4 == 0 ? -x : normal(random) * std::exp2(std::floor(exponent(random)));
      }
      return v;
    };
    Stream s;
    const std::vector<bf16> a = values(kRows * kDepth), b = values(kDepth * kColumns);
    DeviceBuffer da(a.size() * sizeof(bf16)), db(b.size() * sizeof(bf16));
    upload(s, da.data(), a.data(), da.size());
    upload(s, db.data(), b.data(), db.size());
    const auto run = [&](auto kernel) {
      DeviceBuffer d(sizeof(float) * kRows * kColumns);
      kernel<<<1, 128>>>(reinterpret_cast<const bfloat*>(da.data()), reinterpret_cast<const bfloat*>(db.data()),
                         reinterpret_cast<float*>(d.data()));
      check_launch("products");
      std::vector<std::uint32_t> y(kRows * kColumns);
      download(s, y.data(), d.data(), d.size());
      synchronize(s);
      return y;
    };
    EXPECT_EQ(run(wgmma_product), run(mma_product)) << "range 2^" << range;
  }
}

}  // namespace
}  // namespace quire::cuda
