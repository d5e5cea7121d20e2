// The driver with a model made of a few lines: what it answers is decided by the width of the page.
#include "doc/parse.h"

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "doc/documents.h"
#include "io/json.h"
#include "temporary_directory.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using testing::bmp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::pdf;
using testing::read;
using testing::write;

constexpr int kGood = 16, kEmpty = 20, kCutOff = 24, kThrows = 28, kLoops = 32, kSlow = 36;

// Answers as the engine does: pieces through on_text, `cancelled` when that returns false.
Result answer(const Request& request) {
  Result result;
  result.tokens = {1, 2, 3};
  result.image_tokens = 4;
  const auto say = [&](const std::string& piece) {
    result.text += piece;
    if (request.on_text && !request.on_text(piece)) result.finish_reason = FinishReason::cancelled;
    return result.finish_reason != FinishReason::cancelled;
  };
  switch (request.image.width) {
    case kEmpty:
      say(" \n");
      break;
    case kCutOff:
      say("half a pa");
      result.finish_reason = FinishReason::length;
      break;
    case kThrows:
      throw Error(ErrorCode::out_of_memory, "no memory for this page");
    case kLoops:
      for (int i = 0; i < 10'000 && say("over and over again, "); ++i) {
      }
      break;
    case kSlow:
      say("late");
      result.finish_reason = FinishReason::time_limit;
      break;
    default:
      say("# Page\n\n");
      say("text");
  }
  return result;
}

class Parse : public ::testing::Test {
 protected:
  // An input whose page is `width` pixels wide; a quarter of it is ink.
  void add(const std::string& name, int width) {
    write(folder_ / name, bmp(width, 128, 64));
    job_.inputs.push_back({name, folder_ / name});
  }
  void add_file(const std::string& name, const std::string& content) {
    write(folder_ / name, content);
    job_.inputs.push_back({name, folder_ / name});
  }

  ParseTotals run(std::stop_token stop = {}) {
    std::FILE* log = std::tmpfile();
    ParseTotals totals;
    {
      Progress progress(log, style_);
      totals = parse(
          job_, generate_, [&](std::string_view text) { out_ += text; }, progress, stop);
    }
    std::rewind(log);
    for (int c; (c = std::fgetc(log)) != EOF;) problems_ += static_cast<char>(c);
    std::fclose(log);
    return totals;
  }

  Json json(const std::string& name) { return read_json(job_.folder / name); }
  bool exists(const std::string& name) { return fs::exists(job_.folder / name); }

  TemporaryDirectory folder_;
  ParseJob job_;
  std::function<Result(const Request&)> generate_ = answer;
  Progress::Style style_ = Progress::Style::quiet;
  std::string out_, problems_;
};

TEST_F(Parse, OnePageToStandardOutput) {
  add("a.bmp", kGood);
  const ParseTotals totals = run();
  EXPECT_EQ(out_, "# Page\n\ntext\n");
  EXPECT_EQ(totals.ok, 1);
  EXPECT_EQ(totals.pages(), 1);
  EXPECT_EQ(problems_, "");
}

TEST_F(Parse, SeveralInputsAreToldApart) {
  add("a.bmp", kGood);
  add("b.bmp", kGood);
  run();
  EXPECT_EQ(out_, "<!-- a.bmp -->\n\n# Page\n\ntext\n\n<!-- b.bmp -->\n\n# Page\n\ntext\n");
}

TEST_F(Parse, NamesOfInputsCannotEndTheirComment) {
  add("a.bmp", kGood);
  job_.inputs[0].name = "a--> \n\xff.bmp";
  job_.inputs.push_back(job_.inputs[0]);
  run();
  EXPECT_THAT(out_, ::testing::StartsWith("<!-- a- -> ; \xEF\xBF\xBD.bmp -->\n\n"));
}

TEST_F(Parse, PagesOfOneDocumentAreStitched) {
  add_file("two.pdf", pdf(2));
  run();
  EXPECT_EQ(out_, "# Page\n\ntext\n\n# Page\n\ntext\n");
}

