// What every kernel with tensor cores takes for granted, and no manual promises: the bits of one row times one column do
// not depend on the other rows and columns, on the place of either in the tile, or on which of the two operands is which.
// Over 8 steps of depth 16, by the loads of mma.cuh, on values that cancel and differ much in size.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda.h"
#include "core/dtype.h"
#include "ops/cuda/device_memory.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma.cuh"

namespace quire::cuda {
namespace {

constexpr int kDepth = 128, kTile = 16, kVectors = kTile * kDepth;

// d[i][j] = row i of a . row j of b, all of [cases, 16, kDepth].
__global__ void products_kernel(const bfloat* a, const bfloat* b, float* d) {
  __shared__ __align__(16) bfloat left[kTile][kDepth + 8], right[kTile][kDepth + 8];
  const int lane = static_cast<int>(threadIdx.x), begin = static_cast<int>(blockIdx.x) * kVectors;
  for (int i = lane; i < kVectors; i += 32) {
    left[i / kDepth][i % kDepth] = a[begin + i];
    right[i / kDepth][i % kDepth] = b[begin + i];
  }
  __syncwarp();
  float c[2][4] = {};
  for (int step = 0; step < kDepth / 16; ++step) {
    std::uint32_t fa[4], fb[4];
    load_a(fa, left[0] + 16 * step, kDepth + 8);
    load_b(fb, right[0] + 16 * step, kDepth + 8);
    multiply(c[0], fa, fb[0], fb[1]);
    multiply(c[1], fa, fb[2], fb[3]);
  }
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 4 + 8 * (i / 2), column = 8 * half + 2 * (lane % 4) + i % 2;
      d[static_cast<int>(blockIdx.x) * kTile * kTile + row * kTile + column] = c[half][i];
    }
  }
}

using Vector = std::vector<float>;
using Tile = std::vector<Vector>;  // 16 vectors

enum class Others { zeros, randoms, large, nans };

class Mma : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "there is no CUDA device";
  }

  Vector vector(float scale = 1) {
    Vector x;
    for (int i = 0; i < kDepth; ++i) {
      const float v = scale * normal_(random_) * std::exp2(exponent_(random_));
      x.push_back(to_float(to_bf16(v)));
    }
    return x;
  }
  Tile tile(Others others) {
    Tile t;
    for (int i = 0; i < kTile; ++i) {
      if (others == Others::zeros) t.emplace_back(kDepth, 0.0f);
      if (others == Others::randoms) t.push_back(vector());
      if (others == Others::large) t.push_back(vector(1e30f));
      if (others == Others::nans) t.emplace_back(kDepth, std::numeric_limits<float>::quiet_NaN());
    }
    return t;
  }

  // The products of a case for each pair of tiles.
  void add(const Tile& a, const Tile& b) {
    for (int i = 0; i < kTile; ++i)
      for (int j = 0; j < kDepth; ++j) a_.push_back(to_bf16(a[i][j])), b_.push_back(to_bf16(b[i][j]));
  }
  std::vector<float> products() {
    Stream s;
    const std::size_t bytes = a_.size() * sizeof(bf16), cases = a_.size() / kVectors;
    DeviceBuffer a(bytes), b(bytes), d(cases * kTile * kTile * sizeof(float));
    upload(s, a.data(), a_.data(), bytes);
    upload(s, b.data(), b_.data(), bytes);
    products_kernel<<<static_cast<unsigned>(cases), 32>>>(reinterpret_cast<const bfloat*>(a.data()),
                                                         reinterpret_cast<const bfloat*>(b.data()),
                                                         reinterpret_cast<float*>(d.data()));
    check_launch("products");
    std::vector<float> y(d.size() / sizeof(float));
    download(s, y.data(), d.data(), d.size());
    synchronize(s);
    a_.clear(), b_.clear();
    return y;
  }

  static std::uint32_t bits(float x) {
    std::uint32_t u;
    std::memcpy(&u, &x, sizeof u);
    return u;
  }

 private:
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::uniform_real_distribution<float> exponent_{-12, 12};
  std::vector<bf16> a_, b_;
};

// One pair of vectors at every place of both tiles, among all kinds of others: 16 x 16 x 4 x 2 cases a pair.
TEST_F(Mma, AProductDependsOnItsRowAndColumnAlone) {
  for (int pair = 0; pair < 8; ++pair) {
    const Vector x = vector(), y = pair % 2 ? x : vector();
    for (const bool swapped : {false, true})
      for (const Others others : {Others::zeros, Others::randoms, Others::large, Others::nans})
        for (int row = 0; row < kTile; ++row)
          for (int column = 0; column < kTile; ++column) {
            Tile a = tile(others), b = tile(others);
            a[row] = swapped ? y : x;
            b[column] = swapped ? x : y;
            add(a, b);
          }
    const std::vector<float> d = products();
    double exact = 0;
    for (int i = 0; i < kDepth; ++i) exact += double{x[i]} * y[i];
    double size = 0;
    for (int i = 0; i < kDepth; ++i) size += std::abs(double{x[i]} * y[i]);
    ASSERT_NEAR(d[0], exact, size * 0x1p-20);
    int unequal = 0;
    for (std::size_t c = 0; c < d.size() / (kTile * kTile); ++c) {
      const std::size_t row = c / kTile % kTile, column = c % kTile;
      unequal += bits(d[c * kTile * kTile + row * kTile + column]) != bits(d[0]);
    }
    EXPECT_EQ(unequal, 0) << "of " << d.size() / (kTile * kTile) << " places, pair " << pair;
  }
}

}  // namespace
}  // namespace quire::cuda
