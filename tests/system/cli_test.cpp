// The program as its users meet it: the built `quire` on the sample pages with the committed model.
// QUIRE_BINARY is its path; the tests run in the root of the repository.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <numeric>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>

#include "doc/documents.h"
#include "drafter_directory.h"
#include "io/child_process.h"
#include "io/json.h"
#include "small_pages.h"
#include "temporary_directory.h"

extern char** environ;

namespace quire {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using testing::bmp;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::read;
using ::testing::StartsWith;
using testing::write;

struct Outcome {
  int code = -1;
  std::string out, err;
};

// A run of quire whose streams go to files.
class Process {
 public:
  explicit Process(std::vector<std::string> arguments, const fs::path& input = "/dev/null") {
    arguments.insert(arguments.begin(), QUIRE_BINARY);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, input.c_str(), O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, (folder_ / "out").c_str(), O_WRONLY | O_CREAT, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, (folder_ / "err").c_str(), O_WRONLY | O_CREAT, 0600);
    if (posix_spawn(&id_, QUIRE_BINARY, &actions, nullptr, argv.data(), environ) != 0) id_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }

  void interrupt() const { ::kill(id_, SIGINT); }

  Outcome wait() {
    int status = 0;
    EXPECT_EQ(::waitpid(id_, &status, 0), id_);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read(folder_ / "out"),
            read(folder_ / "err")};
  }

 private:
  TemporaryDirectory folder_;
  pid_t id_ = -1;
};

Outcome quire(std::vector<std::string> arguments, const fs::path& input = "/dev/null") {
  return Process(std::move(arguments), input).wait();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Where it does not matter what is read: a model of random weights, and a page that it reads in no time.
constexpr const char* kTiny = "tests/golden/tiny-a";
constexpr const char* kStamp = "tests/golden/pages/stamp.png";

// Edits from one text to the other, as a share of the first.
double character_error_rate(const std::string& expected, const std::string& actual) {
  std::vector<std::size_t> row(actual.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= expected.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j < row.size(); ++j) {
      const std::size_t substituted = diagonal + (expected[i - 1] != actual[j - 1]);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return static_cast<double>(row.back()) / static_cast<double>(expected.size());
}

class Sample : public ::testing::TestWithParam<std::string> {};

// The committed model makes at most two errors on a sample; the limit leaves room for another order of
// summation, not for another reading.
void expect_read(fs::path page, const std::string& text) {
  EXPECT_LT(character_error_rate(read(page.replace_extension(".md")), text), 0.03) << text;
}

// Those that no test of Parse reads whole.
TEST_P(Sample, IsRead) {
  const Outcome run = quire({"parse", "samples/" + GetParam()});
  EXPECT_EQ(run.code, 0) << run.err;
  expect_read("samples/" + GetParam(), run.out);
}
INSTANTIATE_TEST_SUITE_P(All, Sample, ::testing::Values("article.png", "scan.jpg"),
                         [](const auto& sample) { return sample.param.substr(0, sample.param.find('.')); });

TEST(CommandLine, TellsItsVersion) {
  const Outcome run = quire({"--version"});
  EXPECT_EQ(run.code, 0);
  EXPECT_EQ(run.out, "quire " QUIRE_VERSION "\n");
}

TEST(CommandLine, HelpGoesToStandardOutput) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"parse", "--help"}, {"inspect", "--help"}}) {
    const Outcome run = quire(arguments);
    EXPECT_EQ(run.code, 0);
    EXPECT_THAT(run.out, HasSubstr("quire"));
    EXPECT_THAT(run.err, IsEmpty());
  }
}

