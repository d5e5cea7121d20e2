#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "core/error.h"
#include "text/jinja/lexer.h"
#include "text/jinja/syntax.h"
#include "text/unicode/unicode.h"

namespace quire::jinja {
namespace {

// Of expressions and of statements: both are walked by recursion.
constexpr int kMaxNesting = 200;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block parse_template() { return parse_block({}); }

 private:
  using Kind = Expression::Kind;

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }

  bool is_op(std::string_view op, std::size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::op && peek(ahead).text == op;
  }
  bool is_name(std::string_view name, std::size_t ahead = 0) const {
    return peek(ahead).kind == Token::Kind::name && peek(ahead).text == name;
  }
  bool take_op(std::string_view op) { return is_op(op) && (next(), true); }
  bool take_name(std::string_view name) { return is_name(name) && (next(), true); }

  [[noreturn]] void refuse(std::string_view expected) const;
  [[noreturn]] void unsupported(std::string_view construct) const {
    fail(ErrorCode::unsupported, "chat template, line {}: {} is not supported", peek().line, construct);
  }
  void expect_op(std::string_view op) {
    if (!take_op(op)) refuse(fmt::format("\"{}\"", op));
  }
  std::string expect_name() {
    if (peek().kind != Token::Kind::name) refuse("a name");
    return next().text;
  }
  void expect_block_end() {
    if (peek().kind != Token::Kind::block_end) refuse("%}");
    next();
  }

  // Counts the recursion of the parser itself.
  struct Level {
    explicit Level(Parser& parser) : depth(parser.depth_) {
      if (++depth > kMaxNesting) parser.too_deep();
    }
    ~Level() { --depth; }
    int& depth;
  };
  [[noreturn]] void too_deep() const {
    fail(ErrorCode::limit_exceeded, "chat template, line {}: nested deeper than {} levels", peek().line,
         kMaxNesting);
  }

  ExpressionPtr make(Kind kind, std::string text = {}) const;
  void adopt(Expression& parent, ExpressionPtr operand) const;

  Block parse_block(std::initializer_list<std::string_view> ends);
  std::unique_ptr<Statement> parse_statement();
  void parse_branch(Statement& statement);
  void parse_loop(Statement& statement);
  void parse_set(Statement& statement);
  void parse_macro(Statement& statement);
  void parse_targets(Statement& statement, bool members);

  ExpressionPtr parse_expression();
  ExpressionPtr parse_tuple();
  ExpressionPtr parse_without_condition();
  ExpressionPtr parse_and();
  ExpressionPtr parse_not();
  ExpressionPtr parse_comparison();
  ExpressionPtr parse_sum();
  ExpressionPtr parse_concatenation();
  ExpressionPtr parse_product();
  ExpressionPtr parse_unary(bool with_filters);
  ExpressionPtr parse_primary();
  ExpressionPtr parse_parentheses();
  ExpressionPtr parse_mapping();
  ExpressionPtr parse_number();
  ExpressionPtr parse_postfix(ExpressionPtr node);
  ExpressionPtr parse_subscript(ExpressionPtr node);
  ExpressionPtr parse_filters(ExpressionPtr node);
  ExpressionPtr parse_filter(ExpressionPtr node);
  ExpressionPtr parse_test(ExpressionPtr node);
  void parse_arguments(Expression& call);
  template <typename Operand>
  ExpressionPtr parse_chain(std::initializer_list<std::string_view> ops, const Operand& operand);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;  // open around the current place
  bool in_macro_ = false;
};

void Parser::refuse(std::string_view expected) const {
  const Token& token = peek();
  const char* kind = token.kind == Token::Kind::end         ? "the end of the template"
                     : token.kind == Token::Kind::block_end ? "%}"
                     : token.kind == Token::Kind::print_end ? "}}"
                     : token.kind == Token::Kind::string    ? "a string"
                                                            : nullptr;
  const std::string found = kind ? kind : fmt::format("\"{}\"", token.text.substr(0, 40));
  fail(ErrorCode::invalid_input, "chat template, line {}: {} where {} was expected", token.line, found,
       expected);
}

