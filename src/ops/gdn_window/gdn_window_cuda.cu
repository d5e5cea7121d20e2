// gdn_window: windows of generated tokens by the rule of gdn.h, from the rows of the projections to the gated norm.
// Shapes: qkv [T, 2 Hk 128 + Hv 128], z and out [T, Hv 128], a and b [T, Hv] bf16; a slot: checkpoint [Hv, 128, 128] f32
// in fragments, rings of 64 records and 20 rows of inputs.
// Bytes of a request: the checkpoint once (2 MB at 32 heads), 12.4 KB a record read or written, 41 KB a token; again the
// checkpoint when it folds. FLOP: 4,096 an MMA, 512 MMAs a head for 16 tokens, 512 a fold. The wall is memory.
// Plan: two blocks an SM take jobs, a request and a value head each; a warp has 16 of its values, whose part of the
// checkpoint it holds in registers as fragments: A of the products, accumulators of a fold. The first checkpoint is on
// its way before the wait for the kernel before, each later one as soon as that before it has been used.
// Measured (one H200, 2026-11-30, gdn_bench, T = 16): 43.7 us for 32 requests, 54 % of the limit; 67.9 us with a fold; 13.7
// us for 8, 7.7 us for one. What a job does one after the other takes longer than its bytes, although two share an SM.
// Tried, and slower: the next checkpoint prefetched to L2, jobs dealt out by what they cost, one product with the
// checkpoint for both halves of a block (bench/results/h200/2026-11-30-gdn-window.json).
// Precision: C, y and the weights of a block's first half as two bf16 (hi, lo), everything else f32 between the rounding
// points. Every sum has one order: MMA over k-steps ascending, hi before lo; then the records of the token's half one by
// one. A token's bits are the same at every T: all windows go through the same instructions on the same operands, and
// columns of an MMA are independent (mma_test.cu).
#include <algorithm>

#include "ops/cuda/entries.h"
#include "ops/cuda/mma.cuh"
#include "ops/gdn/gdn_cuda.cuh"

namespace quire::cuda {
namespace {

constexpr int L = kGdnBlock, kHalf = L / 2;
constexpr int kThreads = 256, kWarps = 8;
constexpr int kTaps = 4, kPast = kTaps - 1, kConvRows = gdn_conv_rows(kTaps);
constexpr int kPieces = kGdnDim / 8;  // 16 bytes of a head
constexpr int kStride = kGdnDim + 8;  // of bf16 rows in shared memory: 8 x 8 fragments without bank conflicts
constexpr int kRows = kThreads / kPieces;  // of a head that all threads copy at once
constexpr int kQuad = 4;                   // tokens of one tile of 8 columns: k and q of each

// A request and a value head.
struct Job : Cursor {
  std::int32_t index, head, key_head, parity;
  bool keeps_keys;  // the heads of one key head share k and the inputs of k and q: the first writes them

