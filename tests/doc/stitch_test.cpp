#include "doc/stitch.h"

#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/json.h"

namespace quire {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

PageRecord page(int number, PageStatus status, std::string text, std::string reason = "") {
  PageRecord record;
  record.page = number;
  record.status = status;
  record.text = std::move(text);
  record.reason = std::move(reason);
  return record;
}

TEST(Stitch, ABlankLineStandsBetweenPages) {
  EXPECT_EQ(stitch({page(1, PageStatus::ok, "# One\n\ntext \n\n"), page(2, PageStatus::ok, "\n\n    code")}),
            "# One\n\ntext\n\n    code\n");
}

TEST(Stitch, NoPageVanishesSilently) {
  EXPECT_EQ(
      stitch({page(1, PageStatus::ok, "one"), page(2, PageStatus::failed, "", "PNG: cut off"),
              page(3, PageStatus::truncated, "three", "length"), page(4, PageStatus::blank, "", "uniform")}),
      "one\n\n<!-- page 2 failed: PNG: cut off -->\n\nthree\n\n<!-- page 3 truncated: length -->\n\n"
      "<!-- page 4 blank: uniform -->\n");
}

TEST(Stitch, AReasonCannotEndTheComment) {
  EXPECT_EQ(page_markdown(page(0, PageStatus::failed, "", "file--> <b>\n---x")),
            "<!-- failed: file- -> <b>; - - -x -->\n");
}

TEST(Stitch, NothingGivesNothing) {
  EXPECT_EQ(stitch({}), "");
}

DocumentRecord document() {
  DocumentRecord d;
  d.input = "report.pdf";
  d.input_hash = "00ff";
  d.input_bytes = 123;
  d.run = {"models/quire-mini", "aa", "bb"};
  d.pages = {page(1, PageStatus::ok, "one"), page(2, PageStatus::failed, "", "broken")};
  d.pages[0].finish_reason = "stop";
  d.pages[0].tokens = 7;
  d.pages[0].mean_logprob = -0.25;
  d.pages[0].min_logprob = -3.5;
  d.pages[0].seconds.vision = 0.5;
  d.pages[0].seconds.decode = 0.25;
  d.pages[0].seconds.steps = 0.125;
  d.pages[1].seconds.decode_image = 0.25;
  return d;
}

TEST(Record, HoldsWhatIsKnownOfEachPage) {
  const Json json = parse_json(to_json(document(), false, false), "record");
  EXPECT_EQ(json["schema"], kRecordSchema);
  EXPECT_EQ(json["input"]["path"], "report.pdf");
  EXPECT_EQ(json["input"]["xxh3_128"], "00ff");
  EXPECT_EQ(json["options_xxh3_128"], "bb");
  const Json& one = json["pages"][0];
  EXPECT_EQ(one["status"], "ok");
  EXPECT_EQ(one["finish_reason"], "stop");
  EXPECT_EQ(one["mean_logprob"], -0.25);
  EXPECT_FALSE(one.contains("reason"));
  EXPECT_FALSE(one.contains("text"));
  const Json& two = json["pages"][1];
  EXPECT_EQ(two["reason"], "broken");
  EXPECT_FALSE(two.contains("mean_logprob"));  // the model was not asked
  EXPECT_EQ(json["totals"]["pages"], 2);
  EXPECT_EQ(json["totals"]["ok"], 1);
  EXPECT_EQ(json["totals"]["failed"], 1);
  EXPECT_EQ(json["totals"]["blank"], 0);
  EXPECT_EQ(json["totals"]["tokens"], 7);
  EXPECT_EQ(json["totals"]["seconds"]["vision"], 0.5);
  EXPECT_EQ(json["totals"]["seconds"]["decode_image"], 0.25);
  EXPECT_EQ(json["totals"]["seconds"]["steps"], 0.125);
  EXPECT_EQ(document().pages[0].seconds.total(), 0.75);  // steps are of decode
}

TEST(Record, AcceptanceLengthIsOfAllSteps) {
  DocumentRecord d = document();
  EXPECT_THAT(to_json(d, false, false), Not(HasSubstr("acceptance_length")));
  d.pages.push_back(d.pages[0]);
  d.pages[0].drafts = {.steps = 10, .tokens = 22, .drafted = {10, 8}, .accepted = {8, 4}};
  d.pages[2].drafts = {.steps = 30, .tokens = 38, .drafted = {20}, .accepted = {8}};
  const Json json = parse_json(to_json(d, false, false), "record");
  EXPECT_EQ(json["pages"][0]["acceptance_length"], 2.2);
  EXPECT_EQ(json["pages"][0]["acceptance"], Json({0.8, 0.5}));
  EXPECT_EQ(json["pages"][2]["acceptance"], Json::array({0.4}));
  EXPECT_EQ(json["pages"][0]["draft_steps"], 10);
  EXPECT_EQ(json["totals"]["acceptance_length"], 1.5);
  EXPECT_EQ(json["totals"]["acceptance"], Json({0.533333, 0.5}));
}

TEST(Record, OneLineIsOneLine) {
  const std::string line = to_json(document(), true, true);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  EXPECT_EQ(parse_json(line, "record")["pages"][0]["text"], "one");
}

TEST(Record, APageAloneSaysWhereItBelongs) {
  const DocumentRecord d = document();
  const Json json = parse_json(page_to_json(d, d.pages[0]), "page");
  EXPECT_EQ(json["input"]["xxh3_128"], "00ff");
  EXPECT_EQ(json["model"]["xxh3_128"], "aa");
  EXPECT_EQ(json["page"], 1);
  EXPECT_EQ(json["text"], "one");
}

TEST(Record, BytesThatAreNotUtf8AreReplaced) {
  DocumentRecord d = document();
  d.input = "caf\xe9.pdf";
  EXPECT_EQ(parse_json(to_json(d, false, false), "record")["input"]["path"], "caf\ufffd.pdf");
}

TEST(Record, LogProbabilitiesThatAreNotNumbersDoNotBreakTheFile) {
  DocumentRecord d = document();
  d.pages[0].min_logprob = -std::numeric_limits<double>::infinity();
  EXPECT_EQ(parse_json(to_json(d, false, false), "record")["pages"][0]["min_logprob"], 0);
}

}  // namespace
}  // namespace quire