ExpressionPtr Parser::make(Kind kind, std::string text) const {
  auto node = std::make_unique<Expression>();
  node->kind = kind;
  node->line = peek().line;
  node->text = std::move(text);
  return node;
}

void Parser::adopt(Expression& parent, ExpressionPtr operand) const {
  if (operand) parent.depth = std::max(parent.depth, operand->depth + 1);
  if (parent.depth > kMaxNesting) too_deep();
  parent.operands.push_back(std::move(operand));
}

// Statements up to a tag whose name is in `ends`, which is left to the caller from its name on.
Block Parser::parse_block(std::initializer_list<std::string_view> ends) {
  const Level level(*this);
  Block block;
  for (;;) {
    const Token& token = peek();
    auto statement = std::make_unique<Statement>();
    statement->line = token.line;
    if (token.kind == Token::Kind::end) {
      if (ends.size() > 0) refuse(fmt::format("{{% {} %}}", *(ends.end() - 1)));
      return block;
    }
    if (token.kind == Token::Kind::text) {
      statement->text = next().text;
    } else if (token.kind == Token::Kind::print_begin) {
      next();
      statement->kind = Statement::Kind::print;
      statement->expression = parse_tuple();
      if (peek().kind != Token::Kind::print_end) refuse("}}");
      next();
    } else {
      next();
      if (peek().kind != Token::Kind::name) refuse("the name of a tag");
      if (std::find(ends.begin(), ends.end(), peek().text) != ends.end()) return block;
      statement = parse_statement();
    }
    block.push_back(std::move(statement));
  }
}

std::unique_ptr<Statement> Parser::parse_statement() {
  auto statement = std::make_unique<Statement>();
  statement->line = peek().line;
  if (take_name("if")) {
    parse_branch(*statement);
  } else if (take_name("for")) {
    parse_loop(*statement);
  } else if (take_name("set")) {
    parse_set(*statement);
  } else if (take_name("macro")) {
    parse_macro(*statement);
  } else if (take_name("generation")) {  // marks what a model learns to write; nothing to render
    expect_block_end();
    statement->kind = Statement::Kind::block;
    statement->bodies.push_back(parse_block({"endgeneration"}));
    next();
  } else if (is_name("break") || is_name("continue")) {
    if (loops_ == 0) refuse("no break or continue outside a loop");
    statement->kind = next().text == "break" ? Statement::Kind::break_loop : Statement::Kind::continue_loop;
  } else {
    unsupported(fmt::format("the tag \"{}\"", peek().text));
  }
  expect_block_end();
  return statement;
}

void Parser::parse_branch(Statement& statement) {
  statement.kind = Statement::Kind::branch;
  for (bool more = true; more;) {
    statement.conditions.push_back(parse_tuple());
    expect_block_end();
    statement.bodies.push_back(parse_block({"elif", "else", "endif"}));
    more = take_name("elif");
  }
  if (take_name("else")) {
    expect_block_end();
    statement.conditions.push_back(nullptr);
    statement.bodies.push_back(parse_block({"endif"}));
  }
  next();
}

void Parser::parse_targets(Statement& statement, bool members) {
  const bool parentheses = take_op("(");
  do {
    if (statement.unpack && (is_name("in") || is_op("=") || is_op(")"))) break;  // after a trailing comma
    std::string name = expect_name();
    if (members && take_op(".")) name += "." + expect_name();
    statement.targets.push_back(std::move(name));
    if (is_op(",")) statement.unpack = true;
  } while (take_op(","));
  if (parentheses) expect_op(")");
}