  Job() = default;
  template <typename Window>
  __device__ Job(const Window& w, int job, int nth, const Cursor& cursor) : Cursor(cursor), index(job), parity(nth % 2) {
    head = static_cast<int>(static_cast<unsigned>(job) % static_cast<unsigned>(w.value_heads));
    key_head = head / w.group();
    keeps_keys = head % w.group() == 0;
    if (!sound(w.slots)) first_row = rows = slot = start = previous = 0;
  }
  // Whether k is needed to the end.
  __device__ bool needs_keys() const { return folds() || block_of(start) != block_of(start + rows - 1); }
};

template <typename U>
constexpr int kOf16 = 16 / static_cast<int>(sizeof(U));  // elements of 16 bytes

template <typename U>
struct Shared {
  static constexpr int kUStride = kGdnDim + kOf16<U>;
  // Records by ring row, also those of the window. Here and below, rows beyond the last are for tokens that fill up a
  // tile: what they hold is of no consequence.
  alignas(16) bfloat k[kGdnRing][kStride];
  alignas(16) U u[kGdnRing + kQuad][kUStride];
  alignas(16) bfloat x[2 * kMostWindow + 16][kStride];  // rows 2t: k, 2t + 1: q of token t of the window
  alignas(16) bfloat v[kMostWindow + kQuad][kStride];
  alignas(16) bfloat o[kMostWindow][kStride];
  alignas(16) bfloat z[kMostWindow][kGdnDim];
  alignas(16) bfloat input[kPast + kMostWindow][3][kGdnDim];  // q, k, v before the convolution, from kPast tokens before
  alignas(16) float taps[3][kGdnDim][kTaps];
  // Weights a and f, for tokens counted from the first one of the window that is in their half of a block. Of a record in
  // the same half: for token % 4, token / 4; of the first half, for a token of the second: as operand B, rows 2 token: -a
  // and 2 token + 1: f, high and low part.
  alignas(16) float weight[kGdnRing + kQuad][kQuad][2 * kMostWindow / kQuad];
  alignas(16) bfloat early[2][2 * kMostWindow][kHalf + 8];
  float G[2][kGdnRing + kQuad];  // by parity of the job, so that the next one's can come early
  float beta[kMostWindow + kQuad];
  std::uint32_t gates[2][kMostWindow];  // the words that hold a and b
  float before;                         // G of the token before the window
  Job current, next, later;
  bool late_keys;           // those of the current job came with u
  std::int32_t numbers[5];  // of the job after the next: Cursor's
};

// A warp's 16 values of the checkpoint: [k / 16][k % 16 / 8] accumulators.
using State = float[kGdnDim / 16][2][4];

__device__ inline int half_of(int t) { return static_cast<int>(static_cast<unsigned>(t) / kHalf); }

// Read anew wherever a Worker is made: what follows from it would else sit in registers throughout, and spill others.
__device__ inline unsigned this_thread() {
  unsigned t = threadIdx.x;
  asm volatile("" : "+r"(t));
  return t;
}

// The sum over kLanes neighbouring lanes, the same bits in each.
template <int kLanes>
__device__ inline float lane_sum(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) x = __fadd_rn(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

class Place {
 public:
  explicit __device__ Place(unsigned t)
      : thread(static_cast<int>(t)),
        warp(static_cast<int>(t / 32)),
        lane(static_cast<int>(t % 32)),
        group(static_cast<int>(t % 32 / 4)),
        part(static_cast<int>(t % 4)),
        value(16 * warp + group),
        row(static_cast<int>(t / kPieces)),
        piece(static_cast<int>(t % kPieces * 8)) {}

  const int thread, warp, lane;
  const int group, part;  // row of a fragment, its quarter
  const int value;        // the first of the thread's values, the other is 8 further
  const int row, piece;   // where all copy rows of a head, 16 bytes each
};

__device__ inline void store_state(const State& s, float* to, const Place& at) {
  to += at.warp * 16 * kGdnDim + 4 * at.lane;
#pragma unroll
  for (int i = 0; i < kGdnDim / 16; ++i) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      *reinterpret_cast<float4*>(to + i * 256 + half * 128) = {s[i][0][2 * half], s[i][0][2 * half + 1],
                                                               s[i][1][2 * half], s[i][1][2 * half + 1]};
    }
  }
}

// What a block does.
template <typename U, int kTiles>  // of 4 tokens
struct Worker {
  using W = Window<bfloat, U>;
  using Memory = Shared<U>;

  const W& w;
  Memory& m;
  const Place at{this_thread()};

  __device__ Worker(const W& window, Memory& memory) : w(window), m(memory) {}

  __device__ Job job(int index, int nth, int jobs) const {
    return {w, index, nth, index < jobs ? Cursor(w, index / w.value_heads) : Cursor()};
  }
  __device__ float* G(const Job& c) const { return m.G[c.parity]; }
  // The column in qkv of the head's q, k or v.
  __device__ int column(const Job& c, int part) const {
    return part == 2 ? (2 * w.key_heads + c.head) * kGdnDim : (part * w.key_heads + c.key_head) * kGdnDim;
  }

