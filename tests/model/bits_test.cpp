// The bits of a token's logits, and of what its sequence keeps, are a function of the sequence alone: of its
// tokens, never of its slot, its pages, its row, its neighbours, padding, or how its tokens were cut into
// windows. On random weights: equal tokens would prove little, since the margins of an argmax hide errors.
#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "backends.h"
#include "core/error.h"
#include "loaded_model.h"
#include "model/text_model.h"
#include "sanitized.h"

namespace quire {
namespace {

using Tokens = std::vector<std::int32_t>;
using Bytes = std::vector<std::byte>;

// One sequence: a prompt, and the tokens that follow whatever the model would say.
struct Script {
  Tokens prompt, output;
};

Script random_script(std::mt19937& random, int vocabulary, int prompt, int output) {
  const auto tokens = [&](int n) {
    Tokens t(static_cast<std::size_t>(n));
    for (std::int32_t& id : t) id = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocabulary));
    return t;
  };
  return {tokens(prompt), tokens(output)};
}

// What a sequence leaves behind.
struct Trace {
  std::vector<Bytes> logits;  // after the prompt, then after each token of the output
  Bytes kept;                 // keys, values, checkpoint (of the block of the last token), records, inputs
};

class Machine : public LoadedModel {
 public:
  static constexpr int kSlots = 5;
  static constexpr int kLongest = 400;

  explicit Machine(const Backend& b)
      : LoadedModel(b, four_layers("qwen3.5-4b", b)),
        text(config.text, weights.text, backend, Format::bf16,
             {.prompt_rows = 512, .window_rows = 8 * kMostWindow}),
        arrays(backend, 512, 8),
        drafts(backend, kSlots * (kMostWindow - 1) * sizeof(std::int32_t)) {
    backend.clear(stream, drafts.data(), drafts.size());
    KvPool::Shape kv_pool = kv_shape(config.text, Format::bf16);
    kv_pool.slots = kSlots, kv_pool.pages = kSlots * KvPool::pages_for(kLongest);
    kv_pool.pages_per_slot = KvPool::pages_for(kLongest);
    kv = std::make_unique<KvPool>(backend, stream, kv_pool);
    StateSlots::Shape state = state_shape(config.text, Format::bf16);
    state.slots = kSlots;
    states = std::make_unique<StateSlots>(backend, stream, state);
  }

  // What was there before must not matter: the pools are full of NaN.
  void poison() {
    const Bytes ones(std::size_t{1} << 20, std::byte{0xff});
    const auto fill = [&](void* memory, std::size_t bytes) {
      for (std::size_t at = 0; at < bytes; at += ones.size())
        backend.upload(stream, static_cast<std::byte*>(memory) + at, ones.data(),
                       std::min(ones.size(), bytes - at));
    };
    const auto fill_rows = [&](const Rows& r) {
      fill(r.data, static_cast<std::size_t>(r.rows * r.stride * size_of(r.format)));
    };
    for (int l = 0; l < kv->shape().layers; ++l) fill_rows(kv->layer(l).k), fill_rows(kv->layer(l).v);
    for (int l = 0; l < states->shape().layers; ++l) {
      const GdnSlots s = states->layer(l);
      fill(s.state.data(), s.state.size_bytes());
      for (const Rows& r : {s.conv, s.ring_k, s.ring_u, s.ring_g}) fill_rows(r);
    }
  }

  Bytes bytes_of(const void* memory, std::size_t bytes) {
    Bytes out(bytes);
    backend.download(stream, out.data(), memory, bytes);
    return out;
  }
  Bytes row_of(const Rows& r, std::int64_t row) {
    return bytes_of(static_cast<std::byte*>(r.data) + row * r.stride * size_of(r.format),
                    static_cast<std::size_t>(r.cols * size_of(r.format)));
  }
  void set(std::int32_t* cursor, std::int32_t value) {
    backend.upload(stream, cursor, &value, sizeof(value));
  }
  std::int32_t get(const std::int32_t* cursor) {
    std::int32_t value;
    backend.download(stream, &value, cursor, sizeof(value));
    return value;
  }