TEST(CommandLine, WrongUsageIsOneLineAndCode2) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"unknown"},
                                                    {"parse"},
                                                    {"parse", "x.png", "--format", "docx"},
                                                    {"parse", "x.png", "--dpi", "many"},
                                                    {"parse", "x.png", "--pages", "3-1"},
                                                    {"parse", "x.png", "--max-tokens", "0"},
                                                    {"parse", "x.png", "--dpi", "nan"},
                                                    {"parse", "x.png", "--max-seconds", "nan"},
                                                    {"parse", "x.png", "--no-such-option"},
                                                    {"parse", "x.png", "--model", "no/such/model"},
                                                    {"parse", "samples/letter.png", "--draft", "no/such"},
                                                    {"parse", "samples/letter.png", "--draft", "samples"},
                                                    {"inspect", "no/such/model"},
                                                    {"inspect", "--pages", "samples"},
                                                    {"inspect", "--drafter", "models/quire-mini-dflash2"},
                                                    {"inspect", "--drafter", "no/such", "--pages", "samples"},
                                                    {"bench"},
                                                    {"bench", "--spec", "--pages", "samples"},
                                                    {"bench", "--spec", "--draft", "no/such/drafter"}}) {
    const Outcome run = quire(arguments);
    EXPECT_EQ(run.code, 2) << run.err;
    EXPECT_THAT(run.out, IsEmpty());
    ASSERT_EQ(lines_of(run.err).size(), 1U) << run.err;
    EXPECT_THAT(run.err, StartsWith("quire: "));
  }
}

// A command line for the shell, `quire` standing for the program.
ChildResult shell(const std::string& line) {
  return run_child("/bin/sh", {"-c", "quire() { " QUIRE_BINARY " \"$@\"; }; " + line}, {});
}

TEST(CommandLine, OutputThatCannotBeWrittenIsCode2) {
  const std::string parse = fmt::format("parse {} --model {}", kStamp, kTiny);
  for (const std::string& command :
       {std::string("--version"), std::string("--help"), std::string("parse --help"), std::string("inspect"),
        std::string("inspect --tensors"), parse}) {
    for (const char* output : {" >/dev/full", " >&-"}) {
      const ChildResult run = shell("quire " + command + output);
      EXPECT_EQ(run.end, ChildEnd::exited);
      EXPECT_EQ(run.status, 2) << command << output;
      EXPECT_THAT(run.errors, HasSubstr("quire: ")) << command << output;
    }
  }
}

TEST(CommandLine, ErrorsThatCannotBeToldDoNotMatter) {
  const std::string parse = fmt::format("quire parse {} --model {}", kStamp, kTiny);
  const std::string text = shell(parse).output;
  EXPECT_THAT(text, Not(IsEmpty()));
  for (const char* errors : {" 2>/dev/full", " 2>&-"}) {
    const ChildResult run = shell(parse + errors);
    EXPECT_EQ(run.status, 0);
    EXPECT_EQ(run.output, text);
    EXPECT_EQ(shell(std::string("quire parse --unknown") + errors).status, 2);
  }
}

TEST(CommandLine, ClosedStreamsDoNotMixWithFiles) {
  const TemporaryDirectory folder;
  const std::string out = folder / "out";
  EXPECT_EQ(shell("quire parse tests/golden/pages/notice.png -o " + out + " <&- >&- 2>&-").status, 0);
  EXPECT_THAT(read(folder / "out/notice.md"), HasSubstr("The reading room opens at nine."));
  EXPECT_EQ(read_json(folder / "out/notice.json")["totals"]["ok"], 1);
}

TEST(CommandLine, AModelThatIsNotThereIsNamed) {
  EXPECT_THAT(quire({"parse", "samples/letter.png", "--model", "no/such/model"}).err,
              HasSubstr("no/such/model"));
}

