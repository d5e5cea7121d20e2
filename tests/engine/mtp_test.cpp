// The model's own head against a computation of every draft from scratch, and decoding with it where its
// drafts are always right.
#include "model/mtp.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include <gmock/gmock.h>

#include "backends.h"
#include "engine/decoder.h"
#include "engine/text_prompt.h"
#include "loaded_model.h"
#include "ops/matrix.h"

namespace quire {
namespace {

using Tokens = std::vector<std::int32_t>;
using Vec = std::vector<double>;

TextConfig small_config() {
  TextConfig c;
  c.hidden_size = 32, c.intermediate_size = 48, c.vocab_size = 60;
  c.num_attention_heads = 4, c.num_key_value_heads = 2, c.head_dim = 16, c.rotary_dim = 8;
  c.rope_theta = 100;
  c.mrope_section[0] = 2, c.mrope_section[1] = c.mrope_section[2] = 1;
  return c;
}

// What a head meets in row i: the target's output for token i, token i + 1 (or its image feature), and the
// position of token i.
struct Pair {
  Vec output, embedding;
  std::array<std::int32_t, 3> position;
};

// The equations of MODEL.md, in double, without caches.
class Specification {
 public:
  Specification(const TextConfig& config, const MtpWeights& weights, const TextWeights& target)
      : c(config), w(weights), text(target) {}

  Vec embedding(std::int32_t token) const {
    Vec x;
    for (int d = 0; d < c.hidden_size; ++d) x.push_back(load(text.embed_tokens, token, d));
    return x;
  }
  // What goes into the layer, and its norm.
  Vec joined(const Pair& p) const {
    Vec x = normed(p.embedding, w.pre_fc_norm_embedding);
    const Vec h = normed(p.output, w.pre_fc_norm_hidden);
    x.insert(x.end(), h.begin(), h.end());
    return product(w.fc, x);
  }
  Vec input(const Pair& p) const { return normed(joined(p), w.layer.input_layernorm); }
  Vec key(const Pair& p) const {
    return rotated(product(w.layer.self_attn.k_proj, input(p)), w.layer.self_attn.k_norm, p.position);
  }
  Vec value(const Pair& p) const { return product(w.layer.self_attn.v_proj, input(p)); }
  // The output of the last of the pairs.
  Vec output(const std::vector<Pair>& pairs) const {
    std::vector<Vec> k, v;
    for (const Pair& p : pairs) k.push_back(key(p)), v.push_back(value(p));
    const Vec q_gate = product(w.layer.self_attn.q_proj, input(pairs.back()));
    Vec x = joined(pairs.back());
    add(x, product(w.layer.self_attn.o_proj, attended(q_gate, k, v, pairs.back().position)));
    const Vec u = normed(x, w.layer.post_attention_layernorm);
    Vec gate = product(w.layer.mlp.gate_proj, u);
    const Vec up = product(w.layer.mlp.up_proj, u);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
    add(x, product(w.layer.mlp.down_proj, gate));
    return normed(x, w.norm);
  }
  Vec logits(const Vec& output) const { return product(text.lm_head, output); }

