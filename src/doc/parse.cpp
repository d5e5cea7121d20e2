#include "doc/parse.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "core/error.h"
#include "doc/repetition.h"
#include "doc/stitch.h"
#include "io/file.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPageDigits = 6;  // of the file name of a page's record

std::string page_label(const Input& input, const PageRecord& page, int pages) {
  if (page.page == 0 || (pages == 1 && page.page == 1)) return input.name;
  return fmt::format("{} page {}", input.name, page.page);
}

// Models that were trained to say so answer a page that does not stand upright with how to turn it, and
// nothing else: "<!-- turned 90 -->", degrees clockwise. 0: another answer.
int asks_to_turn(std::string_view text) {
  for (const int degrees : {90, 180, 270})
    if (text == fmt::format("<!-- turned {} -->", degrees)) return degrees;
  return 0;
}

// Follows the text of one page as it is written, and says when to stop.
class Listener {
 public:
  explicit Listener(const Ink& ink) : ink_(ink) {}

  // False: enough.
  bool push(std::string_view text) {
    for (const char c : text) {
      characters_ += (c & 0xC0) != 0x80;
      words_ +=
          (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c & 0xC0) == 0xC0;
    }
    invented_ = invented_ || !ink_.can_hold(words_);
    repeats_ = repetition_.push(text);
    return !invented_ && !repeats_;
  }

  std::size_t characters() const { return characters_; }
  bool invented() const { return invented_; }
  bool repeats() const { return repeats_; }
  std::size_t bytes_to_keep() const { return repetition_.bytes_to_keep(); }

 private:
  Ink ink_;
  RepetitionDetector repetition_;
  std::size_t characters_ = 0;  // as people count them
  std::int64_t words_ = 0;      // letters and digits
  bool invented_ = false;
  bool repeats_ = false;
};

// The engine's answer as a record. A page is ok only when the model itself came to an end.
void record_result(const Result& result, const Listener& listener, PageRecord& record) {
  record.text = result.text;
  record.tokens = static_cast<int>(result.tokens.size());
  record.image_tokens = result.image_tokens;
  record.finish_reason = to_string(result.finish_reason);
  record.mean_logprob = result.mean_logprob;
  record.min_logprob = result.min_logprob;
  record.drafts = result.drafts;
  record.seconds.preprocess = result.seconds.preprocess;
  record.seconds.queue = result.seconds.queue;
  record.seconds.vision = result.seconds.vision;
  record.seconds.prefill = result.seconds.prefill;
  record.seconds.decode = result.seconds.decode;
  record.seconds.steps = result.seconds.steps;
  if (listener.invented()) {
    record.status = PageStatus::blank;
    record.reason = "no_ink";
    record.text.clear();
  } else if (listener.repeats()) {
    record.status = PageStatus::truncated;
    record.reason = "repetition";
    record.text.resize(std::min(record.text.size(), listener.bytes_to_keep()));
  } else if (result.finish_reason != FinishReason::stop) {
    record.status = PageStatus::truncated;
    record.reason = record.finish_reason;
  } else if (record.text.find_first_not_of(" \t\r\n") == std::string::npos) {
    record.status = PageStatus::blank;
    record.reason = "empty";
  } else {
    record.status = PageStatus::ok;
  }
}

void create_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(ErrorCode::io, "{}: cannot create the folder: {}", folder.string(), error.message());
}

// Nothing but what Quire itself wrote there: the folder stays when it holds anything else.
void remove_page_records(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> records;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().stem().string();
    if (entry->path().extension() == ".json" && name.size() == kPageDigits &&
        name.find_first_not_of("0123456789") == std::string::npos)
      records.push_back(entry->path());
  }
  for (const fs::path& record : records) fs::remove(record, error);
  if (fs::is_empty(folder, error)) fs::remove(folder, error);
}