  Bytes prompt(int slot, const Tokens& tokens) {
    kv->hold(stream, slot, kLongest);
    states->clear(stream, slot);
    Tokens positions(tokens.size());
    std::iota(positions.begin(), positions.end(), 0);
    const Step step = arrays.prompt(
        stream, *kv, *states, slot, 0, tokens, {positions, positions, positions},
        Rows{.format = Format::bf16, .cols = config.text.hidden_size, .stride = config.text.hidden_size}, {});
    const Bytes logits = row_of(text.forward(stream, step), 0);
    states->end_prompt(stream, slot, static_cast<std::int32_t>(tokens.size()), 0);
    return logits;
  }

  TextModel text;
  StepArrays arrays;
  Memory drafts;
  std::unique_ptr<KvPool> kv;
  std::unique_ptr<StateSlots> states;
};

// Sequences run together: how many rows each puts into a step and how many of those count, as `cut` says.
struct Cut {
  int window, accepted;
};
using Cutter = std::function<Cut(std::size_t sequence, std::size_t done)>;

class Replay {
 public:
  Replay(Machine& machine, std::vector<Script> scripts, std::vector<int> slots)
      : m_(machine),
        scripts_(std::move(scripts)),
        slots_(std::move(slots)),
        done_(scripts_.size()),
        traces_(scripts_.size()) {}

  // Until the first sequence is through; others may sit out when they are.
  Trace first(const Cutter& cut, int requests) {
    for (std::size_t i = 0; i < scripts_.size(); ++i)
      traces_[i].logits.push_back(m_.prompt(slots_[i], scripts_[i].prompt));
    while (done_[0] < scripts_[0].output.size()) step(cut, requests);
    keep();
    return traces_[0];
  }

 private:
  // All windows of a step have as many rows as the largest; what a sequence does not need of its own is
  // garbage.
  void step(const Cutter& cut, int requests) {
    std::vector<std::size_t> in;
    std::vector<Cut> cuts;
    int window = 1;
    for (std::size_t i = 0; i < scripts_.size(); ++i) {
      const auto left = static_cast<int>(scripts_[i].output.size() - done_[i]);
      if (left == 0) continue;
      Cut c = cut(i, done_[i]);
      c.accepted = std::min(c.accepted, left);
      in.push_back(i), cuts.push_back(c);
      window = std::max(window, c.window);
    }
    std::vector<int> slots;
    for (const std::size_t i : in) slots.push_back(slots_[i]);
    m_.arrays.set_batch(m_.stream, slots, window);
    for (std::size_t n = 0; n < in.size(); ++n) draft(in[n], cuts[n]);
    const StepArrays::Window w =
        m_.arrays.window(*m_.kv, *m_.states, m_.drafts.as<std::int32_t>(), requests, window);
    m_.backend.ops->step_begin(m_.stream, w.begin);
    const Rows logits = m_.text.forward(m_.stream, w.step);
    for (std::size_t n = 0; n < in.size(); ++n) {
      const std::size_t i = in[n];
      for (int t = 0; t < cuts[n].accepted; ++t)
        traces_[i].logits.push_back(m_.row_of(logits, static_cast<std::int64_t>(n) * window + t));
      m_.set(m_.states->cursors().accepted + slots_[i], cuts[n].accepted);
      done_[i] += static_cast<std::size_t>(cuts[n].accepted);
    }
  }

  // The tokens of a window: those of the script as far as they count, then nonsense.
  void draft(std::size_t i, const Cut& c) {
    Tokens drafts(kMostWindow - 1);
    for (int t = 1; t < kMostWindow; ++t) {
      const std::size_t at = done_[i] + static_cast<std::size_t>(t);
      const auto garbage =
          static_cast<std::int32_t>((at * 7919 + i) % static_cast<std::size_t>(m_.config.text.vocab_size));
      drafts[static_cast<std::size_t>(t - 1)] = t < c.accepted ? scripts_[i].output[at] : garbage;
    }
    const int slot = slots_[i];
    m_.set(m_.states->cursors().token + slot, scripts_[i].output[done_[i]]);
    m_.backend.upload(m_.stream, m_.drafts.as<std::int32_t>() + slot * (kMostWindow - 1), drafts.data(),
                      drafts.size() * sizeof(std::int32_t));
  }