 private:
  static void add(Vec& x, const Vec& y) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  static Vec product(const Weight& m, const Vec& x) {
    Vec y(static_cast<std::size_t>(m.out));
    for (std::int64_t o = 0; o < m.out; ++o)
      for (std::int64_t i = 0; i < m.in; ++i)
        y[static_cast<std::size_t>(o)] += load(m, o, i) * x[static_cast<std::size_t>(i)];
    return y;
  }
  Vec normed(Vec x, Vector weight) const {
    double sum = 0;
    for (const double value : x) sum += value * value;
    const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + c.rms_norm_eps);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= scale * (1 + weight[i]);
    return x;
  }
  // Every head normed and turned.
  Vec rotated(const Vec& heads, Vector norm, const std::array<std::int32_t, 3>& position) const {
    const auto E = static_cast<std::size_t>(c.head_dim), half = static_cast<std::size_t>(c.rotary_dim / 2);
    Vec out;
    for (std::size_t at = 0; at < heads.size(); at += E) {
      Vec x = normed(Vec(heads.begin() + static_cast<std::ptrdiff_t>(at),
                         heads.begin() + static_cast<std::ptrdiff_t>(at + E)),
                     norm);
      for (std::size_t i = 0; i < half; ++i) {
        const int axis = i % 3 == 1 && i < 3 * static_cast<std::size_t>(c.mrope_section[1])   ? 1
                         : i % 3 == 2 && i < 3 * static_cast<std::size_t>(c.mrope_section[2]) ? 2
                                                                                              : 0;
        const double angle = position[static_cast<std::size_t>(axis)] *
                             std::pow(c.rope_theta, -static_cast<double>(i) / static_cast<double>(half));
        const double a = x[i], b = x[i + half];
        x[i] = a * std::cos(angle) - b * std::sin(angle);
        x[i + half] = b * std::cos(angle) + a * std::sin(angle);
      }
      out.insert(out.end(), x.begin(), x.end());
    }
    return out;
  }
  Vec attended(const Vec& q_gate, const std::vector<Vec>& k, const std::vector<Vec>& v,
               const std::array<std::int32_t, 3>& position) const {
    const int E = c.head_dim, group = c.num_attention_heads / c.num_key_value_heads;
    Vec out;
    for (int h = 0; h < c.num_attention_heads; ++h) {
      const auto begin = q_gate.begin() + 2 * E * h;
      const Vec q = rotated(Vec(begin, begin + E), w.layer.self_attn.q_norm, position);
      const auto at = static_cast<std::size_t>(h / group * E);
      Vec sum(static_cast<std::size_t>(E));
      double total = 0;
      for (std::size_t j = 0; j < k.size(); ++j) {
        double score = 0;
        for (std::size_t e = 0; e < q.size(); ++e) score += q[e] * k[j][at + e];
        const double weight = std::exp(score / std::sqrt(E));
        total += weight;
        for (std::size_t e = 0; e < q.size(); ++e) sum[e] += weight * v[j][at + e];
      }
      for (int e = 0; e < E; ++e)
        out.push_back(sum[static_cast<std::size_t>(e)] / total / (1 + std::exp(-begin[E + e])));
    }
    return out;
  }

  const TextConfig& c;
  const MtpWeights& w;
  const TextWeights& text;
};

struct MtpCase {
  const Backend* backend;
  Format format;
};

class MtpHeadTest : public testing::TestWithParam<MtpCase> {
 protected:
  static constexpr int kSlots = 3, kChunk = 64;
  // One sequence as both sides know it.
  struct Known {
    int slot;
    Tokens tokens;
    std::vector<Vec> outputs;  // of all tokens but the last
    std::vector<Vec> embeddings;
    MropePositions positions;
  };

  MtpHeadTest()
      : stream(backend, &threads),
        embed_rows(Format::bf16, config.vocab_size, config.hidden_size, 0),
        on_host(ModelWeights::Random{5}, config, cpu_backend(), host_stream),
        on_backend(ModelWeights::Random{5}, config, backend, stream),
        embed_memory(upload(Rows(embed_rows).data, bytes(embed_rows))) {
    Random table(1);
    for (std::int64_t v = 0; v < config.vocab_size; ++v)
      for (std::int64_t d = 0; d < config.hidden_size; ++d) embed_rows.set(v, d, table.normal());
    backend.upload(stream, embed_memory.data(), Rows(embed_rows).data, bytes(embed_rows));
    host_text.embed_tokens = host_text.lm_head = embed_rows.weight();
    text.embed_tokens = host_text.embed_tokens;
    text.embed_tokens.data = embed_memory.data();
    text.lm_head = text.embed_tokens;
    head.emplace(config, on_backend.weights, text, backend, stream, format,
                 MtpHead::Limits{.rows = kChunk, .requests = 2, .slots = kSlots});
    kv.emplace(backend, stream,
               KvPool::Shape{.layers = 0,
                             .draft_layers = 1,
                             .draft_cols = std::int64_t{config.num_key_value_heads} * config.head_dim,
                             .format = format,
                             .slots = kSlots,
                             .pages = 8,
                             .pages_per_slot = 3});
    states.emplace(
        backend, stream,
        StateSlots::Shape{.gdn = {1, 1, 8, 8}, .format = format, .ring_u = format, .slots = kSlots});
  }