// One line of --timings.
std::string timings_line(std::string_view label, const PageSeconds& seconds, std::int64_t tokens,
                         const DraftCounts& drafts) {
  std::string line = fmt::format(
      "{}: decode image {:.1f} ms, preprocess {:.1f} ms, queue {:.1f} ms, vision {:.1f} ms, prefill {:.1f} "
      "ms, decode {:.1f} ms, of that steps {:.1f} ms ({} tokens, {:.1f} tokens/s)",
      label, 1e3 * seconds.decode_image, 1e3 * seconds.preprocess, 1e3 * seconds.queue, 1e3 * seconds.vision,
      1e3 * seconds.prefill, 1e3 * seconds.decode, 1e3 * seconds.steps, tokens,
      seconds.decode > 0 ? static_cast<double>(tokens) / seconds.decode : 0);
  if (drafts.steps > 0)
    line += fmt::format("; {} steps of {:.2f} tokens, drafts accepted {:.2f}", drafts.steps,
                        drafts.acceptance_length(), fmt::join(drafts.acceptance(), " "));
  return line;
}

class Run {
 public:
  Run(const ParseJob& job, const std::function<Result(const Request&)>& generate,
      const std::function<void(std::string_view)>& write, Progress& progress, std::stop_token stop)
      : job_(job),
        generate_(generate),
        write_(write),
        progress_(progress),
        stop_(std::move(stop)),
        names_(output_names(job.inputs)),
        stream_(job.inputs, job.pages) {}

  ~Run() { abandoned_ = true; }  // when output cannot be written

  ParseTotals run() {
    for (bool more = true; more || !in_hand_.empty();) {
      if (more && std::ssize(in_hand_) < job_.parallel && !first_is_done()) {
        std::optional<Page> page = stream_.next(stop_);
        more = page.has_value();
        if (more) begin_page(std::move(*page));
      } else if (!finish_first()) {
        break;
      }
    }
    keep_what_is_done();
    totals_.interrupted = stop_.stop_requested();
    if (totals_.interrupted) tell_interruption();
    if (job_.timings && totals_.pages() > 0)
      progress_.note(timings_line("all pages", seconds_, tokens_, totals_.drafts));
    return totals_;
  }

 private:
  // A page that is being read in a thread of its own; nothing when the run was stopped meanwhile.
  struct Reading {
    std::unique_ptr<Page> page;
    std::future<std::optional<PageRecord>> record;
  };

  void begin_page(Page page) {
    auto owned = std::make_unique<Page>(std::move(page));
    auto record = std::async(std::launch::async, [this, &page = *owned] {
      std::optional<PageRecord> r = parse_page(page);
      page.image = {};
      return r;
    });
    in_hand_.push_back({std::move(owned), std::move(record)});
  }

  bool first_is_done() const {
    using std::chrono::seconds;
    return !in_hand_.empty() && in_hand_.front().record.wait_for(seconds(0)) == std::future_status::ready;
  }

  // The first page in hand joins its document. False: there is none, the run was stopped.
  bool finish_first() {
    const std::unique_ptr<Page> page = std::move(in_hand_.front().page);
    std::optional<PageRecord> record = in_hand_.front().record.get();
    in_hand_.pop_front();
    if (document_.pages.empty()) begin_document(*page);
    if (!record) {
      if (to_files()) ::rmdir(page_folder(page->input).c_str());  // when it still waits for a first page
      return false;
    }
    finish_page(*page, std::move(*record));
    if (static_cast<int>(document_.pages.size()) == page->pages || page->number == 0)
      finish_document(page->input);
    return true;
  }

  // Pages of the document in hand that were read when the run was stopped, after one that was not.
  void keep_what_is_done() {
    for (Reading& reading : in_hand_) {
      const std::optional<PageRecord> record = reading.record.get();
      if (record && to_files() && !document_.pages.empty() && reading.page->input == input_)
        write_page_record(*reading.page, *record);
    }
    in_hand_.clear();
  }

  bool to_files() const { return !job_.folder.empty(); }

  fs::path output(std::size_t input, std::string_view extension) const {
    return job_.folder / (names_[input] + std::string(extension));
  }

