// The pages of a document as one Markdown text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "doc/record.h"

namespace quire {

// "<!-- text -->" with a text from anywhere: one line of UTF-8 without "--", at which comments end.
std::string markdown_comment(std::string_view text);

// One page: its text, then, when it is not ok, a comment that says so, so that no page vanishes silently:
// "<!-- page 3 failed: reason -->". Ends in a line break.
std::string page_markdown(const PageRecord& page);

// All pages, a blank line between two.
std::string stitch(const std::vector<PageRecord>& pages);

}  // namespace quire
