#include "ops/sample/sample.h"

#include <set>

#include "ops/sample/draw.h"
#include "ops/testing.h"

namespace quire {
namespace {

// Random123's kat_vectors for philox4x32 of ten rounds.
TEST(Philox, KnownAnswers) {
  const auto words = [](Philox counter, std::uint32_t key0, std::uint32_t key1) {
    const Philox x = philox(counter, key0, key1);
    return std::vector(x.word, x.word + 4);
  };
  using Words = std::vector<std::uint32_t>;
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(words({{0, 0, 0, 0}}, 0, 0), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(random_bits(0, 0, Purpose::draw), 0xe169c58d6627e8d5);
}

TEST(Draw, BoundsOfWholeSums) {
  EXPECT_EQ(uniform_below(10, 0), 0u);
  EXPECT_EQ(uniform_below(10, ~std::uint64_t{0}), 9u);
  EXPECT_EQ(uniform_below(std::uint64_t{1} << 62, std::uint64_t{1} << 63), std::uint64_t{1} << 61);
  EXPECT_EQ(nucleus(0.5f, 10), 5u);
  EXPECT_EQ(nucleus(0.5f, 11), 6u);
  EXPECT_EQ(nucleus(0, 11), 1u) << "the first is always kept";
  EXPECT_EQ(weight_of(1), std::uint64_t{1} << 40);
  EXPECT_EQ(weight_of(kLeastRatio), 1u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(kLeastRatio), kLeastKey);
}

// Of one request.
struct Request {
  SamplingSettings settings;
  std::vector<std::uint16_t> seen;  // [V] or empty: nothing
};
SamplingSettings greedy() {
  return {};
}
SamplingSettings at(float temperature) {
  return {.temperature = temperature, .seed = 0x123456789abcdef};
}

// Logits are f32 in both precisions.
class SampleTest : public OpsTest {
 protected:
  // Row t belongs to requests[slot[t]].
  std::vector<Sampled> run(const Ops& table, Stream& s, const Matrix& logits,
                           const std::vector<Request>& requests, const std::vector<std::int32_t>& slot,
                           const std::vector<std::int32_t>& position) {
    std::vector<SamplingSettings> settings;
    std::vector<std::uint16_t> seen(requests.size() * static_cast<std::size_t>(logits.cols()), 0);
    bool any = false;
    for (std::size_t r = 0; r < requests.size(); ++r) {
      settings.push_back(requests[r].settings);
      std::copy(requests[r].seen.begin(), requests[r].seen.end(), seen.begin() + r * logits.cols());
      any |= !requests[r].seen.empty();
    }
    std::vector<Sampled> out(logits.rows(), {-1, NAN});
    table.sample(s, {.logits = logits,
                     .settings = settings.data(),
                     .seen = any ? seen.data() : nullptr,
                     .slot = slot.data(),
                     .position = position.data(),
                     .out = out});
    return out;
  }
  // Every row of the same request, at positions 0, 1, 2, ...
  std::vector<Sampled> run(const Matrix& logits, const Request& request) {
    std::vector<std::int32_t> positions(logits.rows());
    std::iota(positions.begin(), positions.end(), 0);
    return run(ops(), stream(), logits, {request}, std::vector<std::int32_t>(logits.rows(), 0), positions);
  }
  Sampled one(std::vector<float> logits, const Request& request = {greedy(), {}}) {
    return run(matrix(Format::f32, 1, std::ssize(logits), logits), request)[0];
  }

  // How often each token is drawn from the same logits.
  std::vector<int> counts(const std::vector<float>& logits, const Request& request,
                          std::int64_t draws = 20000) {
    Matrix rows(Format::f32, draws, std::ssize(logits));
    for (std::int64_t t = 0; t < draws; ++t)
      for (std::int64_t v = 0; v < rows.cols(); ++v) rows.set(t, v, logits[v]);
    std::vector<int> n(logits.size());
    for (const Sampled& s : run(rows, request)) ++n.at(static_cast<std::size_t>(s.token));
    return n;
  }
  // The tokens that are ever drawn: each has a probability of at least 1/20 in the cases below, so that one
  // of 1,000 draws misses it with a probability below 1e-22.
  std::set<int> support(const std::vector<float>& logits, const Request& request) {
    std::set<int> tokens;
    const std::vector<int> n = counts(logits, request, 1000);
    for (std::size_t v = 0; v < n.size(); ++v)
      if (n[v] > 0) tokens.insert(static_cast<int>(v));
    return tokens;
  }
};
INSTANTIATE_TEST_SUITE_P(, SampleTest,
                         testing::Combine(testing::ValuesIn(tables()), testing::Values(Format::f32)),
                         case_name);
using Tokens = std::set<int>;

std::vector<float> logs(std::vector<float> probabilities) {
  for (float& p : probabilities) p = std::log(p);
  return probabilities;
}

// --- the likeliest token -----------------------------------------------------------------------------------

TEST_P(SampleTest, GreedyByHand) {
  const Sampled s = one({0, std::log(2.0f), 0});  // probability 2 / 4
  EXPECT_EQ(s.token, 1);
  EXPECT_NEAR(s.logprob, std::log(0.5), 1e-6);
}

TEST_P(SampleTest, TiesGoToTheLowestId) {
  for (std::int64_t V : {1, 2, 7, 16, 33, 1000, 9000}) {
    const Sampled s = one(std::vector<float>(V, -3.0f));
    EXPECT_EQ(s.token, 0);
    EXPECT_NEAR(s.logprob, -std::log(static_cast<double>(V)), 1e-5) << "uniform over " << V;
  }
  // Every pair of equal maxima, whichever lanes they fall into.
  const std::vector<float> logits = normals(random, 70);
  for (std::int64_t first = 0; first < 70; ++first)
    for (std::int64_t second = first + 1; second < 70; ++second) {
      std::vector<float> x = logits;
      x[first] = x[second] = 9;
      ASSERT_EQ(one(x).token, first) << first << " and " << second;
    }
  std::vector<float> zeros(40, -1.0f);
  zeros[20] = -0.0f, zeros[33] = 0.0f;
  EXPECT_EQ(one(zeros).token, 20) << "-0 equals 0";
}

TEST_P(SampleTest, FindsEveryPlace) {
  for (std::int64_t V : {1, 15, 16, 17, 65, 130})
    for (std::int64_t place = 0; place < V; ++place) {
      std::vector<float> x = normals(random, V);
      x[place] = 20;
      ASSERT_EQ(one(x).token, place);
      ASSERT_EQ(one(x, {at(0.1f), {}}).token, place);
    }
}

// Masked logits are -inf; large ones must not overflow; what is certain has logprob 0.
TEST_P(SampleTest, ExtremeLogits) {
  for (const SamplingSettings& settings : {greedy(), at(1)}) {
    std::vector<float> values(50, -INFINITY);
    values[37] = -1e30f;
    Sampled s = one(values, {settings, {}});
    EXPECT_EQ(s.token, 37);
    EXPECT_EQ(s.logprob, 0);
    values.assign(50, 1e30f);
    values[3] = 2e30f;
    s = one(values, {settings, {}});
    EXPECT_EQ(s.token, 3);
    EXPECT_EQ(s.logprob, 0);
    values[5] = INFINITY;
    EXPECT_EQ(one(values, {settings, {}}).token, 5);
    EXPECT_EQ(one(std::vector<float>(40, -INFINITY), {settings, {}}).token, 0);
  }
}

// A broken model must not make a broken id.
TEST_P(SampleTest, NaNGivesAValidToken) {
  SamplingSettings all = at(0.1f);
  all.top_k = 5, all.top_p = 0.9f, all.min_p = 0.1f;
  for (const SamplingSettings& settings : {greedy(), at(0.1f), all}) {
    for (std::int64_t V : {1, 16, 50}) {
      const Sampled s = one(std::vector<float>(V, NAN), {settings, {}});
      EXPECT_EQ(s.token, 0);
      EXPECT_FALSE(std::isfinite(s.logprob));
    }
    for (std::int64_t place : {0, 1, 17, 49}) {
      std::vector<float> x = normals(random, 50);
      x[30] = 9;
      x[place] = NAN;
      const Sampled s = one(x, {settings, {}});
      EXPECT_EQ(s.token, 30) << "NaN at " << place;
      EXPECT_FALSE(std::isfinite(s.logprob));
    }
  }
}

// --- penalties ---------------------------------------------------------------------------------------------

TEST_P(SampleTest, PenaltiesByHand) {
  const std::vector<float> logits = {3, 2, -1, -2};
  const auto token = [&](SamplingSettings s, std::vector<std::uint16_t> seen) {
    return one(logits, {s, seen}).token;
  };
  SamplingSettings s;
  s.repetition_penalty = 2;  // 3 / 2 < 2
  EXPECT_EQ(token(s, {kInPrompt, 0, 0, 0}), 1) << "the prompt counts";
  EXPECT_EQ(token(s, {1, 0, 0, 0}), 1) << "the output counts";
  EXPECT_EQ(token(s, {5, 5, 0, 0}), 0) << "3 / 2 > 2 / 2, however often";
  s.repetition_penalty = 1.4f;
  EXPECT_EQ(token(s, {1, 0, 0, 0}), 0) << "3 / 1.4 > 2";

  s = {};
  s.presence_penalty = 1.5f;
  EXPECT_EQ(token(s, {kInPrompt, 0, 0, 0}), 0) << "the prompt does not count";
  EXPECT_EQ(token(s, {1, 0, 0, 0}), 1);
  EXPECT_EQ(token(s, {7, 1, 0, 0}), 0) << "however often";
  s = {};
  s.frequency_penalty = 0.4f;
  EXPECT_EQ(token(s, {2, 0, 0, 0}), 0) << "3 - 0.8 > 2";
  EXPECT_EQ(token(s, {kInPrompt | 3, 0, 0, 0}), 1) << "3 - 1.2 < 2";
  EXPECT_EQ(token(s, {kInPrompt, 0, 0, 0}), 0);

  const Sampled penalised = one(logits, {s, {9, 1, 0, 0}});
  EXPECT_EQ(penalised.token, 1);
  EXPECT_NEAR(penalised.logprob, 2 - std::log(std::exp(3) + std::exp(2) + std::exp(-1) + std::exp(-2)), 1e-6)
      << "of the model as it is";
}

TEST_P(SampleTest, RepetitionMakesNegativeLogitsSmaller) {
  SamplingSettings s;
  s.repetition_penalty = 3;
  EXPECT_EQ(one({-1, -2}, {s, {1, 0}}).token, 1) << "-3 < -2";
  EXPECT_EQ(one({-1, -4}, {s, {1, 0}}).token, 0);
}

TEST_P(SampleTest, RepetitionComesBeforePresence) {
  SamplingSettings s;
  s.repetition_penalty = 2, s.presence_penalty = 1;
  EXPECT_EQ(one({2, 0.25f}, {s, {1, 0}}).token, 1) << "2 / 2 - 1 < 0.25 < (2 - 1) / 2";
}

// --- what is kept ------------------------------------------------------------------------------------------

TEST_P(SampleTest, KeepsByHand) {
  const std::vector<float> x = logs({0.1f, 0.4f, 0.2f, 0.3f});
  SamplingSettings s = at(1);
  EXPECT_EQ(support(x, {s, {}}), (Tokens{0, 1, 2, 3}));
  s.top_k = 2;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{1, 3}));
  s.top_k = 1;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{1}));
  s.top_k = 9;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{0, 1, 2, 3}));
  s = at(1), s.top_p = 0.65f;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{1, 3})) << "0.4 < 0.65 <= 0.7";
  s.top_p = 0.75f;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{1, 2, 3})) << "0.7 < 0.75";
  s.top_p = 0;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{1}));
  s = at(1), s.min_p = 0.6f;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{1, 3})) << "0.2 < 0.6 * 0.4 < 0.3";
  s.min_p = 2;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{1})) << "the likeliest stays";
}