  fs::path page_folder(std::size_t input) const { return output(input, ".quire"); }

  void begin_document(const Page& page) {
    input_ = page.input;
    document_ = {.input = job_.inputs[page.input].name,
                 .input_hash = page.input_hash,
                 .input_bytes = page.input_bytes,
                 .run = job_.run,
                 .pages = {}};
    if (to_files()) {
      // Page records of an earlier run, perhaps of another document, must not mix with those of this one.
      remove_page_records(page_folder(page.input));
      create_folder(page_folder(page.input));
    } else if (job_.inputs.size() > 1 && job_.format == OutputFormat::markdown) {
      write(fmt::format("{}{}\n\n", wrote_ ? "\n" : "", markdown_comment(document_.input)));
      wrote_ = false;  // no blank line before the first page
    }
  }

  // Nothing when the run was stopped meanwhile.
  std::optional<PageRecord> parse_page(Page& page) {
    PageRecord record;
    record.page = page.number;
    record.width = page.image.width;
    record.height = page.image.height;
    record.ink = page.ink.share;
    record.seconds.decode_image = page.decode_seconds;
    if (!page.error.empty()) {
      record.reason = page.error;
    } else if (page.ink.uniform) {
      // Asked for text that is not there, a language model invents some.
      record.status = PageStatus::blank;
      record.reason = "uniform";
    } else {
      return generate(page, std::move(record));
    }
    return record;
  }

  std::optional<PageRecord> generate(Page& page, PageRecord record) {
    std::optional<PageRecord> answer = ask(page, record);
    const int degrees = answer ? asks_to_turn(answer->text) : 0;
    if (degrees == 0) return answer;
    page.image = turn(std::move(page.image), degrees);
    std::optional<PageRecord> upright = ask(page, record);
    if (!upright) return std::nullopt;
    upright->turned = degrees;
    upright->tokens += answer->tokens;
    upright->drafts += answer->drafts;
    upright->seconds += answer->seconds;
    return upright;
  }

  std::optional<PageRecord> ask(const Page& page, PageRecord record) {
    const std::string label = page_label(job_.inputs[page.input], record, page.pages);
    Listener listener(page.ink);
    Request request = job_.request;
    request.image = {page.image.rgb.data(), page.image.width, page.image.height};
    request.on_text = [&](std::string_view text) {
      const bool go_on = listener.push(text);
      progress_.page_running(label, listener.characters(), stream_.total());
      return go_on && !abandoned_ && !stop_.stop_requested();
    };
    progress_.page_running(label, 0, stream_.total());
    try {
      const Result result = generate_(request);
      const bool cut = listener.invented() || listener.repeats();
      if (result.finish_reason == FinishReason::cancelled && !cut) return std::nullopt;
      record_result(result, listener, record);
    } catch (const std::exception& error) {
      record.status = PageStatus::failed;
      record.reason = error.what();
    }
    return record;
  }

  void finish_page(const Page& page, PageRecord record) {
    const std::string label = page_label(job_.inputs[page.input], record, page.pages);
    if (to_files() && record.page > 0) {
      write_page_record(page, record);
    } else if (!to_files() && job_.format == OutputFormat::markdown) {
      write((wrote_ ? "\n" : "") + page_markdown(record));
      wrote_ = true;
    }
    switch (record.status) {
      case PageStatus::ok:
        ++totals_.ok;
        break;
      case PageStatus::truncated:
        ++totals_.truncated;
        progress_.problem(fmt::format("{}: truncated: {}", label, record.reason));
        break;
      case PageStatus::blank:
        ++totals_.blank;
        break;
      case PageStatus::failed:
        ++totals_.failed;
        progress_.problem(fmt::format("{}: {}", label, record.reason));
        break;
    }
    seconds_ += record.seconds;
    tokens_ += record.tokens;
    totals_.drafts += record.drafts;
    progress_.page_done(label,
                        fmt::format("{}, {} tokens, {:.2f} s", to_string(record.status), record.tokens,
                                    record.seconds.total()),
                        stream_.total());
    if (job_.timings) progress_.note(timings_line(label, record.seconds, record.tokens, record.drafts));
    document_.pages.push_back(std::move(record));
  }