  // What follows is loaded in the background. First what was there before this step: the checkpoint, in quarters, since
  // loads that wait for memory hold up all that goes to shared memory after them;
  template <int kQuarter>
  __device__ void load_quarter(const Job& c, State& s) const {
    if (c.rows == 0) return;
    const float* from = w.state_of(c.slot, c.head) + at.warp * 16 * kGdnDim + 4 * at.lane;
    constexpr int kTilesOf = kGdnDim / 16 / 4;
#pragma unroll
    for (int i = kQuarter * kTilesOf; i < (kQuarter + 1) * kTilesOf; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 v = load_once(from + i * 256 + half * 128);
        s[i][0][2 * half] = v.x, s[i][0][2 * half + 1] = v.y;
        s[i][1][2 * half] = v.z, s[i][1][2 * half + 1] = v.w;
      }
    }
  }
  __device__ void load_state(const Job& c, State& s) const {
    load_quarter<0>(c, s), load_quarter<1>(c, s), load_quarter<2>(c, s), load_quarter<3>(c, s);
  }
  // the records: k and G,
  __device__ void load_keys(const Job& c) const {
    const int base = c.base(), records = c.start - base;
#pragma unroll 1
    for (int i = at.row; i < records; i += kRows) {
      const int row = ring_index(base + i);
      copy_async<16>(&m.k[row][at.piece],
                     w.ring_k.row(std::int64_t{c.slot} * kGdnRing + row) + c.key_head * kGdnDim + at.piece);
    }
    if (at.thread < records) {
      const int row = ring_index(base + at.thread);
      copy_async<4>(&G(c)[row], w.ring_g.row(std::int64_t{c.slot} * kGdnRing + row) + c.head);
    }
  }
  // and u; a warp copies what it reads itself,
  __device__ void load_u(const Job& c) const {
    constexpr int kOfRow = 16 / kOf16<U>;  // pieces
    const int base = c.base(), records = c.start - base, e = 16 * at.warp + at.lane % kOfRow * kOf16<U>;
#pragma unroll 1
    for (int i = at.lane / kOfRow; i < records; i += 32 / kOfRow) {
      const int row = ring_index(base + i);
      copy_async<16>(&m.u[row][e], w.ring_u.row(std::int64_t{c.slot} * kGdnRing + row) + c.head * kGdnDim + e);
    }
  }
  // the inputs of the tokens before, and the taps;
  __device__ void load_past(const Job& c) const {
    if (c.rows == 0) return;
    if (at.row < kPast) {
      const bfloat* from = conv_row(c, at.row - kPast) + at.piece;
#pragma unroll
      for (int part = 0; part < 3; ++part) copy_async<16>(&m.input[at.row][part][at.piece], from + column(c, part));
    }
    if (at.thread < kGdnDim) {
#pragma unroll
      for (int part = 0; part < 3; ++part) {
        copy_async<16>(m.taps[part][at.thread], w.conv1d + (column(c, part) + at.thread) * kTaps);
      }
    }
  }
  // then what the kernel before left: the window's inputs,
  __device__ void load_inputs(const Job& c) const {
    if (at.row >= c.rows) return;
    const bfloat* from = w.qkv.row(c.first_row + at.row) + at.piece;
#pragma unroll
    for (int part = 0; part < 3; ++part) copy(&m.input[kPast + at.row][part][at.piece], from + column(c, part));
  }
  // a and b, a token's in a word with a neighbour's, and G of the token before,
  __device__ void load_gates(const Job& c) const {
    const int i = at.thread & (kMostWindow - 1), which = at.thread >> 4;
    if (which < 2 && i < c.rows) {
      copy_async<4>(&m.gates[which][i],
                    reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(gate(which == 0 ? w.a : w.b, c, i)) / 4 * 4));
    }
    if (which == 2 && i == 0 && block_of(c.start) * L != c.start) {
      copy_async<4>(&m.before, w.ring_g.row(w.ring_row(c.slot, c.start - 1)) + c.head);
    }
  }
  __device__ const bfloat* gate(const Matrix<bfloat>& x, const Job& c, int i) const { return x.row(c.first_row + i) + c.head; }
  // z, of which a thread copies what it reads itself,
  __device__ void load_z(const Job& c) const {
    if (at.row < c.rows) copy(m.z[at.row] + at.piece, w.z.row(c.first_row + at.row) + c.head * kGdnDim + at.piece);
  }
  __device__ void copy(bfloat* to, const bfloat* from) const {
    if (w.vectors) return copy_async<16>(to, from);
#pragma unroll 1
    for (int j = 0; j < 8; ++j) to[j] = from[j];
  }
  // and the numbers of a job.
  __device__ void load_numbers(int index, int jobs) const {
    if (at.thread >= 5 || index >= jobs) return;
    const int request = index / w.value_heads;
    const std::int32_t* const from[] = {w.first_row + request, w.first_row + request + 1, w.slot + request,
                                        w.generated + request, w.previous + request};
#pragma unroll
    for (int i = 0; i < 5; ++i) {
      if (at.thread == i) copy_async<4>(&m.numbers[i], from[i]);
    }
  }

  // Where the input of token i of the window stands in the ring; those before it too.
  __device__ bfloat* conv_row(const Job& c, int i) const {
    return w.conv.row(std::int64_t{c.slot} * kConvRows + static_cast<unsigned>(c.start + i + kPast) % kConvRows);
  }

  // q, k and v of the window after convolution and SiLU, rounded, by all warps but the last. Tokens after the window, up
  // to a multiple of 4, get what happens to lie there.
  __device__ void convolve(const Job& c) const {
    constexpr unsigned kPairs = kGdnDim / 2;
#pragma unroll 1
    for (unsigned unit = static_cast<unsigned>(at.thread); unit < 3 * kPairs * kTiles; unit += kThreads - 32) {
      const int e = static_cast<int>(unit % kPairs * 2), part = static_cast<int>(unit / kPairs % 3);
      const int first = static_cast<int>(unit / kPairs / 3 * kQuad);  // token
      if (first >= c.rows) break;
      const float4 low = *reinterpret_cast<const float4*>(m.taps[part][e]);
      const float4 high = *reinterpret_cast<const float4*>(m.taps[part][e + 1]);
      const float tap[2][kTaps] = {{low.x, low.y, low.z, low.w}, {high.x, high.y, high.z, high.w}};
      std::uint32_t x[kPast + kQuad];
#pragma unroll
      for (int i = 0; i < kPast + kQuad; ++i) x[i] = *reinterpret_cast<const std::uint32_t*>(&m.input[first + i][part][e]);
      bfloat* to = (part == 2 ? m.v[first] : m.x[2 * first + 1 - part]) + e;
      const int step = part == 2 ? kStride : 2 * kStride;
#pragma unroll
      for (int i = 0; i < kQuad; ++i) {
        float sum[2] = {};
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
          sum[0] = __fmaf_rn(tap[0][j], low_of(x[i + j]), sum[0]);
          sum[1] = __fmaf_rn(tap[1][j], high_of(x[i + j]), sum[1]);
        }
        *reinterpret_cast<std::uint32_t*>(to + i * step) = pack(silu(sum[0]), silu(sum[1]));
      }
    }
  }
  __device__ void store_inputs(const Job& c) const {
    if (at.row >= c.rows) return;
    bfloat* to = conv_row(c, at.row) + at.piece;
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      if (part < 2 && !c.keeps_keys) continue;
      *reinterpret_cast<uint4*>(to + column(c, part)) =
          *reinterpret_cast<const uint4*>(&m.input[kPast + at.row][part][at.piece]);
    }
  }

  // G and beta, by one warp: a lane has a token. The sum is serial.
  __device__ void gates(const Job& c) const {
    const int t = c.start + at.lane, i = min(at.lane, max(c.rows - 1, 0));
    const auto value = [&](const Matrix<bfloat>& x, std::uint32_t word) {
      return reinterpret_cast<std::uintptr_t>(gate(x, c, i)) % 4 == 0 ? low_of(word) : high_of(word);
    };
    const float g = log_decay(value(w.a, m.gates[0][i]), w.A_log[c.head], w.dt_bias[c.head]);
    const float beta = sigmoid(value(w.b, m.gates[1][i]));
    float sum = m.before;
    float mine = 0;
#pragma unroll
    for (int j = 0; j < kQuad * kTiles; ++j) {
      const float next = __shfl_sync(~0u, g, j);
      sum = block_of(c.start + j) * L == c.start + j ? next : __fadd_rn(sum, next);
      if (j == at.lane) mine = sum;
    }
    if (at.lane >= c.rows) return;
    G(c)[ring_index(t)] = mine;
    m.beta[at.lane] = beta;
    w.ring_g.row(w.ring_row(c.slot, t))[c.head] = mine;
  }

  // k and q normalised, q scaled, both rounded; 8 lanes a row.
  __device__ void normalise(const Job& c) const {
    const int r = 4 * at.warp + at.lane / 8, e = at.lane & 7;  // row of x, its piece
    uint4* row = reinterpret_cast<uint4*>(m.x[r]) + e;
    uint4 piece[2] = {row[0], row[8]};
    std::uint32_t* pairs = &piece[0].x;
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      squares = __fmaf_rn(low_of(pairs[i]), low_of(pairs[i]), squares);
      squares = __fmaf_rn(high_of(pairs[i]), high_of(pairs[i]), squares);
    }
    const float scale = (r & 1) == 0 ? 1.0f : 0.08838834764831845f;  // 128^-1/2
    const float factor = __fmul_rn(scale, rsqrtf(__fadd_rn(lane_sum<8>(squares), 1e-6f)));
