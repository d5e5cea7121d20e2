// Of gdn_window: a block's jobs and the order in which it takes them, what it has in shared memory, and how that comes
// there. What it computes: gdn_window_cuda.cu.
#pragma once

#include "ops/cuda/mma.cuh"
#include "ops/gdn/gdn_cuda.cuh"

namespace quire::cuda::gdn_window_block {

constexpr int L = kGdnBlock, kHalf = L / 2;
constexpr int kThreads = 256, kWarps = 8;
constexpr int kTaps = 4, kPast = kTaps - 1, kConvRows = gdn_conv_rows(kTaps);
constexpr int kPieces = kGdnDim / 8;  // 16 bytes of a head
constexpr int kStride = kGdnDim + 8;  // of bf16 rows in shared memory: 8 x 8 fragments without bank conflicts
constexpr int kRows = kThreads / kPieces;  // of a head that all threads copy at once
constexpr int kQuad = 4;                   // tokens of one tile of 8 columns: k and q of each
constexpr int kOrdered = 32;               // requests at most that are put in order: those of a warp's lanes

// A request and a value head.
struct Job : Cursor {
  std::int32_t index, head, key_head, parity;
  bool keeps_keys;  // the heads of one key head share k and the inputs of k and q: the first writes them

  Job() = default;
  template <typename Window>
  __device__ Job(const Window& w, int job, int nth, const Cursor& cursor) : Cursor(cursor), index(job), parity(nth % 2) {
    const unsigned heads = static_cast<unsigned>(w.value_heads);
    head = static_cast<int>(static_cast<unsigned>(job) % heads);
    const unsigned scaled = static_cast<unsigned>(head * w.key_heads);
    key_head = static_cast<int>(scaled / heads);
    keeps_keys = scaled % heads == 0;
    if (!sound(w.slots)) first_row = rows = slot = start = previous = 0;
  }
  // Whether k is needed to the end.
  __device__ bool needs_keys() const { return folds() || block_of(start) != block_of(start + rows - 1); }
};

template <typename U>
constexpr int kOf16 = 16 / static_cast<int>(sizeof(U));  // elements of 16 bytes

// What the checkpoint says to the tokens of a block's second half while those of the first are solved, by tile and
// thread. With records in f32 there is no room for it.
template <typename U>
struct Held {
  static constexpr bool kFits = true;
  alignas(16) float h[kMostWindow / kQuad][kThreads][4];
};
template <>
struct Held<float> {
  static constexpr bool kFits = false;
};

template <typename U>
struct Shared : Held<U> {
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
  Job jobs[4];                          // in turn: the one before, this, the next, the one after that
  std::int32_t numbers[5];              // of the job after the next: Cursor's
  std::int32_t order[2][kOrdered];      // requests by what they cost, most first: before and after the wait
  std::int32_t places;                  // jobs of this block
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

// `bytes`, a multiple of 16, come to L2 in the background: asked for by one thread, waited for by none.
__device__ inline void fetch(const void* from, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// The line that holds it.
__device__ inline void fetch_line(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory"); }

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

// What a block has to do before it computes.
template <typename U>
struct Loads {
  using W = Window<bfloat, U>;
  using Memory = Shared<U>;

  const W& w;
  Memory& m;
  const Place at{this_thread()};

  __device__ Loads(const W& window, Memory& memory) : w(window), m(memory) {}

  // Which of all jobs is the block's job nth, `jobs` if it has fewer. Rows of as many jobs as there are blocks, to and
  // fro, so that who begins with a costly job ends with a cheap one; half of the blocks go backwards, so that at all
  // times some jobs are costly, that is to say write, and some are not.
  __device__ int place(int nth, int jobs, int step) const {
    const int first = static_cast<int>(blockIdx.x);
    if (nth >= m.places) return jobs;
    if (first >= step / 2) nth = m.places - 1 - nth;
    return nth * step + (nth % 2 == 0 ? first : step - 1 - first);
  }
  __device__ int request_of(int index, int jobs, int which) const {
    const int place = static_cast<int>(static_cast<unsigned>(index) / static_cast<unsigned>(w.value_heads));
    return jobs <= kOrdered * w.value_heads ? m.order[which][place] : place;
  }
  // Puts requests in order; lane i gets the block's job i. By one warp.
  __device__ Job first_job(int jobs, int step, int which) const {
    const bool ordered = jobs <= kOrdered * w.value_heads;
    Cursor mine;
    int cost = -1, before = 0;
    if (ordered && at.lane * w.value_heads < jobs) {
      mine = Cursor(w, at.lane);
      const bool crosses = block_of(mine.start) != block_of(mine.start + mine.rows - 1);
      cost = mine.rows <= 0 ? 0 : mine.folds() ? 3 : crosses ? 2 : 1;
    }
#pragma unroll
    for (int other = 3; other >= 0; --other) {
      const unsigned lanes = __ballot_sync(~0u, cost == other);
      if (other >= cost) before += __popc(other > cost ? lanes : lanes & ((1u << at.lane) - 1));
    }
    if (cost >= 0) m.order[which][before] = at.lane;
    if (at.lane == 0) {
      const int rounds = jobs / step, first = static_cast<int>(blockIdx.x);
      m.places = rounds + ((rounds % 2 == 0 ? first : step - 1 - first) < jobs - rounds * step ? 1 : 0);
    }
    __syncwarp();
    const int index = place(at.lane, jobs, step), request = index < jobs ? request_of(index, jobs, which) : 0;
    const int from = ordered ? request : 0;
    Cursor cursor;
    cursor.first_row = __shfl_sync(~0u, mine.first_row, from), cursor.rows = __shfl_sync(~0u, mine.rows, from);
    cursor.slot = __shfl_sync(~0u, mine.slot, from), cursor.start = __shfl_sync(~0u, mine.start, from);
    cursor.previous = __shfl_sync(~0u, mine.previous, from);
    if (!ordered && index < jobs) cursor = Cursor(w, request);
    return {w, index, at.lane, index < jobs ? cursor : Cursor()};
  }
  __device__ float* G(const Job& c) const { return m.G[c.parity]; }
  // The column in qkv of the head's q, k or v.
  __device__ int column(const Job& c, int part) const {
    return part == 2 ? (2 * w.key_heads + c.head) * kGdnDim : (part * w.key_heads + c.key_head) * kGdnDim;
  }

  // To L2. The thread's warp has the fewest units in convolve.
  __device__ void fetch_state(Job c) const {
    if (at.thread == kThreads - 64 && c.rows != 0) {
      fetch(w.state_of(c.slot, c.head), kGdnDim * kGdnDim * static_cast<unsigned>(sizeof(float)));
    }
  }
  // The same for its records, whose k may be loaded late: of half of the threads for k, half for u two have a record, a
  // line of 128 bytes each.
  __device__ void fetch_records(Job c) const {
    static_assert(kThreads == 2 * 2 * kGdnRing);
    const int base = c.base(), i = ring_index(at.thread >> 1), line = (at.thread & 1) * 128;
    if (i >= c.start - base) return;
    const std::int64_t row = std::int64_t{c.slot} * kGdnRing + ring_index(base + i);
    if (at.warp < kWarps / 2) {
      fetch_line(reinterpret_cast<const char*>(w.ring_k.row(row) + c.key_head * kGdnDim) + line);
    } else {
      const char* u = reinterpret_cast<const char*>(w.ring_u.row(row) + c.head * kGdnDim) + line;
#pragma unroll
      for (int j = 0; j < static_cast<int>(sizeof(U) / sizeof(bfloat)); ++j) fetch_line(u + 256 * j);
    }
  }
  // What follows is loaded in the background. Jobs come as values: of one in shared memory a copy would read every number
  // anew for each instruction, and what follows would wait for them one after the other.
  // First what was there before this step: the checkpoint, in quarters, since
  // loads that wait for memory hold up all that goes to shared memory after them;
  template <int kQuarter>
  __device__ void load_quarter(Job c, State& s) const {
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
  __device__ void load_keys(Job c) const {
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
  __device__ void load_u(Job c) const {
    constexpr int kOfRow = 16 / kOf16<U>;  // pieces
    const int base = c.base(), records = c.start - base, e = 16 * at.warp + at.lane % kOfRow * kOf16<U>;
#pragma unroll 1
    for (int i = at.lane / kOfRow; i < records; i += 32 / kOfRow) {
      const int row = ring_index(base + i);
      copy_async<16>(&m.u[row][e], w.ring_u.row(std::int64_t{c.slot} * kGdnRing + row) + c.head * kGdnDim + e);
    }
  }
  // the inputs of the tokens before, and the taps;
  __device__ void load_past(Job c) const {
    if (c.rows == 0) return;
    const int row = at.row - kRows / 2;  // half of the threads copy taps, others rows, yet others what load_gates does
    if (row >= 0 && row < kPast) {
      const bfloat* from = conv_row(c, row - kPast) + at.piece;
#pragma unroll
      for (int part = 0; part < 3; ++part) copy_async<16>(&m.input[row][part][at.piece], from + column(c, part));
    }
    if (at.thread < kGdnDim) {
#pragma unroll
      for (int part = 0; part < 3; ++part) {
        copy_async<16>(m.taps[part][at.thread], w.conv1d + (column(c, part) + at.thread) * kTaps);
      }
    }
  }
  // then what the kernel before left: the window's inputs,
  __device__ void load_inputs(Job c) const {
    if (at.row >= c.rows) return;
    const bfloat* from = w.qkv.row(c.first_row + at.row) + at.piece;
    bfloat* to = &m.input[kPast + at.row][0][at.piece];
    if (w.vectors) {
#pragma unroll
      for (int part = 0; part < 3; ++part) copy_async<16>(to + part * kGdnDim, from + column(c, part));
    } else {
#pragma unroll 1
      for (int part = 0; part < 3; ++part) copy_plainly(to + part * kGdnDim, from + column(c, part));
    }
  }
  // a and b, a token's in a word with a neighbour's, and G of the token before,
  __device__ void load_gates(Job c) const {
    const int i = at.thread & (kMostWindow - 1), which = (at.thread >> 4) - (kThreads / 16 - 3);
    if (which >= 0 && which < 2 && i < c.rows) {
      copy_async<4>(&m.gates[which][i],
                    reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(gate(which == 0 ? w.a : w.b, c, i)) / 4 * 4));
    }
    if (which == 2 && i == 0 && block_of(c.start) * L != c.start) {
      copy_async<4>(&m.before, w.ring_g.row(w.ring_row(c.slot, c.start - 1)) + c.head);
    }
  }
  __device__ const bfloat* gate(const Matrix<bfloat>& x, const Job& c, int i) const { return x.row(c.first_row + i) + c.head; }
  // z, of which a thread copies what it reads itself,
  __device__ void load_z(Job c) const {
    if (at.row >= c.rows) return;
    const bfloat* from = w.z.row(c.first_row + at.row) + c.head * kGdnDim + at.piece;
    if (w.vectors) {
      copy_async<16>(m.z[at.row] + at.piece, from);
    } else {
      copy_plainly(m.z[at.row] + at.piece, from);
    }
  }
  __device__ void copy_plainly(bfloat* to, const bfloat* from) const {
#pragma unroll 1
    for (int j = 0; j < 8; ++j) to[j] = from[j];
  }
  // and the numbers of job nth.
  __device__ void load_numbers(int nth, int jobs, int step) const {
    if (at.thread >= 5) return;
    const int index = place(nth, jobs, step);
    if (index >= jobs) return;
    const int request = request_of(index, jobs, 1);
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
};

}  // namespace quire::cuda::gdn_window_block
