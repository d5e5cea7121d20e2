// Gated DeltaNet: the gates, prompts in chunks.
//   S <- exp(g) S;  delta = beta (v - S^T k);  S <- S + k delta^T;  o = S^T q        (model-spec 2.4)
// Shapes: qkv [T, 2 Hk Ek + Hv Ev] and out [T, Hv Ev] bf16 or f32; g, beta [T, Hv] and S [Hv, Ek, Ev] f32,
// in fragments (state_index).
//
// gdn_prefill, C = 64 tokens a chunk, b the running sum of g in it, D_ij = exp(b_i - b_j) (model-spec 2.5); bf16 with
// heads of 128 x 128 is in gdn_prefill_cuda.cu:
//   A_ij = beta_i D_ij k_i . k_j for i > j, P_ij = D_ij q_i . k_j for i >= j,
//   (I + A) [U | W] = [beta V | beta e^b K], X = U - W S,
//   O = e^b Q S + P X, S <- e^(b_last) S + (e^(b_last - b) K)^T X.
// FLOP a chunk and head: 2 C (C (2 Ek + (Ek + Ev) / 2 + Ev) + 3 Ek Ev), 10 M at 128 x 128; the wall is FMA.
// Plan: prepare_kernel, a block a chunk and head, writes W | Q, P | K and U as the products will read them;
// chain_kernel, a block a head and 32 columns of S, takes the chunks in order as two products each, whose
// left sides stream through a ring in shared memory.
//
// Precision: f32 throughout, one round of out. A sum over Ek or over a chunk's tokens has one order, whatever
// T, the heads and the cut into calls (at multiples of 64 for gdn_prefill).
#include <algorithm>

#include <cuda_pipeline.h>

#include "ops/cuda/entries.h"
#include "ops/gdn/gdn_cuda.cuh"

namespace quire::cuda {
namespace {

constexpr int kMostDim = 256;  // of a key head, and of a value head in gdn_prefill: registers, shared memory

// --- gates -----------------------------------------------------------------------------------------------

template <typename T>
__global__ void gates_kernel(Matrix<T> a, Matrix<T> b, const float* A_log, const float* dt_bias,
                             std::int64_t rows, std::int64_t heads, float* g, float* beta) {
  wait_for_predecessor();
  let_successor_start();
  const std::int64_t at = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= rows * heads) return;
  const std::int64_t t = at / heads, h = at % heads;
  g[at] = log_decay(to_f32(a.row(t)[h]), A_log[h], dt_bias[h]);
  beta[at] = sigmoid(to_f32(b.row(t)[h]));
}

// y[d * step] = x[d] / sqrt(sum x^2 + 1e-6) * scale for d < dim, then zeros up to `padded`. One warp.
template <typename T>
__device__ void l2_normalise(const T* x, int dim, int padded, float scale, float* y, int step) {
  const int lane = threadIdx.x % 32;
  float squares = 0;
  for (int d = lane; d < dim; d += 32) {
    const float v = to_f32(x[d]);
    squares = __fmaf_rn(v, v, squares);
  }
  const float factor = __fdiv_rn(scale, __fsqrt_rn(__fadd_rn(warp_sum(squares), 1e-6f)));
  for (int d = lane; d < padded; d += 32) y[d * step] = d < dim ? __fmul_rn(to_f32(x[d]), factor) : 0.0f;
}

__device__ inline float4 load4(const float* x) {
  return *reinterpret_cast<const float4*>(x);
}
__device__ inline void store4(float* x, float4 v) {
  *reinterpret_cast<float4*>(x) = v;
}
__device__ inline float4 scaled(float4 x, float4 by) {
  return {__fmul_rn(x.x, by.x), __fmul_rn(x.y, by.y), __fmul_rn(x.z, by.z), __fmul_rn(x.w, by.w)};
}

// c += a b^T.
__device__ inline void multiply_add(float (&c)[4][4], float4 a, float4 b) {
  const float rows[4] = {a.x, a.y, a.z, a.w}, cols[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) c[i][j] = __fmaf_rn(rows[i], cols[j], c[i][j]);
  }
}

__device__ inline void scale(float (&x)[4][4], float by) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) x[i][j] = __fmul_rn(x[i][j], by);
  }
}

// --- prompts: a chunk alone ------------------------------------------------------------------------------