#pragma unroll
    for (int i = 0; i < 8; ++i) pairs[i] = pack(__fmul_rn(low_of(pairs[i]), factor), __fmul_rn(high_of(pairs[i]), factor));
    if (r >= 2 * c.rows) return;
    row[0] = piece[0], row[8] = piece[1];
    if (r & 1) return;
    const int t = c.start + r / 2;
    uint4* record = reinterpret_cast<uint4*>(m.k[ring_index(t)]) + e;
    record[0] = piece[0], record[8] = piece[1];
    if (!c.keeps_keys) return;
    uint4* kept = reinterpret_cast<uint4*>(w.ring_k.row(w.ring_row(c.slot, t)) + c.key_head * kGdnDim) + e;
    kept[0] = piece[0], kept[8] = piece[1];
  }

  // The weights of 16 records, half a block, for 8 tokens: one warp.
  __device__ void weigh(const Job& c, int tokens, int first_record) const {
    float dots[2][4] = {};
#pragma unroll
    for (int i = 0; i < kGdnDim / 16; ++i) {
      std::uint32_t a[4], b[4];
      load_a(a, m.x[2 * tokens] + 16 * i, kStride);
      load_b(b, m.k[ring_index(first_record)] + 16 * i, kStride);
      multiply(dots[0], a, b[0], b[1]);
      multiply(dots[1], a, b[2], b[3]);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int token = tokens + (at.group >> 1) + 4 * row, t = c.start + token, query = at.group & 1;
      if (token >= c.rows || block_of(t) != block_of(first_record) || half_of(t) < half_of(first_record)) continue;
      const bool early = half_of(t) > half_of(first_record);
      const int place = half_of(t) == half_of(c.start) ? token : t & (kHalf - 1);
      const float last = G(c)[ring_index(t)], beta = query ? 1.0f : m.beta[token];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int j = first_record + 8 * half + 2 * at.part;
        const float2 past = *reinterpret_cast<const float2*>(&G(c)[ring_index(j)]);
        float weight[2] = {expf(__fsub_rn(last, past.x)), expf(__fsub_rn(last, past.y))};
#pragma unroll
        for (int i = 0; i < 2; ++i) weight[i] = __fmul_rn(__fmul_rn(beta, weight[i]), dots[half][2 * row + i]);
        if (early) {
          std::uint32_t hi, lo;
          split(query ? weight[0] : -weight[0], query ? weight[1] : -weight[1], hi, lo);
          *reinterpret_cast<std::uint32_t*>(&m.early[0][2 * place + query][j & (kHalf - 1)]) = hi;
          *reinterpret_cast<std::uint32_t*>(&m.early[1][2 * place + query][j & (kHalf - 1)]) = lo;
          continue;
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {  // later ones are stale
          if (j + i < t + query) m.weight[ring_index(j + i)][place & (kQuad - 1)][(place >> 2) * 2 + query] = weight[i];
        }
      }
    }
  }
  __device__ void weigh_all(const Job& c) const {
    constexpr int kEights = (kTiles + 1) / 2;  // of tokens
    const int tokens = (at.warp & (kEights - 1)) * 8, sixteen = at.warp / kEights;
    const int first = block_of(c.start) * L + kHalf * sixteen;  // the third are in the next block
    if (sixteen < 3 && tokens < c.rows && first < c.start + c.rows) weigh(c, tokens, first);
  }

  // The updates of 16 records from ring row `row` on as operand A: [i] has those of value 8 (i % 2) after the thread's
  // first and of the records 8 (i / 2) + 2 part and the next.
  __device__ void load_updates(float2 (&u)[4], int row) const {
    if constexpr (sizeof(U) == sizeof(bfloat)) {
      std::uint32_t a[4];
      load_a_transposed(a, m.u[row] + 16 * at.warp, Memory::kUStride);
#pragma unroll
      for (int i = 0; i < 4; ++i) u[i] = {low_of(a[i]), high_of(a[i])};
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int j = row + 8 * (i / 2) + 2 * at.part, value = at.value + 8 * (i % 2);
        u[i] = {m.u[j][value], m.u[j + 1][value]};
      }
    }
  }

  // s becomes the checkpoint of the block after that of token t.
  __device__ void fold(const float* G, State& s, int t) const {
    const int block = ring_index(block_of(t) * L);
    const float c = G[block + L - 1], decay = expf(c);
    std::uint32_t hi[2][4], lo[2][4];  // of y, 16 values x 16 records
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      float2 u[4];
      load_updates(u, block + kHalf * step);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 past = *reinterpret_cast<const float2*>(&G[block + kHalf * step + 8 * (i / 2) + 2 * at.part]);
        split(__fmul_rn(expf(__fsub_rn(c, past.x)), u[i].x), __fmul_rn(expf(__fsub_rn(c, past.y)), u[i].y), hi[step][i],
              lo[step][i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kGdnDim / 16; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int r = 0; r < 4; ++r) s[i][half][r] = __fmul_rn(decay, s[i][half][r]);
      }
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        std::uint32_t b[4];
        load_b_transposed(b, m.k[block + kHalf * step] + 16 * i, kStride);
        multiply(s[i][0], hi[step], b[0], b[1]);
        multiply(s[i][1], hi[step], b[2], b[3]);
        multiply(s[i][0], lo[step], b[0], b[1]);
        multiply(s[i][1], lo[step], b[2], b[3]);
      }
    }
  }

  // h[n]: what s says to key and query of token begin + 4 n + part: [0], [1], and of the value 8 further [2], [3].
  __device__ void multiply_state(const State& s, int begin, int count, float (&h)[kTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) h[n][0] = h[n][1] = h[n][2] = h[n][3] = 0;
#pragma unroll
    for (int i = 0; i < kGdnDim / 16; ++i) {
      std::uint32_t hi[4], lo[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) split(s[i][r / 2][r % 2 * 2], s[i][r / 2][r % 2 * 2 + 1], hi[r], lo[r]);
      std::uint32_t b[(kTiles + 1) / 2][4];
#pragma unroll
      for (int n = 0; n < kTiles; n += 2) {
        if (kQuad * n < count) load_b(b[n / 2], m.x[2 * begin + 8 * n] + 16 * i, kStride);
      }
      // The high parts of all tokens first: one after the other, the two of a token would wait for each other.
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        if (kQuad * (n / 2 * 2) < count) multiply(h[n], hi, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        if (kQuad * (n / 2 * 2) < count) multiply(h[n], lo, b[n / 2][n % 2 * 2], b[n / 2][n % 2 * 2 + 1]);
      }
    }
  }

  // What the checkpoint contributes to u and o of every token. G: from the first on.
  __device__ void begin_sums(int begin, int count, const float* G, float (&h)[kTiles][4]) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      if (kQuad * n >= count) break;
      const int token = kQuad * n + at.part;
      const float decay = expf(G[token]), beta = m.beta[begin + token];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float v = to_f32(m.v[begin + token][at.value + 8 * r]);
        h[n][2 * r] = __fmul_rn(beta, __fmaf_rn(-decay, h[n][2 * r], v));
        h[n][2 * r + 1] = __fmul_rn(decay, h[n][2 * r + 1]);
      }
    }
  }

  // What the first half of the block at ring row `block` contributes to tokens of the second.
  __device__ void add_early(float (&h)[kTiles][4], int block) const {
    float2 u[4];
    std::uint32_t hi[4], lo[4];
    load_updates(u, block);
#pragma unroll
    for (int i = 0; i < 4; ++i) split(u[i].x, u[i].y, hi[i], lo[i]);
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      std::uint32_t b[2][4];
      load_b(b[0], m.early[0][8 * n], kHalf + 8);
      load_b(b[1], m.early[1][8 * n], kHalf + 8);
#pragma unroll
      for (int i = 0; i < 2 && n + i < kTiles; ++i) {
        multiply(h[n + i], hi, b[0][2 * i], b[0][2 * i + 1]);
        multiply(h[n + i], hi, b[1][2 * i], b[1][2 * i + 1]);
        if constexpr (sizeof(U) == sizeof(float)) multiply(h[n + i], lo, b[0][2 * i], b[0][2 * i + 1]);
      }
    }
  }

  // All tokens, half a block at a time: the rest of the half that the first is in, then what is left, at most the next.
  // The first half of the next checkpoint is on its way as soon as this one has been used.
  __device__ void solve(const Job& c, const Job& next, State& s) const {
    if (c.rows == 0) load_quarter<0>(next, s);
#pragma unroll 1
    for (int begin = 0; begin < c.rows;) {
      const int t = c.start + begin, half = half_of(t) * kHalf, end = min(c.rows, half + kHalf - c.start);
      const int count = static_cast<int>(__reduce_max_sync(~0u, static_cast<unsigned>(end - begin)));  // a uniform register
      if (begin == 0 ? c.folds() : block_of(t) * L == t) {
        wait_for_u();
        fold(G(c), s, t - L);
        if (begin == 0) store_state(s, w.state_of(c.slot, c.head), at);
      }
      float h[kTiles][4];
      multiply_state(s, begin, count, h);
      if (end == c.rows) load_quarter<0>(next, s);
      wait_for_u();
      const int row = ring_index(t);  // a half is in one piece
      begin_sums(begin, count, G(c) + row, h);
      if (half_of(t) % 2 == 1) add_early(h, ring_index(block_of(t) * L));
#pragma unroll 2
      for (int j = ring_index(half); j < row; ++j) {
        apply(h, j, to_f32(m.u[j][at.value]), to_f32(m.u[j][at.value + 8]), 0, -1);
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        if (kQuad * n >= count) break;
#pragma unroll
        for (int part = 0; part < kQuad; ++part) {
          float u[2] = {__shfl_sync(~0u, h[n][0], part, kQuad), __shfl_sync(~0u, h[n][2], part, kQuad)};
          store_update(u, row + kQuad * n + part);
          apply(h, row + kQuad * n + part, u[0], u[1], n, part);
        }
      }
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const int token = kQuad * n + at.part;
        if (token >= count) break;
        bfloat* o = m.o[begin + token] + at.value;
        o[0] = from_f32<bfloat>(h[n][1]), o[8] = from_f32<bfloat>(h[n][3]);
      }
      __syncwarp();  // u, before it is read as an operand
      begin = end;
    }
    load_quarter<1>(next, s);
  }

  // After those of u, two groups have been started: inputs and keys of the next job.
  __device__ void wait_for_u() const {
    wait_for_copies_but<2>();
    __syncwarp();
  }

  // Rounds the thread's two updates and keeps them; four threads have the same.
  __device__ void store_update(float (&u)[2], int row) const {
    U* to = m.u[row] + at.value;
    if constexpr (sizeof(U) == sizeof(bfloat)) {
      const std::uint32_t packed = pack(u[0], u[1]);
      to[0] = __ushort_as_bfloat16(static_cast<unsigned short>(packed));
      to[8] = __ushort_as_bfloat16(static_cast<unsigned short>(packed >> 16));
      u[0] = low_of(packed), u[1] = high_of(packed);
    } else {
      to[0] = u[0], to[8] = u[1];
    }
  }

  // The record in ring row `row`, whose updates are u0 and u1, goes to the tokens after token 4 n + part, and to its own
  // output; part -1: to all. A token before it keeps its sums: u may be NaN.
  __device__ void apply(float (&h)[kTiles][4], int row, float u0, float u1, int n, int part) const {
    float weights[kTiles == 1 ? 4 : 2 * kTiles];
#pragma unroll
    for (int i = 0; i < 2 * kTiles; i += 4) {
      if (i + 4 <= 2 * n) continue;
      *reinterpret_cast<float4*>(weights + i) = *reinterpret_cast<const float4*>(m.weight[row][at.part] + i);
    }
#pragma unroll
    for (int i = n; i < kTiles; ++i) {
      if (i > n || at.part > part) {
        h[i][0] = __fmaf_rn(-weights[2 * i], u0, h[i][0]);
        h[i][2] = __fmaf_rn(-weights[2 * i], u1, h[i][2]);
      }
      if (i > n || at.part >= part) {
        h[i][1] = __fmaf_rn(weights[2 * i + 1], u0, h[i][1]);
        h[i][3] = __fmaf_rn(weights[2 * i + 1], u1, h[i][3]);
      }
    }
  }

  __device__ void store_updates(const Job& c) const {
    if (at.row >= c.rows) return;
    const int t = c.start + at.row;
    U* to = w.ring_u.row(w.ring_row(c.slot, t)) + c.head * kGdnDim + at.piece;
    const U* from = m.u[ring_index(t)] + at.piece;
#pragma unroll
    for (int e = 0; e < 8; e += kOf16<U>) *reinterpret_cast<uint4*>(to + e) = *reinterpret_cast<const uint4*>(from + e);
  }

  // Gated norm; 16 lanes a token, a lane 8 values.
  __device__ void store_outputs(const Job& c) const {
    const uint4 o = *reinterpret_cast<const uint4*>(m.o[at.row] + at.piece);
    const uint4 gate = *reinterpret_cast<const uint4*>(m.z[at.row] + at.piece);
    const std::uint32_t os[4] = {o.x, o.y, o.z, o.w}, zs[4] = {gate.x, gate.y, gate.z, gate.w};
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      squares = __fmaf_rn(low_of(os[i]), low_of(os[i]), squares);
      squares = __fmaf_rn(high_of(os[i]), high_of(os[i]), squares);
    }
    const float scale = rsqrtf(__fmaf_rn(lane_sum<16>(squares), 1.0f / kGdnDim, w.eps));
    if (at.row >= c.rows) return;
    std::uint32_t y[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* norm = w.norm + at.piece + 2 * i;
      const float low = __fmul_rn(__fmul_rn(norm[0], __fmul_rn(low_of(os[i]), scale)), silu(low_of(zs[i])));
      const float high = __fmul_rn(__fmul_rn(norm[1], __fmul_rn(high_of(os[i]), scale)), silu(high_of(zs[i])));
      y[i] = pack(low, high);
    }
    bfloat* out = w.out.row(c.first_row + at.row) + c.head * kGdnDim + at.piece;
    if (w.vectors) {
      *reinterpret_cast<uint4*>(out) = {y[0], y[1], y[2], y[3]};
    } else {
#pragma unroll
      for (int j = 0; j < 8; ++j) out[j] = __ushort_as_bfloat16(static_cast<unsigned short>(y[j / 2] >> 16 * (j % 2)));
    }
  }
};

