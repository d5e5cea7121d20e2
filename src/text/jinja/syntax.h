// The syntax tree of a template.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Expression {
  enum class Kind {
    constant,     // value
    name,         // text
    list,         // operands
    tuple,        // operands
    mapping,      // operands: key, value, key, value, ...
    attribute,    // operands[0].text
    item,         // operands[0][operands[1]]
    slice,        // operands[0][operands[1]:operands[2]:operands[3]], each but the first may be null
    call,         // operands[0](operands[1...], named...)
    filter,       // operands[0] | text(operands[1...], named...); operands[0] is null in {% set x | text %}
    test,         // operands[0] is text(operands[1...])
    unary,        // text operands[0], text one of + - not
    binary,       // operands[0] text operands[1], text one of + - * / // % and or
    concatenate,  // operands[0] ~ operands[1] ~ ...
    compare,      // operands[0] operators[0] operands[1] operators[1] operands[2] ...
    condition,    // operands[0] if operands[1] else operands[2], the last of which may be null
  };

  Kind kind = Kind::constant;
  int line = 1;
  int depth = 1;  // of the tree below
  std::string text;
  Value value;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> operators;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Statement {
  enum class Kind {
    text,     // text
    print,    // expression
    branch,   // one body for each condition, in order; a null condition is `else`
    loop,     // for targets in expression if condition: bodies[0], else bodies[1]
    assign,   // set targets = expression
    capture,  // set targets = bodies[0], through `expression` if it is a filter
    define,   // macro text(parameters): bodies[0]
    block,    // bodies[0], as it is
    break_loop,
    continue_loop,
  };

  Kind kind = Kind::text;
  int line = 1;
  std::string text;
  ExpressionPtr expression;
  std::vector<ExpressionPtr> conditions;
  std::vector<Block> bodies;
  std::vector<std::string> targets;  // names; of assign also "space.member"
  bool unpack = false;               // several targets, or one written as a tuple
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // and their defaults, or null
};

// Throws Error{invalid_input} for a syntax error, {unsupported} for a construct outside the subset,
// {limit_exceeded} for nesting that is too deep; each names the line.
Block parse(std::string_view source);

}  // namespace quire::jinja