  static std::size_t bytes(const Rows& r) {
    return static_cast<std::size_t>(r.rows * r.stride * size_of(r.format));
  }
  Memory upload(const void* data, std::size_t size) {
    Memory memory(backend, size);
    backend.upload(stream, memory.data(), data, size);
    return memory;
  }
  // Random rows, on the host and there.
  struct Both {
    Matrix host;
    Memory memory;
    Rows rows() const {
      Rows r = host;
      r.data = memory.data();
      return r;
    }
    Vec row(std::int64_t i) const {
      Vec x;
      for (std::int64_t d = 0; d < host.cols(); ++d) x.push_back(host.get(i, d));
      return x;
    }
  };
  Both random_rows(std::int64_t count) {
    Matrix m(format, count, config.hidden_size, 0);
    for (std::int64_t r = 0; r < count; ++r)
      for (std::int64_t d = 0; d < config.hidden_size; ++d) m.set(r, d, random.normal());
    Memory memory = upload(Rows(m).data, bytes(m));
    return {std::move(m), std::move(memory)};
  }

  // A prompt in chunks: text, an image whose tokens have features and positions of their own, text.
  Known prompt(int slot, int length) {
    Known s{slot, {}, {}, {}, {}};
    const int image = length / 2, image_end = length - 9;
    const Both features = random_rows(std::max(image_end - image, 0));
    for (int i = 0; i < length; ++i) {
      s.tokens.push_back(static_cast<std::int32_t>(random.uniform() * config.vocab_size));
      const bool in_image = i >= image && i < image_end;
      s.embeddings.push_back(in_image ? features.row(i - image) : spec().embedding(s.tokens.back()));
      const int text_position = i < image ? i : i - std::max(image_end - image, 0) + 6;
      s.positions.t.push_back(in_image ? image : text_position);
      s.positions.h.push_back(in_image ? image + (i - image) / 5 : text_position);
      s.positions.w.push_back(in_image ? image + (i - image) % 5 : text_position);
    }
    s.positions.delta = s.positions.t.back() + 1 - length;
    kv->hold(stream, slot, length + 60);
    StepArrays arrays(backend, kChunk, 1), one(backend, 1, 1);
    const auto step = [&](StepArrays& to, int begin, int count) {
      const auto b = static_cast<std::size_t>(begin), n = static_cast<std::size_t>(count);
      const int first = std::max(begin, image), last = std::max(first, std::min(begin + count, image_end));
      Tokens rows;
      for (int i = first; i < last; ++i) rows.push_back(i - begin);
      const auto part = [&](const Tokens& axis) { return std::span<const std::int32_t>(axis).subspan(b, n); };
      return to.prompt(stream, *kv, *states, slot, begin, part(s.tokens),
                       {part(s.positions.t), part(s.positions.h), part(s.positions.w)},
                       rows.empty() ? features.rows().slice_rows(0, 0)
                                    : features.rows().slice_rows(first - image, last - first),
                       rows);
    };
    for (int begin = 0; begin < length; begin += kChunk) {
      const int count = std::min(kChunk, length - begin);
      const Both outputs = random_rows(count);
      for (int i = 0; i < count; ++i) s.outputs.push_back(outputs.row(i));
      const Step chunk = step(arrays, begin, count);
      if (begin + count < length) {
        const Step after = step(one, begin + count, 1);
        head->extend(stream, chunk, outputs.rows(), &after);
      } else {
        head->extend(stream, chunk, outputs.rows(), nullptr);
      }
      backend.synchronize(stream);
    }
    states->end_prompt(stream, slot, length, s.positions.delta);
    say(s, 7 % config.vocab_size);
    backend.upload(stream, states->cursors().token + slot, &s.tokens.back(), sizeof(std::int32_t));
    return s;
  }
  void say(Known& s, std::int32_t token) {
    s.tokens.push_back(token);
    s.embeddings.push_back(spec().embedding(token));
    const auto position = static_cast<std::int32_t>(s.tokens.size()) - 1 + s.positions.delta;
    for (Tokens* axis : {&s.positions.t, &s.positions.h, &s.positions.w})
      if (axis->size() < s.tokens.size()) axis->push_back(position);
  }

  Specification spec() const { return {config, on_host.weights, host_text}; }

  static std::vector<Pair> pairs_of(const Known& s) {
    std::vector<Pair> pairs;
    for (std::size_t i = 0; i + 1 < s.tokens.size(); ++i)
      pairs.push_back(
          {s.outputs[i], s.embeddings[i + 1], {s.positions.t[i], s.positions.h[i], s.positions.w[i]}});
    return pairs;
  }