TEST(Inspect, TellsWhatTheModelIs) {
  const Outcome run = quire({"inspect", "models/quire-mini"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("12 layers (9 linear attention, 3 full attention)"));
  EXPECT_THAT(run.out, HasSubstr("4,096 entries"));
  EXPECT_THAT(run.out, HasSubstr("of keys and values a token, "));
  EXPECT_THAT(run.out, HasSubstr(" times the bare states)"));
}

TEST(Inspect, ListsTensors) {
  const Outcome run = quire({"inspect", "--tensors", "models/quire-mini"});
  EXPECT_EQ(run.code, 0) << run.err;
  const Json index = read_json("models/quire-mini/model.safetensors.index.json");
  EXPECT_EQ(lines_of(run.out).size(), index["weight_map"].size());
}

// A wrong setting of the committed drafter is named.
TEST(Inspect, NamesTheFaultOfADrafter) {
  const TemporaryDirectory folder;
  const SmallPages model;
  const fs::path good = "models/quire-mini-dflash2";
  Json config = read_json(good / "config.json");
  config["dflash_config"]["mask_token_id"] = 4090;
  write(folder / "drafter/config.json", config.dump());
  fs::create_symlink(fs::absolute(good / "model.safetensors"), folder / "drafter/model.safetensors");
  const auto inspect = [&](const std::string& drafter) {
    return quire({"inspect", model.path(), "--drafter", drafter, "--pages", "samples/letter.png",
                  "samples/scan.jpg", "--max-tokens", "32", "--device", "cpu", "--json",
                  folder / "check.json"});
  };
  const Outcome found = inspect(folder / "drafter");
  EXPECT_EQ(found.code, 1) << found.err;
  EXPECT_THAT(found.out, HasSubstr("samples/scan.jpg\n"));
  EXPECT_THAT(lines_of(found.out).back(),
              AllOf(StartsWith("as configured "), HasSubstr("set dflash_config.mask_token_id to 4095")));
  const Json figures = read_json(folder / "check.json");
  EXPECT_EQ(figures["cause"], "mask token 4,095 (<|mask|>)");
  EXPECT_EQ(figures["verdict"], lines_of(found.out).back());
  EXPECT_EQ(figures["pages_read"], 2);
  const Json& configured = figures["variants"][0];
  EXPECT_EQ(configured["name"], "as configured");
  EXPECT_LT(configured["acceptance_length"]["value"], 3);
  EXPECT_EQ(configured["acceptance"].size(), 15);

  const Outcome fine = inspect(good);
  EXPECT_EQ(fine.code, 0) << fine.err;
  EXPECT_THAT(lines_of(fine.out).back(), StartsWith("nothing tested is clearly better than as configured, "));
  EXPECT_TRUE(read_json(folder / "check.json")["cause"].is_null());
}

TEST(Inspect, ADrafterOfAnotherModelIsAnError) {
  const TemporaryDirectory folder;
  write(folder / "text/notes.txt", "no picture");
  const auto error = [&](const char* field, const Json& value, const fs::path& pages) {
    Json config = read_json("models/quire-mini-dflash2/config.json");
    config[field] = value;
    write(folder / "drafter/config.json", config.dump());
    const Outcome run = quire({"inspect", "--drafter", folder / "drafter", "--pages", pages});
    EXPECT_EQ(run.code, 2);
    return run.err;
  };
  const fs::path page = "samples/letter.png";
  EXPECT_THAT(error("hidden_size", 512, page),
              HasSubstr("hidden_size is 512, the target model has 256: the "));
  EXPECT_THAT(error("vocab_size", 4095, page),
              HasSubstr("vocab_size is 4095, the target model has 4096: the "));
  EXPECT_THAT(error("hidden_size", 256, page), HasSubstr("no *.safetensors file"));
  fs::create_symlink(fs::absolute("models/quire-mini-dflash2/model.safetensors"),
                     folder / "drafter/model.safetensors");
  EXPECT_THAT(error("hidden_size", 256, folder / "text"), HasSubstr("text: no page that is not blank"));
}

TEST(Parse, StandardOutputHoldsOnlyMarkdown) {
  const Outcome run = quire({"parse", "samples/letter.png", "--timings"});
  EXPECT_EQ(run.code, 0);
  expect_read("samples/letter.png", run.out);
  EXPECT_THAT(run.out, Not(HasSubstr("tokens/s")));
  EXPECT_THAT(run.err, HasSubstr("samples/letter.png: decode image "));
  EXPECT_THAT(run.err, HasSubstr("all pages: decode image "));
  EXPECT_THAT(run.err, HasSubstr("1 page in "));
}

TEST(Parse, QuietSaysNothing) {
  const Outcome run = quire({"parse", kStamp, "--model", kTiny, "--quiet"});
  EXPECT_THAT(run.out, Not(IsEmpty()));
  EXPECT_THAT(run.err, IsEmpty());
}

TEST(Parse, FilesAreWritten) {
  const TemporaryDirectory folder;
  const Outcome run = quire({"parse", "samples/report.pdf", "-o", folder / "out"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, IsEmpty());
  expect_read("samples/report.pdf", read(folder / "out/report.md"));
  EXPECT_THAT(read(folder / "out/report.md"), HasSubstr("\n\n## What Should Be Done\n\n- "));
  const Json record = read_json(folder / "out/report.json");
  EXPECT_EQ(record["totals"]["ok"], 2);
  for (const Json& page : record["pages"]) {
    EXPECT_EQ(page["status"], "ok");
    EXPECT_EQ(page["finish_reason"], "stop");
    EXPECT_GT(page["tokens"], 50);
    EXPECT_GT(page["image_tokens"], 500);
    EXPECT_LT(page["mean_logprob"], 0);
    EXPECT_GT(page["mean_logprob"], -0.5);  // this page is easy
    EXPECT_LE(page["min_logprob"], page["mean_logprob"]);
    EXPECT_GT(page["seconds"]["decode"], 0);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "out"), fs::directory_iterator()), 2);
}