void Parser::parse_loop(Statement& statement) {
  statement.kind = Statement::Kind::loop;
  parse_targets(statement, false);
  if (!take_name("in")) refuse("\"in\"");
  statement.expression = parse_without_condition();
  if (is_op(",")) unsupported("a loop over a tuple without parentheses");
  if (take_name("if")) statement.conditions.push_back(parse_expression());
  if (is_name("recursive")) unsupported("a recursive loop");
  expect_block_end();
  ++loops_;
  statement.bodies.push_back(parse_block({"else", "endfor"}));
  --loops_;
  statement.bodies.emplace_back();
  if (take_name("else")) {
    expect_block_end();
    statement.bodies.back() = parse_block({"endfor"});
  }
  next();
}

void Parser::parse_set(Statement& statement) {
  parse_targets(statement, true);
  if (take_op("=")) {
    statement.kind = Statement::Kind::assign;
    statement.expression = parse_tuple();
    return;
  }
  if (statement.unpack) refuse("\"=\"");
  statement.kind = Statement::Kind::capture;
  while (is_op("|")) statement.expression = parse_filter(std::move(statement.expression));
  expect_block_end();
  statement.bodies.push_back(parse_block({"endset"}));
  next();
}

void Parser::parse_macro(Statement& statement) {
  if (loops_ > 0 || in_macro_) unsupported("a macro inside a loop or a macro");
  statement.kind = Statement::Kind::define;
  statement.text = expect_name();
  expect_op("(");
  while (!take_op(")")) {
    if (!statement.parameters.empty()) {
      expect_op(",");
      if (take_op(")")) break;
    }
    std::string name = expect_name();
    statement.parameters.emplace_back(std::move(name), take_op("=") ? parse_expression() : nullptr);
  }
  expect_block_end();
  in_macro_ = true;
  statement.bodies.push_back(parse_block({"endmacro"}));
  in_macro_ = false;
  next();
}

// An expression, or several with commas between.
ExpressionPtr Parser::parse_tuple() {
  ExpressionPtr first = parse_expression();
  if (!is_op(",")) return first;
  ExpressionPtr tuple = make(Kind::tuple);
  adopt(*tuple, std::move(first));
  while (take_op(",")) {
    const Token::Kind kind = peek().kind;
    if (kind == Token::Kind::block_end || kind == Token::Kind::print_end || is_op(")")) break;
    adopt(*tuple, parse_expression());
  }
  return tuple;
}

ExpressionPtr Parser::parse_expression() {
  const Level level(*this);
  ExpressionPtr node = parse_without_condition();
  while (is_name("if")) {
    ExpressionPtr condition = make(Kind::condition);
    next();
    adopt(*condition, std::move(node));
    adopt(*condition, parse_without_condition());
    adopt(*condition, take_name("else") ? parse_expression() : nullptr);
    node = std::move(condition);
  }
  return node;
}

// operand (op operand)*, grouped from the left.
template <typename Operand>
ExpressionPtr Parser::parse_chain(std::initializer_list<std::string_view> ops, const Operand& operand) {
  ExpressionPtr left = operand();
  for (;;) {
    const Token& token = peek();
    const bool is_operator = token.kind == Token::Kind::op || token.kind == Token::Kind::name;
    if (!is_operator || std::find(ops.begin(), ops.end(), token.text) == ops.end()) return left;
    ExpressionPtr node = make(Kind::binary, next().text);
    adopt(*node, std::move(left));
    adopt(*node, operand());
    left = std::move(node);
  }
}

ExpressionPtr Parser::parse_without_condition() {
  return parse_chain({"or"}, [this] { return parse_and(); });
}

ExpressionPtr Parser::parse_and() {
  return parse_chain({"and"}, [this] { return parse_not(); });
}

ExpressionPtr Parser::parse_not() {
  const Level level(*this);
  if (!is_name("not")) return parse_comparison();
  ExpressionPtr node = make(Kind::unary, next().text);
  adopt(*node, parse_not());
  return node;
}