constexpr int kChunk = 64;            // tokens; a contract
constexpr int kChunksAtOnce = 8;      // a group's scratch stays in L2: 38 MB at 32 heads of 128 x 128
constexpr int kPrepareThreads = 256;  // 16 x 16 tiles of 4 x 4
constexpr int kSolved = 16;           // tokens that a column of the solve keeps in registers

// One chunk of one head in scratch, in floats and padded with zeros:
//   [rows][W^T (64) | (e^b Q)^T (64)], [64][P^T (64) | e^(b_last - b) K (rows)], [64][U (columns)],
//   e^(b_last).
struct Prepared {
  int rows, columns;  // Ek up to a multiple of 64, Ev up to one of 32

  explicit Prepared(const GdnPrefill& a)
      : rows((a.shape.key_dim + 63) / 64 * 64), columns((a.shape.value_dim + 31) / 32 * 32) {}
  __host__ __device__ int pk() const { return rows * 2 * kChunk; }
  __host__ __device__ int u() const { return pk() + kChunk * (kChunk + rows); }
  __host__ __device__ int decay() const { return u() + kChunk * columns; }
  __host__ __device__ int floats() const { return decay() + 4; }
};

// The work space of prepare_kernel. The strides put the same 16 bytes of 8 neighbouring rows into different
// banks.
struct ChunkSpace {
  static constexpr int kKq = 2 * kChunk + 4, kV = kChunk + 4;  // strides
  float* kq;                                                   // [rows][K^T | Q^T]; K^T becomes W^T
  float* v;                                                    // [columns][V^T], becomes U^T
  float* a;                                                    // [64][A^T], the same stride
  float *b, *decay, *to_end, *beta, *strength;                 // [64]: b, e^b, e^(b_last - b), beta, beta e^b

  __host__ static int floats(const Prepared& p) {
    return p.rows * kKq + (p.columns + kChunk) * kV + 5 * kChunk;
  }
  __device__ ChunkSpace(float* p, const Prepared& size) {
    kq = p, v = kq + size.rows * kKq, a = v + size.columns * kV, b = a + kChunk * kV;
    decay = b + kChunk, to_end = decay + kChunk, beta = to_end + kChunk, strength = beta + kChunk;
  }
};

// b and what follows from it, by the first warp; a lane has two tokens. Tokens from n on do not decay or
// write.
template <typename T>
__device__ void load_gates(const Delta<T>& a, int h, int begin, int n, const ChunkSpace& c) {
  const int lane = static_cast<int>(threadIdx.x), i = 2 * lane;
  const float g0 = i < n ? a.g[a.gate(begin + i, h)] : 0.0f;
  const float g1 = i + 1 < n ? a.g[a.gate(begin + i + 1, h)] : 0.0f;
  float through = __fadd_rn(g0, g1);  // the sum up to the second token
  for (int offset = 1; offset < 32; offset *= 2) {
    const float before = __shfl_up_sync(~0u, through, offset);
    if (lane >= offset) through = __fadd_rn(before, through);
  }
  const float before = __shfl_up_sync(~0u, through, 1);
  const float last = __shfl_sync(~0u, through, 31);
  const float b[2] = {lane == 0 ? g0 : __fadd_rn(before, g0), through};
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const float beta = i + j < n ? a.beta[a.gate(begin + i + j, h)] : 0.0f, decay = expf(b[j]);
    c.b[i + j] = b[j];
    c.decay[i + j] = decay;
    c.to_end[i + j] = expf(__fsub_rn(last, b[j]));
    c.beta[i + j] = beta;
    c.strength[i + j] = __fmul_rn(beta, decay);
  }
}

// q, k and v of the chunk, transposed; a warp takes a token.
template <typename T>
__device__ void load_tokens(const Delta<T>& a, const Prepared& size, int h, int begin, int n,
                            const ChunkSpace& c) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < kChunk; i += kPrepareThreads / 32) {
    const int t = begin + min(i, n - 1), Ek = i < n ? a.key_dim : 0, Ev = i < n ? a.value_dim : 0;
    l2_normalise(a.k(t, h), Ek, size.rows, 1.0f, c.kq + i, ChunkSpace::kKq);
    l2_normalise(a.q(t, h), Ek, size.rows, a.q_scale, c.kq + kChunk + i, ChunkSpace::kKq);
    const T* v = a.v(t, h);
    for (int e = lane; e < size.columns; e += 32) c.v[e * ChunkSpace::kV + i] = e < Ev ? to_f32(v[e]) : 0.0f;
  }
}

