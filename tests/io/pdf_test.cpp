#include "io/pdf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model_directory.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A page's entries beside its type, parent and contents, and what it draws.
struct Page {
  std::string entries = "/MediaBox [0 0 200 100]";
  std::string drawing = "1 0 0 rg 0 0 50 50 re f";  // a red square in the lower left
};

std::string pdf(const std::vector<Page>& pages, bool with_xref = true) {
  std::string file = "%PDF-1.4\n", kids;
  std::vector<std::size_t> offsets;
  const auto object = [&](const std::string& body) {
    offsets.push_back(file.size());
    file += fmt::format("{} 0 obj\n{}\nendobj\n", offsets.size(), body);
  };
  for (std::size_t i = 0; i < pages.size(); ++i) kids += fmt::format("{} 0 R ", 3 + 2 * i);
  object("<< /Type /Catalog /Pages 2 0 R >>");
  object(fmt::format("<< /Type /Pages /Kids [{}] /Count {} >>", kids, pages.size()));
  for (const Page& page : pages) {
    object(
        fmt::format("<< /Type /Page /Parent 2 0 R {} /Contents {} 0 R >>", page.entries, offsets.size() + 2));
    object(fmt::format("<< /Length {} >>\nstream\n{}\nendstream", page.drawing.size(), page.drawing));
  }
  const std::size_t xref = file.size();
  if (with_xref) {
    file += fmt::format("xref\n0 {}\n0000000000 65535 f \n", offsets.size() + 1);
    for (const std::size_t offset : offsets) file += fmt::format("{:010} 00000 n \n", offset);
  }
  file += fmt::format("trailer\n<< /Size {} /Root 1 0 R >>\n", offsets.size() + 1);
  if (with_xref) file += fmt::format("startxref\n{}\n%%EOF\n", xref);
  return file;
}

class PdfTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& content, const std::string& name = "a.pdf") const {
    folder_.write(name, content);
    return folder_.path() / name;
  }
  Image render(const Page& page, const PdfOptions& options = {.dpi = 72}) const {
    return Pdf(write(pdf({page})), options).render(1);
  }
  std::string error(const std::string& content, const PdfOptions& options = {}) const {
    return error_of([&] { Pdf(write(content), options).render(1); });
  }

  TemporaryDirectory folder_;
};

bool is_red(const Image& image, int x, int y) {
  const std::uint8_t* pixel = image.rgb.data() + 3 * (std::ptrdiff_t{image.width} * y + x);
  return pixel[0] > 200 && pixel[1] < 50 && pixel[2] < 50;
}
bool is_white(const Image& image, int x, int y) {
  const std::uint8_t* pixel = image.rgb.data() + 3 * (std::ptrdiff_t{image.width} * y + x);
  return pixel[0] == 255 && pixel[1] == 255 && pixel[2] == 255;
}

TEST_F(PdfTest, RendersAtAResolution) {
  const Image image = render({}, {.dpi = 144});
  EXPECT_EQ(image.width, 400);
  EXPECT_EQ(image.height, 200);
  EXPECT_TRUE(is_red(image, 10, 190));
  EXPECT_TRUE(is_white(image, 10, 90));
  EXPECT_TRUE(is_white(image, 110, 190));
}

TEST_F(PdfTest, ChoosesTheLargestResolutionWithinThePixels) {
  const Image image = render({}, {.max_pixels = 50000});
  const std::int64_t pixels = std::int64_t{image.width} * image.height;
  EXPECT_LE(pixels, 50000);
  EXPECT_GT(pixels, 48000);
  const Image small = render({}, {.max_pixels = 100'000'000});
  EXPECT_EQ(small.width, 834) << "200 points at 300 dpi: no page is drawn finer";
  EXPECT_LE(render({}, {.dpi = 600, .max_pixels = 50000}).width, 320)
      << "the bound holds for a given dpi, too";
}

TEST_F(PdfTest, TurnsPagesAndCutsThemToTheCropBox) {
  const Image turned = render({.entries = "/MediaBox [0 0 200 100] /Rotate 90"});
  EXPECT_EQ(turned.width, 100);
  EXPECT_EQ(turned.height, 200);
  EXPECT_TRUE(is_red(turned, 10, 10)) << "clockwise: lower left comes to upper left";
  const Image cropped = render({.entries = "/MediaBox [0 0 200 100] /CropBox [25 0 125 100]"});
  EXPECT_EQ(cropped.width, 100);
  EXPECT_TRUE(is_red(cropped, 20, 90));
  EXPECT_TRUE(is_white(cropped, 30, 90));
}