  // Keys and values of all pairs, but of the last `unwritten`.
  void expect_kept(const Known& s, std::size_t unwritten) {
    const double tolerance = format == Format::f32 ? 1e-5 : 0.1;
    const KvPages pages = kv->draft_layer(0);
    const auto row = [&](const Rows& rows, std::int32_t at) {
      Matrix m(format, 1, rows.cols);
      backend.download(stream, Rows(m).data, rows.slice_rows(at, 1).data,
                       static_cast<std::size_t>(rows.cols * size_of(format)));
      return m;
    };
    const std::vector<Pair> pairs = pairs_of(s);
    for (std::size_t i = 0; i + unwritten < pairs.size(); ++i) {
      const std::int32_t at = kv->row(s.slot, static_cast<std::int64_t>(i));
      const Matrix k = row(pages.k, at), v = row(pages.v, at);
      const Vec key = spec().key(pairs[i]), value = spec().value(pairs[i]);
      for (std::size_t e = 0; e < key.size(); ++e) {
        ASSERT_NEAR(k.get(0, static_cast<std::int64_t>(e)), key[e], tolerance)
            << "key " << i << " of " << pairs.size();
        ASSERT_NEAR(v.get(0, static_cast<std::int64_t>(e)), value[e], tolerance) << "value " << i;
      }
    }
  }

  // As long as the likeliest token is clearly that, it must be drafted.
  void expect_drafts(const Known& s, std::span<const std::int32_t> drafts) {
    const double margin = format == Format::f32 ? 1e-4 : 0.2;
    std::vector<Pair> pairs = pairs_of(s);
    for (std::size_t d = 0; d < drafts.size(); ++d) {
      const Vec output = spec().output(pairs);
      const Vec logits = spec().logits(output);
      const auto best = std::ranges::max_element(logits);
      for (auto it = logits.begin(); it != logits.end(); ++it)
        if (it != best && *best - *it < margin) return;
      const auto guess = static_cast<std::int32_t>(best - logits.begin());
      ASSERT_EQ(drafts[d], guess) << "draft " << d + 1 << " after " << s.tokens.size() << " tokens";
      ++compared[std::min<std::size_t>(d, 2)];
      std::array<std::int32_t, 3> next;
      next.fill(static_cast<std::int32_t>(pairs.size()) + s.positions.delta);
      pairs.push_back({output, spec().embedding(guess), next});
    }
  }

  // A step of these sequences: the drafts are compared, then so many rows of each are accepted.
  void step(std::vector<Known*> sequences, int window, std::vector<int> accepted) {
    const auto R = static_cast<int>(sequences.size());
    std::vector<int> slots;
    for (const Known* s : sequences) slots.push_back(s->slot);
    StepArrays arrays(backend, 2 * kMostWindow, 2), one(backend, 2, 2);
    arrays.set_batch(stream, slots, window);
    const Tokens zeros(kSlots * (kMostWindow - 1));
    const Memory drafts = upload(zeros.data(), zeros.size() * sizeof(std::int32_t));
    const auto window_of = [&](StepArrays& a, int rows, const StepArrays* batch) {
      return a.window(*kv, *states, drafts.as<std::int32_t>(), 2, rows, batch);  // a place may be empty
    };
    const StepArrays::Window w = window_of(arrays, window, nullptr);
    backend.ops->step_begin(stream, w.begin);
    head->draft(stream, w.step, arrays.ids(), window_of(one, 1, &arrays));
    Tokens ids(static_cast<std::size_t>(2 * window));
    backend.download(stream, ids.data(), arrays.ids(), ids.size() * sizeof(std::int32_t));
    for (int r = 0; r < R; ++r) {
      const auto first = ids.begin() + r * window;
      const Known& s = *sequences[static_cast<std::size_t>(r)];
      ASSERT_EQ(*first, s.tokens.back());
      ASSERT_NO_FATAL_FAILURE(expect_drafts(s, {first + 1, first + window}));
      ASSERT_NO_FATAL_FAILURE(expect_kept(s, 0));
    }

    const Both outputs = random_rows(2 * window);
    std::vector<Sampled> drawn(static_cast<std::size_t>(2 * window));
    for (int r = 0; r < R; ++r) {
      Known& s = *sequences[static_cast<std::size_t>(r)];
      for (int i = 0; i < accepted[static_cast<std::size_t>(r)]; ++i) {
        const auto row = static_cast<std::size_t>(r * window + i);
        const bool last = i + 1 == accepted[static_cast<std::size_t>(r)];
        const std::int32_t next = i + 1 < window ? ids[row + 1] : 0;
        drawn[row].token = last ? (next + 1) % config.vocab_size : next;
        s.outputs.push_back(outputs.row(static_cast<std::int64_t>(row)));
        say(s, drawn[row].token);
      }
    }
    const Memory sampled = upload(drawn.data(), drawn.size() * sizeof(Sampled));
    backend.ops->commit(stream, {.cursors = states->cursors(),
                                 .requests = w.step.requests,
                                 .ids = arrays.ids(),
                                 .sampled = {sampled.as<Sampled>(), drawn.size()},
                                 .history = {},
                                 .outputs = outputs.rows(),
                                 .last = head->last()});
    head->extend(stream, w.step, outputs.rows());
    backend.synchronize(stream);
    // The newest pair is the next step's to write.
    for (const Known* s : sequences) ASSERT_NO_FATAL_FAILURE(expect_kept(*s, 1));
  }