// A to the work space and P to scratch, both transposed: a thread has 4 x 4 of each.
__device__ void gram(int key_dim, const Prepared& size, const ChunkSpace& c, float* pk) {
  const int i0 = 4 * (static_cast<int>(threadIdx.x) % 16), j0 = 4 * (static_cast<int>(threadIdx.x) / 16);
  float kk[4][4] = {}, qk[4][4] = {};
#pragma unroll 4
  for (int d = 0; d < key_dim; ++d) {
    const float* row = c.kq + d * ChunkSpace::kKq;
    const float4 right = load4(row + j0);
    multiply_add(kk, load4(row + i0), right);
    multiply_add(qk, load4(row + kChunk + i0), right);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float a[4], p[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = i0 + i, column = j0 + j;
      const float decay = row >= column ? expf(__fsub_rn(c.b[row], c.b[column])) : 0.0f;
      p[i] = row >= column ? __fmul_rn(decay, qk[i][j]) : 0.0f;
      a[i] = row > column ? __fmul_rn(__fmul_rn(c.beta[row], decay), kk[i][j]) : 0.0f;
    }
    store4(c.a + (j0 + j) * ChunkSpace::kV + i0, {a[0], a[1], a[2], a[3]});
    store4(pk + (j0 + j) * (kChunk + size.rows) + i0, {p[0], p[1], p[2], p[3]});
  }
}

// e^(b_last - b) K to scratch, while K is still there.
__device__ void store_keys(const Prepared& size, const ChunkSpace& c, float* pk) {
  const int lane = static_cast<int>(threadIdx.x) % 32, stride = kChunk + size.rows;
  for (int i = static_cast<int>(threadIdx.x) / 32 * 4; i < kChunk; i += kPrepareThreads / 32 * 4) {
    const float4 to_end = load4(c.to_end + i);
    for (int d = lane; d < size.rows; d += 32) {
      const float4 k = scaled(load4(c.kq + d * ChunkSpace::kKq + i), to_end);
      float* to = pk + i * stride + kChunk + d;
      to[0] = k.x, to[stride] = k.y, to[2 * stride] = k.z, to[3 * stride] = k.w;
    }
  }
}

// Tokens i0 .. i0+15 of two columns x of (I + A) x = scale * x, in place, given those before.
__device__ void solve_tokens(const float* a, int i0, float* const (&x)[2], const float* const (&scale)[2]) {
  constexpr int kFours = kSolved / 4;
  float y[2][kSolved];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
#pragma unroll
    for (int m = 0; m < kFours; ++m) {
      const float4 v = scaled(load4(x[c] + i0 + 4 * m), load4(scale[c] + i0 + 4 * m));
      y[c][4 * m] = v.x, y[c][4 * m + 1] = v.y, y[c][4 * m + 2] = v.z, y[c][4 * m + 3] = v.w;
    }
  }
  // What the finished token j, with values known[c], takes from the tokens i0 + i, i >= from.
  const auto take = [&](int j, const float(&known)[2], int from) {
#pragma unroll
    for (int m = 0; m < kFours; ++m) {
      if (4 * m + 3 < from) continue;
      const float4 v = load4(a + j * ChunkSpace::kV + i0 + 4 * m);
      const float as[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (4 * m + r < from) continue;
#pragma unroll
        for (int c = 0; c < 2; ++c) y[c][4 * m + r] = __fmaf_rn(-as[r], known[c], y[c][4 * m + r]);
      }
    }
  };
  for (int j = 0; j < i0; ++j) take(j, {x[0][j], x[1][j]}, 0);
#pragma unroll
  for (int j = 0; j < kSolved - 1; ++j) take(i0 + j, {y[0][j], y[1][j]}, j + 1);
#pragma unroll
  for (int c = 0; c < 2; ++c) {
#pragma unroll
    for (int m = 0; m < kFours; ++m) {
      store4(x[c] + i0 + 4 * m, {y[c][4 * m], y[c][4 * m + 1], y[c][4 * m + 2], y[c][4 * m + 3]});
    }
  }
}

