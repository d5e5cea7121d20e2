// Many requests on one decoder. Each waits for a slot, has its page encoded and its prompt run, and then
// takes part in every step until it has ended. It holds the pages that it needs, no more; when there are too
// few, the one that came last makes room, and goes on later from where it was. Prompts and windows take
// turns: between two steps at most `prompt_tokens` tokens of prompts run, so that a new request delays the
// others by no more than that and the encoding of its page.
//
// The prefixes of the last prompts are kept, up to their last chunk: a request for the same page runs only
// the rest, and its page is not encoded again. They leave when their pages are needed.
//
// One thread talks to the backend. Whoever made a request takes its tokens in a thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "engine/decoder.h"
#include "engine/window_policy.h"
#include "model/vision_model.h"
#include "quire/quire.h"
#include "vision/preprocess.h"

namespace quire {

// One request on its way, shared by its caller and the scheduler.
class Sequence {
 public:
  using Clock = std::chrono::steady_clock;

  // Set before it is submitted.
  std::vector<std::int32_t> prompt;
  SamplingSettings settings;
  int most_tokens = 1;  // to generate
  // Set before it is ready.
  MropePositions positions;
  Patches patches;  // gone once they are encoded
  // Of all pixels: prompts of equal tokens and hashes are the same prompt.
  struct Hash {
    std::uint64_t low = 0, high = 0;
    bool operator==(const Hash&) const = default;
  } page;

  // Waits until it is soon to be admitted, which is when patches are wanted: few sequences hold them at a
  // time. False: `until` has passed. Throws what ended it when that was an error.
  bool wait_for_turn(std::optional<Clock::time_point> until);
  // The tokens that have come since the last call; waits for some. Empty: it has ended, or `until` has
  // passed. Throws what ended it when that was an error.
  std::vector<Sampled> take(std::optional<Clock::time_point> until);

  struct Figures {
    // Seconds until it had a slot, of its page's encoding, of the rest until the first token, and of the
    // steps after it.
    double queue = 0, vision = 0, prefill = 0, steps = 0;
    Clock::time_point first;  // token
    DraftCounts drafts;
    int cached_tokens = 0;  // of its prompt, which had run before
  };
  // As of the tokens that were taken. For whoever takes them.
  const Figures& figures() const { return taken_; }

 private:
  friend class Scheduler;

  std::int64_t known() const { return std::ssize(prompt) + tokens_; }     // tokens
  std::int64_t room() const { return std::ssize(prompt) + most_tokens; }  // that it may come to
  void fail(std::exception_ptr error);

  Figures taken_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool turn_ = false;
  std::vector<Sampled> fresh_;
  bool ended_ = false;
  std::exception_ptr error_;
  Figures figures_;

  std::atomic<bool> cancelled_{false};

  // The scheduler's.
  bool ready_ = false;
  int slot_ = -1;
  bool left_ = false;       // nothing that comes is for it any more
  std::int64_t order_ = 0;  // of admission
  std::optional<Decoder::Saved> saved_;
  Rows features_;
  std::int64_t first_feature_ = 0;
  std::size_t prompt_done_ = 0;
  int tokens_ = 0;             // taken
  bool has_drafts_ = false;    // as far as is known, for its next step
  bool judges_alone_ = false;  // whether its drafts are hopeless
  Acceptance acceptance_;      // of steps for which it had
  Clock::time_point submitted_, admitted_;
  Handle encoding_, encoded_;  // events
};

class Scheduler {
 public:
  using Shared = std::shared_ptr<Sequence>;

  struct Limits {
    int slots = 1;              // sequences at a time
    int window = 1;             // most rows of a sequence in one step
    bool fixed_window = false;  // so many in every step that can have them
    int prompt_tokens = 512;    // of prompts, between two steps of others
    int prefixes = 0;           // of prompts that are kept, as the decoder's
  };

  // References must outlive it; nobody else uses decoder, vision model and stream meanwhile.
  Scheduler(const ModelConfig& config, VisionModel& vision, Decoder& decoder, const Backend& backend,
            Stream& stream, const Limits& limits);
  // Ends all sequences with Error{limit_exceeded}.
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // How often a sequence has made room for others.
  std::int64_t times_made_room() const { return times_made_room_; }

  // Joins the queue.
  void submit(Shared sequence);
  // Its patches and positions are there.
  void ready(const Shared& sequence);
  // No more of it is wanted: it leaves before the next step.
  void cancel(const Shared& sequence);

 private:
  // Sequences that may hold patches: 50 MB each for a page of 2 Mpx.
  static constexpr std::size_t kPagesAhead = 4;

  // A step or a prompt that was asked for, and whose results have not been looked at.
  struct Asked {
    std::vector<Shared> sequences;  // one for each request of the result
    std::vector<bool> had_drafts;   // each of them, when the window was chosen
    bool kept_up = true;            // with them, by a drafter
    bool prompt = false;
    std::int64_t number = 0;
  };
  // Host memory that copies may still be under way to or from, until a result that was asked for later is
  // there.
  struct Retired {
    Decoder::Saved saved;
    std::int64_t number = 0;  // of the next result
  };
  // What is in a place of the decoder.
  struct KeptPrefix {
    Sequence::Hash tokens, page;
    std::int64_t used = 0;  // when: in admissions; 0: nothing is there
  };

  void run(std::stop_token stop);
  bool wait_for_work(std::stop_token stop);
  void call_up();
  void turn();
  void drop_cancelled();
  bool admit();
  bool has_room_for(const Sequence& sequence);
  void resume_saved();
  void make_room();
  bool grow(const Shared& sequence);
  std::ptrdiff_t under_way(const Shared& sequence) const;
  KeptPrefix prefix_of(const Sequence& sequence) const;
  int find(const KeptPrefix& prefix) const;
  void keep_prefix(const Sequence& sequence);
  bool drop_oldest_prefix();
  bool fits(std::int64_t tokens);
  Decoder::Prompt prompt_of(const Sequence& sequence) const;
  void run_prompts();
  void run_prompt_chunk();
  void encode(Sequence& sequence);
  void step(bool penalties);
  void take(std::size_t leave_untaken);
  void take(Sequence& sequence, const Decoder::Result& result, std::size_t request, bool prompt);
  int window_for(const std::vector<Shared>& sequences, bool penalties);
  void leave(Sequence& sequence);
  void give_up_drafts(const std::vector<Shared>& sequences);
  void ask(std::vector<Shared> sequences, bool prompt, bool kept_up = true);
  void retire(std::optional<Decoder::Saved>& saved);
  void fail_all(std::exception_ptr error);

  const ModelConfig& config_;
  VisionModel& vision_;
  Decoder& decoder_;
  const Backend& backend_;
  Stream& stream_;
  Limits limits_;

  std::mutex mutex_;  // of waiting_, and of ready_ of those in it
  std::condition_variable_any arrived_;
  std::deque<Shared> waiting_;

  // The thread's own.
  Shared prompt_;                                 // the one whose prompt is being run
  std::vector<Shared> running_;                   // those that take part in steps, in the order of admission
  std::deque<Shared> saved_;                      // those that made room, the first to resume first
  std::int64_t admitted_ = 0, judged_alone_ = 0;  // in all, and when the last was that judges alone
  std::atomic<std::int64_t> times_made_room_{0};
  std::vector<KeptPrefix> prefixes_;  // by place
  std::vector<int> free_slots_;
  WindowPolicy policy_;
  std::deque<Asked> asked_;
  std::int64_t next_number_ = 0;  // of a result
  std::deque<Retired> retired_;

  std::jthread thread_;  // last: it uses all of the above
};

}  // namespace quire