TEST(Parse, DraftsChangeNoText) {
  const TemporaryDirectory folder;
  for (const char* draft : {"none", "ngram", "auto"}) {
    const Outcome run =
        quire({"parse", "samples/invoice.png", "--device", "cpu", "--draft", draft, "-o", folder / draft});
    EXPECT_EQ(run.code, 0) << run.err;
    expect_read("samples/invoice.png", read(folder / draft / "invoice.md"));
    EXPECT_EQ(read(folder / draft / "invoice.md"), read(folder / "none/invoice.md")) << draft;
    const Json record = read_json(folder / draft / "invoice.json");
    EXPECT_EQ(record["totals"].contains("acceptance_length"), draft != std::string("none")) << draft;
  }
  EXPECT_THAT(quire({"parse", "samples/letter.png", "--draft", "no/such"}).err,
              HasSubstr("draft is no/such, where there is no drafter: expected none, auto, ngram, mtp or"));
}

TEST(Parse, PagesAreSelected) {
  const SmallPages model;
  const Outcome run = quire({"parse", "samples/report.pdf", "--model", model.path(), "--dpi", "72", "--pages",
                             "2-", "--max-tokens", "10", "--format", "json"});
  const Json record = parse_json(run.out, "standard output");
  ASSERT_EQ(record["pages"].size(), 1U);
  EXPECT_EQ(record["pages"][0]["page"], 2);
  EXPECT_THAT(record["pages"][0]["text"].get<std::string>(), StartsWith("## What Should Be Done"));
}

TEST(Parse, ReadsStandardInput) {
  const SmallPages model;
  for (const char* name : {"samples/scan.jpg", "samples/report.pdf"}) {
    const Outcome run = quire({"parse", "-", "--model", model.path(), "--dpi", "72", "--max-tokens", "10",
                               "--pages", "1", "--format", "json"},
                              name);
    EXPECT_EQ(run.code, 1) << run.err;  // ten tokens are not enough
    const Json record = parse_json(run.out, "standard output");
    EXPECT_EQ(record["input"]["path"], "stdin");
    EXPECT_EQ(record["pages"][0]["tokens"], 10);
    EXPECT_EQ(record["pages"][0]["status"], "truncated");
    EXPECT_EQ(record["pages"][0]["reason"], "length");
  }
}