// W takes the place of K and U that of V: columns of K and V are rows of the work space, and a thread's own.
__device__ void solve(const Prepared& size, const ChunkSpace& c) {
  const int half = (size.rows + size.columns) / 2;
  const auto row = [&](int i) {
    return i < size.rows ? c.kq + i * ChunkSpace::kKq : c.v + (i - size.rows) * ChunkSpace::kV;
  };
  const auto scale = [&](int i) { return i < size.rows ? c.strength : c.beta; };
  for (int i = static_cast<int>(threadIdx.x); i < half; i += kPrepareThreads) {
    float* const x[2] = {row(i), row(half + i)};
    const float* const scales[2] = {scale(i), scale(half + i)};
    for (int i0 = 0; i0 < kChunk; i0 += kSolved) solve_tokens(c.a, i0, x, scales);
  }
}

__device__ void store_solved(const Prepared& size, const ChunkSpace& c, float* to) {
  constexpr int kFours = 2 * kChunk / 4;
  const int tid = static_cast<int>(threadIdx.x);
  for (int i = tid; i < size.rows * kFours; i += kPrepareThreads) {
    const int d = i / kFours, at = i % kFours * 4;
    float4 x = load4(c.kq + d * ChunkSpace::kKq + at);
    if (at >= kChunk) x = scaled(x, load4(c.decay + at - kChunk));
    store4(to + d * 2 * kChunk + at, x);
  }
  float* u = to + size.u();
  for (int i = tid / 32 * 4; i < kChunk; i += kPrepareThreads / 32 * 4) {
    for (int e = tid % 32; e < size.columns; e += 32) {
      const float4 x = load4(c.v + e * ChunkSpace::kV + i);
      float* at = u + i * size.columns + e;
      at[0] = x.x, at[size.columns] = x.y, at[2 * size.columns] = x.z, at[3 * size.columns] = x.w;
    }
  }
  if (tid == 0) to[size.decay()] = c.decay[kChunk - 1];
}

template <typename T>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(Delta<T> a, Prepared size, int first_token, float* scratch) {
  extern __shared__ __align__(16) float shared[];
  wait_for_predecessor();
  let_successor_start();
  const ChunkSpace c(shared, size);
  const int h = static_cast<int>(blockIdx.x), begin = first_token + static_cast<int>(blockIdx.y) * kChunk;
  const int n = min(kChunk, a.tokens - begin);
  float* to = scratch + (std::int64_t{blockIdx.y} * a.value_heads + h) * size.floats();
  if (threadIdx.x < 32) load_gates(a, h, begin, n, c);
  load_tokens(a, size, h, begin, n, c);
  __syncthreads();
  gram(a.key_dim, size, c, to + size.pk());
  store_keys(size, c, to + size.pk());
  __syncthreads();
  solve(size, c);
  __syncthreads();
  store_solved(size, c, to);
}

// --- prompts: the chain of chunks ------------------------------------------------------------------------

constexpr int kChainThreads = 128, kChainColumns = 32;  // 16 x 8 tiles of 4 x 4 for each 64 rows
constexpr int kPanel = 16;                              // rows of W | Q or P | K that travel together
constexpr int kStages = 4;

// The left sides of all products of one head's chunks, panel after panel, through a ring in shared memory.
template <int kRows>
class Panels {
 public:
  static constexpr int kWqWidth = 2 * kChunk, kPkWidth = kChunk + kRows;
  static constexpr int kStage = kPanel * (kWqWidth > kPkWidth ? kWqWidth : kPkWidth);  // floats
  static constexpr int kWqPanels = kRows / kPanel, kPkPanels = kChunk / kPanel;

  __device__ Panels(float* ring, const float* from, std::int64_t chunk_stride, int chunks)
      : ring_(ring), from_(from), chunk_stride_(chunk_stride), count_(chunks * kOfChunk) {
    for (int i = 0; i < kStages - 1; ++i) fetch(i);
  }
  // The next panel. A barrier: what threads wrote to shared memory before it is seen by all, and the panel
  // before is overwritten.
  __device__ const float* next() {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    fetch(panel_ + kStages - 1);
    return ring_ + panel_++ % kStages * kStage;
  }

 private:
  static constexpr int kOfChunk = kWqPanels + kPkPanels;

