#include "doc/status.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// A stream that remembers.
class Capture {
 public:
  Capture() : file_(std::tmpfile()) {}
  ~Capture() { std::fclose(file_); }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  std::FILE* stream() const { return file_; }
  std::string text() const {
    std::rewind(file_);
    std::string all;
    std::array<char, 4096> chunk;
    while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), file_))
      all.append(chunk.data(), n);
    return all;
  }

 private:
  std::FILE* file_;
};

TEST(OneLine, HoldsNoControlCharacters) {
  EXPECT_EQ(one_line("a:\n  b\n  c\n"), "a:   b;   c");
  EXPECT_EQ(one_line("\x1b[31mred\tx\x7f"), "?[31mred?x?");
  EXPECT_EQ(one_line("caf\u00e9"), "caf\u00e9");
}

TEST(Progress, AFileGetsALineForEachPage) {
  const Capture capture;
  {
    EXPECT_EQ(Progress::style_for(capture.stream(), false), Progress::Style::lines);
    Progress progress(capture.stream(), Progress::Style::lines);
    progress.page_running("a.png", 100, {.pages = 3, .exact = false});
    progress.page_done("a.png", "ok, 5 tokens", {.pages = 3, .exact = false});
    progress.problem("b.png: broken");
    progress.page_done("b.png", "failed", {.pages = 3, .exact = true});
  }
  EXPECT_THAT(capture.text(), StartsWith("a.png: ok, 5 tokens (1/3+ pages, "));
  EXPECT_THAT(capture.text(), HasSubstr("\nquire: b.png: broken\nb.png: failed (2/3 pages, "));
  EXPECT_THAT(capture.text(), HasSubstr("pages/s, ETA 0:0"));
  EXPECT_THAT(capture.text(), Not(HasSubstr("\x1b")));
}

TEST(Progress, QuietTellsOnlyWhatGoesWrong) {
  const Capture capture;
  Progress progress(capture.stream(), Progress::Style::quiet);
  progress.note("nothing special");
  progress.page_running("a.png", 100, {});
  progress.page_done("a.png", "ok", {});
  EXPECT_THAT(capture.text(), IsEmpty());
  progress.problem("b.png: broken");
  EXPECT_EQ(capture.text(), "quire: b.png: broken\n");
}

TEST(Progress, ATerminalGetsOneLineThatGoesAway) {
  const Capture capture;
  {
    Progress progress(capture.stream(), Progress::Style::live);
    progress.page_running("folder/a.png", 100, {.pages = 1, .exact = true});
    progress.page_running("a.png", 101, {.pages = 1, .exact = true});  // too soon to be shown
    progress.page_done("a.png", "ok", {.pages = 1, .exact = true});
  }
  EXPECT_THAT(capture.text(), HasSubstr("| a.png: 100 characters"));
  EXPECT_THAT(capture.text(), Not(HasSubstr("101")));
  EXPECT_THAT(capture.text(), Not(HasSubstr("\n")));
  EXPECT_THAT(capture.text(), ::testing::EndsWith("\r\x1b[K"));
}

TEST(PageStatus, HasNames) {
  EXPECT_EQ(to_string(PageStatus::ok), "ok");
  EXPECT_EQ(to_string(PageStatus::truncated), "truncated");
  EXPECT_EQ(to_string(PageStatus::blank), "blank");
  EXPECT_EQ(to_string(PageStatus::failed), "failed");
}

}  // namespace
}  // namespace quire
