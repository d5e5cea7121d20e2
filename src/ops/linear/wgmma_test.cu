// What linear_wgmma.cuh takes for granted, and no manual promises: from the same accumulators, wgmma gives the bits of
// mma.sync, step by step of 16 columns, at any width. On values that cancel and differ much in size. Then its kernels,
// by every plan there is, whatever a launch would choose.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "backend/cuda.h"
#include "core/dtype.h"
#include "ops/cuda/device_memory.h"
#include "ops/linear/linear_wgmma.cuh"

namespace quire::cuda {
namespace {

constexpr int kTokens = 64, kDepth = 1024;

// What both kernels leave: d[i][j] for lane and warp as wgmma has it. Added to 0, as a segment is.
template <int kN>
__device__ void store(float* d, const float (&sums)[kN / 2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 0; i < kN / 2; ++i)
    d[(warp * 16 + lane / 4 + i / 2 % 2 * 8) * kN + i / 4 * 8 + lane % 4 * 2 + i % 2] = __fadd_rn(0.0f, sums[i]);
}

// d [kTokens, kN] = a [kTokens, kDepth] . b [kN, kDepth], by warpgroup. What stands in the sums before does not count.
template <int kN>
__global__ void __launch_bounds__(128) wgmma_product(const bfloat* a, const bfloat* b, float* d) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  __shared__ __align__(1024) unsigned char step[(kTokens + kN) * kBoxRowBytes];
  const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(step));
  float sums[kN / 2];
#pragma unroll
  for (float& sum : sums) sum = __int_as_float(0x7fffffff);
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
      multiply_add<kN>(sums, operand_at(at) + 2 * k, operand_at(at + kTokens * kBoxRowBytes) + 2 * k,
                       column > 0 || k > 0);
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

struct Shape {
  int T, K;
  std::vector<int> outs;
  bool bf16 = true, bias = false;
  int x_padding = 0, y_padding = 0;
  float scale = 1;  // of x
};

using Outputs = std::vector<std::vector<unsigned char>>;

// Products of the same rows on the device, or swiglu of two of them.
class DeviceProduct {
 public:
  DeviceProduct(const Shape& shape, bool gated) : s_(shape), gated_(gated) {
    x_ = on_device(std::int64_t{s_.T} * (s_.K + s_.x_padding), s_.scale);
    for (const int N : s_.outs) {
      w_.push_back(on_device(std::int64_t{N} * s_.K, 1 / std::sqrt(static_cast<float>(s_.K))));
      std::vector<float> bias(static_cast<std::size_t>(N));
      for (float& b : bias) b = normal_(random_);
      bias_.emplace_back(bias.size() * sizeof(float));
      upload(stream_, bias_.back().data(), bias.data(), bias_.back().size());
      y_.emplace_back(static_cast<std::size_t>(s_.T) * (N + s_.y_padding) * (s_.bf16 ? 2 : 4));
    }
    if (gated_) gate_ = DeviceBuffer(y_[0].size());
  }

  // As the operations have it for 64 rows at a time: too few for wgmma.
  Outputs by_few_rows() {
    clear();
    for (int t = 0; t < s_.T; t += 64) {
      const auto rows = [&](const Memory& at, Format format, int cols, int padding) {
        const Rows all = {.data = at.data(), .format = format, .rows = s_.T, .cols = cols, .stride = cols + padding};
        return all.slice_rows(t, std::min(64, s_.T - t));
      };
      const auto outputs_of = [&](const Memory& at, std::size_t i) {
        return rows(at, s_.bf16 ? Format::bf16 : Format::f32, s_.outs[i], s_.y_padding);
      };
      for (std::size_t i = 0; i < w_.size(); ++i) {
        const Weight w = {.data = w_[i].data(), .out = s_.outs[i], .in = s_.K};
        const std::span<const float> bias(bias_[i].as<float>(), s_.bias ? static_cast<std::size_t>(s_.outs[i]) : 0);
        ops()->linear(stream_, rows(x_, Format::bf16, s_.K, s_.x_padding), w, bias,
                      outputs_of(gated_ && i == 0 ? gate_ : y_[i], i));
      }
      if (gated_) ops()->swiglu(stream_, outputs_of(gate_, 0), outputs_of(y_[1], 1), outputs_of(y_[0], 0));
    }
    return outputs();
  }

  Product product() const {
    Product a = {.factors = {},
                 .count = 0,
                 .gated = gated_,
                 .x = x_.as<const bfloat>(),
                 .x_stride = s_.K + s_.x_padding,
                 .T = s_.T,
                 .K = s_.K,
                 .segment = segment_columns(s_.K)};
    for (std::size_t i = 0; i < w_.size(); ++i)
      a.factors[a.count++] = {.w = w_[i].as<const bfloat>(),
                              .y = y_[i].data(),
                              .bias = s_.bias ? bias_[i].as<const float>() : nullptr,
                              .y_stride = s_.outs[i] + s_.y_padding,
                              .N = s_.outs[i],
                              .first_tile = 0,
                              .bf16 = s_.bf16};
    return a;
  }
  Outputs by(const WgmmaChoice& choice) {
    clear();
    Product a = product();
    choice.launch(stream_, a, choice.plan);
    return outputs();
  }