TEST(Parse, BrokenFilesDoNotEndABatch) {
  const TemporaryDirectory folder;
  write(folder / "in/1 cut.jpg", read("samples/scan.jpg").substr(0, 300));
  write(folder / "in/2 empty.png", "");
  write(folder / "in/3 random.pdf", "%PDF-1.7\nrandom bytes");
  write(folder / "in/4 blank.bmp", bmp(300, 300, 0));
  write(folder / "in/5 notes.txt", "not a document");
  write(folder / "in/6 page.bin", read(kStamp));
  const Outcome run = quire({"parse", folder / "in", folder / "in/7 missing.png", "--model", kTiny, "-o",
                             folder / "out", "--max-tokens", "5"});
  EXPECT_EQ(run.code, 1);
  const auto status = [&](const std::string& name) {
    return read_json(folder / ("out/" + name + ".json"))["pages"][0]["status"].get<std::string>();
  };
  EXPECT_EQ(status("1 cut"), "failed");
  EXPECT_EQ(status("2 empty"), "failed");
  EXPECT_EQ(status("3 random"), "failed");
  EXPECT_EQ(status("4 blank"), "blank");
  EXPECT_EQ(status("6 page"), "truncated");
  EXPECT_EQ(status("7 missing"), "failed");
  EXPECT_FALSE(fs::exists(folder / "out/5 notes.json"));
  EXPECT_THAT(run.err, HasSubstr("quire: " + (folder / "in/2 empty.png").string() + ": is empty\n"));
  EXPECT_THAT(run.err, HasSubstr("1 blank, 1 truncated, 4 failed"));
}

TEST(Parse, NothingToDoIsCode2) {
  const TemporaryDirectory folder;
  write(folder / "notes.txt", "not a document");
  const Outcome run = quire({"parse", folder.path()});
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("no picture or PDF"));
}

TEST(Parse, OutputsOfOneNameAreKeptApart) {
  const TemporaryDirectory folder;
  write(folder / "a.png", read(kStamp));
  write(folder / "a.bmp", bmp(300, 300, 0));
  quire({"parse", folder / "a.png", folder / "a.bmp", "--model", kTiny, "-o", folder / "out", "--max-tokens",
         "3"});
  EXPECT_TRUE(fs::exists(folder / "out/a.png.md"));
  EXPECT_TRUE(fs::exists(folder / "out/a.bmp.md"));
}

TEST(Parse, AnInterruptLeavesFinishedPages) {
  const TemporaryDirectory folder;
  write(folder / "many.pdf", testing::pdf(100));
  Process process({"parse", folder / "many.pdf", "-o", folder / "out", "--max-tokens", "1"});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!fs::exists(folder / "out/many.quire/000002.json") && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  process.interrupt();
  const Outcome run = process.wait();
  EXPECT_EQ(run.code, 130) << run.err;
  EXPECT_THAT(run.err, HasSubstr("quire: interrupted: "));
  EXPECT_EQ(read_json(folder / "out/many.quire/000001.json")["page"], 1);
  EXPECT_FALSE(fs::exists(folder / "out/many.md"));
}

// A drafter for it: few drafts are right.
constexpr int kDrafted = 144, kBlock = 4;

TEST(Parse, RecordsTellWhatBecameOfDrafts) {
  const TemporaryDirectory folder;
  write_drafter(folder / "drafter", kTiny, kDrafted, kBlock);
  const Outcome run =
      quire({"parse", kStamp, "--model", kTiny, "--draft", folder / "drafter", "--switch", "window=4",
             "--max-tokens", "20", "--timings", "--device", "cpu", "-o", folder / "out"});
  const Json record = read_json(folder / "out/stamp.json");
  const Json& page = record["pages"][0];
  EXPECT_GT(page["draft_steps"], 10) << run.err;
  EXPECT_GE(page["acceptance_length"], 1);
  EXPECT_EQ(page["acceptance"].size(), kBlock - 1);
  EXPECT_EQ(record["totals"]["acceptance"], page["acceptance"]);
  EXPECT_GT(page["seconds"]["steps"], 0);
  EXPECT_THAT(run.err, HasSubstr("all pages: decode image "));
  EXPECT_THAT(run.err, HasSubstr(" tokens, drafts accepted "));
  EXPECT_THAT(run.err, HasSubstr(" tokens a step\n"));
}