// Jobs blockIdx, + gridDim, + 2 gridDim, ... While one is worked on, what the next needs is on its way.
template <typename U, int kTiles>
__global__ void __launch_bounds__(kThreads, 2) window_kernel(Window<bfloat, U> w, int jobs) {
  extern __shared__ __align__(16) unsigned char shared[];
  Shared<U>& m = *reinterpret_cast<Shared<U>*>(shared);
  using Work = Worker<U, kTiles>;
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  // The pools of a slot were last written a step ago. The numbers of the requests are of this step, but a chain of small
  // kernels that all started early may not have written them yet: they are only believed if they are so after the wait.
  State s;
  {
    const Work worker(w, m);
    const auto load_first = [&](const Job& c) {
      worker.load_keys(c), worker.load_past(c), worker.load_u(c), worker.load_state(c, s);
    };
    const auto load_rest = [&](const Job& c) { worker.load_inputs(c), worker.load_gates(c), worker.load_z(c); };
    const Job guess = worker.job(first, 0, jobs);
    load_first(guess);
    wait_for_predecessor();
    let_successor_start();
    load_rest(guess);
    worker.load_numbers(first + 2 * step, jobs);
    if (worker.at.thread == 0) m.current = worker.job(first, 0, jobs), m.late_keys = false;
    if (worker.at.thread == 32) m.next = worker.job(first + step, 1, jobs);
    wait_for_copies();
    __syncthreads();
    if (!__syncthreads_and(m.current == guess)) {
      load_first(m.current), load_rest(m.current);
      wait_for_copies();
      __syncthreads();
    }
  }
  const Job &c = m.current, &next = m.next;
#pragma unroll 1
  for (;;) {
    if (threadIdx.x / 32 == kWarps - 1) {
      Work(w, m).gates(c);
    } else {
      Work(w, m).convolve(c);
    }
    Work(w, m).store_inputs(c);
    __syncthreads();
    // Small copies are started before the next checkpoint: what is asked for after it waits for all of it.
    Work(w, m).load_past(next), Work(w, m).load_inputs(next), Work(w, m).load_gates(next);
    commit_copies();
    if (c.index != first) Work(w, m).template load_quarter<3>(c, s);
    Work(w, m).normalise(c);
    if (m.late_keys) {
      wait_for_copies_but<1>();
    } else {
      wait_for_copies_but<2>();
    }
    __syncthreads();
    if (threadIdx.x == kThreads - 1) {
      const std::int32_t* n = m.numbers;
      const int index = next.index + step;
      m.later = {w, index, c.parity, index < jobs ? Cursor(n[0], n[1], n[2], n[3], n[4]) : Cursor()};
    }
    Work(w, m).weigh_all(c);
    __syncthreads();
    if (!c.needs_keys()) Work(w, m).load_keys(next);
    Work(w, m).load_numbers(next.index + 2 * step, jobs);
    commit_copies();
    Work(w, m).solve(c, next, s);
    __syncthreads();
    Work(w, m).store_updates(c);
    Work(w, m).store_outputs(c);
    if (next.index >= jobs) return;
    wait_for_copies_but<1>();  // the inputs
    __syncthreads();
    if (threadIdx.x == 0) m.late_keys = c.needs_keys(), m.current = m.next, m.next = m.later;
    __syncthreads();
    if (m.late_keys) Work(w, m).load_keys(c);
    Work(w, m).load_u(c), Work(w, m).load_z(c);
    commit_copies();
    Work(w, m).template load_quarter<2>(c, s);
  }
}

