#include "engine/scheduler.h"

#include <algorithm>
#include <ranges>

#include <xxhash.h>

#include "core/error.h"
#include "ops/sample/draw.h"

namespace quire {
namespace {

// Tokens that memory grows by.
constexpr std::int64_t kRoomUnit = 2048;
// Tokens that a sequence can go on for when it is let in: what makes room comes back after a while, not at
// once.
constexpr std::int64_t kHeadway = 256;
// Of so many sequences at any time one drafts although drafts are hopeless elsewhere: they may have become
// better.
constexpr std::int64_t kToJudgeAlone = 8;

double seconds_between(Sequence::Clock::time_point from, Sequence::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace

// ---- A sequence

namespace {

template <typename Ready>
void wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                const std::optional<Sequence::Clock::time_point>& until, Ready ready) {
  if (until) {
    changed.wait_until(lock, *until, ready);
  } else {
    changed.wait(lock, ready);
  }
}

}  // namespace

bool Sequence::wait_for_turn(std::optional<Clock::time_point> until) {
  std::unique_lock lock(mutex_);
  wait_until(changed_, lock, until, [&] { return turn_ || ended_; });
  if (error_) std::rethrow_exception(error_);
  return turn_;
}

std::vector<Sampled> Sequence::take(std::optional<Clock::time_point> until) {
  std::unique_lock lock(mutex_);
  wait_until(changed_, lock, until, [&] { return ended_ || !fresh_.empty(); });
  if (fresh_.empty() && error_) std::rethrow_exception(error_);
  taken_ = figures_;
  return std::exchange(fresh_, {});
}

void Sequence::fail(std::exception_ptr error) {
  const std::scoped_lock lock(mutex_);
  error_ = std::move(error);
  ended_ = true;
  changed_.notify_all();
}

// ---- The scheduler

Scheduler::Scheduler(const ModelConfig& config, VisionModel& vision, Decoder& decoder, const Backend& backend,
                     Stream& stream, const Limits& limits)
    : config_(config),
      vision_(vision),
      decoder_(decoder),
      backend_(backend),
      stream_(stream),
      limits_(limits),
      prefixes_(static_cast<std::size_t>(limits.prefixes)),
      policy_(limits.window, decoder.has_drafter() ? kOfDrafter : kOfLookup, backend.row_tile) {
  for (int slot = limits.slots; slot-- > 0;) free_slots_.push_back(slot);
  thread_ = std::jthread([this](std::stop_token stop) { run(stop); });
}

Scheduler::~Scheduler() {
  thread_.request_stop();
  thread_.join();
}

void Scheduler::submit(Shared sequence) {
  QUIRE_CHECK(!sequence->prompt.empty() && sequence->most_tokens > 0, "a prompt of {} tokens, {} to generate",
              sequence->prompt.size(), sequence->most_tokens);
  sequence->submitted_ = Sequence::Clock::now();
  const std::scoped_lock lock(mutex_);
  waiting_.push_back(std::move(sequence));
  call_up();
}

void Scheduler::ready(const Shared& sequence) {
  const std::scoped_lock lock(mutex_);
  sequence->ready_ = true;
  arrived_.notify_all();
}

void Scheduler::cancel(const Shared& sequence) {
  const std::scoped_lock lock(mutex_);
  sequence->cancelled_ = true;
  arrived_.notify_all();
}

// The first of those that wait make themselves ready.
void Scheduler::call_up() {
  for (std::size_t i = 0; i < std::min(kPagesAhead, waiting_.size()); ++i) {
    Sequence& s = *waiting_[i];
    const std::scoped_lock lock(s.mutex_);
    s.turn_ = true;
    s.changed_.notify_all();
  }
}

void Scheduler::run(std::stop_token stop) {
  while (wait_for_work(stop)) {
    try {
      turn();
    } catch (...) {
      fail_all(std::current_exception());
    }
  }
  fail_all(std::make_exception_ptr(
      Error(ErrorCode::limit_exceeded, "the engine was closed while this request was under way")));
  const std::scoped_lock lock(mutex_);
  for (const Shared& s : waiting_)
    s->fail(std::make_exception_ptr(Error(ErrorCode::limit_exceeded, "the engine was closed")));
}

// False: the end.
bool Scheduler::wait_for_work(std::stop_token stop) {
  if (!prompt_ && running_.empty() && saved_.empty() && asked_.empty()) {
    if (!retired_.empty()) {
      backend_.synchronize(stream_);
      retired_.clear();
    }
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, stop, [&] {
      return std::ranges::any_of(waiting_, [](const Shared& s) { return s->cancelled_.load(); }) ||
             (!waiting_.empty() && waiting_.front()->ready_);
    });
  }
  return !stop.stop_requested();
}

// Asks for a step, then looks at the results of the turn before: a GPU never waits for the host. A CPU has
// done the step by then.
void Scheduler::turn() {
  const std::size_t before = asked_.size();
  drop_cancelled();
  resume_saved();
  run_prompts();
  make_room();
  step(false);
  step(true);
  take(backend_.host_memory ? 0 : asked_.size() - before);
}

void Scheduler::drop_cancelled() {
  const auto drop = [&](const Shared& s) {
    if (!s->cancelled_) return false;
    leave(*s);
    return true;
  };
  std::erase_if(running_, drop);
  std::erase_if(saved_, drop);
  if (prompt_ && drop(prompt_)) prompt_.reset();
  const std::scoped_lock lock(mutex_);
  std::erase_if(waiting_, [](const Shared& s) { return s->cancelled_.load(); });
  call_up();
}

// The next one that waits begins its prompt when there is room for it and for some way to go: in the order of
// arrival, so that nobody waits for ever.
bool Scheduler::admit() {
  while (!free_slots_.empty()) {
    Shared next;
    {
      const std::scoped_lock lock(mutex_);
      if (waiting_.empty() || !waiting_.front()->ready_) return false;
      next = waiting_.front();
    }
    try {
      if (!has_room_for(*next)) return false;
      prompt_ = next;
    } catch (...) {
      next->fail(std::current_exception());
    }
    const std::scoped_lock lock(mutex_);
    waiting_.pop_front();
    call_up();
    if (prompt_) break;
  }
  if (!prompt_) return false;
  prompt_->slot_ = free_slots_.back();
  free_slots_.pop_back();
  prompt_->admitted_ = Sequence::Clock::now();
  prompt_->order_ = ++admitted_;
  prompt_->has_drafts_ = decoder_.has_drafter() && !has_penalties(prompt_->settings);
  if (admitted_ - judged_alone_ > kToJudgeAlone * (std::ssize(running_) + 1))
    prompt_->judges_alone_ = true, judged_alone_ = admitted_;
  const int place = find(prefix_of(*prompt_));
  decoder_.open(prompt_->slot_, std::min(prompt_->room(), prompt_->known() + limits_.window),
                prompt_->settings, place);
  if (place >= 0) {
    prefixes_[static_cast<std::size_t>(place)].used = admitted_;
    const Decoder::Prefix& kept = decoder_.prefix(place);
    prompt_->prompt_done_ = kept.tokens;
    prompt_->features_ = kept.features, prompt_->first_feature_ = kept.first_feature;
    prompt_->patches = {};
    const std::scoped_lock lock(prompt_->mutex_);
    prompt_->figures_.cached_tokens = static_cast<int>(kept.tokens);
  }
  return true;
}

// ---- Kept prefixes of prompts

namespace {

// Where the last chunk of a prompt begins, which has the first token's logits.
std::size_t last_chunk(const Sequence& s) {
  constexpr auto kChunk = static_cast<std::size_t>(Decoder::kPrefillChunk);
  return (s.prompt.size() - 1) / kChunk * kChunk;
}

}  // namespace

Scheduler::KeptPrefix Scheduler::prefix_of(const Sequence& s) const {
  const XXH128_hash_t tokens = XXH3_128bits(s.prompt.data(), last_chunk(s) * sizeof(s.prompt[0]));
  return {.tokens = {tokens.low64, tokens.high64}, .page = s.page, .used = admitted_};
}

// Its place; -1: none.
int Scheduler::find(const KeptPrefix& prefix) const {
  const auto it = std::ranges::find_if(prefixes_, [&](const KeptPrefix& other) {
    return other.used > 0 && other.tokens == prefix.tokens && other.page == prefix.page;
  });
  return it == prefixes_.end() ? -1 : static_cast<int>(it - prefixes_.begin());
}

// In place of the one that was of no use for the longest time.
void Scheduler::keep_prefix(const Sequence& s) {
  const KeptPrefix prefix = prefix_of(s);
  if (prefixes_.empty() || find(prefix) >= 0) return;
  const auto oldest = std::ranges::min_element(prefixes_, {}, &KeptPrefix::used);
  decoder_.keep_prefix(static_cast<int>(oldest - prefixes_.begin()), s.slot_, prompt_of(s), s.prompt_done_);
  *oldest = prefix;
}

// False: nothing is kept.
bool Scheduler::drop_oldest_prefix() {
  const auto there = [](const KeptPrefix& b) { return b.used > 0; };
  auto kept = prefixes_ | std::views::filter(there);
  const auto oldest = std::ranges::min_element(kept, {}, &KeptPrefix::used);
  if (oldest == kept.end()) return false;
  decoder_.drop_prefix(static_cast<int>(&*oldest - prefixes_.data()));
  *oldest = {};
  return true;
}

// Whether there is room for a sequence, for which what is kept may have to leave.
bool Scheduler::fits(std::int64_t tokens) {
  while (!decoder_.fits(tokens))
    if (!drop_oldest_prefix()) return false;
  return true;
}

// ---- Room

bool Scheduler::has_room_for(const Sequence& sequence) {
  if (!decoder_.could_hold(sequence.room())) {
    // On a CPU memory is taken as it is needed, which moves all of it.
    if (!running_.empty() || !saved_.empty()) return false;
    const std::int64_t room = (sequence.room() + kRoomUnit - 1) / kRoomUnit * kRoomUnit;
    decoder_.reserve(limits_.slots * room, room);
    std::ranges::fill(prefixes_, KeptPrefix{});
  }
  return saved_.empty() && fits(std::min(sequence.room(), sequence.known() + kHeadway));
}

// Those that made room come before those that wait.
void Scheduler::resume_saved() {
  while (!saved_.empty() && !free_slots_.empty()) {
    const Shared s = saved_.front();
    const bool alone = running_.empty() && !prompt_;
    if (!fits(std::min(s->room(), s->saved_->tokens + kHeadway)) && !alone) return;
    saved_.pop_front();
    s->slot_ = free_slots_.back();
    free_slots_.pop_back();
    decoder_.resume(s->slot_, *s->saved_);
    retire(s->saved_);
    const auto later = std::ranges::find_if(running_, [&](const Shared& r) { return r->order_ > s->order_; });
    running_.insert(later, s);
  }
}

// Pages for the next step of everyone, the first that came before the others.
void Scheduler::make_room() {
  for (std::size_t i = 0; i < running_.size(); ++i) {
    while (!grow(running_[i])) {
      if (drop_oldest_prefix()) continue;
      if (i + 1 == running_.size()) break;
      const Shared last = running_.back();
      running_.pop_back();
      last->saved_ = decoder_.save(last->slot_);
      free_slots_.push_back(std::exchange(last->slot_, -1));
      saved_.push_front(last);
      ++times_made_room_;
    }
  }
}

// Room for what steps under way and the next one may add.
bool Scheduler::grow(const Shared& s) {
  const std::int64_t most = s->known() + limits_.window * (under_way(s) + 1);
  return decoder_.grow(s->slot_, std::min(s->room(), most));
}

// Steps and prompts of a sequence whose results have not been taken.
std::ptrdiff_t Scheduler::under_way(const Shared& s) const {
  return std::ranges::count_if(
      asked_, [&](const Asked& a) { return std::ranges::find(a.sequences, s) != a.sequences.end(); });
}

// As much of prompts as may run between two steps.
void Scheduler::run_prompts() {
  std::int64_t left = limits_.prompt_tokens;
  // Of the results that a decoder keeps two are for the steps of this turn, and two for those of the next,
  // which are asked for before any of these is taken.
  while (left > 0 && asked_.size() + 4 < Decoder::kMostUntaken && (prompt_ || admit())) {
    const std::size_t before = prompt_->prompt_done_;
    try {
      run_prompt_chunk();
    } catch (...) {
      leave(*prompt_);
      prompt_->fail(std::current_exception());
      prompt_.reset();
      continue;
    }
    left -= static_cast<std::int64_t>(prompt_->prompt_done_ - before);
    if (prompt_->prompt_done_ == prompt_->prompt.size()) {
      ask({prompt_}, true);
      running_.push_back(std::exchange(prompt_, nullptr));
    }
  }
}

void Scheduler::run_prompt_chunk() {
  Sequence& s = *prompt_;
  if (s.prompt_done_ == 0 && !s.patches.rows.empty()) encode(s);
  s.prompt_done_ = decoder_.prefill_chunk(s.slot_, prompt_of(s), s.prompt_done_);
  if (s.prompt_done_ == last_chunk(s)) keep_prefix(s);
}

Decoder::Prompt Scheduler::prompt_of(const Sequence& s) const {
  return {s.prompt, s.positions, config_.image_token_id, s.features_, s.first_feature_};
}

void Scheduler::encode(Sequence& s) {
  s.encoding_ = Handle(backend_.new_event(), backend_.delete_event);
  s.encoded_ = Handle(backend_.new_event(), backend_.delete_event);
  backend_.record(stream_, s.encoding_.get());
  s.features_ = vision_.encode(stream_, s.patches.rows, s.patches.grid_height, s.patches.grid_width);
  backend_.record(stream_, s.encoded_.get());
  s.patches = {};
}

// One step of all sequences that have penalties, or have none.
void Scheduler::step(bool penalties) {
  std::vector<Shared> sequences;
  std::vector<int> slots;
  for (const Shared& s : running_) {
    if (has_penalties(s->settings) != penalties) continue;
    // Any step gives a token or more: those that were asked for may be all it can have.
    if (s->tokens_ + under_way(s) >= s->most_tokens) continue;
    if (!grow(s)) continue;  // a prompt has taken the pages
    sequences.push_back(s);
    slots.push_back(s->slot_);
  }
  if (slots.empty()) return;
  give_up_drafts(sequences);
  const int window = window_for(sequences, penalties);
  const bool keep_up = window > 1 || !decoder_.has_drafter() ||
                       std::ranges::any_of(sequences, [](const Shared& s) { return s->has_drafts_; });
  decoder_.step(slots, window, keep_up);
  ask(std::move(sequences), false, keep_up);
}

// A drafter does not keep up with sequences whose drafts are hopeless, unless it does with others in the
// step; they have none any more.
void Scheduler::give_up_drafts(const std::vector<Shared>& sequences) {
  if (!decoder_.has_drafter() || limits_.fixed_window) return;
  for (const Shared& s : sequences)
    s->has_drafts_ = s->has_drafts_ && !policy_.hopeless(s->acceptance_, s->judges_alone_);
}

void Scheduler::ask(std::vector<Shared> sequences, bool prompt, bool kept_up) {
  std::vector<bool> had_drafts;
  for (const Shared& s : sequences) had_drafts.push_back(s->has_drafts_);
  asked_.push_back({.sequences = std::move(sequences),
                    .had_drafts = std::move(had_drafts),
                    .kept_up = kept_up,
                    .prompt = prompt,
                    .number = next_number_++});
}

void Scheduler::retire(std::optional<Decoder::Saved>& saved) {
  if (saved) retired_.push_back({std::move(*saved), next_number_});
  saved.reset();
}

// Rows of a window are all drawn at once, by what was seen before it: penalties need them one by one.
int Scheduler::window_for(const std::vector<Shared>& sequences, bool penalties) {
  if (penalties || limits_.window == 1) return 1;
  if (limits_.fixed_window) return limits_.window;
  std::vector<const Acceptance*> acceptance;
  for (const Shared& s : sequences)
    if (s->has_drafts_) acceptance.push_back(&s->acceptance_);
  return policy_.choose(Decoder::bucket(static_cast<int>(sequences.size())), acceptance,
                        static_cast<int>(sequences.size() - acceptance.size()));
}

// Looks at results, the oldest first, until so many are left.
void Scheduler::take(std::size_t leave_untaken) {
  while (asked_.size() > leave_untaken) {
    const Asked asked = std::move(asked_.front());
    asked_.pop_front();
    const Decoder::Result result = decoder_.take();
    while (!retired_.empty() && retired_.front().number <= asked.number) retired_.pop_front();
    const std::size_t window = result.rows.size() / asked.sequences.size();
    if (!asked.prompt && asked.kept_up && result.usual)
      policy_.took(Decoder::bucket(static_cast<int>(asked.sequences.size())), static_cast<int>(window),
                   result.seconds);
    for (std::size_t i = 0; i < asked.sequences.size(); ++i) {
      Sequence& s = *asked.sequences[i];
      if (asked.had_drafts[i] && window > 1)
        policy_.gave(static_cast<int>(window), result.counts[i], s.acceptance_);
      if (!result.matched.empty()) s.has_drafts_ = result.matched[i] > 0;
      if (!s.left_) take(s, result, i, asked.prompt);
    }
  }
}

// Tokens that count, unless they come after the last.
void Scheduler::take(Sequence& s, const Decoder::Result& result, std::size_t request, bool prompt) {
  const std::size_t window = result.rows.size() / result.counts.size();
  std::span<const Sampled> rows =
      result.rows.subspan(request * window, static_cast<std::size_t>(result.counts[request]));
  const auto room = static_cast<std::size_t>(s.most_tokens - s.tokens_);
  rows = rows.first(std::min(rows.size(), room));
  const auto is_stop = [&](const Sampled& t) {
    return std::ranges::find(config_.stop_token_ids, t.token) != config_.stop_token_ids.end();
  };
  const auto stop = std::ranges::find_if(rows, is_stop);
  const bool last = stop != rows.end() || rows.size() == room;
  if (stop != rows.end()) rows = rows.first(static_cast<std::size_t>(stop - rows.begin()) + 1);
  s.tokens_ += static_cast<int>(rows.size());
  if (last) {
    const auto is_it = [&](const Shared& other) { return other.get() == &s; };
    std::erase_if(running_, is_it);
    std::erase_if(saved_, is_it);
    leave(s);
  }
  const std::scoped_lock lock(s.mutex_);
  Sequence::Figures& f = s.figures_;
  if (prompt) {
    f.queue = seconds_between(s.submitted_, s.admitted_);
    if (s.encoded_.get()) f.vision = backend_.seconds_between(s.encoding_.get(), s.encoded_.get());
    f.first = Sequence::Clock::now();
    f.prefill = seconds_between(s.admitted_, f.first) - f.vision;
  } else {
    f.steps += result.seconds;
    if (!last) f.drafts.add_step(window, rows.size());
  }
  s.fresh_.insert(s.fresh_.end(), rows.begin(), rows.end());
  s.ended_ = last;
  s.changed_.notify_all();
}

// Its slot is free for the next one.
void Scheduler::leave(Sequence& s) {
  s.left_ = true;
  retire(s.saved_);
  if (s.slot_ < 0) return;
  decoder_.close(s.slot_);
  free_slots_.push_back(std::exchange(s.slot_, -1));
}

void Scheduler::fail_all(std::exception_ptr error) {
  try {
    decoder_.drain();
    backend_.synchronize(stream_);
  } catch (...) {
    // It is what has gone wrong already.
  }
  asked_.clear();
  while (drop_oldest_prefix()) {
  }
  if (prompt_) running_.push_back(std::exchange(prompt_, nullptr));
  running_.insert(running_.end(), saved_.begin(), saved_.end());
  saved_.clear();
  for (const Shared& s : std::exchange(running_, {})) {
    leave(*s);
    s->fail(error);
  }
  retired_.clear();
}

}  // namespace quire
