#include "engine/window_policy.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace quire {
namespace {

// What a step counts for after one more: about the last thirty say how it is.
constexpr double kMemory = 31.0 / 32;
// Steps that a prior stands for.
constexpr double kPriorSteps = 4;
// Tokens of a window that pay nowhere: drafting a single token takes a larger share of a step.
constexpr double kHopeless = 1.2;
// Of a new measurement in the mean of all.
constexpr double kNewest = 1.0 / 8;

}  // namespace

void Acceptance::observe(int rows, int counted) {
  QUIRE_CHECK(counted >= 1 && counted <= rows && rows <= kMostWindow, "{} of {} rows counted", counted, rows);
  for (int draft = 1; draft < rows && draft <= counted; ++draft) {
    const auto i = static_cast<std::size_t>(draft);
    seen_[i] = seen_[i] * kMemory + 1;
    right_[i] = right_[i] * kMemory + (draft < counted ? 1 : 0);
  }
}

Acceptance::Right Acceptance::right(int rows, const Right* prior) const {
  Right right{first_guess_};
  for (std::size_t i = 1; i < static_cast<std::size_t>(rows); ++i) {
    // A draft that was never reached is as good as the one before it.
    const double guess = prior ? (*prior)[i] : right[i - 1];
    right[i] = (right_[i] + guess * kPriorSteps) / (seen_[i] + kPriorSteps);
  }
  return right;
}

Acceptance::Tokens Acceptance::tokens(int rows, const Right* prior) const {
  const Right right = this->right(rows, prior);
  Tokens tokens{0, 1};
  double reached = 1;
  for (std::size_t i = 1; i < static_cast<std::size_t>(rows); ++i) {
    reached *= right[i];
    tokens[i + 1] = tokens[i] + reached;
  }
  return tokens;
}

WindowPolicy::WindowPolicy(int most, const FirstGuess& guess, int tile) : guess_(guess), all_(guess.right) {
  for (int window = 1; window < most; window = window == 2 ? std::max(4, tile) : 2 * window)
    windows_.push_back(window);
  windows_.push_back(most);
}

// Seconds of a step. One that has not been measured is thought to be longer than the next smaller one by half
// of what a line says, to the next larger one or, if there is none, from the one before: the first rows may
// hide behind the weights, and a drafter's share is the same for all. What rows are guessed to add comes on
// top.
double WindowPolicy::cost(int bucket, int window) const {
  double seconds = 0, slope = 0;
  int rows = 1;  // of the largest that was measured
  for (const int w : windows_) {
    const auto it = seconds_.find({bucket, w});
    if (it == seconds_.end()) continue;
    if (seconds > 0) slope = std::max(0.0, it->second - seconds) / (w - rows) / 2;
    if (w > window) return seconds + slope * (window - rows);
    seconds = std::max(seconds, it->second), rows = w;
  }
  return (seconds + slope * (window - rows)) * (1 + guess_.row * (window - rows));
}

int WindowPolicy::choose(int bucket, std::span<const Acceptance* const> sequences, int others) {
  const double plain = cost(bucket, windows_.front());  // 0: not even a window of 1 has been measured
  if (sequences.empty() || plain == 0) return windows_.front();
  // Many sequences show in one try what one shows in many.
  if (!std::exchange(begun_, true))
    saved_ += guess_.tries * plain / static_cast<double>(sequences.size() + others);
  // Before anything larger the next to the smallest: what it shows of the drafts says whether the others,
  // which may take several times as long, are worth a try.
  const bool begun = windows_.size() < 2 || seconds_.contains({bucket, windows_[1]});
  const std::size_t windows = begun ? windows_.size() : 2;
  const int most = windows_[windows - 1];
  const Acceptance::Right all = all_.right(most);
  struct Choice {
    double tokens, seconds, rate;
  };
  std::array<Choice, kMostWindow> choices;
  for (std::size_t i = 0; i < windows; ++i) choices[i] = {static_cast<double>(others), 0, 0};
  for (const Acceptance* a : sequences) {
    const Acceptance::Tokens tokens = a->tokens(most, &all);
    for (std::size_t i = 0; i < windows; ++i)
      choices[i].tokens += tokens[static_cast<std::size_t>(windows_[i])];
  }
  for (std::size_t i = 0; i < windows; ++i) {
    choices[i].seconds = i == 0 ? plain : cost(bucket, windows_[i]);
    choices[i].rate = choices[i].tokens / choices[i].seconds;
  }
  const auto end = choices.begin() + static_cast<std::ptrdiff_t>(windows);
  const auto best = std::ranges::max_element(choices.begin(), end, {}, &Choice::rate);
  const auto window = [&](auto choice) {
    return windows_[static_cast<std::size_t>(choice - choices.begin())];
  };
  // Now and then the next larger one: there is no other way to see that drafts have become better.
  saved_ += guess_.curiosity * best->seconds;
  if (best + 1 == end) return window(best);
  const double loss = best[1].seconds * (1 - best[1].rate / best->rate);
  if (saved_ < loss) return window(best);
  saved_ -= loss;
  return window(best + 1);
}

bool WindowPolicy::hopeless(const Acceptance& sequence, bool own) const {
  // More rows never give fewer tokens: most sequences show with few that there is hope.
  return std::ranges::none_of(windows_, [&](int window) {
    const Acceptance::Right all = all_.right(window);
    return sequence.tokens(window, own ? nullptr : &all)[static_cast<std::size_t>(window)] >= kHopeless;
  });
}

void WindowPolicy::took(int bucket, int window, double seconds) {
  const auto [it, first] = seconds_.try_emplace({bucket, window}, seconds);
  if (!first) it->second += kNewest * (seconds - it->second);
}

void WindowPolicy::gave(int rows, int counted, Acceptance& sequence) {
  sequence.observe(rows, counted);
  all_.observe(rows, counted);
}

}  // namespace quire