TEST_P(SampleTest, TiesAtACutoffGoToTheLowestIds) {
  const std::vector<float> x = {0, 1, 1, 1, 1, 1, 2};
  SamplingSettings s = at(1);
  s.top_k = 4;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{1, 2, 3, 6}));
  s.top_k = 5, s.min_p = 0.3f;
  EXPECT_EQ(support(x, {s, {}}), (Tokens{1, 2, 3, 4, 6}));
  s = at(1), s.top_p = 0.5f;
  EXPECT_EQ(support(std::vector<float>(10, 4.0f), {s, {}}), (Tokens{0, 1, 2, 3, 4}));
  s.top_k = 6;  // a cutoff among ties, then another
  EXPECT_EQ(support(std::vector<float>(10, 4.0f), {s, {}}), (Tokens{0, 1, 2}));
}

// Each of these keeps other tokens when two steps change places.
TEST_P(SampleTest, SettingsApplyInTheirOrder) {
  SamplingSettings s = at(1);
  s.top_k = 2, s.top_p = 0.5f;
  EXPECT_EQ(support(logs({0.4f, 0.3f, 0.2f, 0.1f}), {s, {}}), (Tokens{0})) << "top_k, then top_p";
  s = at(1), s.min_p = 0.5f, s.top_p = 0.6f;
  EXPECT_EQ(support(logs({0.5f, 0.3f, 0.1f, 0.1f}), {s, {}}), (Tokens{0})) << "min_p, then top_p";
  s = at(2), s.min_p = 0.4f;
  EXPECT_EQ(support(logs({0.64f, 0.16f}), {s, {}}), (Tokens{0, 1})) << "temperature, then min_p";
  s = at(2), s.top_p = 0.65f;
  EXPECT_EQ(support(logs({0.8f, 0.2f}), {s, {}}), (Tokens{0})) << "2 / 3";
  s.top_p = 0.7f;
  EXPECT_EQ(support(logs({0.8f, 0.2f}), {s, {}}), (Tokens{0, 1})) << "temperature, then top_p";
  s = at(0.5f), s.presence_penalty = 1, s.min_p = 0.2f;
  EXPECT_EQ(support({0, 0}, {s, {0, 1}}), (Tokens{0})) << "penalties, then temperature: e^-2 < 0.2 < e^-1";
}

