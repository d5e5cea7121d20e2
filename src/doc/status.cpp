#include "doc/status.h"

#include <algorithm>

#include <sys/ioctl.h>
#include <unistd.h>

#include "core/error.h"

namespace quire {
namespace {

// The file's name is enough where there is one line for all.
std::string short_name(std::string_view page) {
  return one_line(page.substr(page.rfind('/') + 1));
}

// "0:07", "12:30", "3:05:00".
std::string clock_time(double seconds) {
  const auto s = static_cast<long long>(std::clamp(seconds, 0.0, 1e9) + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::size_t terminal_width(std::FILE* stream) {
  winsize size = {};
  if (::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 80;
}

}  // namespace

std::string_view to_string(PageStatus status) {
  switch (status) {
    case PageStatus::ok:
      return "ok";
    case PageStatus::truncated:
      return "truncated";
    case PageStatus::blank:
      return "blank";
    case PageStatus::failed:
      return "failed";
  }
  return "unknown";
}

std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) {
    if (c == '\n') {
      line += line.ends_with(":") ? " " : "; ";
    } else {
      line += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  while (line.ends_with(' ') || line.ends_with(';')) line.pop_back();
  return line;
}

Progress::Style Progress::style_for(std::FILE* stream, bool quiet) {
  if (quiet) return Style::quiet;
  return ::isatty(::fileno(stream)) ? Style::live : Style::lines;
}

double Progress::seconds() const {
  return std::chrono::duration<double>(Clock::now() - start_).count();
}

// Whether anyone can be told makes no difference to the run: fmt::print would throw.
void Progress::print(const std::string& text) {
  std::fputs(text.c_str(), stream_);
  std::fflush(stream_);
}

void Progress::problem(std::string_view message) {
  const std::scoped_lock lock(mutex_);
  print_line(fmt::format("quire: {}", one_line(message)));
}

void Progress::note(std::string_view message) {
  if (style_ == Style::quiet) return;
  const std::scoped_lock lock(mutex_);
  print_line(one_line(message));
}

void Progress::print_line(const std::string& line) {
  remove_line();
  print(line + "\n");
}

std::string Progress::counts(PageStream::Total total) const {
  const double rate = done_ / std::max(seconds(), 1e-3);
  std::string text = fmt::format("{}/{}{} pages", done_, total.pages, total.exact ? "" : "+");
  if (done_ > 0) {
    text += fmt::format(", {:.2f} pages/s", rate);
    if (done_ < total.pages) text += fmt::format(", ETA {}", clock_time((total.pages - done_) / rate));
  }
  return text;
}

void Progress::show(std::string line) {
  // A line that wraps could not be removed again. Bytes count as columns: never too few.
  line.resize(std::min(line.size(), terminal_width(stream_) - 1));
  print("\r\x1b[K" + line);
  line_is_open_ = true;
  shown_ = Clock::now();
}

bool Progress::due() const {
  return style_ == Style::live && Clock::now() - shown_ >= std::chrono::milliseconds(200);
}

void Progress::loading(std::size_t done, std::size_t total) {
  const std::scoped_lock lock(mutex_);
  if (due()) show(fmt::format("loading the model: {} of {} MiB", done >> 20, total >> 20));
}

void Progress::page_running(std::string_view page, std::size_t characters, PageStream::Total total) {
  const std::scoped_lock lock(mutex_);
  if (!due()) return;
  show(fmt::format("{} | {}: {} characters", counts(total), short_name(page), characters));
}

void Progress::page_done(std::string_view page, std::string_view summary, PageStream::Total total) {
  const std::scoped_lock lock(mutex_);
  ++done_;
  if (style_ == Style::live) show(fmt::format("{} | {}: {}", counts(total), short_name(page), summary));
  if (style_ == Style::lines) print_line(one_line(fmt::format("{}: {} ({})", page, summary, counts(total))));
}

void Progress::clear() {
  const std::scoped_lock lock(mutex_);
  remove_line();
}

void Progress::remove_line() {
  if (!line_is_open_) return;
  print("\r\x1b[K");
  line_is_open_ = false;
}

}  // namespace quire