  __device__ void fetch(int panel) {
    if (panel < count_) {
      const int i = panel % kOfChunk;
      const bool wq = i < kWqPanels;
      const int floats = kPanel * (wq ? kWqWidth : kPkWidth);
      // P | K follows W | Q.
      const int at = wq ? i * floats : kRows * kWqWidth + (i - kWqPanels) * floats;
      const float* from = from_ + panel / kOfChunk * chunk_stride_ + at;
      float* to = ring_ + panel % kStages * kStage;
      for (int j = 4 * static_cast<int>(threadIdx.x); j < floats; j += 4 * kChainThreads) {
        __pipeline_memcpy_async(to + j, from + j, 16);
      }
    }
    __pipeline_commit();  // also when there is none: next() counts
  }

  float* ring_;
  const float* from_;
  std::int64_t chunk_stride_;
  int count_, panel_ = 0;
};

template <int kRows>
constexpr int chain_floats() {
  return kStages * Panels<kRows>::kStage + (kRows + kChunk) * kChainColumns;
}

template <typename T, int kGroups>  // of 64 rows of S
__global__ void __launch_bounds__(kChainThreads)
    chain_kernel(Delta<T> a, Prepared size, int first_token, int chunks, const float* scratch) {
  constexpr int kRows = 64 * kGroups;
  using Ring = Panels<kRows>;
  extern __shared__ __align__(16) float shared[];
  wait_for_predecessor();
  let_successor_start();
  float* S = shared + kStages * Ring::kStage;  // [kRows][32], a copy of what threads hold
  float* X = S + kRows * kChainColumns;        // [64][32]
  const int h = static_cast<int>(blockIdx.x), first_column = static_cast<int>(blockIdx.y) * kChainColumns;
  const int row = static_cast<int>(threadIdx.x) / 8 * 4, column = static_cast<int>(threadIdx.x) % 8 * 4;
  const std::int64_t chunk_stride = std::int64_t{a.value_heads} * size.floats();
  const float* from = scratch + std::int64_t{h} * size.floats();
  Ring panels(shared, from, chunk_stride, chunks);

  const auto keep = [&](float* to, int at, const float(&x)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      store4(to + (at + row + i) * kChainColumns + column, {x[i][0], x[i][1], x[i][2], x[i][3]});
    }
  };
  // Calls body(element of S, its address) for the thread's elements of S.
  float s[kGroups][4][4] = {};
  const auto for_state = [&](auto body) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int d = 64 * g + row + i, e = first_column + column + j;
          if (d < a.key_dim && e < a.value_dim) body(s[g][i][j], a.state_at(h, d, e));
        }
      }
    }
  };
  for_state([](float& x, const float* at) { x = *at; });
#pragma unroll
  for (int g = 0; g < kGroups; ++g) keep(S, 64 * g, s[g]);

  for (int chunk = 0; chunk < chunks; ++chunk, from += chunk_stride) {
    const float decay = from[size.decay()];
    float4 u[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      u[i] = load4(from + size.u() + (row + i) * size.columns + first_column + column);

    float ws[4][4] = {}, o[4][4] = {};
    for (int i = 0; i < Ring::kWqPanels; ++i) {
      const float* panel = panels.next() + row;
#pragma unroll 4
      for (int k = 0; k < kPanel; ++k) {
        const float4 right = load4(S + (i * kPanel + k) * kChainColumns + column);
        multiply_add(ws, load4(panel + k * Ring::kWqWidth), right);
        multiply_add(o, load4(panel + k * Ring::kWqWidth + kChunk), right);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float us[4] = {u[i].x, u[i].y, u[i].z, u[i].w};
#pragma unroll
      for (int j = 0; j < 4; ++j) ws[i][j] = __fsub_rn(us[j], ws[i][j]);
    }
    keep(X, 0, ws);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) scale(s[g], decay);
    for (int i = 0; i < Ring::kPkPanels; ++i) {
      const float* panel = panels.next() + row;
#pragma unroll 4
      for (int k = 0; k < kPanel; ++k) {
        const float4 right = load4(X + (i * kPanel + k) * kChainColumns + column);
        multiply_add(o, load4(panel + k * Ring::kPkWidth), right);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
          multiply_add(s[g], load4(panel + k * Ring::kPkWidth + kChunk + 64 * g), right);
        }
      }
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) keep(S, 64 * g, s[g]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int t = first_token + chunk * kChunk + row + i;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int e = first_column + column + j;
        if (t < a.tokens && e < a.value_dim) {
          a.out.row(t)[std::int64_t{h} * a.value_dim + e] = from_f32<T>(o[i][j]);
        }
      }
    }
  }
  for_state([](float x, float* at) { *at = x; });
}