TEST_P(SampleTest, TemperaturesWithoutBounds) {
  const std::vector<float> x = {1, 1.001f, -5, 0.5f};
  for (float temperature : {1e-3f / 32, 1e-30f, 1e-44f})
    EXPECT_EQ(support(x, {at(temperature), {}}), (Tokens{1}));
  for (float temperature : {1e6f, INFINITY})
    EXPECT_EQ(support(x, {at(temperature), {}}), (Tokens{0, 1, 2, 3}));
}

// --- distributions -----------------------------------------------------------------------------------------

// The definitions of the settings in double, on probabilities.
std::vector<double> distribution(const std::vector<float>& logits, const SamplingSettings& s) {
  std::vector<double> p;
  std::vector<std::size_t> rank(logits.size());
  for (float l : logits) p.push_back(std::exp(l / s.temperature));
  const auto normalise = [&] {
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= total;
  };
  normalise();
  std::iota(rank.begin(), rank.end(), 0);
  std::stable_sort(rank.begin(), rank.end(), [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
  if (s.top_k > 0)
    for (std::size_t i = s.top_k; i < rank.size(); ++i) p[rank[i]] = 0;
  for (double& x : p)
    if (x < s.min_p * p[rank[0]]) x = 0;
  normalise();
  double before = 0;
  for (std::size_t i : rank) {
    const double own = p[i];
    if (before >= s.top_p) p[i] = 0;
    before += own;
  }
  normalise();
  return p;
}

// Infinite when a token is drawn that has no probability.
double chi_square(const std::vector<int>& counts, const std::vector<double>& p) {
  const double n = std::accumulate(counts.begin(), counts.end(), 0.0);
  double sum = 0;
  for (std::size_t v = 0; v < p.size(); ++v) {
    if (p[v] == 0 && counts[v] > 0) return INFINITY;
    if (p[v] > 0) sum += (counts[v] - n * p[v]) * (counts[v] - n * p[v]) / (n * p[v]);
  }
  return sum;
}
// Exceeded by chance once in a million (Wilson and Hilferty).
double chi_square_bound(const std::vector<double>& p) {
  const double freedom = static_cast<double>(p.size() - std::count(p.begin(), p.end(), 0.0)) - 1;
  if (freedom == 0) return 1e-9;
  const double spread = 2 / (9 * freedom);
  return freedom * std::pow(1 - spread + 4.7534 * std::sqrt(spread), 3);
}

TEST_P(SampleTest, DrawsFromTheDistribution) {
  const std::vector<float> x = {0.3f, -1.2f, 2.1f, 0.9f, -0.4f, 0.1f, -2.0f, 0.7f, 1.5f};
  std::vector<SamplingSettings> cases;
  for (float temperature : {0.6f, 1.0f, 1.7f})
    for (int top_k : {0, 5})
      for (float top_p : {1.0f, 0.8f})
        for (float min_p : {0.0f, 0.3f}) {
          SamplingSettings s = at(temperature);
          s.top_k = top_k, s.top_p = top_p, s.min_p = min_p, s.seed += cases.size();
          cases.push_back(s);
        }
  for (const SamplingSettings& s : cases) {
    const std::vector<int> n = counts(x, {s, {}});
    const std::vector<double> p = distribution(x, s);
    EXPECT_LT(chi_square(n, p), chi_square_bound(p))
        << fmt::format("temperature {} top_k {} top_p {} min_p {}", s.temperature, s.top_k, s.top_p, s.min_p);
    SamplingSettings other = s;
    other.temperature *= 1.3f;
    EXPECT_GT(chi_square(n, distribution(x, other)), chi_square_bound(p)) << "tells temperatures apart";
  }
}

TEST_P(SampleTest, PenaltiesShapeTheDistribution) {
  const std::vector<float> x = {0.5f, 1, -0.5f, 0};
  SamplingSettings s = at(0.8f);
  s.repetition_penalty = 1.5f, s.presence_penalty = 0.2f, s.frequency_penalty = 0.1f;
  const std::vector<std::uint16_t> seen = {kInPrompt, kInPrompt | 3, 1, 0};
  const std::vector<double> p =
      distribution({0.5f / 1.5f, 1 / 1.5f - 0.2f - 0.3f, -0.5f * 1.5f - 0.2f - 0.1f, 0}, s);
  EXPECT_LT(chi_square(counts(x, {s, seen}), p), chi_square_bound(p));
}

// Draws of one position under 20,000 seeds: independent too, and other seeds give other tokens.
TEST_P(SampleTest, SeedsAreIndependent) {
  const std::vector<float> x = {0.3f, -1.2f, 1.1f, 0.9f};
  constexpr std::int64_t kSeeds = 20000;
  std::vector<Request> requests;
  std::vector<std::int32_t> slot, position(kSeeds, 7);
  Matrix rows(Format::f32, kSeeds, 4);
  for (std::int64_t t = 0; t < kSeeds; ++t) {
    requests.push_back({at(1), {}});
    requests.back().settings.seed = static_cast<std::uint64_t>(t)
                                    << (t % 2 ? 32 : 0);  // both halves of the key
    slot.push_back(static_cast<std::int32_t>(t));
    for (std::int64_t v = 0; v < 4; ++v) rows.set(t, v, x[v]);
  }
  std::vector<int> n(4);
  for (const Sampled& s : run(ops(), stream(), rows, requests, slot, position)) ++n.at(s.token);
  const std::vector<double> p = distribution(x, at(1));
  EXPECT_LT(chi_square(n, p), chi_square_bound(p));
}

// --- against the reference ---------------------------------------------------------------------------------

template <typename T>
T one_of(Random& random, std::initializer_list<T> values) {
  return values.begin()[static_cast<std::size_t>(random.uniform() * static_cast<double>(values.size()))];
}

Request random_request(Random& random, std::int64_t V) {
  Request r;
  SamplingSettings& s = r.settings;
  s.temperature = one_of(random, {0.0f, 0.3f, 1.0f, 2.5f});
  s.top_k = one_of(random, {0, 0, 1, 3, 50, 100000});
  s.top_p = one_of(random, {1.0f, 1.0f, 0.1f, 0.9f, 0.999f});
  s.min_p = one_of(random, {0.0f, 0.0f, 0.02f, 0.5f});
  s.repetition_penalty = one_of(random, {1.0f, 1.0f, 1.3f});
  s.presence_penalty = one_of(random, {0.0f, 0.0f, 0.7f});
  s.frequency_penalty = one_of(random, {0.0f, 0.0f, 0.2f});
  s.seed = static_cast<std::uint64_t>(random.uniform() * 0x1p52);
  for (std::int64_t v = 0; v < V; ++v) {
    const double u = random.uniform();
    r.seen.push_back(
        static_cast<std::uint16_t>((u < 0.3 ? kInPrompt : 0) | (u < 0.1 || u > 0.8 ? int(40 * u) : 0)));
  }
  return r;
}

// Tokens are equal, always. The sum of V terms in (0, 1] is at least 1: its log errs by 8 u sqrt(V), and by
// an ulp of the logits' differences, up to 80 here. Coarse logits make ties at every cutoff.
TEST_P(SampleTest, MatchesReference) {
  for (std::int64_t V : {1, 7, 33, 130, 4096, 20001})
    for (std::int64_t T : kRowCounts)
      for (double step : {0.0, 0.5}) {
        if (T * V > 1 << 18) continue;
        Matrix x = random_matrix(random, Format::f32, T, V, T % 2 ? 2.0f : 8.0f, V % 3);
        if (step > 0)
          for (std::int64_t t = 0; t < T; ++t)
            for (std::int64_t v = 0; v < V; ++v)
              x.set(t, v, static_cast<float>(std::round(x.get(t, v) / step) * step));
        std::vector<Request> requests;
        std::vector<std::int32_t> slot, position;
        for (std::int64_t t = 0; t < T; ++t) {
          requests.push_back(random_request(random, V));
          slot.push_back(static_cast<std::int32_t>(T - 1 - t));
          position.push_back(static_cast<std::int32_t>(1000 * random.uniform()));
        }
        const auto expected = run(reference_ops(), stream(), x, requests, slot, position);
        const auto out = run(ops(), stream(), x, requests, slot, position);
        const double slack = 8 * 0x1p-24 * std::sqrt(static_cast<double>(V)) + 80 * 0x1p-23;
        for (std::int64_t t = 0; t < T; ++t) {
          ASSERT_EQ(out[t].token, expected[t].token) << "row " << t << " of " << T << " x " << V;
          ASSERT_NEAR(out[t].logprob, expected[t].logprob, slack) << "row " << t << " of " << T << " x " << V;
        }
      }
}

// A whole vocabulary: every segment and piece of a kernel.
TEST_P(SampleTest, MatchesReferenceOnAWholeVocabulary) {
  constexpr std::int64_t V = 248320;
  Matrix x = random_matrix(random, Format::f32, 6, V, 3, 0);
  std::vector<Request> requests(6, {at(1), {}});
  requests[0].settings = greedy();
  requests[2].settings.top_k = 40, requests[2].settings.top_p = 0.9f;
  requests[3].settings.top_p = 0.95f;
  requests[4].settings.min_p = 1e-3f, requests[4].settings.temperature = 1.5f;
  requests[5] = random_request(random, V);
  const std::vector<std::int32_t> slot = {0, 1, 2, 3, 4, 5}, position = {5, 5, 5, 6, 7, 8};
  const auto expected = run(reference_ops(), stream(), x, requests, slot, position);
  const auto out = run(ops(), stream(), x, requests, slot, position);
  for (std::size_t t = 0; t < 6; ++t) {
    EXPECT_EQ(out[t].token, expected[t].token) << "row " << t;
    EXPECT_NEAR(out[t].logprob, expected[t].logprob, 8 * 0x1p-24 * 500 + 80 * 0x1p-23) << "row " << t;
  }
}

// Whole logits: thousands of tokens share the ratio at a cutoff, and some of them are kept.
TEST_P(SampleTest, MatchesReferenceOnTies) {
  constexpr std::int64_t V = 30000;
  std::vector<Request> requests;
  for (int top_k : {100, 2000, 12000, 28000})
    for (float top_p : {1.0f, 0.9f, 0.2f})
      for (float temperature : {1.0f, 6.0f}) {
        requests.push_back({at(temperature), {}});
        requests.back().settings.top_k = top_k, requests.back().settings.top_p = top_p;
      }
  const std::int64_t T = std::ssize(requests);
  Matrix x = random_matrix(random, Format::f32, T, V, 2, 0);
  std::vector<std::int32_t> slot, position;
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t v = 0; v < V; ++v) x.set(t, v, std::round(x.get(t, v)));
    slot.push_back(static_cast<std::int32_t>(t)), position.push_back(static_cast<std::int32_t>(7 * t));
  }
  for (int round = 0; round < 4; ++round) {
    const auto expected = run(reference_ops(), stream(), x, requests, slot, position);
    const auto out = run(ops(), stream(), x, requests, slot, position);
    for (std::int64_t t = 0; t < T; ++t) ASSERT_EQ(out[t].token, expected[t].token) << "row " << t;
    for (std::int32_t& p : position) p += 1000;
  }
}

