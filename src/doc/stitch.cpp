#include "doc/stitch.h"

#include "core/error.h"
#include "text/unicode/unicode.h"

namespace quire {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view without_outer_space(std::string_view text) {
  const std::size_t first = text.find_first_not_of("\r\n");  // spaces may indent the first line
  if (first == std::string_view::npos) return {};
  text.remove_prefix(first);
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

std::string status_comment(const PageRecord& page) {
  std::string text = page.page > 0 ? fmt::format("page {} {}", page.page, to_string(page.status))
                                   : std::string(to_string(page.status));
  if (!page.reason.empty()) text += ": " + page.reason;
  return markdown_comment(text);
}

}  // namespace

std::string markdown_comment(std::string_view text) {
  std::string line = replace_invalid_utf8(one_line(text));
  for (std::size_t at; (at = line.find("--")) != std::string::npos;) line.replace(at, 2, "- -");
  return "<!-- " + line + " -->";
}

std::string page_markdown(const PageRecord& page) {
  std::string markdown(without_outer_space(page.text));
  if (page.status != PageStatus::ok) {
    if (!markdown.empty()) markdown += "\n\n";
    markdown += status_comment(page);
  }
  return markdown + "\n";
}

std::string stitch(const std::vector<PageRecord>& pages) {
  std::string markdown;
  for (const PageRecord& page : pages) {
    if (!markdown.empty()) markdown += '\n';
    markdown += page_markdown(page);
  }
  return markdown;
}

}  // namespace quire