[[noreturn]] void fail(const std::string& message) { throw Error(ErrorCode::internal, "gdn_window: " + message); }

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "gdn_window");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "gdn_window");
  return count;
}

template <typename U, int kTiles>
void launch_window(Stream& s, const GdnWindow& a) {
  const int jobs = a.requests.count * a.shape.value_heads;
  const Grid grid{.blocks = dim3(static_cast<unsigned>(std::min(jobs, 2 * multiprocessors()))),
                  .threads = kThreads,
                  .shared = sizeof(Shared<U>)};
  // Two blocks an SM need most of its memory as shared memory, which is not always what the driver chooses.
  check(cudaFuncSetAttribute(window_kernel<U, kTiles>, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "gdn_window");
  launch(s, "gdn_window", grid, window_kernel<U, kTiles>, Window<bfloat, U>(a), jobs);
}

template <typename U>
void launch_window(Stream& s, const GdnWindow& a) {
  using W = Window<bfloat, U>;
  if (!W::aligned(a.slots.conv, 16) || !W::aligned(a.slots.ring_k, 16) || !W::aligned(a.slots.ring_u, 16) ||
      reinterpret_cast<std::uintptr_t>(a.slots.state.data()) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(a.conv1d.data()) % 16 != 0) {
    fail("a pool of the slots or conv1d has a row that does not begin at a multiple of 16 bytes, expected all to");
  }
  if (a.requests.longest <= 4) return launch_window<U, 1>(s, a);
  if (a.requests.longest <= 8) return launch_window<U, 2>(s, a);
  launch_window<U, 4>(s, a);
}

}  // namespace

void gdn_window(Stream& s, const GdnWindow& a) {
  check_gdn_window(a);
  if (a.shape.key_dim != kGdnDim || a.shape.value_dim != kGdnDim) {
    fail("key heads of " + std::to_string(a.shape.key_dim) + ", value heads of " + std::to_string(a.shape.value_dim) +
         ", expected 128 on CUDA");
  }
  if (a.requests.count == 0 || a.requests.longest == 0) return;
  if (a.qkv.format == Format::f32) return gdn_window_f32(s, a);
  const auto taps = static_cast<std::int64_t>(a.conv1d.size()) / a.qkv.cols;
  if (taps != kTaps) fail("a convolution of " + std::to_string(taps) + " taps, expected 4 with bf16 on CUDA");
  with_type(a.slots.ring_u.format, [&](auto u) { launch_window<decltype(u)>(s, a); });
}

}  // namespace quire::cuda