// Tokens at the cutoff between likelier ones, of which every third is one: beyond the last tie that is kept,
// the others still count.
TEST_P(SampleTest, MatchesReferenceAroundTheLastTie) {
  constexpr std::int64_t V = 30000, T = 64, kFirst = 5000, kCount = 402;
  Matrix x(Format::f32, T, V);
  for (std::int64_t t = 0; t < T; ++t)
    for (std::int64_t v = 0; v < V; ++v)
      x.set(t, v, v < kFirst || v >= kFirst + kCount ? -INFINITY : v % 3 == 0 ? 1.0f : 0.0f);
  for (int ties : {1, 70, 130, 200}) {
    Request request{at(10), {}};
    request.settings.top_k = static_cast<int>(kCount / 3) + ties;
    std::vector<std::int32_t> slot(T, 0), position(T);
    std::iota(position.begin(), position.end(), 100 * ties);
    const auto expected = run(reference_ops(), stream(), x, {request}, slot, position);
    const auto out = run(ops(), stream(), x, {request}, slot, position);
    for (std::int64_t t = 0; t < T; ++t)
      ASSERT_EQ(out[t].token, expected[t].token) << "row " << t << ", " << ties;
  }
}

TEST_P(SampleTest, RowsAreIndependent) {
  constexpr std::int64_t T = 40, V = 4515;
  std::vector<Request> requests;
  for (std::int64_t t = 0; t < T; ++t) requests.push_back(random_request(random, V));
  const Matrix logits = random_matrix(random, Format::f32, T, V);
  for (std::int64_t padding : {0, 1, 3}) {
    EXPECT_TRUE(rows_are_independent(T, [&](Stream& s, std::span<const std::int64_t> rows) {
      Matrix x(Format::f32, std::ssize(rows), V, padding), y(Format::f32, std::ssize(rows), 2);
      std::vector<std::int32_t> slot(rows.begin(), rows.end()), position(rows.begin(), rows.end());
      for (std::int64_t t = 0; t < x.rows(); ++t)
        for (std::int64_t v = 0; v < V; ++v) x.set(t, v, logits.get(rows[t], v));
      const auto out = run(ops(), s, x, requests, slot, position);
      for (std::int64_t t = 0; t < y.rows(); ++t) {
        y.set(t, 0, static_cast<float>(out[t].token));
        y.set(t, 1, out[t].logprob);
      }
      return y;
    }));
  }
}

TEST_P(SampleTest, RejectsShapesThatDoNotFit) {
  const SamplingSettings settings;
  const std::int32_t zeros[3] = {};
  std::vector<Sampled> out(2);
  const auto call = [&](const Matrix& logits) {
    ops().sample(stream(),
                 {.logits = logits, .settings = &settings, .slot = zeros, .position = zeros, .out = out});
  };
  EXPECT_NO_THROW(call(random_matrix(random, Format::f32, 2, 8)));
  EXPECT_THROW(call(Matrix(Format::f32, 3, 8)), Error);
  EXPECT_THROW(call(Matrix(Format::bf16, 2, 8)), Error);
  EXPECT_THROW(call(Matrix(Format::f32, 2, 0)), Error);
  const Matrix logits(Format::f32, 2, 8);
  EXPECT_THROW(ops().sample(stream(), {.logits = logits, .settings = &settings, .out = out}), Error);
}

}  // namespace
}  // namespace quire