  void write_page_record(const Page& page, const PageRecord& record) const {
    write_file_atomically(page_folder(page.input) / fmt::format("{:0{}}.json", record.page, kPageDigits),
                          page_to_json(document_, record));
  }

  void finish_document(std::size_t input) {
    const bool with_text = job_.format == OutputFormat::json;
    if (!to_files()) {
      if (with_text) write(to_json(document_, true, true));
    } else {
      if (!with_text) write_file_atomically(output(input, ".md"), stitch(document_.pages));
      write_file_atomically(output(input, ".json"), to_json(document_, with_text, false));
      // A later run that repeats the pages that went wrong needs the text of the others.
      const bool complete = std::all_of(document_.pages.begin(), document_.pages.end(), [](const auto& p) {
        return p.status == PageStatus::ok || p.status == PageStatus::blank;
      });
      if (complete || document_.pages.front().page == 0) remove_page_records(page_folder(input));
    }
    document_.pages.clear();
  }

  void write(std::string_view text) {
    progress_.clear();
    write_(text);
  }

  void tell_interruption() {
    if (document_.pages.empty()) {
      progress_.problem(fmt::format("interrupted after {} pages", totals_.pages()));
    } else if (to_files()) {
      progress_.problem(fmt::format("interrupted: {} finished pages of {} are kept in {}",
                                    document_.pages.size(), document_.input, page_folder(input_).string()));
    } else {
      progress_.problem(
          fmt::format("interrupted after {} pages of {}", document_.pages.size(), document_.input));
    }
  }

  const ParseJob& job_;
  const std::function<Result(const Request&)>& generate_;
  const std::function<void(std::string_view)>& write_;
  Progress& progress_;
  std::stop_token stop_;
  std::vector<std::string> names_;
  PageStream stream_;
  std::atomic<bool> abandoned_{false};
  std::deque<Reading> in_hand_;  // in the order of the pages

  std::size_t input_ = 0;    // of document_
  DocumentRecord document_;  // in hand; its pages are empty between two documents
  bool wrote_ = false;       // a page stands on standard output already
  ParseTotals totals_;
  PageSeconds seconds_;
  std::int64_t tokens_ = 0;
};

}  // namespace

ParseTotals parse(const ParseJob& job, const std::function<Result(const Request&)>& generate,
                  const std::function<void(std::string_view)>& write, Progress& progress,
                  std::stop_token stop) {
  if (!job.folder.empty()) create_folder(job.folder);
  return Run(job, generate, write, progress, std::move(stop)).run();
}

namespace {

// Room for "-2" and for what is written under a name: file systems hold 255 bytes.
std::string shortened(std::string name) {
  constexpr std::size_t kMostBytes = 240;
  if (name.size() <= kMostBytes) return name;
  std::size_t end = kMostBytes;
  while (end > 0 && (name[end] & 0xC0) == 0x80) --end;  // not inside a UTF-8 character
  return name.substr(0, end);
}

}  // namespace

std::vector<std::string> output_names(const std::vector<Input>& inputs) {
  std::map<std::string, int> uses;
  const auto stem = [](const Input& input) {
    return shortened(input.path == "-" ? input.name : input.path.stem().string());
  };
  for (const Input& input : inputs) ++uses[stem(input)];

  // Names that are unique stay as they are, whatever the others must become.
  std::set<std::string> taken;
  for (const auto& [name, count] : uses)
    if (count == 1) taken.insert(name);
  std::vector<std::string> names;
  for (const Input& input : inputs) {
    std::string name = stem(input);
    if (uses[name] > 1) {
      if (input.path != "-") name = shortened(input.path.filename().string());
      const std::string first = name;
      for (int n = 2; !taken.insert(name).second; ++n) name = fmt::format("{}-{}", first, n);
    }
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace quire
