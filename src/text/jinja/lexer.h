// Cuts a template into text, tags and the tokens inside tags, white space already removed as
// trim_blocks=True, lstrip_blocks=True and the signs - and + say.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire::jinja {

struct Token {
  enum class Kind {
    text,
    block_begin,
    block_end,
    print_begin,
    print_end,
    name,
    string,
    integer,
    number,
    op,
    end
  };
  Kind kind = Kind::end;
  std::string text;  // of a string: its value
  int line = 1;
};

// The tokens, the last of kind `end`. `source` is valid UTF-8.
// Throws Error{invalid_input} naming the line.
std::vector<Token> tokenize(std::string_view source);

}  // namespace quire::jinja
