// Causal attention of prompt tokens over the pages of their sequences.
//   out[t, h] = sum_{j <= start+t} w_j v_j / sum_j w_j, w_j = exp(s_j - m), s_j = q k_j E^-1/2
// Shapes: q, out [T, H E]; keys and values in pages [rows, G E]; head h reads h / (H/G); E <= 256; bf16 (f32:
// attention_f32_cuda.cu).
//
// FLOP: 4 E H for each key and row: the wall. Bytes: K and V once for each 64 rows, from L2.
//
// Plan: a block takes 64 rows (token, head of the group) of a request and runs through its tiles of 64 keys with a
// running maximum; a tile is copied while the one before is used. Blocks with most keys start first. The grid is sized
// by the longest request; blocks without rows end at once.
//
// Precision: products bf16 x bf16 summed in f32 by mma.m16n8k16, softmax f32, exp by ex2.approx; weights are rounded to
// bf16 relative to the largest score so far, their sum is not; one round at the end.
//
// Invariance: tiles lie at absolute key indices and are taken in order (attention_block.cuh).
#include "ops/attention/attention.h"
#include "ops/attention/attention_block.cuh"
#include "ops/cuda/entries.h"
#include "ops/cuda/launch.h"

namespace quire::cuda {
namespace {

constexpr int kRowWarps = 2, kRowTiles = 2, kKeys = 64;
constexpr int kHeld = 14;  // fragments of a row tile's queries in registers; the others are read for every tile
template <int kE>
using Block = AttentionBlock<kE, kRowWarps, kRowTiles, kKeys, 4, 1>;

// Every thread of the block calls it.
template <int kE>
__device__ inline void store_out(const TextAttention& a, Block<kE>& block, const typename Block<kE>::Sums& sums,
                                 const Place& at, int first, int rows, int g, int first_row) {
  __syncthreads();  // nobody reads maxima any more
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (at.lane % 4 == 0) block.rows[at.column_warp][at.row(i, half)] = sums.weights[i][half];
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int local = at.row(i, half), row = first_row + local;
      if (row >= rows) continue;
      float weights = block.rows[0][local];
#pragma unroll
      for (int w = 1; w < kColumnWarps; ++w) weights = __fadd_rn(weights, block.rows[w][local]);
      bfloat* const out = a.query_head(a.out, first, g, row);
#pragma unroll
      for (int n = 0; n < kE / 32; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int e = at.column_warp * (kE / kColumnWarps) + at.column(n) + c;
          if (e < a.head_dim) out[e] = from_f32<bfloat>(quotient(sums.out[i][n][2 * half + c], weights));
        }
      }
    }
  }
}

// Grid: row blocks, key heads, requests.
template <int kE>
__global__ __launch_bounds__(Block<kE>::kThreads, 1) void prefill_kernel(const TextAttention a) {
  extern __shared__ __align__(16) unsigned char shared[];
  Block<kE>& block = *reinterpret_cast<Block<kE>*>(shared);
  wait_for_predecessor();
  let_successor_start();
  const int request = blockIdx.z, g = blockIdx.y;
  const int first = a.requests.first_row[request], tokens = a.requests.first_row[request + 1] - first;
  const int rows = tokens * a.group, first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Block<kE>::kRows;
  if (first_row >= rows) return;
  const int start = a.requests.start[request], keys = start + tokens;
  const std::int32_t* const pages = a.kv.pages(a.requests.slot[request]);
  const int last_tile = (start + (min(rows, first_row + Block<kE>::kRows) - 1) / a.group) / kKeys;

  const Place at = place<kRowTiles>();
  const auto load_keys = [&](int tile) {
    const int page = pages[tile * kKeys / a.kv.page_size], to = tile % 2 * 2;
    block.load_keys(a, a.kv.k, page, g, tile * kKeys, keys, to);
    block.load_keys(a, a.kv.v, page, g, tile * kKeys, keys, to + 1);
  };
  block.load_queries(a, first, start, rows, g, first_row, 0);
  load_keys(0);
  wait_for_copies();
  __syncthreads();
  std::uint32_t held[kRowTiles][kHeld][4];
#pragma unroll
  for (int i = 0; i < kRowTiles; ++i) {
#pragma unroll
    for (int e = 0; e < min(kHeld, kE / 16); ++e) block.read_query(held[i][e], at, 0, i, e);
  }
  typename Block<kE>::Sums sums;
  sums.clear();
  for (int tile = 0; tile <= last_tile; ++tile) {
    const int here[] = {tile % 2 * 2}, values[] = {tile % 2 * 2 + 1};
    wait_for_copies();
    __syncthreads();  // this tile is here, and nobody reads the other any more
    if (tile < last_tile) load_keys(tile + 1);
    typename Block<kE>::Scores s;
    block.template score<kE / 16>(s, at, a.scale, tile * kKeys, here, 0, [&](std::uint32_t (&x)[4], int i, int e) {
      if (e >= kHeld) return block.read_query(x, at, 0, i, e);
#pragma unroll
      for (int c = 0; c < 4; ++c) x[c] = held[i][e][c];
    });
    block.template softmax<false>(sums, s, at);
    __syncthreads();
    block.weighted_sum(sums, at, values);
  }
  store_out<kE>(a, block, sums, at, first, rows, g, first_row);
}

template <int kE>
void launch_prefill(Stream& s, const TextAttention& a, const Requests& requests) {
  const dim3 grid(blocks(std::int64_t{requests.longest} * a.group, Block<kE>::kRows),
                  static_cast<unsigned>(a.key_heads), static_cast<unsigned>(requests.count));
  launch(s, "attention_prefill", {.blocks = grid, .threads = Block<kE>::kThreads, .shared = sizeof(Block<kE>)},
         prefill_kernel<kE>, a);
}

}  // namespace

void attention_prefill(Stream& s, const Attention& a) {
  check_attention(a);
  check_head_dim("attention_prefill", a.head_dim);
  if (a.requests.count == 0 || a.requests.longest == 0) return;
  if (a.q.format == Format::f32) return plain_attention(s, a);
  const TextAttention call = text_attention(a);
  if (a.head_dim <= 64) {
    launch_prefill<64>(s, call, a.requests);
  } else if (a.head_dim <= 128) {
    launch_prefill<128>(s, call, a.requests);
  } else {
    launch_prefill<256>(s, call, a.requests);
  }
  if (a.q_gate.data) attention_gate(s, a.out, a.q_gate, a.head_dim, a.out);
}

}  // namespace quire::cuda
