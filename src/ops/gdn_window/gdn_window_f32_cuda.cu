// gdn_window for f32 activations, by the rule of gdn.h, token by token: for comparing, not for speed.
// Plan: a block is a request and a value head, a thread one of its values with its column of the checkpoint in shared
// memory; what it reads of the window's updates it wrote itself.
// Precision: f32; every sum runs in index order, but for those over a head's squares (block_sum).
#include "ops/gdn/gdn_cuda.cuh"

namespace quire::cuda {
namespace {

constexpr int L = kGdnBlock;

struct Shared {
  float C[kGdnDim][kGdnDim];     // the checkpoint, [k][v]
  float k[kMostWindow][kGdnDim];  // of the window
  float q[kGdnDim];              // of the token
  float G[kMostWindow];
  float a[L], f[L];  // weights of the block's records for the token
};

struct Item {
  const Window<float, float>& w;
  Shared& m;
  const Cursor& c;
  const int head, key_head, v = static_cast<int>(threadIdx.x);
  const bool keeps_keys;

  __device__ Item(const Window<float, float>& window, Shared& memory, const Cursor& cursor, int h)
      : w(window), m(memory), c(cursor), head(h), key_head(h / window.group()), keeps_keys(h % window.group() == 0) {}

  __device__ const float* k(int t) const {
    return t < c.start ? w.ring_k.row(w.ring_row(c.slot, t)) + key_head * kGdnDim : m.k[t - c.start];
  }
  __device__ float G(int t) const {
    return t < c.start ? w.ring_g.row(w.ring_row(c.slot, t))[head] : m.G[t - c.start];
  }
  __device__ float& u(int t) const { return w.ring_u.row(w.ring_row(c.slot, t))[head * kGdnDim + v]; }

  __device__ void fold(int block) const {
    const int first = block * L;
    const float last = G(first + L - 1), decay = expf(last);
    for (int d = 0; d < kGdnDim; ++d) m.C[d][v] = __fmul_rn(decay, m.C[d][v]);
    for (int t = first; t < first + L; ++t) {
      const float y = __fmul_rn(expf(__fsub_rn(last, G(t))), u(t));
      const float* key = k(t);
      for (int d = 0; d < kGdnDim; ++d) m.C[d][v] = __fmaf_rn(key[d], y, m.C[d][v]);
    }
  }

  // Column `col` of token t after convolution and SiLU; its input goes to the ring.
  __device__ float convolved(int t, int col, bool keep) const {
    float sum = 0;
    for (int j = 0; j < w.taps; ++j) {
      const int from = t - (w.taps - 1) + j;
      const float x = from < c.start ? w.conv_row(c.slot, from)[col] : w.qkv.row(c.first_row + from - c.start)[col];
      sum = __fmaf_rn(w.conv1d[std::int64_t{col} * w.taps + j], x, sum);
    }
    if (keep) w.conv_row(c.slot, t)[col] = w.qkv.row(c.first_row + t - c.start)[col];
    return silu(sum);
  }

  __device__ float normalised(float x, float scale) const {
    const float squares = block_sum<kGdnDim>(__fmul_rn(x, x));
    return __fmul_rn(x, __fdiv_rn(scale, __fsqrt_rn(__fadd_rn(squares, 1e-6f))));
  }

  __device__ void token(int t) const {
    const int i = t - c.start, first = t / L * L, records = t - first;
    const std::int64_t row = c.first_row + i;
    const int keys = w.key_heads * kGdnDim, col = key_head * kGdnDim + v;
    const float key = normalised(convolved(t, keys + col, keeps_keys), 1.0f);
    const float query = normalised(convolved(t, col, keeps_keys), __frsqrt_rn(static_cast<float>(kGdnDim)));
    const float value = convolved(t, 2 * keys + head * kGdnDim + v, true);
    const float g = log_decay(w.a.row(row)[head], w.A_log[head], w.dt_bias[head]), beta = sigmoid(w.b.row(row)[head]);
    m.k[i][v] = key, m.q[v] = query;
    if (v == 0) m.G[i] = t % L == 0 ? g : __fadd_rn(G(t - 1), g);
    __syncthreads();
    if (keeps_keys) w.ring_k.row(w.ring_row(c.slot, t))[col] = key;
    if (v == 0) w.ring_g.row(w.ring_row(c.slot, t))[head] = G(t);
    if (v <= records) {
      float kk = 0, qk = 0;
      const float* past = k(first + v);
      for (int d = 0; d < kGdnDim; ++d) kk = __fmaf_rn(m.k[i][d], past[d], kk), qk = __fmaf_rn(m.q[d], past[d], qk);
      const float decay = expf(__fsub_rn(G(t), G(first + v)));
      m.a[v] = __fmul_rn(__fmul_rn(beta, decay), kk);
      m.f[v] = __fmul_rn(decay, qk);
    }
    __syncthreads();
    float hk = 0, hq = 0;
    for (int d = 0; d < kGdnDim; ++d) hk = __fmaf_rn(m.C[d][v], m.k[i][d], hk), hq = __fmaf_rn(m.C[d][v], m.q[d], hq);
    const float decay = expf(G(t));
    float update = __fmul_rn(beta, __fmaf_rn(-decay, hk, value)), o = __fmul_rn(decay, hq);
    for (int j = 0; j < records; ++j) {
      update = __fmaf_rn(-m.a[j], u(first + j), update);
      o = __fmaf_rn(m.f[j], u(first + j), o);
    }
    u(t) = update;
    o = __fmaf_rn(m.f[records], update, o);
    const float mean = __fmul_rn(block_sum<kGdnDim>(__fmul_rn(o, o)), 1.0f / kGdnDim);
    const float scale = __fdiv_rn(1.0f, __fsqrt_rn(__fadd_rn(mean, w.eps)));
    const int at = head * kGdnDim + v;
    w.out.row(row)[at] = __fmul_rn(__fmul_rn(w.norm[v], __fmul_rn(o, scale)), silu(w.z.row(row)[at]));
  }
};

__global__ void __launch_bounds__(kGdnDim) window_f32_kernel(Window<float, float> w) {
  extern __shared__ __align__(16) unsigned char shared[];
  Shared& m = *reinterpret_cast<Shared*>(shared);
  wait_for_predecessor();
  let_successor_start();
  const Cursor c(w, static_cast<int>(blockIdx.y));
  if (!c.sound(w.slots)) return;
  const Item item(w, m, c, static_cast<int>(blockIdx.x));
  float* state = w.state_of(c.slot, item.head);
  const auto index = [&](int d) { return state_index(StateOrder::fragments, kGdnDim, kGdnDim, d, item.v); };
  for (int d = 0; d < kGdnDim; ++d) m.C[d][item.v] = state[index(d)];
  int block = c.previous / L;
  if (c.folds()) {
    item.fold(block++);
    for (int d = 0; d < kGdnDim; ++d) state[index(d)] = m.C[d][item.v];
  }
  for (int t = c.start; t < c.start + c.rows; ++t) {
    if (t / L > block) item.fold(block++);
    item.token(t);
  }
}

}  // namespace

void gdn_window_f32(Stream& s, const GdnWindow& a) {
  const Grid grid{.blocks = dim3(static_cast<unsigned>(a.shape.value_heads), static_cast<unsigned>(a.requests.count)),
                  .threads = kGdnDim,
                  .shared = sizeof(Shared)};
  launch(s, "gdn_window", grid, window_f32_kernel, Window<float, float>(a));
}

}  // namespace quire::cuda
