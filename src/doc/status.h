// How a page went, and telling people about it while a run goes on.
#pragma once

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

#include "doc/pages.h"

namespace quire {

// An open enumeration: more may be added.
enum class PageStatus {
  ok,         // the model read the page and said it was done
  truncated,  // the text is cut off: token or time limit, or it had begun to repeat itself
  blank,      // there is nothing to read on the page
  failed,     // no text, for a stated reason
};
std::string_view to_string(PageStatus status);

// For any number of threads. Progress on a terminal is one line that changes in place; elsewhere one line for
// each page. What goes wrong is always told in a line of its own, "quire: FILE: message".
class Progress {
 public:
  enum class Style { quiet, lines, live };

  // quiet when asked for; live when `stream` is a terminal.
  static Style style_for(std::FILE* stream, bool quiet);

  Progress(std::FILE* stream, Style style) : stream_(stream), style_(style), start_(Clock::now()) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // "quire: " + message, made one printable line. Always shown.
  void problem(std::string_view message);
  // A line, unless quiet.
  void note(std::string_view message);

  // The model is on its way to the GPU, in bytes. Shown like page_running.
  void loading(std::size_t done, std::size_t total);
  // A page is being worked on: `characters` so far. Shown at most five times a second, on a terminal.
  void page_running(std::string_view page, std::size_t characters, PageStream::Total total);
  // A page is done; `summary` follows its name in the line.
  void page_done(std::string_view page, std::string_view summary, PageStream::Total total);

  // Removes the changing line, so that something else can be printed.
  void clear();

  double seconds() const;
  int pages_done() const {
    const std::scoped_lock lock(mutex_);
    return done_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  // With mutex_ held.
  std::string counts(PageStream::Total total) const;
  bool due() const;  // the changing line may be shown again
  void show(std::string line);
  void print_line(const std::string& line);
  void print(const std::string& text);
  void remove_line();

  mutable std::mutex mutex_;
  std::FILE* stream_;
  Style style_;
  Clock::time_point start_;
  Clock::time_point shown_{};
  int done_ = 0;
  bool line_is_open_ = false;
};

// Text as one line for a terminal: line breaks become "; ", other control characters "?".
std::string one_line(std::string_view text);

}  // namespace quire
