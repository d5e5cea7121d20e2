#include "io/child_process.h"

#include <chrono>
#include <csignal>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_directory.h"

namespace quire {
namespace {

using testing::HasSubstr;

ChildResult shell(const std::string& script, const ChildLimits& limits = {}) {
  return run_child("/bin/sh", {"-c", script}, limits);
}

TEST(ChildProcess, GivesOutputErrorsAndStatus) {
  const ChildResult result = shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(result.end, ChildEnd::exited);
  EXPECT_EQ(result.status, 3);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
}

TEST(ChildProcess, PassesArgumentsUntouched) {
  EXPECT_EQ(run_child("/bin/echo", {"a  b", "$HOME", "*", "é 文"}, {}).output, "a  b $HOME * é 文\n");
}

TEST(ChildProcess, HasNoInputAndNoOtherDescriptors) {
  EXPECT_EQ(shell("cat").output, "");
  const TemporaryDirectory folder;
  const int left_open = open((folder.path() / "file").c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(left_open, 0);
  EXPECT_EQ(shell("for f in /proc/self/fd/*; do echo ${f##*/}; done | sort -n | tail -1 | grep -c '^[0-3]$'")
                .output,
            "1\n");
  close(left_open);
}

TEST(ChildProcess, ReadsLongOutputOfBothStreams) {
  const ChildResult result = shell("head -c 900000 /dev/zero; head -c 900000 /dev/zero >&2");
  EXPECT_EQ(result.end, ChildEnd::exited);
  EXPECT_EQ(result.output.size(), 900000u);
  EXPECT_EQ(result.errors.size(), 65536u) << "only its beginning is kept";
}

TEST(ChildProcess, EndsAtTheTimeLimitWithItsWholeGroup) {
  const TemporaryDirectory folder;
  const std::string mark = (folder.path() / "mark").string();
  const auto begin = std::chrono::steady_clock::now();
  const ChildResult result = shell("(sleep 1; touch '" + mark + "') & sleep 60", {.seconds = 0.3});
  EXPECT_EQ(result.end, ChildEnd::timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_FALSE(std::filesystem::exists(mark)) << "the grandchild lived on";
}

TEST(ChildProcess, EndsAtTheTimeLimitWithClosedStreams) {
  EXPECT_EQ(shell("exec >&- 2>&-; sleep 60", {.seconds = 0.3}).end, ChildEnd::timed_out);
}

TEST(ChildProcess, EndsWhenItsResultIsNotWantedAnyMore) {
  std::stop_source source;
  const std::jthread impatient([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    source.request_stop();
  });
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(shell("sleep 60", {.stop = source.get_token()}).end, ChildEnd::stopped);
  EXPECT_EQ(shell("exec >&- 2>&-; sleep 60", {.stop = source.get_token()}).end, ChildEnd::stopped);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(ChildProcess, EndsWhenItWritesTooMuch) {
  const ChildResult result = shell("cat /dev/zero", {.output_bytes = 100000});
  EXPECT_EQ(result.end, ChildEnd::output_too_long);
}

TEST(ChildProcess, CannotTakeMoreMemoryThanAllowed) {
  const ChildResult result = run_child("/usr/bin/sort", {"-S", "900M", "--parallel=1", "/dev/zero"},
                                       {.seconds = 60, .memory_bytes = std::size_t{64} << 20});
  EXPECT_TRUE(result.end == ChildEnd::signalled || (result.end == ChildEnd::exited && result.status != 0));
}

TEST(ChildProcess, TellsASignal) {
  const ChildResult result = shell("kill -SEGV $$");
  EXPECT_EQ(result.end, ChildEnd::signalled);
  EXPECT_EQ(result.status, SIGSEGV);
}

TEST(ChildProcess, FailsForAMissingProgram) {
  EXPECT_THAT(error_of([] { run_child("/no/such/program", {}, {}); }), HasSubstr("/no/such/program"));
  EXPECT_FALSE(find_program("quire-no-such-program"));
  EXPECT_TRUE(find_program("sh"));
}

}  // namespace
}  // namespace quire
