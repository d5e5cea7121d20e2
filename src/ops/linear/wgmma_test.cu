// What linear_wgmma.cuh takes for granted, and no manual promises: from the same accumulators, wgmma gives the bits of
// mma.sync, step by step of 16 columns, at any width. On values that cancel and differ much in size.
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda.h"
#include "core/dtype.h"
#include "ops/cuda/device_memory.h"
#include "ops/linear/linear_wgmma.cuh"

namespace quire::cuda {
namespace {

constexpr int kTokens = 64, kDepth = 1024;

// What both kernels leave: d[i][j] for lane and warp as wgmma has it.
template <int kN>
__device__ void store(float* d, const float (&sums)[kN / 2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kN / 2; ++i)
    d[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * kN + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

// d [kTokens, kN] = a [kTokens, kDepth] . b [kN, kDepth], by warpgroup.
template <int kN>
__global__ void __launch_bounds__(128) wgmma_product(const bfloat* a, const bfloat* b, float* d) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ __align__(1024) unsigned char step[(kTokens + kN) * kBoxRowBytes];
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(step));
  float sums[kN / 2] = {};
  hold(sums);
  for (int column = 0; column < kDepth; column += kBoxColumns) {
    for (int i = static_cast<int>(threadIdx.x); i < (kTokens + kN) * 8; i += 128) {
      const int row = i / 8, piece = i % 8;
      const bfloat* from = (row < kTokens ? a + row * kDepth : b + (row - kTokens) * kDepth) + column + piece * 8;
      *reinterpret_cast<uint4*>(step + row * kBoxRowBytes + place_of(row, piece)) =
          *reinterpret_cast<const uint4*>(from);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    open_products();
#pragma unroll
    for (int k = 0; k < kBoxColumns / 16; ++k)
      multiply_add<kN>(sums, operand_at(at) + 2 * k, operand_at(at + kTokens * kBoxRowBytes) + 2 * k);
    commit_products();
    wait_for_products_but<0>();
    hold(sums);
    __syncthreads();
  }
  store<kN>(d, sums);
#endif
}

// The same by warps.
template <int kN>
__global__ void __launch_bounds__(128) mma_product(const bfloat* a, const bfloat* b, float* d) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const auto pair = [&](const bfloat* p) { return *reinterpret_cast<const unsigned*>(p); };
  float sums[kN / 2] = {};
  for (int column = 0; column < kDepth; column += 16) {
    const bfloat* row = a + (warp * 16 + lane / 4) * kDepth + column + lane % 4 * 2;
    const Fragment f = {pair(row), pair(row + 8 * kDepth), pair(row + 8), pair(row + 8 * kDepth + 8)};
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
      const bfloat* other = b + (n * 8 + lane / 4) * kDepth + column + lane % 4 * 2;
      multiply_add(reinterpret_cast<float(&)[4]>(sums[4 * n]), f, pair(other), pair(other + 8));
    }
  }
  store<kN>(d, sums);
}

class Wgmma : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "there is no CUDA device";
    int device = 0, major = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
    if (major != 9) GTEST_SKIP() << "wgmma is Hopper's";
  }

  // Rows of values of any size within 2^range either way; a quarter of them cancels the value before.
  std::vector<bf16> values(int rows, float range) {
    std::vector<bf16> v;
    std::uniform_real_distribution<float> exponent(-range, range);
    float x = 0;
    for (int i = 0; i < rows * kDepth; ++i) {
      x = random_() % 4 == 0 ? -x : normal_(random_) * std::exp2(std::floor(exponent(random_)));
      v.push_back(to_bf16(x));
    }
    return v;
  }

  template <int kN>
  void expect_same_bits(float range) {
    Stream s;
    const std::vector<bf16> a = values(kTokens, range), b = values(kN, range);
    DeviceBuffer da(a.size() * sizeof(bf16)), db(b.size() * sizeof(bf16));
    upload(s, da.data(), a.data(), da.size());
    upload(s, db.data(), b.data(), db.size());
    const auto run = [&](auto kernel) {
      DeviceBuffer d(sizeof(float) * kTokens * kN);
      kernel<<<1, 128>>>(reinterpret_cast<const bfloat*>(da.data()), reinterpret_cast<const bfloat*>(db.data()),
                         reinterpret_cast<float*>(d.data()));
      check_launch("products");
      std::vector<std::uint32_t> y(kTokens * kN);
      download(s, y.data(), d.data(), d.size());
      synchronize(s);
      return y;
    };
    EXPECT_EQ(run(wgmma_product<kN>), run(mma_product<kN>)) << "width " << kN << ", range 2^" << range;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

TEST_F(Wgmma, GivesTheBitsOfMma) {
  for (const float range : {0.0f, 4.0f, 12.0f, 30.0f, 60.0f}) {
    expect_same_bits<128>(range);
    expect_same_bits<160>(range);
    expect_same_bits<192>(range);
  }
}

}  // namespace
}  // namespace quire::cuda
