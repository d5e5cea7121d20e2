// quire bench --policy: what the window policy gives.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "cli/bench_decoder.h"
#include "core/error.h"
#include "engine/window_policy.h"

namespace quire {
namespace {

// One step as the policy chose it.
struct Chosen {
  int window = 1;
  bool keep_up = true;
};

// Seconds of so many steps of a decoder that is asked for them as the engine does, one ahead of what is
// looked at. `choose` gives the next; `look` sees each and its result.
template <typename Choose, typename Look>
double run_steps(Decoder& d, int batch, int steps, Choose choose, Look look) {
  std::vector<int> slots(static_cast<std::size_t>(batch));
  std::iota(slots.begin(), slots.end(), 0);
  Chosen asked[2];
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i <= steps; ++i) {
    if (i < steps) {
      const Chosen c = asked[i % 2] = choose();
      d.step(slots, c.window, c.keep_up);
    }
    if (i > 0) look(asked[(i - 1) % 2], d.take());
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Tokens a second of plain decoding without a drafter.
double plain_speed(Bench& bench, int batch, std::int64_t context, int steps) {
  constexpr int kWarmUp = 5;
  const auto d = bench.decoder(bench.backend, batch, context, kWarmUp + steps, true);
  const auto one = [] { return Chosen(); };
  const auto nothing = [](const Chosen&, const Decoder::Result&) {};
  run_steps(*d, batch, kWarmUp, one, nothing);
  return batch * steps / run_steps(*d, batch, steps, one, nothing);
}

struct PolicySpeed {
  double tokens_per_second = 0;
  std::map<int, int> windows;  // steps of each; 0: of one row that the drafter did not keep up with
};

// The same with a drafter whose drafts are right up to `accept` tokens of a window, as the engine's policy
// chooses. It knows nothing in the beginning; kernels are loaded and graphs recorded before.
PolicySpeed policy_speed(Bench& bench, int batch, std::int64_t context, int steps, int accept) {
  constexpr int kWarmUp = 3;  // steps of each kind: loaded, recorded, run
  bench.accept = accept;
  const auto d = bench.decoder(bench.backend, batch, context, 6 * kWarmUp + steps);
  WindowPolicy policy(bench.window, kOfDrafter, bench.backend.row_tile);
  const auto warm_up = [&](Chosen chosen) {
    run_steps(
        *d, batch, kWarmUp, [&] { return chosen; }, [](const Chosen&, const Decoder::Result&) {});
  };
  warm_up({1, false});
  for (const int window : policy.windows()) warm_up({window, true});
  std::vector<Acceptance> sequences(static_cast<std::size_t>(batch));
  const auto choose = [&] {
    std::vector<const Acceptance*> drafted;
    for (const Acceptance& a : sequences)
      if (!policy.hopeless(a)) drafted.push_back(&a);
    return Chosen{policy.choose(Decoder::bucket(batch), drafted, batch - static_cast<int>(drafted.size())),
                  !drafted.empty()};
  };
  PolicySpeed speed;
  double tokens = 0;
  const auto look = [&](const Chosen& c, const Decoder::Result& result) {
    ++speed.windows[c.keep_up ? c.window : 0];
    if (c.keep_up) policy.took(Decoder::bucket(batch), c.window, result.seconds);
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      tokens += result.counts[i];
      if (c.window > 1) policy.gave(c.window, result.counts[i], sequences[i]);
    }
  };
  const double seconds = run_steps(*d, batch, steps, choose, look);
  speed.tokens_per_second = tokens / seconds;
  return speed;
}

}  // namespace

Json policy_table(const BenchArguments& a, Bench& bench) {
  fmt::print(
      "windows of up to {} as the policy chooses; acceptance assumed, not measured\n{:>6} {:>8} {:>7} "
      "{:>12} {:>12} {:>7}  {}\n",
      bench.window, "batch", "context", "accept", "plain tok/s", "policy tok/s", "times",
      "steps of each window");
  Json rows = Json::array();
  double worst = 1e9;
  for (const std::int64_t context : a.contexts) {
    for (const int batch : a.batches) {
      const double plain = plain_speed(bench, batch, context, a.steps);
      for (int accept = 1; accept <= bench.window; ++accept) {
        if (a.accept > 0 && accept != a.accept) continue;
        const PolicySpeed s = policy_speed(bench, batch, context, a.steps, accept);
        const double ratio = s.tokens_per_second / plain;
        std::string windows;
        Json counts = Json::object();
        for (const auto& [window, steps] : s.windows) {
          windows += fmt::format("{}{}: {}", windows.empty() ? "" : ", ", window, steps);
          counts[std::to_string(window)] = steps;
        }
        fmt::print("{:>6} {:>8} {:>7} {:>12.0f} {:>12.0f} {:>7.3f}  {}\n", batch, context, accept, plain,
                   s.tokens_per_second, ratio, windows);
        std::fflush(stdout);
        worst = std::min(worst, ratio);
        rows.push_back({{"batch", batch},
                        {"context", context},
                        {"draft", a.draft},
                        {"assumed_tokens_a_step", accept},
                        {"plain_tokens_per_second", plain},
                        {"policy_tokens_per_second", s.tokens_per_second},
                        {"ratio", ratio},
                        {"steps_of_each_window", counts}});
      }
    }
  }
  fmt::print("the least: {:.3f} times plain decoding\n", worst);
  return rows;
}

}  // namespace quire