  const Backend& backend = *GetParam().backend;
  const Format format = GetParam().format;
  const TextConfig config = small_config();
  ThreadPool threads{2};
  OpenStream stream, host_stream{cpu_backend(), &threads};
  Random random{9};
  Matrix embed_rows;
  MtpCheckpoint on_host, on_backend;
  Memory embed_memory;
  TextWeights host_text, text;
  std::optional<MtpHead> head;
  std::optional<KvPool> kv;
  std::optional<StateSlots> states;
  int compared[3] = {};  // first, second and later drafts
};

TEST_P(MtpHeadTest, DraftsWhatTheEquationsSay) {
  // The second prompt has a chunk's end inside the image.
  Known a = prompt(2, 23), b = prompt(0, 100);
  for (const auto& [window, first, second] :
       {std::array{4, 1, 3}, {4, 4, 1}, {6, 2, 6}, {2, 2, 2}, {1, 1, 1}, {3, 1, 2}, {8, 8, 5}, {4, 2, 2}}) {
    SCOPED_TRACE(fmt::format("window {}", window));
    ASSERT_NO_FATAL_FAILURE(step({&a, &b}, window, {first, second}));
  }
  // Alone, in another place; the other one waits.
  ASSERT_NO_FATAL_FAILURE(step({&b}, 4, {3}));
  ASSERT_NO_FATAL_FAILURE(step({&b}, 1, {1}));
  ASSERT_NO_FATAL_FAILURE(step({&b, &a}, 5, {1, 1}));
  EXPECT_GE(compared[0], 12);
  EXPECT_GE(compared[1], 6);
  EXPECT_GE(compared[2], format == Format::f32 ? 20 : 6);
}

std::vector<MtpCase> mtp_cases() {
  std::vector<MtpCase> cases;
  for (const Backend& b : backends())
    for (const Format f : {Format::f32, Format::bf16}) cases.push_back({&b, f});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, MtpHeadTest, testing::ValuesIn(mtp_cases()), [](const auto& c) {
  return (c.param.format == Format::f32 ? "f32_" : "bf16_") + std::string(c.param.backend->ops->name);
});

// Decoding with a head whose drafts are always right. The layers of the target add nothing to the residual
// stream, so that a token follows from the one before it; the head, whose layer adds nothing either, passes
// on what it meets: the embedding, from which the target would draw the same token, or the target's output
// where every token is followed by itself.
enum class Passes { embedding, output };

class RightDrafts : public testing::TestWithParam<std::tuple<const Backend*, Passes>>, protected LoadedModel {
 protected:
  static constexpr int kSlots = 3;

  static ModelConfig shape() {
    ModelConfig c = four_layers("qwen3.5-0.8b", *std::get<0>(GetParam()));
    c.text.vocab_size = 400;
    c.tie_word_embeddings = passes() == Passes::output;
    return c;
  }
  static Passes passes() { return std::get<1>(GetParam()); }

