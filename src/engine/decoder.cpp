#include "engine/decoder.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "ops/sample/draw.h"

namespace quire {
namespace {

// Steps are recorded for these numbers of requests; others take the next larger one.
constexpr std::array kBuckets = {1, 2, 4, 8, 12, 16, 24, 32, 48, Decoder::kMostRequests};

KvPool::Shape kv_of(const TextConfig& config, Format format, const Decoder::DraftSource& source) {
  KvPool::Shape shape = kv_shape(config, format);
  if (const Decoder::DraftModel* model = source.model) {
    shape.draft_layers = static_cast<int>(model->config.layers.size());
    shape.draft_cols = model->config.kv_cols();
  } else if (source.mtp) {
    shape.draft_layers = 1;
    shape.draft_cols = shape.cols;
  }
  return shape;
}

StateSlots::Shape states_of(const TextConfig& config, Format format, const Switches& switches, int slots) {
  StateSlots::Shape shape = state_shape(config, format);
  shape.slots = slots;
  if (switches.gdn_ring == Format::f32) shape.ring_u = Format::f32;
  return shape;
}

std::int64_t image_tokens_before(const Decoder::Prompt& prompt, std::size_t end) {
  const std::span<const std::int32_t> tokens = prompt.tokens.first(end);
  return std::count(tokens.begin(), tokens.end(), prompt.image_token_id);
}

}  // namespace

int Decoder::bucket(int requests) {
  const auto it = std::lower_bound(kBuckets.begin(), kBuckets.end(), requests);
  QUIRE_CHECK(it != kBuckets.end(), "{} requests in a step, at most {}", requests, kBuckets.back());
  return *it;
}

Decoder::Decoder(const TextConfig& config, const TextWeights& weights, const Backend& backend, Stream& stream,
                 Format format, const Switches& switches, const Limits& limits, const DraftSource& source)
    : config_(config),
      backend_(backend),
      stream_(stream),
      switches_(switches),
      format_(format),
      limits_(limits),
      text_(config, weights, backend, format,
            {.prompt_rows = kPrefillChunk,
             .window_rows = std::int64_t{bucket(limits.slots)} * limits.window,
             .taps = source.model ? source.model->config.taps : limits.taps}),
      kv_shape_(kv_of(config, format, source)),
      arrays_(backend, std::max(kPrefillChunk, std::int64_t{bucket(limits.slots)} * limits.window),
              bucket(limits.slots)),
      states_(backend, stream, states_of(config, format, switches, limits.slots)),
      rows_offset_(static_cast<std::size_t>(bucket(limits.slots)) * sizeof(Sampled)),
      outcome_(backend, rows_offset_ * static_cast<std::size_t>(1 + limits.window)),
      settings_(backend, static_cast<std::size_t>(limits.slots) * sizeof(SamplingSettings)),
      seen_(backend,
            static_cast<std::size_t>(limits.slots * std::int64_t{config.vocab_size}) * sizeof(std::uint16_t)),
      drafts_(backend, static_cast<std::size_t>(limits.slots * (kMostWindow - 1)) * sizeof(std::int32_t)),
      history_(source.lookup
                   ? Memory(backend, static_cast<std::size_t>(limits.slots) * kHistory * sizeof(std::int32_t))
                   : Memory()),
      asked_(static_cast<std::size_t>(limits.slots)),
      uploader_(backend) {
  QUIRE_CHECK(limits.window >= 1 && limits.window <= kMostWindow, "windows of {} rows", limits.window);
  QUIRE_CHECK((source.model != nullptr) + source.lookup + (source.mtp != nullptr) <= 1,
              "drafts of more than one source");
  const std::int64_t rows = std::max(kPrefillChunk, std::int64_t{bucket(limits.slots)} * limits.window);
  if (source.mtp) {
    const int requests = bucket(limits.slots);
    one_row_.emplace(backend, requests, requests);
    mtp_.emplace(config, *source.mtp, weights, backend, stream, format,
                 MtpHead::Limits{.rows = rows, .requests = requests, .slots = limits.slots});
  }
  if (const DraftModel* model = source.model) {
    QUIRE_CHECK(limits.window <= model->config.block_size, "windows of {} rows, blocks of {}", limits.window,
                model->config.block_size);
    drafter_.emplace(model->config, model->weights, weights, backend, format,
                     Drafter::Limits{.context_rows = rows,
                                     .block_rows = std::int64_t{bucket(limits.slots)} * limits.window});
  }
  std::size_t kept_bytes = static_cast<std::size_t>(kPrefillChunk * config.hidden_size * size_of(format));
  for (const std::span<std::byte> region : states_.prompt_regions(0)) kept_bytes += region.size();
  for (int i = 0; i < limits.prefixes; ++i)
    prefixes_.push_back({.prefix = {}, .pages = {}, .memory = Memory(backend, kept_bytes)});
  stream.dependent_launch = switches.dependent_launch;
  backend.clear(stream, settings_.data(), settings_.size());
  backend.clear(stream, seen_.data(), seen_.size());
  if (source.lookup) backend.clear(stream, history_.data(), history_.size());
  const std::vector<std::int32_t> masks(drafts_.size() / sizeof(std::int32_t),
                                        source.model ? source.model->config.mask_token_id : 0);
  backend.upload(stream, drafts_.data(), masks.data(), drafts_.size());
  for (Pending& p : results_)
    p = {Memory::staging(backend, outcome_.size()), Handle(backend.new_event(), backend.delete_event),
         Handle(backend.new_event(), backend.delete_event)};
}

std::size_t Decoder::slot_bytes(const TextConfig& config, Format format, const Switches& switches) {
  return states_of(config, format, switches, 1).slot_bytes() +
         static_cast<std::size_t>(config.vocab_size) * sizeof(std::uint16_t);
}

std::size_t Decoder::token_bytes() const {
  return kv_shape_.page_bytes() / static_cast<std::size_t>(KvPool::kPageSize);
}

std::size_t Decoder::fixed_bytes() const {
  return text_.activation_bytes() + (drafter_ ? drafter_->activation_bytes() : 0) +
         (mtp_ ? mtp_->activation_bytes() : 0) + history_.size() +
         static_cast<std::size_t>(limits_.slots) * slot_bytes(config_, format_, switches_) +
         (prefixes_.empty() ? 0 : prefixes_.size() * prefixes_.front().memory.size());
}

void Decoder::reserve(std::int64_t tokens, std::int64_t longest) {
  KvPool::Shape shape = kv_shape_;
  shape.slots = limits_.slots;
  shape.pages = KvPool::pages_for(tokens + limits_.slots * overrun());
  shape.pages_per_slot = KvPool::pages_for(longest + overrun());
  backend_.synchronize(stream_);
  graphs_.clear();
  for (KeptPrefix& place : prefixes_) place.prefix = {}, place.pages.clear();
  kv_.reset();  // the old one first
  kv_.emplace(backend_, stream_, shape);
}

void Decoder::open(int slot, std::int64_t tokens, const SamplingSettings& settings, int place) {
  if (place < 0) {
    kv_->hold(stream_, slot, tokens + overrun());
    states_.clear(stream_, slot);
  } else {
    const KeptPrefix& p = prefixes_[static_cast<std::size_t>(place)];
    kv_->hold(stream_, slot, tokens + overrun(), p.pages);
    const std::byte* from = p.memory.data();
    for (const std::span<std::byte> region : states_.prompt_regions(slot)) {
      backend_.copy(stream_, region.data(), from, region.size());
      from += region.size();
    }
  }
  asked_[static_cast<std::size_t>(slot)] = settings;
  uploader_.send(stream_, settings_.as<SamplingSettings>() + slot, &settings, sizeof(settings));
}

std::vector<std::span<std::byte>> Decoder::regions(int slot) const {
  std::vector<std::span<std::byte>> regions = states_.regions(slot);
  const std::vector<std::span<std::byte>> pages = kv_->regions(slot);
  regions.insert(regions.end(), pages.begin(), pages.end());
  // Of an array [slots, count].
  const auto add = [&](auto* array, std::size_t count) {
    regions.push_back(
        std::as_writable_bytes(std::span(array + static_cast<std::size_t>(slot) * count, count)));
  };
  if (has_penalties(asked_[static_cast<std::size_t>(slot)]))
    add(seen_.as<std::uint16_t>(), static_cast<std::size_t>(config_.vocab_size));
  if (history_.data()) {
    add(history_.as<std::int32_t>(), kHistory);
    add(drafts(), kMostWindow - 1);
  }
  if (mtp_) regions.push_back(mtp_->last(slot));
  return regions;
}

Decoder::Saved Decoder::save(int slot) {
  const std::vector<std::span<std::byte>> from = regions(slot);
  std::size_t bytes = 0;
  for (const std::span<std::byte> region : from) bytes += region.size();
  Saved saved{Memory::staging(backend_, bytes), asked_[static_cast<std::size_t>(slot)],
              kv_->held_tokens(slot) - overrun()};
  std::byte* to = saved.memory.data();
  for (const std::span<std::byte> region : from) {
    backend_.begin_download(stream_, to, region.data(), region.size());
    to += region.size();
  }
  close(slot);
  return saved;
}

void Decoder::resume(int slot, const Saved& saved) {
  open(slot, saved.tokens, saved.settings);
  const std::byte* from = saved.memory.data();
  for (const std::span<std::byte> region : regions(slot)) {
    backend_.begin_upload(stream_, region.data(), from, region.size());
    from += region.size();
  }
}

void Decoder::keep_prefix(int place, int slot, const Prompt& prompt, std::size_t end) {
  drop_prefix(place);
  KeptPrefix& p = prefixes_[static_cast<std::size_t>(place)];
  p.pages = kv_->keep(slot, static_cast<std::int64_t>(end));
  std::byte* to = p.memory.data();
  for (const std::span<std::byte> region : states_.prompt_regions(slot)) {
    backend_.copy(stream_, to, region.data(), region.size());
    to += region.size();
  }
  const std::int64_t used = image_tokens_before(prompt, end);
  const Rows rest = prompt.features.slice_rows(used - prompt.first_feature,
                                               image_tokens_before(prompt, prompt.tokens.size()) - used);
  QUIRE_CHECK(rest.rows <= kPrefillChunk, "{} image tokens after the kept ones", rest.rows);
  p.prefix = {.tokens = end, .features = rest, .first_feature = used};
  if (rest.rows == 0) return;
  p.prefix.features.data = to;
  backend_.copy(stream_, to, rest.data,
                static_cast<std::size_t>(rest.rows * rest.cols * size_of(rest.format)));
}

void Decoder::drop_prefix(int place) {
  KeptPrefix& p = prefixes_[static_cast<std::size_t>(place)];
  if (kv_) kv_->drop(std::exchange(p.pages, {}));
  p.prefix = {};
}

std::size_t Decoder::prefill_chunk(int slot, const Prompt& prompt, std::size_t begin) {
  const std::span<const std::int32_t> tokens = prompt.tokens;
  const std::size_t end = std::min<std::size_t>(begin + kPrefillChunk, tokens.size());
  batch_.clear();
  std::vector<std::int32_t> image_rows;
  for (std::size_t i = begin; i < end; ++i) {
    if (tokens[i] == prompt.image_token_id) image_rows.push_back(static_cast<std::int32_t>(i - begin));
  }
  const std::int64_t features_used = image_tokens_before(prompt, begin) - prompt.first_feature;
  const auto part = [&](const std::vector<std::int32_t>& axis) {
    return std::span<const std::int32_t>(axis).subspan(begin, end - begin);
  };
  const MropePositions& positions = prompt.positions;
  const Step step = arrays_.prompt(
      stream_, *kv_, states_, slot, static_cast<std::int64_t>(begin), tokens.subspan(begin, end - begin),
      {part(positions.t), part(positions.h), part(positions.w)},
      prompt.features.slice_rows(features_used, static_cast<std::int64_t>(image_rows.size())), image_rows);
  const Rows logits = text_.forward(stream_, step);
  if (drafter_) drafter_->extend(stream_, step, text_.features());
  if (mtp_) extend_mtp(step, prompt, end);
  if (end == tokens.size()) {
    if (has_penalties(asked_[static_cast<std::size_t>(slot)])) note_prompt(slot, tokens);
    states_.end_prompt(stream_, slot, static_cast<std::int32_t>(tokens.size()), positions.delta);
    backend_.record(stream_, next_result().begun.get());
    draw(logits, step.requests, true);
    publish(1, 1, false);
  }
  return end;
}

// The last token of a chunk, which ends at `end`, meets the first of the next.
void Decoder::extend_mtp(const Step& step, const Prompt& prompt, std::size_t end) {
  if (end == prompt.tokens.size()) return mtp_->extend(stream_, step, text_.outputs(), nullptr);
  std::vector<std::int32_t> image_rows;
  if (prompt.tokens[end] == prompt.image_token_id) image_rows.push_back(0);
  const std::int64_t features_used = image_tokens_before(prompt, end) - prompt.first_feature;
  const auto part = [&](const std::vector<std::int32_t>& axis) {
    return std::span<const std::int32_t>(axis).subspan(end, 1);
  };
  const MropePositions& positions = prompt.positions;
  const Step after = one_row_->prompt(
      stream_, *kv_, states_, step.slot, static_cast<std::int64_t>(end), prompt.tokens.subspan(end, 1),
      {part(positions.t), part(positions.h), part(positions.w)},
      prompt.features.slice_rows(features_used, static_cast<std::int64_t>(image_rows.size())), image_rows);
  mtp_->extend(stream_, step, text_.outputs(), &after);
}

// Penalties look at what the sequence holds.
void Decoder::note_prompt(int slot, std::span<const std::int32_t> tokens) {
  std::vector<std::uint16_t> seen(static_cast<std::size_t>(config_.vocab_size));
  for (const std::int32_t token : tokens) seen[static_cast<std::size_t>(token)] = kInPrompt;
  uploader_.send(stream_, seen_.as<std::uint16_t>() + slot * std::int64_t{config_.vocab_size}, seen.data(),
                 seen.size() * sizeof(std::uint16_t));
}

void Decoder::skip_prompt(int slot, std::int64_t length) {
  states_.end_prompt(stream_, slot, static_cast<std::int32_t>(length), 0);
  batch_.clear();
}

void Decoder::step(std::span<const int> slots, int window, bool keep_up) {
  QUIRE_CHECK(keep_up || window == 1, "windows of {} rows without a drafter that keeps up", window);
  if (window != batch_window_ || !std::ranges::equal(slots, batch_) || !kv_->new_pages().empty()) {
    arrays_.set_batch(stream_, slots, window, kv_->new_pages());
    kv_->clear_new_pages();
    batch_.assign(slots.begin(), slots.end());
    batch_window_ = window;
  }
  const int requests = bucket(static_cast<int>(slots.size()));
  const StepArrays::Window w = arrays_.window(*kv_, states_, drafts(), requests, window);
  Recorded& recorded = graphs_[{requests, keep_up ? window : 0}];
  const bool usual = recorded.graph.get() || (recorded.ran && !(backend_.capture && switches_.graphs));
  backend_.record(stream_, next_result().begun.get());
  if (backend_.capture && switches_.graphs && recorded.ran) {
    if (!recorded.graph.get())
      recorded.graph =
          Handle(backend_.capture(stream_, [&] { run_window(w, keep_up); }), backend_.delete_graph);
    backend_.run(stream_, recorded.graph.get());
  } else {
    run_window(w, keep_up);
    recorded.ran = true;
  }
  publish(slots.size() * static_cast<std::size_t>(window), slots.size(), usual);
}

void Decoder::run_window(const StepArrays::Window& window, bool keep_up) {
  const Step& step = window.step;
  backend_.ops->step_begin(stream_, window.begin);
  if (drafter_ && step.requests.longest > 1) drafter_->draft(stream_, step, arrays_.ids());
  if (mtp_ && keep_up)
    mtp_->draft(stream_, step, arrays_.ids(),
                one_row_->window(*kv_, states_, drafts(), step.requests.count, 1, &arrays_));
  draw(text_.forward(stream_, step), step.requests, false);
  if (drafter_ && keep_up) drafter_->extend(stream_, step, text_.features());
  if (mtp_ && keep_up) mtp_->extend(stream_, step, text_.outputs());
}

// A token for every row of logits, and what becomes of the sequences.
void Decoder::draw(Rows logits, const Requests& requests, bool prompt) {
  const std::span<Sampled> sampled(this->sampled(), static_cast<std::size_t>(logits.rows));
  backend_.ops->sample(stream_, {.logits = logits,
                                 .settings = settings_.as<SamplingSettings>(),
                                 .seen = seen_.as<std::uint16_t>(),
                                 .slot = arrays_.row_slot(),
                                 .position = arrays_.next(),
                                 .out = sampled});
  backend_.ops->commit(stream_, {.cursors = states_.cursors(),
                                 .requests = requests,
                                 .ids = arrays_.ids(),
                                 .sampled = sampled,
                                 .prompt = prompt,
                                 .assumed = assumed_,
                                 .counts = counts(),
                                 .seen = seen_.as<std::uint16_t>(),
                                 .vocabulary = config_.vocab_size,
                                 .history = history(),
                                 .outputs = mtp_ && !prompt ? text_.outputs() : Rows(),
                                 .last = mtp_ && !prompt ? mtp_->last() : Rows()});
  if (history_.data())
    backend_.ops->lookup_drafts(stream_, {.cursors = states_.cursors(),
                                          .requests = requests,
                                          .history = history(),
                                          .drafts = drafts(),
                                          .matched = matched()});
}

Decoder::Pending& Decoder::next_result() {
  QUIRE_CHECK(untaken_ < kMostUntaken, "{} results wait to be taken", untaken_);
  return results_[(next_ + untaken_) % kMostUntaken];
}

void Decoder::publish(std::size_t rows, std::size_t requests, bool usual) {
  Pending& p = next_result();
  ++untaken_;
  p.rows = rows, p.requests = requests, p.usual = usual;
  backend_.begin_download(stream_, p.memory.data(), outcome_.data(), rows_offset_ + rows * sizeof(Sampled));
  backend_.record(stream_, p.done.get());
}

Decoder::Result Decoder::take() {
  QUIRE_CHECK(untaken_ > 0, "no step was asked for");
  const Pending& p = results_[next_];
  next_ = (next_ + 1) % kMostUntaken;
  --untaken_;
  backend_.wait(stream_, p.done.get());
  return {.rows = {reinterpret_cast<const Sampled*>(p.memory.data() + rows_offset_), p.rows},
          .counts = {p.memory.as<std::int32_t>(), p.requests},
          .matched = {p.memory.as<std::int32_t>() + (matched() - counts()), history_.data() ? p.requests : 0},
          .seconds = backend_.seconds_between(p.begun.get(), p.done.get()),
          .usual = p.usual};
}

}  // namespace quire
