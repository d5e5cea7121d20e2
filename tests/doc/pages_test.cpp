#include "doc/pages.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "doc/documents.h"
#include "quire/quire.h"
#include "temporary_directory.h"

namespace quire {
namespace {

using testing::bmp;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::pdf;
using testing::write;

std::vector<Page> read_all(std::vector<Input> inputs, PageOptions options = {}) {
  PageStream stream(std::move(inputs), std::move(options));
  std::vector<Page> pages;
  while (std::optional<Page> page = stream.next()) pages.push_back(std::move(*page));
  return pages;
}

TEST(NaturalOrder, DigitsAreNumbers) {
  std::vector<std::string> names = {"page10.png", "page2.png", "page1.png", "Page3.png", "page02.png", "a"};
  std::sort(names.begin(), names.end(), natural_less);
  EXPECT_THAT(names, ElementsAre("Page3.png", "a", "page1.png", "page02.png", "page2.png", "page10.png"));
  EXPECT_FALSE(natural_less("x1", "x1"));
  EXPECT_TRUE(natural_less("x", "x1"));
  EXPECT_TRUE(natural_less("9", "10000000000000000000000000"));
}

TEST(PageRanges, AreRead) {
  EXPECT_THAT(parse_page_ranges("1-3,7"), ElementsAre(PageRange{1, 3}, PageRange{7, 7}));
  EXPECT_THAT(parse_page_ranges("10-"), ElementsAre(PageRange{10, INT_MAX}));
}

TEST(PageRanges, NonsenseIsRefused) {
  for (const char* text : {"", "0", "3-1", "a", "1,,2", "1-2-3", "-3", "1 - 2", "99999999999", ","})
    EXPECT_THROW(parse_page_ranges(text), Error) << text;
}

TEST(Inputs, AFolderGivesItsDocuments) {
  const TemporaryDirectory folder;
  write(folder / "p10.bmp", bmp(8, 8, 2));
  write(folder / "p2.bmp", bmp(8, 8, 2));
  write(folder / "no-extension", bmp(8, 8, 2));
  write(folder / "broken.PDF", "");
  write(folder / "notes.txt", "text");
  write(folder / ".hidden.png", bmp(8, 8, 2));
  write(folder / "deeper/p1.bmp", bmp(8, 8, 2));
  std::filesystem::create_symlink("nowhere", folder / "q-gone.png");
  ASSERT_EQ(::mkfifo((folder / "pipe.png").c_str(), 0600), 0);
  std::vector<std::string> skipped, names;
  for (const Input& input :
       list_inputs({folder.path().string()}, [&](const auto& n) { skipped.push_back(n); }))
    names.push_back(input.path.filename());
  EXPECT_THAT(names, ElementsAre("broken.PDF", "no-extension", "p2.bmp", "p10.bmp", "q-gone.png"));
  EXPECT_THAT(skipped, ElementsAre((folder / "notes.txt").string(), (folder / "pipe.png").string()));
}

TEST(Inputs, FilesAreTakenAsTheyAreNamed) {
  const auto inputs = list_inputs({"-", "/nowhere/at/all.png"}, [](const auto&) { FAIL(); });
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[0].name, "stdin");
  EXPECT_EQ(inputs[1].name, "/nowhere/at/all.png");
}

TEST(Ink, IsWhatStandsOutFromThePaper) {
  Image image{.width = 10, .height = 10, .rgb = std::vector<std::uint8_t>(300, 240)};
  EXPECT_TRUE(measure_ink(image).uniform);
  EXPECT_EQ(measure_ink(image).share, 0);
  for (std::size_t i = 0; i < 30; ++i) image.rgb[i] = 20;
  EXPECT_FALSE(measure_ink(image).uniform);
  EXPECT_DOUBLE_EQ(measure_ink(image).share, 0.1);
}

TEST(Ink, WhiteOnBlackCountsToo) {
  Image image{.width = 10, .height = 10, .rgb = std::vector<std::uint8_t>(300, 0)};
  EXPECT_TRUE(measure_ink(image).uniform);
  for (std::size_t i = 0; i < 15; ++i) image.rgb[i] = 255;
  EXPECT_DOUBLE_EQ(measure_ink(image).share, 0.05);
}

TEST(Ink, EdgesBoundTheTextAPageCanHold) {
  Image image{.width = 100, .height = 10, .rgb = std::vector<std::uint8_t>(3000, 255)};
  for (std::size_t y = 0; y < 10; ++y)
    for (std::size_t c = 0; c < 3; ++c) image.rgb[300 * y + 150 + c] = 0;  // one stroke, one pixel wide
  EXPECT_EQ(measure_ink(image).edges, 20);  // each row: into the stroke, and out of it
  EXPECT_TRUE(measure_ink(image).can_hold(2));
  EXPECT_FALSE(measure_ink(image).can_hold(3));
}

TEST(Ink, ASpeckIsEnoughNotToBeUniform) {
  Image image{.width = 100, .height = 100, .rgb = std::vector<std::uint8_t>(30000, 255)};
  image.rgb[15001] = 240;
  EXPECT_FALSE(measure_ink(image).uniform);
  image.rgb[15001] = 250;  // the noise of a JPEG
  EXPECT_TRUE(measure_ink(image).uniform);
}

TEST(PageStream, GivesPagesInOrderWithWhatTheyAre) {
  const TemporaryDirectory folder;
  write(folder / "a.bmp", bmp(16, 8, 4));
  write(folder / "b.bmp", bmp(8, 24, 0));
  const auto pages = read_all({{"a.bmp", folder / "a.bmp"}, {"b.bmp", folder / "b.bmp"}});
  ASSERT_EQ(pages.size(), 2U);
  EXPECT_EQ(pages[0].input, 0U);
  EXPECT_EQ(pages[0].number, 1);
  EXPECT_EQ(pages[0].image.width, 16);
  EXPECT_DOUBLE_EQ(pages[0].ink.share, 0.25);
  EXPECT_EQ(pages[0].input_hash, content_hash(bmp(16, 8, 4)));
  EXPECT_EQ(pages[1].input, 1U);
  EXPECT_EQ(pages[1].image.height, 24);
  EXPECT_TRUE(pages[1].ink.uniform);
}

TEST(PageStream, OneBadInputDoesNotTouchTheOthers) {
  const TemporaryDirectory folder;
  write(folder / "empty.png", "");
  write(folder / "text.pdf", "no PDF at all");
  write(folder / "cut.bmp", bmp(16, 16, 4).substr(0, 40));
  write(folder / "good.bmp", bmp(16, 16, 4));
  const auto pages = read_all({{"empty.png", folder / "empty.png"},
                               {"missing.png", folder / "missing.png"},
                               {"text.pdf", folder / "text.pdf"},
                               {"cut.bmp", folder / "cut.bmp"},
                               {"folder", folder.path()},
                               {"good.bmp", folder / "good.bmp"}});
  ASSERT_EQ(pages.size(), 6U);
  EXPECT_EQ(pages[0].error, "is empty");
  EXPECT_THAT(pages[1].error, HasSubstr("No such file"));
  EXPECT_THAT(pages[2].error, HasSubstr("neither a picture"));
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_FALSE(pages[i].error.empty()) << i;
    EXPECT_THAT(pages[i].error, ::testing::Not(HasSubstr("good.bmp"))) << i;
  }
  EXPECT_EQ(pages[5].error, "");
  EXPECT_EQ(pages[5].image.width, 16);
}