TEST_F(Parse, EveryEndHasItsStatus) {
  job_.folder = folder_ / "out";
  add("good.bmp", kGood);
  add("empty.bmp", kEmpty);
  add("cut.bmp", kCutOff);
  add("throws.bmp", kThrows);
  add("slow.bmp", kSlow);
  add_file("white.bmp", bmp(16, 8, 0));
  add_file("broken.bmp", "BM but no picture");
  const ParseTotals totals = run();
  EXPECT_EQ(totals.ok, 1);
  EXPECT_EQ(totals.blank, 2);
  EXPECT_EQ(totals.truncated, 2);
  EXPECT_EQ(totals.failed, 2);
  const auto status = [&](const std::string& name) {
    const Json page = json(name)["pages"][0];
    return page["status"].get<std::string>() + " " + page.value("reason", "");
  };
  EXPECT_EQ(status("good.json"), "ok ");
  EXPECT_EQ(status("empty.json"), "blank empty");
  EXPECT_EQ(status("cut.json"), "truncated length");
  EXPECT_EQ(status("slow.json"), "truncated time_limit");
  EXPECT_EQ(status("throws.json"), "failed no memory for this page");
  EXPECT_EQ(status("white.json"), "blank uniform");
  EXPECT_THAT(status("broken.json"), HasSubstr("failed "));
  EXPECT_THAT(read(job_.folder / "cut.md"), HasSubstr("half a pa\n\n<!-- page 1 truncated: length -->"));
  EXPECT_THAT(problems_, HasSubstr("quire: throws.bmp: no memory for this page\n"));
  EXPECT_THAT(problems_, HasSubstr("quire: cut.bmp: truncated: length\n"));
}

TEST_F(Parse, TheModelIsNotAskedAboutAUniformPage) {
  add_file("white.bmp", bmp(64, 64, 0, 250));
  generate_ = [](const Request&) -> Result { throw std::logic_error("asked"); };
  EXPECT_EQ(run().blank, 1);
  EXPECT_EQ(out_, "<!-- page 1 blank: uniform -->\n");
}

TEST_F(Parse, MoreTextThanThePageHasInkForIsNotBelieved) {
  std::string speck = bmp(64, 64, 0);
  speck[54 + 3 * 1000] = speck[54 + 3 * 1000 + 1] = speck[54 + 3 * 1000 + 2] = 0;
  add_file("speck.bmp", speck);
  EXPECT_EQ(run().blank, 1);
  EXPECT_EQ(out_, "<!-- page 1 blank: no_ink -->\n");
}

TEST_F(Parse, ALoopIsStoppedAndCut) {
  add("loop.bmp", kLoops);
  int pieces = 0;
  generate_ = [&](const Request& request) {
    Request counted = request;
    counted.on_text = [&](std::string_view text) { return ++pieces, request.on_text(text); };
    return answer(counted);
  };
  EXPECT_EQ(run().truncated, 1);
  EXPECT_LT(pieces, 25);
  EXPECT_EQ(out_, "over and over again,\n\n<!-- page 1 truncated: repetition -->\n");
}

TEST_F(Parse, APageIsTurnedWhenTheModelAsksForIt) {
  job_.folder = folder_ / "out";
  add("a.bmp", 64);  // 64 x 128
  generate_ = [](const Request& request) {
    Result result;
    result.tokens = {1, 2};
    result.text = request.image.width < request.image.height ? "<!-- turned 270 -->" : "lying down";
    const bool upright = request.image.width > request.image.height;
    result.drafts = {.steps = 1, .tokens = upright ? 1 : 5, .drafted = {1}, .accepted = {upright ? 0 : 1}};
    return result;
  };
  EXPECT_EQ(run().ok, 1);
  EXPECT_EQ(read(job_.folder / "a.md"), "lying down\n");
  const Json page = json("a.json")["pages"][0];
  EXPECT_EQ(page["turned"], 270);
  EXPECT_EQ(page["tokens"], 4);
  EXPECT_EQ(page["acceptance_length"], 3);  // of both answers
  EXPECT_EQ(page["acceptance"], Json::array({0.5}));
  EXPECT_EQ(page["width"], 64);
}

TEST_F(Parse, TimingsTellOfDrafts) {
  add("a.bmp", kGood);
  add("b.bmp", kGood);
  job_.timings = true;
  style_ = Progress::Style::lines;
  int asked = 0;
  generate_ = [&](const Request& request) {
    Result result = answer(request);
    result.seconds = {.decode = 0.5, .steps = 0.4};
    if (++asked == 2) result.drafts = {.steps = 4, .tokens = 6, .drafted = {4, 2}, .accepted = {2, 0}};
    return result;
  };
  EXPECT_EQ(run().drafts.tokens, 6);
  EXPECT_THAT(problems_, HasSubstr("decode 500.0 ms, of that steps 400.0 ms (3 tokens, 6.0 tokens/s)\n"));
  EXPECT_THAT(problems_, HasSubstr("all pages: decode image "));
  EXPECT_THAT(problems_, HasSubstr("decode 1000.0 ms, of that steps 800.0 ms (6 tokens, 6.0 tokens/s); "
                                   "4 steps of 1.50 tokens, drafts accepted 0.50 0.00\n"));
}