  RightDrafts()
      : LoadedModel(*std::get<0>(GetParam()), shape()),
        mtp(ModelWeights::Random{8}, config.text, backend, stream),
        zeros(backend, std::size_t{1} << 26),
        fc(backend, static_cast<std::size_t>(mtp.weights.fc.out * mtp.weights.fc.in) * sizeof(bf16)) {
    backend.clear(stream, zeros.data(), zeros.size());
    const auto silence = [&](TextLayerWeights& l) {
      for (Weight* w : {&l.self_attn.o_proj, &l.linear_attn.out_proj, &l.mlp.down_proj})
        if (w->data) w->data = zeros.data();
    };
    for (TextLayerWeights& l : weights.text.layers) silence(l);
    silence(mtp.weights.layer);
    const auto D = static_cast<std::size_t>(config.text.hidden_size);
    std::vector<bf16> identity(2 * D * D);
    for (std::size_t d = 0; d < D; ++d)
      identity[2 * D * d + (passes() == Passes::embedding ? 0 : D) + d] = to_bf16(1);
    backend.upload(stream, fc.data(), identity.data(), fc.size());
    mtp.weights.fc.data = fc.data();
    // Norms that change nothing.
    const Vector none(zeros.as<float>(), D);
    weights.text.norm = none;
    mtp.weights.pre_fc_norm_embedding = mtp.weights.pre_fc_norm_hidden = mtp.weights.norm = none;
  }

  std::unique_ptr<Decoder> decoder(int window) {
    auto d =
        std::make_unique<Decoder>(config.text, weights.text, backend, stream, Format::bf16, Switches(),
                                  Decoder::Limits{.slots = kSlots, .window = window},
                                  Decoder::DraftSource{nullptr, false, window > 1 ? &mtp.weights : nullptr});
    d->reserve(kSlots * 1024, 1024);
    return d;
  }
  std::int32_t begin(Decoder& d, int slot, int length) {
    Tokens tokens;
    for (int i = 0; i < length; ++i) tokens.push_back((i * 37 + length) % 300);
    d.open(slot, length + 200, {});
    prefill_text(d, config, slot, tokens);
    return d.take().rows.front().token;
  }

  MtpCheckpoint mtp;
  Memory zeros, fc;
};

TEST_P(RightDrafts, AllCount) {
  constexpr int kLengths[] = {5, 530, 70};
  constexpr std::size_t kTokens = 60;
  const auto plain = decoder(1);
  std::vector<Tokens> expected;
  for (const int length : kLengths) {
    Tokens& out = expected.emplace_back(1, begin(*plain, 1, length));
    const int slot = 1;
    while (out.size() < kTokens + kMostWindow) {
      plain->step({&slot, 1});
      out.push_back(plain->take().rows.front().token);
    }
    plain->close(1);
  }
  for (const int window : {2, 4, 7}) {
    const auto d = decoder(window);
    const std::vector<int> slots = {2, 0, 1};
    std::vector<Tokens> out;
    for (std::size_t i = 0; i < slots.size(); ++i) out.push_back({begin(*d, slots[i], kLengths[i])});
    int rows = 0, counted = 0;
    for (int step = 0; std::ranges::min(out, {}, &Tokens::size).size() < kTokens; ++step) {
      const int now = step % 4 == 3 ? 1 : window;  // steps without drafts between
      d->step(slots, now);
      const Decoder::Result result = d->take();
      for (std::size_t i = 0; i < slots.size(); ++i) {
        rows += now, counted += result.counts[i];
        for (int row = 0; row < result.counts[i]; ++row)
          out[i].push_back(
              result.rows[i * static_cast<std::size_t>(now) + static_cast<std::size_t>(row)].token);
      }
    }
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::size_t n = std::min(out[i].size(), expected[i].size());
      EXPECT_EQ(Tokens(out[i].begin(), out[i].begin() + n),
                Tokens(expected[i].begin(), expected[i].begin() + n));
    }
    EXPECT_GE(counted, 0.95 * rows) << "windows of " << window;  // two norms in a row round twice
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, RightDrafts,
                         testing::Combine(testing::ValuesIn(main_backends()),
                                          testing::Values(Passes::embedding, Passes::output)),
                         [](const auto& p) {
                           return processor(*std::get<0>(p.param)) +
                                  (std::get<1>(p.param) == Passes::embedding ? "_embedding" : "_output");
                         });

}  // namespace
}  // namespace quire
