// What the kernels of Gated DeltaNet share: the gates, GdnWindow in a kernel.
#pragma once

#include <cmath>
#include <string>

#include "ops/cuda/common.cuh"
#include "ops/cuda/launch.h"
#include "ops/gdn/gdn.h"

namespace quire::cuda {

constexpr int kGdnDim = 128;  // Ek and Ev

// The ring row of token t >= 0; unsigned, so that it is one instruction.
__device__ inline int ring_index(int t) { return static_cast<int>(static_cast<unsigned>(t) % kGdnRing); }
__device__ inline int block_of(int t) { return static_cast<int>(static_cast<unsigned>(t) / kGdnBlock); }

// T: activations, U: ring_u.
template <typename T, typename U>
struct Window {
  Matrix<T> qkv, z, a, b, out, conv, ring_k;
  Matrix<U> ring_u;
  Matrix<float> ring_g;
  const float *conv1d, *A_log, *dt_bias, *norm;
  float* state;
  const std::int32_t *first_row, *slot, *generated, *previous;
  int slots, key_heads, value_heads, taps;
  float eps;
  bool vectors;  // rows of qkv, z and out can be read and written 16 bytes at a time

  explicit Window(const GdnWindow& w)
      : qkv(matrix<T>(w.qkv)),
        z(matrix<T>(w.z)),
        a(matrix<T>(w.a)),
        b(matrix<T>(w.b)),
        out(matrix<T>(w.out)),
        conv(matrix<T>(w.slots.conv)),
        ring_k(matrix<T>(w.slots.ring_k)),
        ring_u(matrix<U>(w.slots.ring_u)),
        ring_g(matrix<float>(w.slots.ring_g)),
        conv1d(w.conv1d.data()),
        A_log(w.A_log.data()),
        dt_bias(w.dt_bias.data()),
        norm(w.norm.data()),
        state(w.slots.state.data()),
        first_row(w.requests.first_row),
        slot(w.requests.slot),
        generated(w.generated),
        previous(w.previous),
        slots(static_cast<int>(w.slots.ring_k.rows / kGdnRing)),
        key_heads(w.shape.key_heads),
        value_heads(w.shape.value_heads),
        taps(static_cast<int>(static_cast<std::int64_t>(w.conv1d.size()) / w.qkv.cols)),
        eps(w.eps),
        vectors(aligned(w.qkv, 16) && aligned(w.z, 16) && aligned(w.out, 16)) {}

  // Whether every row begins at a multiple of `bytes`.
  static bool aligned(const Rows& x, std::int64_t bytes) {
    return reinterpret_cast<std::uintptr_t>(x.data) % static_cast<std::uintptr_t>(bytes) == 0 &&
           x.stride * size_of(x.format) % bytes == 0;
  }

  __device__ int group() const { return value_heads / key_heads; }
  __device__ float* state_of(int slot_index, int head) const {
    return state + (std::int64_t{slot_index} * value_heads + head) * kGdnDim * kGdnDim;
  }
  __device__ std::int64_t ring_row(int slot_index, int t) const { return std::int64_t{slot_index} * kGdnRing + ring_index(t); }
  // Where row t of a slot stands in the ring of inputs.
  __device__ T* conv_row(int slot_index, int t) const {
    const unsigned size = static_cast<unsigned>(gdn_conv_rows(taps));
    return conv.row(std::int64_t{slot_index} * size + static_cast<unsigned>(t + taps - 1) % size);
  }
};

// What a step does for one request.
struct Cursor {
  std::int32_t first_row = 0, rows = 0, slot = 0, start = 0, previous = 0;

  Cursor() = default;
  __device__ Cursor(std::int32_t first, std::int32_t end, std::int32_t slot_index, std::int32_t t, std::int32_t before)
      : first_row(first), rows(end - first), slot(slot_index), start(t), previous(before) {}

  // Past L1: a copy there may be a step old.
  template <typename Window>
  __device__ Cursor(const Window& w, int request)
      : Cursor(__ldcg(w.first_row + request), __ldcg(w.first_row + request + 1), __ldcg(w.slot + request),
               __ldcg(w.generated + request), __ldcg(w.previous + request)) {}
  __device__ bool operator==(const Cursor& o) const {
    return first_row == o.first_row && rows == o.rows && slot == o.slot && start == o.start && previous == o.previous;
  }
  // Whether there is anything to do, within the pools.
  __device__ bool sound(int slots) const {
    return rows > 0 && rows <= kMostWindow && slot >= 0 && slot < slots && previous >= 0 && start >= previous &&
           block_of(start) - block_of(previous) <= 1;
  }
  // The first token whose record may be read.
  __device__ int base() const { return block_of(previous) * kGdnBlock; }
  __device__ bool folds() const { return block_of(previous) != block_of(start); }
};

// log decay and write strength as gdn_gates gives them.
__device__ inline float log_decay(float a, float A_log, float dt_bias) {
  const float x = __fadd_rn(a, dt_bias);
  return -__fmul_rn(expf(A_log), __fadd_rn(fmaxf(x, 0.0f), log1pf(expf(-fabsf(x)))));
}

// GdnPrefill in a kernel.
template <typename T>
struct Delta {
  Matrix<T> qkv, out;
  const float *g, *beta;
  float* state;
  int tokens, key_heads, value_heads, key_dim, value_dim;
  float q_scale;

  explicit Delta(const GdnPrefill& a)
      : qkv(matrix<T>(a.qkv)),
        out(matrix<T>(a.out)),
        g(a.g.data()),
        beta(a.beta.data()),
        state(a.state.data()),
        tokens(static_cast<int>(a.qkv.rows)),
        key_heads(a.shape.key_heads),
        value_heads(a.shape.value_heads),
        key_dim(a.shape.key_dim),
        value_dim(a.shape.value_dim),
        q_scale(1.0f / std::sqrt(static_cast<float>(a.shape.key_dim))) {}

  __device__ const T* q(std::int64_t t, int h) const {
    return qkv.row(t) + std::int64_t{h / (value_heads / key_heads)} * key_dim;
  }
  __device__ const T* k(std::int64_t t, int h) const { return q(t, h) + std::int64_t{key_heads} * key_dim; }
  __device__ const T* v(std::int64_t t, int h) const {
    return qkv.row(t) + std::int64_t{2} * key_heads * key_dim + std::int64_t{h} * value_dim;
  }
  __device__ std::int64_t gate(std::int64_t t, int h) const { return t * value_heads + h; }
  // Element (k, v) of S.
  __device__ float* state_at(int h, int k, int v) const {
    return state + std::int64_t{h} * key_dim * value_dim + state_index(StateOrder::fragments, key_dim, value_dim, k, v);
  }
};

// How many chunks of 64 tokens the scratch memory holds, `head_bytes` for each of their heads; `most` at most.
int chunks_at_once(const Stream& s, const GdnPrefill& a, std::size_t head_bytes, int most);

// bf16 activations, heads of 128 x 128.
void gdn_prefill_tensor(Stream& s, const GdnPrefill& a);
// For f32 activations: plain, for comparing.
void gdn_window_f32(Stream& s, const GdnWindow& a);

}  // namespace quire::cuda