TEST_F(Parse, APageIsTurnedOnceAtMost) {
  add("a.bmp", kGood);
  int asked = 0;
  generate_ = [&](const Request&) {
    ++asked;
    Result result;
    result.text = "<!-- turned 90 -->";
    return result;
  };
  run();
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(out_, "<!-- turned 90 -->\n");
}

TEST_F(Parse, TheRequestIsPassedOn) {
  add("a.bmp", kGood);
  job_.request.prompt = "Read.";
  job_.request.max_tokens = 7;
  job_.request.max_seconds = 1.5;
  generate_ = [](const Request& request) {
    EXPECT_EQ(request.prompt, "Read.");
    EXPECT_EQ(request.max_tokens, 7);
    EXPECT_EQ(request.max_seconds, 1.5);
    EXPECT_EQ(request.image.width, kGood);
    EXPECT_EQ(request.image.height, 128);
    return answer(request);
  };
  EXPECT_EQ(run().ok, 1);
}

TEST_F(Parse, FilesHoldMarkdownAndRecord) {
  job_.folder = folder_ / "deep/out";
  job_.run = {"m", "1", "2"};
  add_file("two.pdf", pdf(2));
  run();
  EXPECT_EQ(out_, "");
  EXPECT_EQ(read(job_.folder / "two.md"), "# Page\n\ntext\n\n# Page\n\ntext\n");
  const Json record = json("two.json");
  EXPECT_EQ(record["input"]["xxh3_128"], content_hash(pdf(2)));
  EXPECT_EQ(record["pages"].size(), 2U);
  EXPECT_EQ(record["pages"][1]["page"], 2);
  EXPECT_EQ(record["pages"][1]["tokens"], 3);
  EXPECT_FALSE(record["pages"][1].contains("text"));
  EXPECT_FALSE(exists("two.quire"));
}

TEST_F(Parse, JsonHoldsTheText) {
  job_.folder = folder_ / "out";
  job_.format = OutputFormat::json;
  add("a.bmp", kGood);
  run();
  EXPECT_EQ(json("a.json")["pages"][0]["text"], "# Page\n\ntext");
  EXPECT_FALSE(exists("a.md"));
}

TEST_F(Parse, JsonOnStandardOutputIsOneLineADocument) {
  job_.format = OutputFormat::json;
  add("a.bmp", kGood);
  add_file("two.pdf", pdf(2));
  run();
  const std::size_t end = out_.find('\n');
  EXPECT_EQ(parse_json(out_.substr(0, end), "first")["input"]["path"], "a.bmp");
  EXPECT_EQ(parse_json(out_.substr(end), "second")["pages"].size(), 2U);
}

TEST_F(Parse, PagesOfAnIncompleteDocumentAreKept) {
  job_.folder = folder_ / "out";
  add_file("two.pdf", pdf(2));
  int asked = 0;
  generate_ = [&](const Request& request) {
    if (++asked == 2) throw Error(ErrorCode::internal, "once");
    return answer(request);
  };
  const ParseTotals totals = run();
  EXPECT_EQ(totals.ok, 1);
  EXPECT_EQ(totals.failed, 1);
  EXPECT_TRUE(exists("two.md"));
  EXPECT_EQ(json("two.quire/000001.json")["text"], "# Page\n\ntext");
  EXPECT_EQ(json("two.quire/000002.json")["status"], "failed");
}

TEST_F(Parse, AnInterruptedRunKeepsItsFinishedPages) {
  job_.folder = folder_ / "out";
  add_file("three.pdf", pdf(3));
  std::stop_source source;
  int asked = 0;
  generate_ = [&](const Request& request) {
    if (++asked == 2) source.request_stop();
    return answer(request);
  };
  const ParseTotals totals = run(source.get_token());
  EXPECT_TRUE(totals.interrupted);
  EXPECT_EQ(totals.pages(), 1);
  EXPECT_TRUE(exists("three.quire/000001.json"));
  EXPECT_FALSE(exists("three.quire/000002.json"));
  EXPECT_FALSE(exists("three.md"));
  EXPECT_THAT(problems_, HasSubstr("interrupted: 1 finished pages of three.pdf"));
}