TEST_F(PdfTest, RendersEachPage) {
  std::vector<Page> pages(5, Page{.entries = "/MediaBox [0 0 40 20]", .drawing = ""});
  pages[3].drawing = "1 0 0 rg 0 0 40 20 re f";
  const Pdf document(write(pdf(pages)), {.dpi = 72});
  ASSERT_EQ(document.pages(), 5);
  for (int page = 1; page <= 5; ++page) EXPECT_EQ(is_red(document.render(page), 20, 10), page == 4) << page;
  EXPECT_THAT(error_of([&] { document.render(6); }), HasSubstr("page 6 does not exist; the document has 5"));
  EXPECT_THAT(error_of([&] { document.render(0); }), StartsWith("invalid_input"));
}

TEST_F(PdfTest, TakesAnyFileName) {
  for (const char* name : {"with spaces.pdf", "-f", "é 文.pdf", "$(echo).pdf", "a'b\"c.pdf", "no-suffix"})
    EXPECT_EQ(Pdf(write(pdf({{}}), name), {}).pages(), 1) << name;
}

TEST_F(PdfTest, RepairsABrokenIndex) {
  EXPECT_TRUE(is_red(Pdf(write(pdf({{}}, false)), {.dpi = 72}).render(1), 10, 90));
}

TEST_F(PdfTest, BoundsOddPageSizes) {
  EXPECT_EQ(render({.entries = "/MediaBox [0 0 0 0]"}).width, 612) << "no area: poppler takes Letter";
  const Image giant = render({.entries = "/MediaBox [0 0 1000000000 500000000]"}, {.max_pixels = 10000});
  EXPECT_LE(giant.width * giant.height, 10000);
  EXPECT_GT(giant.width, 100);
  const Image thin = render({.entries = "/MediaBox [0 0 100000 1]"}, {.max_pixels = 10000});
  EXPECT_LE(thin.width * thin.height, 10000);
  EXPECT_THAT(error(pdf({{.entries = "/MediaBox [0 0 10000 10000]"}}), {.dpi = 600}),
              HasSubstr("lower --dpi"));
}

TEST_F(PdfTest, TellsWhyAFileIsNotUsable) {
  EXPECT_THAT(error("hello"), StartsWith("invalid_input"));
  EXPECT_THAT(error("hello"), HasSubstr("a.pdf: not a usable PDF: "));
  EXPECT_THAT(error(""), HasSubstr("empty"));
  EXPECT_THAT(error(pdf({})), HasSubstr("no pages"));
  EXPECT_EQ(error("hello").find('\n'), std::string::npos);
  EXPECT_THAT(error_of([&] { Pdf(folder_.path() / "none.pdf", {}); }), StartsWith("not_found"));
}

TEST_F(PdfTest, TellsThatAPasswordIsNeeded) {
  // Standard security, revision 2; the key entries are noise, so that no password fits.
  std::string file = pdf({{}});
  const std::string noise(32, 'x');
  const std::size_t at = file.find("/Root");
  file.insert(at, "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O (" + noise + ") /U (" + noise +
                      ") >> /ID [(0123456789abcdef) (0123456789abcdef)] ");
  EXPECT_THAT(error(file), HasSubstr("give its password with --password"));
  EXPECT_THAT(error(file, {.password = "secret"}), HasSubstr("the password given with --password is wrong"));
  EXPECT_THAT(error(file, {.password = std::string(33, 'p')}), HasSubstr("at most 32"));
}

TEST_F(PdfTest, StopsAtTheLimits) {
  // A drawing that takes minutes.
  Page slow{.drawing = "q 0 0 0 RG 50 w\n"};
  for (int i = 0; i < 40000; ++i) slow.drawing += "0 0 m 50 300 150 -300 200 100 c 10 90 190 -90 200 0 c s\n";
  const std::string message =
      error(pdf({slow}), {.dpi = 300, .limits = {.seconds = 0.5, .memory_bytes = std::size_t{4} << 30}});
  EXPECT_THAT(message, StartsWith("limit_exceeded"));
  EXPECT_THAT(message, HasSubstr("took more than 0.5 s"));
  const std::string memory =
      error(pdf({{.entries = "/MediaBox [0 0 3000 3000]"}}),
            {.dpi = 200, .limits = {.seconds = 60, .memory_bytes = std::size_t{150} << 20}});
  EXPECT_THAT(memory, StartsWith("limit_exceeded"));  // the bitmap alone takes 200 MB
  EXPECT_THAT(memory, HasSubstr("needs more than 150 MB"));
}

TEST(IsPdf, LooksIntoTheFirstKilobyte) {
  const auto is = [](const std::string& text) { return is_pdf(std::as_bytes(std::span(text))); };
  EXPECT_TRUE(is("%PDF-1.7\n"));
  EXPECT_TRUE(is(std::string(1000, ' ') + "%PDF-1.7"));
  EXPECT_FALSE(is(std::string(1020, ' ') + "%PDF-1.7"));
  EXPECT_FALSE(is("%PDF"));
  EXPECT_FALSE(is(""));
}

}  // namespace
}  // namespace quire
