// Why does a drafter draft little? Its settings are changed one at a time, and what is right about the drafts
// then is measured on the same pages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/figure.h"
#include "measure/replay.h"

namespace quire {

struct Variant {
  std::string name;    // what is different: "mask token 4,095 (<|mask|>)"
  std::string before;  // what it was: "4,094 (<|video_pad|>)"
  std::string advice;  // what to do when it is better: "set dflash_config.mask_token_id to 4095"
  DrafterSetup setup;
};

// As configured, then with one change each.
std::vector<Variant> variants_of(const DrafterSetup& configured, const Target& target);

// Throws Error{invalid_input} when tensors of the drafter are for another vocabulary than the model's.
void check_vocabulary(const std::filesystem::path& drafter, const ModelConfig& target);

class DrafterCheck {
 public:
  // References must outlive it.
  DrafterCheck(Target& target, const DrafterWeights& weights, const DrafterSetup& configured)
      : target_(target), weights_(weights), variants_(variants_of(configured, target)) {
    counts_.resize(variants_.size());
  }

  // What a recording must have: one of these prompts, and these taps.
  std::vector<PromptSetup> prompts() const;
  std::vector<int> taps() const;
  // Runs every variant that has its prompt. Pages come in one order for every prompt.
  void add(const Recording& recording);

  struct Measured {
    const Variant* variant = nullptr;
    DraftCounts counts;   // of all pages
    Figure length;        // tokens a step
    Figure gain;          // of tokens a step, over those as configured, pages paired
    bool better = false;  // for sure, and by much
  };
  struct Verdict {
    std::vector<Measured> measured;    // as configured first
    std::optional<std::size_t> cause;  // of those that are better, the likeliest of the best
    bool low = false;                  // as configured the drafter drafts next to nothing
    std::string text;
    bool fine() const { return !cause && !low; }
  };
  Verdict verdict() const;

  const std::vector<Variant>& variants() const { return variants_; }
  // Of a variant, page by page.
  const std::vector<DraftCounts>& counts(std::size_t variant) const { return counts_[variant]; }

 private:
  Target& target_;
  const DrafterWeights& weights_;
  std::vector<Variant> variants_;
  std::vector<std::vector<DraftCounts>> counts_;
};

// From what was counted, page by page, for each variant: a verdict that noise does not make.
DrafterCheck::Verdict judge(const std::vector<Variant>& variants,
                            const std::vector<std::vector<DraftCounts>>& counts);

}  // namespace quire