TEST(PageStream, PdfPagesAreNumberedAndSelected) {
  const TemporaryDirectory folder;
  write(folder / "five.pdf", pdf(5));
  PageOptions options;
  options.ranges = {{4, INT_MAX}, {2, 2}};
  options.max_pixels = 100'000;
  const auto pages = read_all({{"five.pdf", folder / "five.pdf"}}, options);
  ASSERT_EQ(pages.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(pages[i].error, "");
    EXPECT_EQ(pages[i].number, (std::array{2, 4, 5})[i]);
    EXPECT_EQ(pages[i].pages, 3);
    EXPECT_LE(pages[i].image.width * pages[i].image.height, 100'000);
    EXPECT_GT(pages[i].image.width * pages[i].image.height, 90'000);
    EXPECT_NEAR(pages[i].ink.share, 2500.0 / 14000, 0.02);
  }
}

TEST(PageStream, SelectingNothingIsAnError) {
  const TemporaryDirectory folder;
  write(folder / "a.bmp", bmp(16, 8, 4));
  PageOptions options;
  options.ranges = {{2, 3}};
  const auto pages = read_all({{"a.bmp", folder / "a.bmp"}}, options);
  ASSERT_EQ(pages.size(), 1U);
  EXPECT_EQ(pages[0].number, 0);
  EXPECT_THAT(pages[0].error, HasSubstr("has 1 page"));
}

TEST(PageStream, TheTotalBecomesExact) {
  const TemporaryDirectory folder;
  write(folder / "five.pdf", pdf(5));
  write(folder / "a.bmp", bmp(16, 8, 4));
  PageStream stream({{"five.pdf", folder / "five.pdf"}, {"a.bmp", folder / "a.bmp"}}, {});
  EXPECT_TRUE(stream.next());
  EXPECT_EQ(stream.total().pages, 6);
  EXPECT_FALSE(stream.total().exact);  // the reader is at most two pages ahead
  while (stream.next()) {
  }
  EXPECT_EQ(stream.total().pages, 6);
  EXPECT_TRUE(stream.total().exact);
}

TEST(PageStream, CanBeLeftAtAnyTime) {
  const TemporaryDirectory folder;
  write(folder / "many.pdf", pdf(200));
  PageStream stream({{"many.pdf", folder / "many.pdf"}}, {});
  EXPECT_TRUE(stream.next());
  std::stop_source source;
  source.request_stop();
  EXPECT_FALSE(stream.next(source.get_token()));
}

TEST(PageStream, APipeThatNobodyWritesToDoesNotHoldUpTheEnd) {
  const TemporaryDirectory folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  PageStream stream({{"pipe", folder / "pipe"}}, {});
  std::stop_source source;
  source.request_stop();
  EXPECT_FALSE(stream.next(source.get_token()));
}

TEST(PageStream, APipeIsReadToItsEnd) {
  const TemporaryDirectory folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  PageStream stream({{"pipe", folder / "pipe"}}, {});
  write(folder / "pipe", bmp(16, 8, 4));
  const std::optional<Page> page = stream.next();
  ASSERT_TRUE(page);
  EXPECT_EQ(page->error, "");
  EXPECT_EQ(page->image.width, 16);
}

TEST(PageStream, AnEndlessDeviceIsNoDocument) {
  const auto pages = read_all({{"/dev/zero", "/dev/zero"}});
  ASSERT_EQ(pages.size(), 1U);
  EXPECT_THAT(pages[0].error, HasSubstr("neither a picture"));
}

TEST(PageStream, NoInputsNoPages) {
  EXPECT_THAT(read_all({}), IsEmpty());
}

TEST(ContentHash, IsThatOfXxhsum) {
  EXPECT_EQ(content_hash(""), "99aa06d3014798d86001c324468d497f");
  const TemporaryDirectory folder;
  const std::string content(3'000'000, 'x');
  write(folder / "x", content);
  EXPECT_EQ(file_hash(folder / "x"), content_hash(content));
  EXPECT_THROW(file_hash(folder / "y"), Error);
}

}  // namespace
}  // namespace quire