  void keep() {
    const auto put = [&](const Bytes& b) {
      traces_[0].kept.insert(traces_[0].kept.end(), b.begin(), b.end());
    };
    const int slot = slots_[0];
    const auto tokens = static_cast<std::int64_t>(scripts_[0].prompt.size() + scripts_[0].output.size());
    for (int l = 0; l < m_.kv->shape().layers; ++l) {
      for (std::int64_t t = 0; t < tokens; ++t)
        put(m_.row_of(m_.kv->layer(l).k, m_.kv->row(slot, t))),
            put(m_.row_of(m_.kv->layer(l).v, m_.kv->row(slot, t)));
    }
    // The checkpoint is that of the block in which the last step began: the script ends where every cut has
    // begun one in the same block. Records since then.
    const std::int32_t last = m_.get(m_.states->cursors().generated + slot),
                       base = last / kGdnBlock * kGdnBlock;
    const auto end = static_cast<std::int32_t>(scripts_[0].output.size());
    for (int l = 0; l < m_.states->shape().layers; ++l) {
      const std::span<float> state = m_.states->state(l, slot);
      put(m_.bytes_of(state.data(), state.size_bytes()));
      const GdnSlots s = m_.states->layer(l);
      for (std::int32_t t = base; t < end; ++t) {
        const std::int64_t row = slot * kGdnRing + t % kGdnRing;
        put(m_.row_of(s.ring_k, row)), put(m_.row_of(s.ring_u, row)), put(m_.row_of(s.ring_g, row));
      }
    }
  }

  Machine& m_;
  std::vector<Script> scripts_;
  std::vector<int> slots_;
  std::vector<std::size_t> done_;
  std::vector<Trace> traces_;
};

class BitsTest : public testing::TestWithParam<const Backend*> {
 protected:
  static constexpr int kOutput =
      90;  // ends at place 26 of its block: the last window of every cut begins in that block

  BitsTest() : machine(*GetParam()), random(11) {
    const int vocabulary = machine.config.text.vocab_size;
    for (const int prompt : {130, 67, 1, 64, 200})
      scripts.push_back(random_script(random, vocabulary, prompt, kOutput));
  }

  static Cutter always(int window, int accepted) {
    return [=](std::size_t, std::size_t) { return Cut{window, accepted}; };
  }

  void expect_equal(const Trace& a, const Trace& b, const std::string& what) {
    ASSERT_EQ(a.logits.size(), b.logits.size()) << what;
    for (std::size_t i = 0; i < a.logits.size(); ++i)
      ASSERT_TRUE(a.logits[i] == b.logits[i]) << what << ", token " << i;
    EXPECT_TRUE(a.kept == b.kept) << what << ": caches";
  }

  Machine machine;
  std::mt19937 random;
  std::vector<Script> scripts;
};

TEST_P(BitsTest, DoNotDependOnAnythingButTheSequence) {
  const Trace alone = Replay(machine, {scripts[0]}, {0}).first(always(1, 1), 1);
  machine.poison();
  expect_equal(Replay(machine, {scripts[0]}, {3}).first(always(1, 1), 8), alone, "another slot, padded");
  machine.poison();
  expect_equal(Replay(machine, scripts, {2, 0, 4, 1, 3}).first(always(1, 1), 8), alone, "among four others");
  std::vector<Script> rotated(scripts.rbegin(), scripts.rend());
  std::swap(rotated.front(), rotated.back());
  expect_equal(Replay(machine, rotated, {4, 3, 2, 1, 0}).first(always(1, 1), 5), alone,
               "among others in another order");
  for (const Cut& c : {Cut{16, 16}, Cut{16, 1}, Cut{16, 15}, Cut{5, 3}, Cut{2, 2}}) {
    machine.poison();
    expect_equal(Replay(machine, {scripts[0]}, {1}).first(always(c.window, c.accepted), 1), alone,
                 fmt::format("windows of {}, {} accepted", c.window, c.accepted));
  }
  machine.poison();
  const Cutter ragged = [&](std::size_t, std::size_t) {
    const int window = 1 + static_cast<int>(random() % kMostWindow);
    return Cut{window, 1 + static_cast<int>(random() % static_cast<unsigned>(window))};
  };
  expect_equal(Replay(machine, scripts, {0, 1, 2, 3, 4}).first(ragged, 8), alone,
               "random windows, among others");
}

std::vector<const Backend*> pointers() {
  std::vector<const Backend*> p;
  for (const Backend& b : backends())
    if (!kSanitized || b.ops != &reference_ops()) p.push_back(&b);
  return p;
}

INSTANTIATE_TEST_SUITE_P(Backends, BitsTest, testing::ValuesIn(pointers()),
                         [](const auto& p) { return std::string(p.param->ops->name); });

}  // namespace
}  // namespace quire