 private:
  DeviceBuffer on_device(std::int64_t count, float scale) {
    std::vector<bf16> v(static_cast<std::size_t>(count));
    for (bf16& x : v) x = to_bf16(scale * normal_(random_));
    DeviceBuffer buffer(v.size() * sizeof(bf16));
    upload(stream_, buffer.data(), v.data(), buffer.size());
    return buffer;
  }
  void clear() {
    for (const Memory& y : y_) check(cudaMemsetAsync(y.data(), 0xcd, y.size(), handle(stream_)), "cudaMemsetAsync");
  }
  // With what stands between the rows.
  Outputs outputs() {
    Outputs all;
    for (std::size_t i = 0; i < (gated_ ? 1 : y_.size()); ++i) {
      all.emplace_back(y_[i].size());
      download(stream_, all.back().data(), y_[i].data(), y_[i].size());
    }
    return all;
  }

  Shape s_;
  bool gated_;
  Stream stream_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  Memory x_, gate_;
  std::vector<DeviceBuffer> w_, bias_, y_;
};

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

  void expect_same_bits_by_every_plan(const Shape& shape, bool gated) {
    DeviceProduct product(shape, gated);
    const Outputs expected = product.by_few_rows();
    Product a = product.product();
    const std::vector<WgmmaChoice> choices = wgmma_choices(a);
    EXPECT_EQ(choices.size(), blocks_of(a.K, a.segment) == kSegments ? 9u : 3u);
    for (const WgmmaChoice& choice : choices) {
      const Outputs y = product.by(choice);
      for (std::size_t i = 0; i < y.size(); ++i) {
        const auto at = std::mismatch(y[i].begin(), y[i].end(), expected[i].begin()).first - y[i].begin();
        EXPECT_TRUE(y[i] == expected[i]) << shape.T << " rows, K " << shape.K << ", product " << i << " of "
                                         << shape.outs[i] << " outputs, gated " << gated << ", tiles of "
                                         << choice.plan.rows << " weight rows, split by " << choice.plan.split
                                         << ": byte " << at << " differs";
      }
    }
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

// One or several tiles for a block, segments of whole steps or not, rows that can be stored in pieces or not.
TEST_F(Wgmma, EveryPlanGivesTheSameBits) {
  const Shape shapes[] = {
      {.T = 600, .K = 256, .outs = {9000}},
      {.T = 97, .K = 1416, .outs = {600, 100}, .bias = true},
      {.T = 200, .K = 1032, .outs = {24, 1, 7, 333}, .bias = true, .x_padding = 8, .y_padding = 3},
      {.T = 512, .K = 2560, .outs = {1300}, .y_padding = 4},
      {.T = 300, .K = 1000, .outs = {40, 500}, .bf16 = false, .y_padding = 4},
      {.T = 256, .K = 9216, .outs = {700}, .bf16 = false, .bias = true},
      {.T = 128, .K = 40, .outs = {17000}, .y_padding = 8},
      {.T = 1100, .K = 64, .outs = {3000, 33}, .bf16 = false},
      {.T = 1000, .K = 520, .outs = {6000, 33}},
      {.T = 256, .K = 512, .outs = {800, 400, 32, 32}, .bias = true},
  };
  for (const Shape& s : shapes) expect_same_bits_by_every_plan(s, false);
}

// The last: gates of which some overflow in the exponential, and some leave a denormal of the sigmoid.
TEST_F(Wgmma, EveryGatedPlanGivesTheBitsOfProductsAndSwiglu) {
  const Shape shapes[] = {
      {.T = 600, .K = 256, .outs = {4500, 4500}},
      {.T = 97, .K = 1416, .outs = {333, 333}, .y_padding = 3},
      {.T = 200, .K = 1000, .outs = {520, 520}, .x_padding = 8, .y_padding = 4},
      {.T = 512, .K = 2560, .outs = {1300, 1300}},
      {.T = 130, .K = 40, .outs = {100, 100}, .y_padding = 8},
      {.T = 1100, .K = 520, .outs = {17, 17}},
      {.T = 1000, .K = 264, .outs = {3000, 3000}},
      {.T = 256, .K = 1024, .outs = {768, 768}, .scale = 40},
  };
  for (const Shape& s : shapes) expect_same_bits_by_every_plan(s, true);
}

}  // namespace
}  // namespace quire::cuda
