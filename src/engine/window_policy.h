// How many rows a step gives each sequence. More rows are more tokens when drafts are right, and a longer
// step: the policy takes the window that promises most tokens a second, from how often drafts were right so
// far and from how long steps took. It knows neither machine nor model beforehand. No choice changes a token.
// window_policy_test sweeps batches of 1 to 64 and acceptances of 1 to 16 over step times like those
// measured: 0.98 of plain decoding or more from a cold start on, wherever that is.
#pragma once

#include <array>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "ops/ops.h"

namespace quire {

// What is thought before anything was seen: how often a draft is right, and by what share each further row
// makes a step longer. A drafter has drafts at every step, and gains by having every window tried at once;
// n-grams are few and worse, and a short page does not pay for that. A drafter costs time even in steps
// without drafts: it pays to know early whether its drafts are any good, and less is left for later.
struct FirstGuess {
  double right;
  double row;
  double tries;      // plain steps of a sequence that may be lost on finding out early
  double curiosity;  // of the time, for windows that look worse: sequences change
};
inline constexpr FirstGuess kOfDrafter{0.8, 0, 3, 0.003}, kOfLookup{0.4, 0.2, 0, 0.01};

// How often the drafts of a sequence, or of all, were right: each draft of a window, given that those before
// it were. Old steps count less and less.
class Acceptance {
 public:
  explicit Acceptance(double first_guess = kOfDrafter.right) : first_guess_(first_guess) {}
  // One window of `rows` rows, of which so many counted (1: no draft was right).
  void observe(int rows, int counted);
  // How often draft 1, 2, ... of a window of `rows` rows is right. Where nothing was seen, `prior` stands.
  using Right = std::array<double, kMostWindow>;
  Right right(int rows, const Right* prior = nullptr) const;
  // Tokens that a window of 1, 2, ..., `rows` rows gives, each 1 to its rows.
  using Tokens = std::array<double, kMostWindow + 1>;
  Tokens tokens(int rows, const Right* prior = nullptr) const;

 private:
  double first_guess_;
  // Of draft 1, 2, ...: how often it was looked at, and right.
  std::array<double, kMostWindow> seen_{}, right_{};
};

class WindowPolicy {
 public:
  // Windows of 1, 2, 4, 8, ... rows and of `most`; of 1, 2, 6, 12, ... where rows are worked on in tiles
  // of 6.
  explicit WindowPolicy(int most, const FirstGuess& guess = kOfDrafter, int tile = 1);
  std::span<const int> windows() const { return windows_; }

  // The window for a step of these sequences, and of `others` that have no drafts: a token each, whatever the
  // window. `bucket`: their number in all as the decoder rounds it.
  int choose(int bucket, std::span<const Acceptance* const> sequences, int others = 0);
  // Whether the drafts of a sequence are so bad that no window will ever pay: a drafter need not keep up with
  // it. `own`: by its own steps alone, not by what others showed.
  bool hopeless(const Acceptance& sequence, bool own = false) const;
  // What a step took.
  void took(int bucket, int window, double seconds);
  // What a window of one of the sequences gave.
  void gave(int rows, int counted, Acceptance& sequence);

 private:
  double cost(int bucket, int window) const;

  FirstGuess guess_;
  std::vector<int> windows_;
  std::map<std::pair<int, int>, double> seconds_;  // by bucket and window
  Acceptance all_;
  double saved_ = 0;  // seconds for windows that look worse
  bool begun_ = false;
};

}  // namespace quire
