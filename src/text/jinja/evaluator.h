// Renders a parsed template.
#pragma once

#include <string>

#include "text/jinja/syntax.h"

namespace quire::jinja {

// The text of the template on `variables`, a mapping. Ends after bounded time, memory and depth.
// Throws Error{invalid_input | unsupported | limit_exceeded} naming the line.
std::string render(const Block& block, const Value& variables);

}  // namespace quire::jinja