TEST_F(Parse, ARunInterruptedAtTheFirstPageLeavesNothing) {
  job_.folder = folder_ / "out";
  add("a.bmp", kGood);
  std::stop_source source;
  generate_ = [&](const Request& request) {
    source.request_stop();
    return answer(request);
  };
  EXPECT_TRUE(run(source.get_token()).interrupted);
  EXPECT_TRUE(fs::is_empty(job_.folder));
}

TEST_F(Parse, NamesAsLongAsTheFileSystemAllowsAreCut) {
  job_.folder = folder_ / "out";
  add(std::string(251, 'n') + ".bmp", kGood);
  add(std::string(250, 'n') + "m.bmp", kGood);
  EXPECT_EQ(run().ok, 2);
  EXPECT_TRUE(exists(std::string(240, 'n') + ".md"));
  EXPECT_TRUE(exists(std::string(240, 'n') + "-2.md"));
}

TEST_F(Parse, OldPageRecordsGoButNothingElse) {
  job_.folder = folder_ / "out";
  write(folder_ / "out/a.quire/000009.json", "{}");
  write(folder_ / "out/a.quire/notes.txt", "mine");
  add("a.bmp", kGood);
  run();
  EXPECT_FALSE(exists("a.quire/000009.json"));
  EXPECT_TRUE(exists("a.quire/notes.txt"));
}

TEST_F(Parse, AFolderThatCannotBeWrittenEndsTheRun) {
  job_.folder = folder_ / "a.bmp/out";
  add("a.bmp", kGood);
  EXPECT_THROW(run(), Error);
}

TEST(OutputNames, AreNeverEqual) {
  const auto names = [](std::vector<std::string> paths) {
    std::vector<Input> inputs;
    for (const auto& path : paths) inputs.push_back({path == "-" ? "stdin" : path, path});
    return output_names(inputs);
  };
  EXPECT_THAT(names({"x/a.png", "b.tar.pdf", "-"}), ElementsAre("a", "b.tar", "stdin"));
  EXPECT_THAT(names({"a.png", "a.pdf"}), ElementsAre("a.png", "a.pdf"));
  EXPECT_THAT(names({"x/a.png", "y/a.png", "z/a.png"}), ElementsAre("a.png", "a.png-2", "a.png-3"));
  EXPECT_THAT(names({"a.png", "a.png.pdf", "a.pdf"}), ElementsAre("a.png-2", "a.png", "a.pdf"));
  EXPECT_THAT(names({"-", "-"}), ElementsAre("stdin", "stdin-2"));
  std::string accents;
  for (int i = 0; i < 121; ++i) accents += "é";
  EXPECT_THAT(names({"x" + accents + ".png"}), ElementsAre("x" + accents.substr(0, 238)));
}

TEST_F(Parse, PagesReadTogetherStayInOrder) {
  for (int i = 0; i < 12; ++i) add(fmt::format("{:02}.bmp", i), i == 5 ? kThrows : kGood + 40 * (12 - i));
  job_.parallel = 4;
  std::atomic<int> now{0}, most{0};
  generate_ = [&](const Request& request) {
    const int here = ++now;
    for (int seen = most; seen < here && !most.compare_exchange_weak(seen, here);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(request.image.width % 7 * 5));
    --now;
    return answer(request);
  };
  const ParseTotals totals = run();
  EXPECT_EQ(totals.ok, 11);
  EXPECT_EQ(totals.failed, 1);
  EXPECT_GT(most, 1);
  EXPECT_LE(most, 4);
  std::size_t at = 0;
  for (int i = 0; i < 12; ++i) {
    const std::size_t found = out_.find(fmt::format("<!-- {:02}.bmp -->", i));
    ASSERT_NE(found, std::string::npos) << i;
    EXPECT_GE(found, at);
    at = found;
  }
}

TEST_F(Parse, AStopEndsAllPagesInHand) {
  add_file("a.pdf", pdf(6));
  job_.folder = folder_ / "out";
  job_.parallel = 3;
  std::stop_source source;
  std::atomic<int> calls{0};
  generate_ = [&](const Request& request) {
    if (++calls != 2) return answer(request);
    Result cut;  // the second page is in hand when the run is stopped
    while (calls < 3) std::this_thread::yield();
    source.request_stop();
    cut.finish_reason = FinishReason::cancelled;
    return cut;
  };
  EXPECT_TRUE(run(source.get_token()).interrupted);
  EXPECT_FALSE(exists("a.json"));
}

}  // namespace
}  // namespace quire
