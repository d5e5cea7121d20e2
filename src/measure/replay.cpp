#include "measure/replay.h"

#include <algorithm>

#include "core/error.h"

namespace quire {
namespace {

constexpr std::int64_t kChunk = Decoder::kPrefillChunk;
constexpr int kSlot = 0;

// The cursors of a sequence, which are all that a drafter needs of the target's states.
StateSlots::Shape cursors_only() {
  return {.gdn = {1, 1, 8, 8}, .slots = 1};
}

class Replay {
 public:
  Replay(Target& target, const DrafterSetup& setup, const DrafterWeights& weights, const Recording& recording)
      : target_(target),
        setup_(setup),
        recording_(recording),
        window_(std::min(setup.config.block_size, kMostWindow)),
        drafter_(setup.config, weights, target.weights.text, target.backend, setup.format,
                 {.context_rows = kChunk, .block_rows = window_}),
        kv_(target.backend, target.stream, pages()),
        states_(target.backend, target.stream, cursors_only()),
        arrays_(target.backend, kChunk, 1),
        given_(target.backend, bytes_of_rows(Format::bf16)),
        features_(target.backend, bytes_of_rows(setup.format)),
        masks_(target.backend, sizeof(std::int32_t) * (kMostWindow - 1)),
        drafts_(static_cast<std::size_t>(window_)) {
    const std::vector<std::int32_t> masks(kMostWindow - 1, setup.config.mask_token_id);
    target.backend.upload(target.stream, masks_.data(), masks.data(), masks_.size());
    kv_.hold(target.stream, kSlot, std::ssize(recording.tokens) + window_);
    // Positions of generated tokens follow those of the prompt.
    for (std::size_t axis = 0; axis < 3; ++axis) {
      const MropePositions& p = recording.positions;
      std::vector<std::int32_t>& all = position_[axis];
      all = axis == 0 ? p.t : axis == 1 ? p.h : p.w;
      while (all.size() < recording.tokens.size())
        all.push_back(static_cast<std::int32_t>(all.size()) + p.delta);
    }
  }

  DraftCounts run() {
    const std::vector<std::int32_t>& tokens = recording_.tokens;
    DraftCounts counts;
    extend(0, recording_.prompt_tokens);
    for (std::size_t anchor = recording_.prompt_tokens;;) {
      draft(anchor);
      const std::span<const std::int32_t> expected = std::span(tokens).subspan(anchor);
      const auto [first_wrong, unused] = std::ranges::mismatch(drafts_, expected);
      const auto given = static_cast<std::size_t>(first_wrong - drafts_.begin());
      if (given + 1 >= expected.size()) return counts;  // the last step, which may be cut off
      counts.add_step(drafts_.size(), given);
      extend(anchor, anchor + given);
      anchor += given;
    }
  }

 private:
  std::size_t bytes_of_rows(Format format) const {
    return static_cast<std::size_t>(kChunk * std::ssize(setup_.config.taps) * setup_.config.hidden_size *
                                    size_of(format));
  }
  KvPool::Shape pages() const {
    const std::int32_t all = KvPool::pages_for(std::ssize(recording_.tokens) + window_);
    return {.draft_layers = static_cast<int>(setup_.config.layers.size()),
            .draft_cols = setup_.config.kv_cols(),
            .format = setup_.format,
            .slots = 1,
            .pages = all,
            .pages_per_slot = all};
  }

  // Of tokens from `begin` on: the taps of this drafter, side by side, in its format.
  Rows features(std::size_t begin, std::size_t rows) {
    const std::size_t width = static_cast<std::size_t>(setup_.config.hidden_size) * sizeof(bf16);
    const std::size_t stride = width * recording_.taps.size();
    std::vector<std::byte> gathered;
    gathered.reserve(rows * width * setup_.config.taps.size());
    for (std::size_t row = begin; row < begin + rows; ++row)
      for (const int tap : setup_.config.taps) {
        const auto place = std::ranges::find(recording_.taps, tap);
        QUIRE_CHECK(place != recording_.taps.end(), "layer {} was not recorded", tap);
        const auto* from = recording_.features.data() + row * stride +
                           static_cast<std::size_t>(place - recording_.taps.begin()) * width;
        gathered.insert(gathered.end(), from, from + width);
      }
    target_.backend.upload(target_.stream, given_.data(), gathered.data(), gathered.size());
    const std::int64_t cols = std::ssize(setup_.config.taps) * setup_.config.hidden_size;
    const auto as_rows = [&](const Memory& memory, Format format) {
      return Rows{.data = memory.data(),
                  .format = format,
                  .rows = static_cast<std::int64_t>(rows),
                  .cols = cols,
                  .stride = cols};
    };
    const Rows given = as_rows(given_, Format::bf16), converted = as_rows(features_, setup_.format);
    target_.backend.ops->convert(target_.stream, given, converted);
    return converted;
  }

  // Tokens become context.
  void extend(std::size_t begin, std::size_t end) {
    for (std::size_t rows; begin < end; begin += rows) {
      rows = std::min<std::size_t>(end - begin, kChunk);
      const auto part = [&](const std::vector<std::int32_t>& all) {
        return std::span(all).subspan(begin, rows);
      };
      const Step step = arrays_.prompt(target_.stream, kv_, states_, kSlot, static_cast<std::int64_t>(begin),
                                       part(recording_.tokens),
                                       {part(position_[0]), part(position_[1]), part(position_[2])}, {}, {});
      drafter_.extend(target_.stream, positioned(step), features(begin, rows));
    }
  }

  // A block at `anchor`: drafts_ are the anchor, which is right, and drafts.
  void draft(std::size_t anchor) {
    const Backend& backend = target_.backend;
    Stream& stream = target_.stream;
    states_.end_prompt(stream, kSlot, static_cast<std::int32_t>(anchor), recording_.positions.delta);
    backend.upload(stream, states_.cursors().token, &recording_.tokens[anchor], sizeof(std::int32_t));
    arrays_.set_batch(stream, {&kSlot, 1}, window_);
    const StepArrays::Window window = arrays_.window(kv_, states_, masks_.as<std::int32_t>(), 1, window_);
    backend.ops->step_begin(stream, window.begin);
    drafter_.draft(stream, positioned(window.step), arrays_.ids());
    backend.download(stream, drafts_.data(), arrays_.ids(), drafts_.size() * sizeof(drafts_[0]));
  }

  Step positioned(Step step) const {
    if (setup_.mrope) step.index = step.position;
    return step;
  }

  Target& target_;
  const DrafterSetup& setup_;
  const Recording& recording_;
  int window_;
  Drafter drafter_;
  KvPool kv_;
  StateSlots states_;
  StepArrays arrays_;
  Memory given_, features_, masks_;
  std::vector<std::int32_t> position_[3];  // of each token, in the target's three streams
  std::vector<std::int32_t> drafts_;
};

}  // namespace

DraftCounts replay(Target& target, const DrafterSetup& setup, const DrafterWeights& weights,
                   const Recording& recording) {
  return Replay(target, setup, weights, recording).run();
}

}  // namespace quire