ExpressionPtr Parser::parse_comparison() {
  ExpressionPtr left = parse_sum();
  ExpressionPtr node;
  for (;;) {
    std::string op;
    for (const std::string_view candidate : {"==", "!=", "<", ">", "<=", ">="})
      if (is_op(candidate)) op = candidate;
    if (is_name("in")) op = "in";
    if (is_name("not") && is_name("in", 1)) op = "not in";
    if (op.empty()) return node ? std::move(node) : std::move(left);
    next();
    if (op == "not in") next();
    if (!node) {
      node = make(Kind::compare);
      adopt(*node, std::move(left));
    }
    node->operators.push_back(std::move(op));
    adopt(*node, parse_sum());
  }
}

ExpressionPtr Parser::parse_sum() {
  return parse_chain({"+", "-"}, [this] { return parse_concatenation(); });
}

ExpressionPtr Parser::parse_concatenation() {
  ExpressionPtr first = parse_product();
  if (!is_op("~")) return first;
  ExpressionPtr node = make(Kind::concatenate);
  adopt(*node, std::move(first));
  while (take_op("~")) adopt(*node, parse_product());
  return node;
}

ExpressionPtr Parser::parse_product() {
  return parse_chain({"*", "/", "//", "%"}, [this] {
    ExpressionPtr node = parse_unary(true);
    if (is_op("**")) unsupported("the operator **");
    return node;
  });
}