// --- launches --------------------------------------------------------------------------------------------

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorCode::internal, message);
}

template <typename T, int kGroups>
void launch_chain(Stream& s, const Delta<T>& a, const Prepared& size, int first_token, int chunks) {
  constexpr int kBytes = chain_floats<64 * kGroups>() * static_cast<int>(sizeof(float));
  const dim3 grid(static_cast<unsigned>(a.value_heads), blocks(a.value_dim, kChainColumns));
  launch(s, "gdn_prefill", {.blocks = grid, .threads = kChainThreads, .shared = kBytes}, chain_kernel<T, kGroups>, a, size,
         first_token, chunks, static_cast<const float*>(s.cuda_scratch));
}

// Chunks first_token / 64 and on.
template <typename T>
void prefill_group(Stream& s, const Delta<T>& a, const Prepared& size, int first_token, int chunks) {
  const int bytes = ChunkSpace::floats(size) * static_cast<int>(sizeof(float));
  const dim3 grid(static_cast<unsigned>(a.value_heads), static_cast<unsigned>(chunks));
  launch(s, "gdn_prefill",
         {.blocks = grid, .threads = kPrepareThreads, .shared = static_cast<std::size_t>(bytes)}, prepare_kernel<T>, a,
         size, first_token, static_cast<float*>(s.cuda_scratch));
  switch (size.rows / 64) {
    case 1:
      return launch_chain<T, 1>(s, a, size, first_token, chunks);
    case 2:
      return launch_chain<T, 2>(s, a, size, first_token, chunks);
    case 3:
      return launch_chain<T, 3>(s, a, size, first_token, chunks);
    default:
      return launch_chain<T, 4>(s, a, size, first_token, chunks);
  }
}

}  // namespace

int chunks_at_once(const Stream& s, const GdnPrefill& a, std::size_t head_bytes, int most) {
  const std::size_t one = head_bytes * static_cast<std::size_t>(a.shape.value_heads);
  if (s.cuda_scratch_bytes < one) {
    fail("gdn_prefill: " + std::to_string(s.cuda_scratch_bytes) +
         " bytes of scratch memory, a chunk of 64 tokens of " + std::to_string(a.shape.value_heads) +
         " heads needs " + std::to_string(one));
  }
  return static_cast<int>(std::min<std::size_t>(s.cuda_scratch_bytes / one, static_cast<std::size_t>(most)));
}

void gdn_gates(Stream& s, Rows a, Rows b, std::span<const float> A_log, std::span<const float> dt_bias,
               std::span<float> g, std::span<float> beta) {
  check_gdn_gates(a, b, A_log, dt_bias, g, beta);
  if (a.rows == 0 || a.cols == 0) return;
  constexpr int kThreads = 128;
  with_type(a.format, [&](auto t) {
    using T = decltype(t);
    launch(s, "gdn_gates", {.blocks = blocks(a.rows * a.cols, kThreads), .threads = kThreads}, gates_kernel<T>, matrix<T>(a),
           matrix<T>(b), A_log.data(), dt_bias.data(), a.rows, a.cols, g.data(), beta.data());
  });
}

void gdn_prefill(Stream& s, const GdnPrefill& a) {
  check_gdn_prefill(a);
  if (a.shape.key_dim > kMostDim || a.shape.value_dim > kMostDim) {
    fail("gdn_prefill: key heads of " + std::to_string(a.shape.key_dim) + ", value heads of " +
         std::to_string(a.shape.value_dim) + ", expected at most 256");
  }
  if (a.qkv.rows == 0) return;
  if (a.qkv.format == Format::bf16 && a.shape.key_dim == kGdnDim && a.shape.value_dim == kGdnDim) {
    return gdn_prefill_tensor(s, a);
  }
  const Prepared size(a);
  const int at_once = chunks_at_once(s, a, sizeof(float) * static_cast<std::size_t>(size.floats()), kChunksAtOnce);
  const int tokens = static_cast<int>(a.qkv.rows);
  with_type(a.qkv.format, [&](auto t) {
    using T = decltype(t);
    const Delta<T> d(a);
    for (int begin = 0; begin < tokens; begin += at_once * kChunk) {
      const int chunks = std::min(at_once, (tokens - begin + kChunk - 1) / kChunk);
      prefill_group(s, d, size, begin, chunks);
    }
  });
}

}  // namespace quire::cuda