TEST(Bench, ReadsPagesWithDraftsAndWithout) {
  const TemporaryDirectory folder;
  write_drafter(folder / "drafter", kTiny, kDrafted, kBlock);
  const Outcome run =
      quire({"bench", "--spec", "--model", kTiny, "--draft", folder / "drafter", "--pages",
             "tests/golden/pages/stamp.png", "tests/golden/pages/label.png", "tests/golden/pages/notice.png",
             "--max-tokens", "60", "--device", "cpu", "--json", folder / "spec.json"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("3 pages, 3 texts equal; "));
  const Json figures = read_json(folder / "spec.json");
  EXPECT_EQ(figures["window"], kBlock);
  EXPECT_EQ(figures["equal_texts"], 3);
  double steps = 0, tokens = 0, least = 100, most = 0;
  for (const Json& page : figures["pages"]) {
    EXPECT_EQ(page["equal"], true);
    EXPECT_EQ(page["drafted"].size(), kBlock - 1);
    steps += page["draft_steps"].get<double>();
    tokens += page["draft_tokens"].get<double>();
    least = std::min(least, page["acceptance_length"].get<double>());
    most = std::max(most, page["acceptance_length"].get<double>());
    // A step is one token and the drafts that were accepted.
    const auto accepted = page["accepted"].get<std::vector<int>>();
    EXPECT_EQ(page["draft_tokens"],
              page["draft_steps"].get<int>() + std::accumulate(accepted.begin(), accepted.end(), 0));
  }
  EXPECT_GT(tokens, steps);
  const Json& length = figures["acceptance_length"];
  EXPECT_NEAR(length["value"].get<double>(), tokens / steps, 1e-9);
  EXPECT_GE(length["low"], least);
  EXPECT_LE(length["high"], most);
  EXPECT_LT(length["low"], length["high"]);
  for (const char* name : {"plain_tokens_per_second", "tokens_per_second", "speedup"}) {
    EXPECT_GT(figures[name]["low"], 0) << name;
    EXPECT_LE(figures[name]["low"], figures[name]["value"]) << name;
    EXPECT_LE(figures[name]["value"], figures[name]["high"]) << name;
  }
}

TEST(Bench, DrawnTextsAreThoseOfPlainDecodingToo) {
  const TemporaryDirectory folder;
  write_drafter(folder / "drafter", kTiny, kDrafted, kBlock);
  const Outcome run = quire({"bench", "--spec", "--model", kTiny, "--draft", folder / "drafter", "--pages",
                             "tests/golden/pages/stamp.png", "--max-tokens", "60", "--temperature", "0.7",
                             "--window", "3", "--device", "cpu", "--json", folder / "spec.json"});
  EXPECT_EQ(run.code, 0) << run.out << run.err;
  const Json figures = read_json(folder / "spec.json");
  EXPECT_EQ(figures["window"], 3);
  EXPECT_EQ(figures["equal_texts"], 1);
  EXPECT_TRUE(figures["acceptance_length"]["low"].is_null());  // one page says nothing of others
}

TEST(Bench, TellsWhatAStepCostsTheHost) {
  const TemporaryDirectory folder;
  std::vector<std::string> command = {
      "bench", "--metadata", "--model", kTiny,     "--device", "cpu",    "--batch",
      "1,8",   "--context",  "64",      "--steps", "4",        "--json", folder / "metadata.json"};
  const Outcome run = quire(command);
  EXPECT_EQ(run.code, 0) << run.err;
  const Json figures = read_json(folder / "metadata.json");
  ASSERT_EQ(figures["rows"].size(), 2U);
  for (const char* kind : {"same_batch", "new_batch"}) {
    const Json& row = figures["rows"][1][kind];
    EXPECT_GT(row["host_us"], 0);
    for (const char* count : {"launches", "copies", "waits"}) EXPECT_EQ(row[count], 0) << count;  // of a CPU
  }
  // Figures of whole steps are not for this table.
  write(folder / "rival.json", R"({"shape": "", "batch": 1, "context": 64, "ms_per_step": 3})");
  command.insert(command.end(), {"--rival", folder / "rival.json"});
  EXPECT_THAT(quire(command).err, HasSubstr("a line without shape, batch, context, host_us_per_step"));
  write(folder / "rival.json", R"({"shape": "", "batch": 1, "context": 64, "host_us_per_step": 2900.5,)"
                               R"( "gpu_us_per_step": null})");
  EXPECT_THAT(quire(command).out, HasSubstr("  2900.5 null\n"));
}

}  // namespace
}  // namespace quire