ExpressionPtr Parser::parse_unary(bool with_filters) {
  const Level level(*this);
  ExpressionPtr node;
  if (is_op("-") || is_op("+")) {
    node = make(Kind::unary, next().text);
    adopt(*node, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filters ? parse_filters(std::move(node)) : std::move(node);
}

ExpressionPtr Parser::parse_number() {
  ExpressionPtr node = make(Kind::constant);
  const Token& token = next();
  const char *begin = token.text.data(), *end = begin + token.text.size();
  std::errc error;
  if (token.kind == Token::Kind::integer) {
    std::int64_t value = 0;
    error = std::from_chars(begin, end, value).ec;
    node->value = value;
  } else {
    double value = 0;
    error = std::from_chars(begin, end, value).ec;
    node->value = value;
  }
  if (error != std::errc())
    fail(ErrorCode::unsupported, "chat template, line {}: the number {} is out of range", token.line,
         token.text.substr(0, 40));
  return node;
}

ExpressionPtr Parser::parse_primary() {
  const Token& token = peek();
  if (token.kind == Token::Kind::integer || token.kind == Token::Kind::number) return parse_number();
  if (token.kind == Token::Kind::string) {
    std::string text;
    while (peek().kind == Token::Kind::string) text += next().text;
    ExpressionPtr node = make(Kind::constant);
    node->value = std::move(text);
    return node;
  }
  if (token.kind == Token::Kind::name) {
    ExpressionPtr node = make(Kind::name, next().text);
    const std::string& name = node->text;
    const bool is_true = name == "true" || name == "True", is_none = name == "none" || name == "None";
    if (is_true || is_none || name == "false" || name == "False") {
      node->kind = Kind::constant;
      node->value = is_none ? Value() : Value(is_true);
    }
    return node;
  }
  if (take_op("(")) return parse_parentheses();
  if (take_op("{")) return parse_mapping();
  if (!take_op("[")) refuse("an expression");
  ExpressionPtr node = make(Kind::list);
  while (!take_op("]")) {
    if (!node->operands.empty()) {
      expect_op(",");
      if (take_op("]")) break;
    }
    adopt(*node, parse_expression());
  }
  return node;
}

ExpressionPtr Parser::parse_parentheses() {
  if (take_op(")")) return make(Kind::tuple);
  ExpressionPtr node = parse_tuple();
  expect_op(")");
  return node;
}

ExpressionPtr Parser::parse_mapping() {
  ExpressionPtr node = make(Kind::mapping);
  while (!take_op("}")) {
    if (!node->operands.empty()) {
      expect_op(",");
      if (take_op("}")) break;
    }
    adopt(*node, parse_expression());
    expect_op(":");
    adopt(*node, parse_expression());
  }
  return node;
}

ExpressionPtr Parser::parse_postfix(ExpressionPtr node) {
  for (;;) {
    if (is_op(".")) {
      ExpressionPtr attribute = make(Kind::attribute);
      next();
      if (peek().kind == Token::Kind::integer) unsupported("a number after a dot");
      attribute->text = expect_name();
      adopt(*attribute, std::move(node));
      node = std::move(attribute);
    } else if (is_op("[")) {
      node = parse_subscript(std::move(node));
    } else if (is_op("(")) {
      ExpressionPtr call = make(Kind::call);
      adopt(*call, std::move(node));
      parse_arguments(*call);
      node = std::move(call);
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_subscript(ExpressionPtr node) {
  ExpressionPtr subscript = make(Kind::item);
  next();
  adopt(*subscript, std::move(node));
  const auto part = [&]() -> ExpressionPtr {
    return is_op(":") || is_op("]") ? nullptr : parse_expression();
  };
  if (is_op("]")) refuse("an index");
  adopt(*subscript, part());
  if (is_op(":")) {
    subscript->kind = Kind::slice;
    next();
    adopt(*subscript, part());
    adopt(*subscript, take_op(":") ? part() : nullptr);
  }
  expect_op("]");
  return subscript;
}

void Parser::parse_arguments(Expression& call) {
  const Level level(*this);
  expect_op("(");
  for (bool first = true; !take_op(")"); first = false) {
    if (!first) {
      expect_op(",");
      if (take_op(")")) break;
    }
    if (is_op("*") || is_op("**")) unsupported("an argument list with *");
    if (peek().kind == Token::Kind::name && is_op("=", 1)) {
      std::string name = next().text;
      next();
      ExpressionPtr value = parse_expression();
      call.depth = std::max(call.depth, value->depth + 1);
      call.named.emplace_back(std::move(name), std::move(value));
    } else {
      if (!call.named.empty()) refuse("a named argument");
      adopt(call, parse_expression());
    }
  }
}

ExpressionPtr Parser::parse_filters(ExpressionPtr node) {
  for (;;) {
    if (is_op("|")) {
      node = parse_filter(std::move(node));
    } else if (is_name("is")) {
      node = parse_test(std::move(node));
    } else if (is_op("(")) {
      node = parse_postfix(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr Parser::parse_filter(ExpressionPtr node) {
  next();
  ExpressionPtr filter = make(Kind::filter);
  filter->text = expect_name();
  adopt(*filter, std::move(node));
  if (is_op("(")) parse_arguments(*filter);
  return filter;
}

ExpressionPtr Parser::parse_test(ExpressionPtr node) {
  ExpressionPtr test = make(Kind::test);
  next();
  const bool negated = take_name("not");
  test->text = expect_name();
  adopt(*test, std::move(node));
  const Token::Kind kind = peek().kind;
  const bool argument = kind == Token::Kind::string || kind == Token::Kind::integer ||
                        kind == Token::Kind::number || is_op("[") || is_op("{") ||
                        (kind == Token::Kind::name && !is_name("else") && !is_name("or") && !is_name("and"));
  if (is_name("is")) refuse("one test");
  if (is_op("(")) {
    parse_arguments(*test);
  } else if (argument) {
    const Level level(*this);
    adopt(*test, parse_postfix(parse_primary()));
  }
  if (!negated) return test;
  ExpressionPtr inverse = make(Kind::unary, "not");
  adopt(*inverse, std::move(test));
  return inverse;
}

}  // namespace

Block parse(std::string_view source) {
  if (!is_valid_utf8(source)) fail(ErrorCode::invalid_input, "chat template: not UTF-8");
  return Parser(tokenize(source)).parse_template();
}

}  // namespace quire::jinja
