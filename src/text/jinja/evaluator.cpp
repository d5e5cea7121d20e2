#include "text/jinja/evaluator.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "core/error.h"
#include "text/jinja/builtins.h"

namespace quire::jinja {
namespace {

// Of expressions, statements and macro calls within each other.
constexpr int kMaxDepth = 600;

// Names of one scope. A name that is not here is looked up in the scope around.
struct Scope {
  const Scope* around = nullptr;
  std::map<std::string_view, Value> names = {};

  const Value* find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->around)
      if (const auto found = scope->names.find(name); found != scope->names.end()) return &found->second;
    return nullptr;
  }
};

enum class Flow { normal, break_loop, continue_loop };

class Evaluator {
 public:
  explicit Evaluator(const Value& variables);

  std::string run(const Block& block);

 private:
  // Counts recursion.
  struct Level {
    explicit Level(int& current) : depth(current) {
      if (++depth > kMaxDepth) fail(ErrorCode::limit_exceeded, "nested deeper than {} levels", kMaxDepth);
    }
    ~Level() { --depth; }
    int& depth;
  };

  Flow execute(const Block& block, Scope& scope, std::string& out);
  Flow execute(const Statement& statement, Scope& scope, std::string& out);
  Flow execute_loop(const Statement& statement, Scope& scope, std::string& out);
  void assign(const Statement& statement, Scope& scope, const Value& value);
  void assign_one(const std::string& target, Scope& scope, Value value);
  Value capture(const Statement& statement, Scope& scope);

  Value evaluate(const Expression& node, Scope& scope);
  Value evaluate_mapping(const Expression& node, Scope& scope);
  Value evaluate_slice(const Expression& node, Scope& scope);
  Value evaluate_call(const Expression& node, Scope& scope);
  Value evaluate_unary(const Expression& node, Scope& scope);
  Value evaluate_binary(const Expression& node, Scope& scope);
  Value evaluate_comparison(const Expression& node, Scope& scope);
  Value filtered(const Expression& node, const Value& input, Scope& scope);
  Arguments evaluate_arguments(const Expression& node, Scope& scope);
  std::vector<Value> evaluate_operands(const Expression& node, Scope& scope);

  Value call(const Callable& callable, const Arguments& arguments);
  Value call_macro(const Statement& macro, const Arguments& arguments);
  Value call_global(const std::string& name, const Arguments& arguments);
  Value range(const Arguments& arguments);
  Value plus(const Value& a, const Value& b);
  std::string print(const Value& value);

  Scope globals_, root_;
  std::vector<std::unique_ptr<Namespace>> namespaces_;
  Budget budget_;
  int depth_ = 0;
  int line_ = 1;  // of the expression evaluated last
};

std::int64_t integer_arithmetic(char op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  const bool overflow = op == '+'   ? __builtin_add_overflow(a, b, &result)
                        : op == '-' ? __builtin_sub_overflow(a, b, &result)
                                    : __builtin_mul_overflow(a, b, &result);
  if (overflow) fail(ErrorCode::limit_exceeded, "an int outside 64 bits");
  return result;
}

// Python's floor division and its remainder, which has the sign of b.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  const std::int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

Value arithmetic(char op, const Value& a, const Value& b, bool doubled) {
  if ((op == '/' || op == '%') && b.number() == 0) fail(ErrorCode::invalid_input, "division by zero");
  const bool floor = op == '/' && doubled;
  if (a.is_double() || b.is_double() || (op == '/' && !floor)) {
    const double x = a.number(), y = b.number();
    switch (op) {
      case '+':
        return x + y;
      case '-':
        return x - y;
      case '*':
        return x * y;
      case '/':
        return floor ? std::floor(x / y) : x / y;
      default: {
        const double remainder = std::fmod(x, y);
        return remainder != 0 && (remainder < 0) != (y < 0) ? remainder + y : remainder;
      }
    }
  }
  const std::int64_t x = a.integer(), y = b.integer();
  if (op == '+' || op == '-' || op == '*') return integer_arithmetic(op, x, y);
  if (y == -1) return op == '%' ? Value(std::int64_t{0}) : Value(integer_arithmetic('-', 0, x));
  return op == '/' ? floor_divide(x, y) : x - y * floor_divide(x, y);
}

// {{ loop }}: what a template may ask about the iteration.
Value loop_state(const std::vector<Value>& items, std::size_t i) {
  const auto integer = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
  const std::size_t n = items.size();
  std::vector<std::pair<std::string, Value>> members = {
      {"index", integer(i + 1)},    {"index0", integer(i)},
      {"revindex", integer(n - i)}, {"revindex0", integer(n - i - 1)},
      {"first", Value(i == 0)},     {"last", Value(i + 1 == n)},
      {"length", integer(n)},       {"depth", integer(1)},
      {"depth0", integer(0)}};
  members.emplace_back("previtem", i > 0 ? items[i - 1] : Value(Undefined{"previtem"}));
  members.emplace_back("nextitem", i + 1 < n ? items[i + 1] : Value(Undefined{"nextitem"}));
  return members;
}

Evaluator::Evaluator(const Value& variables) {
  for (const char* name : {"namespace", "raise_exception", "range"})
    globals_.names[name] = std::make_shared<const Callable>(Callable{nullptr, name, {}});
  root_.around = &globals_;
  for (const auto& [name, value] : variables.mapping().members) root_.names[name] = value;
}

std::string Evaluator::run(const Block& block) {
  try {
    std::string out;
    execute(block, root_, out);
    return out;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("chat template, line {}: {}", line_, error.what()), error.where());
  }
}

Flow Evaluator::execute(const Block& block, Scope& scope, std::string& out) {
  const Level level(depth_);
  for (const auto& statement : block)
    if (const Flow flow = execute(*statement, scope, out); flow != Flow::normal) return flow;
  return Flow::normal;
}

Flow Evaluator::execute(const Statement& statement, Scope& scope, std::string& out) {
  budget_.charge(16);
  line_ = statement.line;
  switch (statement.kind) {
    case Statement::Kind::text:
      budget_.charge(statement.text.size());
      out += statement.text;
      return Flow::normal;
    case Statement::Kind::print:
      out += print(evaluate(*statement.expression, scope));
      return Flow::normal;
    case Statement::Kind::branch:
      for (std::size_t i = 0; i < statement.bodies.size(); ++i)
        if (!statement.conditions[i] || evaluate(*statement.conditions[i], scope).truth())
          return execute(statement.bodies[i], scope, out);
      return Flow::normal;
    case Statement::Kind::loop:
      return execute_loop(statement, scope, out);
    case Statement::Kind::assign:
      assign(statement, scope, evaluate(*statement.expression, scope));
      return Flow::normal;
    case Statement::Kind::capture:
      assign(statement, scope, capture(statement, scope));
      return Flow::normal;
    case Statement::Kind::define:
      scope.names[statement.text] =
          std::make_shared<const Callable>(Callable{&statement, statement.text, {}});
      return Flow::normal;
    case Statement::Kind::block: {
      Scope inner{&scope};
      return execute(statement.bodies[0], inner, out);
    }
    case Statement::Kind::break_loop:
      return Flow::break_loop;
    case Statement::Kind::continue_loop:
      return Flow::continue_loop;
  }
  return Flow::normal;
}

Flow Evaluator::execute_loop(const Statement& statement, Scope& scope, std::string& out) {
  std::vector<Value> items = elements(evaluate(*statement.expression, scope), budget_);
  if (!statement.conditions.empty()) {
    std::erase_if(items, [&](const Value& item) {
      Scope inner{&scope};
      assign(statement, inner, item);
      return !evaluate(*statement.conditions[0], inner).truth();
    });
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    budget_.charge(512);
    Scope inner{&scope};
    inner.names["loop"] = loop_state(items, i);
    assign(statement, inner, items[i]);
    if (execute(statement.bodies[0], inner, out) == Flow::break_loop) break;
  }
  Scope inner{&scope};
  return items.empty() ? execute(statement.bodies[1], inner, out) : Flow::normal;
}

void Evaluator::assign(const Statement& statement, Scope& scope, const Value& value) {
  if (!statement.unpack) return assign_one(statement.targets[0], scope, value);
  const std::vector<Value> parts = elements(value, budget_);
  if (parts.size() != statement.targets.size())
    fail(ErrorCode::invalid_input, "{} values for {} names", parts.size(), statement.targets.size());
  for (std::size_t i = 0; i < parts.size(); ++i) assign_one(statement.targets[i], scope, parts[i]);
}

void Evaluator::assign_one(const std::string& target, Scope& scope, Value value) {
  const std::size_t dot = target.find('.');
  if (dot == std::string::npos) {
    scope.names[target] = std::move(value);
    return;
  }
  const std::string_view name = std::string_view(target).substr(0, dot);
  const Value* space = scope.find(name);
  if (space == nullptr || space->name_space() == nullptr)
    fail(ErrorCode::invalid_input, "\"{}\" is not a namespace: only its members can be set", name);
  budget_.charge(space->name_space()->members.size());
  space->name_space()->set(std::string_view(target).substr(dot + 1), std::move(value));
}

Value Evaluator::capture(const Statement& statement, Scope& scope) {
  std::string out;
  Scope inner{&scope};
  execute(statement.bodies[0], inner, out);
  return statement.expression ? filtered(*statement.expression, Value(std::move(out)), scope)
                              : Value(std::move(out));
}

// The filters of a chain, innermost first; `input` stands where the chain has nothing.
Value Evaluator::filtered(const Expression& node, const Value& input, Scope& scope) {
  const Level level(depth_);
  const Value from = node.operands[0] ? filtered(*node.operands[0], input, scope) : input;
  return apply_filter(node.text, from, evaluate_arguments(node, scope), budget_);
}

std::string Evaluator::print(const Value& value) {
  budget_.charge(value.weight());
  return to_text(value);
}

Value Evaluator::evaluate(const Expression& node, Scope& scope) {
  using Kind = Expression::Kind;
  const Level level(depth_);
  budget_.charge(16);
  line_ = node.line;
  switch (node.kind) {
    case Kind::constant:
      return node.value;
    case Kind::name: {
      const Value* found = scope.find(node.text);
      return found ? *found : Value(Undefined{node.text});
    }
    case Kind::list:
    case Kind::tuple:
      return Value(evaluate_operands(node, scope), node.kind == Kind::tuple);
    case Kind::mapping:
      return evaluate_mapping(node, scope);
    case Kind::attribute:
      return attribute(evaluate(*node.operands[0], scope), node.text, budget_);
    case Kind::item: {
      const Value object = evaluate(*node.operands[0], scope);
      return item(object, evaluate(*node.operands[1], scope), budget_);
    }
    case Kind::slice:
      return evaluate_slice(node, scope);
    case Kind::call:
      return evaluate_call(node, scope);
    case Kind::filter: {
      const Value input = evaluate(*node.operands[0], scope);
      return apply_filter(node.text, input, evaluate_arguments(node, scope), budget_);
    }
    case Kind::test: {
      const Value input = evaluate(*node.operands[0], scope);
      return apply_test(node.text, input, evaluate_arguments(node, scope), budget_);
    }
    case Kind::unary:
      return evaluate_unary(node, scope);
    case Kind::binary:
      return evaluate_binary(node, scope);
    case Kind::concatenate: {
      std::string text;
      for (const Value& part : evaluate_operands(node, scope)) text += print(part);
      return text;
    }
    case Kind::compare:
      return evaluate_comparison(node, scope);
    case Kind::condition:
      if (evaluate(*node.operands[1], scope).truth()) return evaluate(*node.operands[0], scope);
      return node.operands[2] ? evaluate(*node.operands[2], scope) : Value(Undefined{"an if without else"});
  }
  return {};
}

std::vector<Value> Evaluator::evaluate_operands(const Expression& node, Scope& scope) {
  std::vector<Value> values;
  for (const ExpressionPtr& operand : node.operands) values.push_back(evaluate(*operand, scope));
  return values;
}

Value Evaluator::evaluate_mapping(const Expression& node, Scope& scope) {
  std::vector<std::pair<std::string, Value>> members;
  for (std::size_t i = 0; i < node.operands.size(); i += 2) {
    const Value key = evaluate(*node.operands[i], scope);
    if (!key.is_string()) fail(ErrorCode::unsupported, "a dict key that is a {}", key.type_name());
    Value value = evaluate(*node.operands[i + 1], scope);
    const auto same = [&](const auto& member) { return member.first == key.string(); };
    const auto known = std::find_if(members.begin(), members.end(), same);
    if (known != members.end())
      known->second = std::move(value);
    else
      members.emplace_back(key.string(), std::move(value));
  }
  return members;
}

Value Evaluator::evaluate_slice(const Expression& node, Scope& scope) {
  const Value object = evaluate(*node.operands[0], scope);
  if (!object.is_list() && !object.is_string())
    fail(ErrorCode::invalid_input, "a {} cannot be sliced", object.type_name());
  const std::vector<Value> items = elements(object, budget_);
  const auto n = static_cast<std::int64_t>(items.size());
  const auto part = [&](std::size_t i) {
    return node.operands[i] ? evaluate(*node.operands[i], scope) : Value();
  };
  const Value begin = part(1), end = part(2), by = part(3);
  for (const Value* value : {&begin, &end, &by})
    if (!value->is_none() && !value->is_int())
      fail(ErrorCode::invalid_input, "a slice expects int, not {}", value->type_name());
  const std::int64_t step = by.is_none() ? 1 : std::clamp(by.integer(), -n - 1, n + 1);
  if (!by.is_none() && by.integer() == 0) fail(ErrorCode::invalid_input, "a slice with step 0");
  // Bounds count from the end when negative, and stop one beyond either end.
  const auto bound = [&](const Value& value, std::int64_t absent) {
    if (value.is_none()) return absent;
    const std::int64_t at = value.integer() < 0 ? value.integer() + n : value.integer();
    return std::clamp(at, std::int64_t{step < 0 ? -1 : 0}, step < 0 ? n - 1 : n);
  };
  const std::int64_t from = bound(begin, step < 0 ? n - 1 : 0), to = bound(end, step < 0 ? -1 : n);
  std::vector<Value> result;
  for (std::int64_t i = from; step < 0 ? i > to : i < to; i += step)
    result.push_back(items[static_cast<std::size_t>(i)]);
  if (object.is_list()) return Value(std::move(result), object.list().tuple);
  std::string text;
  for (const Value& character : result) text += character.string();
  return text;
}

Arguments Evaluator::evaluate_arguments(const Expression& node, Scope& scope) {
  Arguments arguments;
  for (std::size_t i = 1; i < node.operands.size(); ++i)
    arguments.positional.push_back(evaluate(*node.operands[i], scope));
  for (const auto& [name, expression] : node.named)
    arguments.named.emplace_back(name, evaluate(*expression, scope));
  line_ = node.line;
  return arguments;
}

Value Evaluator::evaluate_call(const Expression& node, Scope& scope) {
  const Value callee = evaluate(*node.operands[0], scope);
  if (const auto* callable = callee.callable()) return call(**callable, evaluate_arguments(node, scope));
  if (!callee.is_undefined()) fail(ErrorCode::invalid_input, "a {} cannot be called", callee.type_name());
  fail(ErrorCode::unsupported, "the function {}() is not defined and not one that is supported",
       callee.undefined_name());
}

Value Evaluator::call(const Callable& callable, const Arguments& arguments) {
  if (callable.macro != nullptr) return call_macro(*callable.macro, arguments);
  if (callable.object.is_none()) return call_global(callable.name, arguments);
  return call_method(callable.object, callable.name, arguments, budget_);
}

Value Evaluator::call_macro(const Statement& macro, const Arguments& arguments) {
  const Level level(depth_);
  if (arguments.positional.size() > macro.parameters.size())
    fail(ErrorCode::invalid_input, "{}() takes at most {} arguments, not {}", macro.text,
         macro.parameters.size(), arguments.positional.size());
  Scope scope{&root_};
  for (const auto& [name, value] : arguments.named) {
    const auto same = [&](const auto& parameter) { return parameter.first == name; };
    const auto found = std::find_if(macro.parameters.begin(), macro.parameters.end(), same);
    if (found == macro.parameters.end() ||
        found - macro.parameters.begin() < static_cast<std::ptrdiff_t>(arguments.positional.size()))
      fail(ErrorCode::invalid_input, "{}() does not take an argument \"{}\" here", macro.text, name);
    scope.names[found->first] = value;
  }
  for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
    const auto& [name, fallback] = macro.parameters[i];
    if (i < arguments.positional.size())
      scope.names[name] = arguments.positional[i];
    else if (!scope.names.contains(name))
      scope.names[name] = fallback ? evaluate(*fallback, scope) : Value(Undefined{name});
  }
  std::string out;
  execute(macro.bodies[0], scope, out);
  return out;
}

Value Evaluator::call_global(const std::string& name, const Arguments& arguments) {
  if (name == "raise_exception") {
    const Value* message = arguments.bind(name, {"message"})[0];
    fail(ErrorCode::invalid_input, "{}", message ? to_text(*message) : "raise_exception()");
  }
  if (name == "range") return range(arguments);
  if (arguments.positional.size() > 1) fail(ErrorCode::invalid_input, "namespace() takes one dict");
  const Value* from = arguments.positional.empty() ? nullptr : &arguments.positional[0];
  namespaces_.push_back(std::make_unique<Namespace>());
  Namespace& space = *namespaces_.back();
  if (from != nullptr && !from->is_mapping())
    fail(ErrorCode::invalid_input, "namespace() of a {}", from->type_name());
  if (from != nullptr) space.members = from->mapping().members;
  for (const auto& [key, value] : arguments.named) space.set(key, value);
  budget_.charge(64 + 64 * space.members.size());
  return &space;
}

Value Evaluator::range(const Arguments& arguments) {
  const auto given = arguments.bind("range", {"start", "stop", "step"});
  std::int64_t bounds[3] = {0, 0, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    if (given[i] != nullptr && !given[i]->is_int() && !given[i]->is_bool())
      fail(ErrorCode::invalid_input, "range() expects int, not {}", given[i]->type_name());
    if (given[i] != nullptr) bounds[i] = given[i]->integer();
  }
  if (given[0] == nullptr) fail(ErrorCode::invalid_input, "range() expects its end");
  if (given[1] == nullptr) std::swap(bounds[0], bounds[1]);
  const auto [start, stop, step] = bounds;
  if (step == 0) fail(ErrorCode::invalid_input, "range() with step 0");
  std::vector<Value> result;
  std::int64_t i = start;
  while (step > 0 ? i < stop : i > stop) {
    budget_.charge(64);
    result.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return result;
}

Value Evaluator::evaluate_unary(const Expression& node, Scope& scope) {
  const Value operand = evaluate(*node.operands[0], scope);
  if (node.text == "not") return !operand.truth();
  if (!operand.is_number()) fail(ErrorCode::invalid_input, "{} of a {}", node.text, operand.type_name());
  if (node.text == "-")
    return arithmetic('-', operand.is_double() ? Value(-0.0) : Value(std::int64_t{0}), operand, false);
  return operand.is_bool() ? Value(operand.integer()) : operand;
}

Value Evaluator::plus(const Value& a, const Value& b) {
  budget_.charge(a.weight());
  budget_.charge(b.weight());
  if (a.is_string() && b.is_string()) return a.string() + b.string();
  if (a.is_list() && b.is_list() && a.list().tuple == b.list().tuple) {
    std::vector<Value> items = a.list().items;
    items.insert(items.end(), b.list().items.begin(), b.list().items.end());
    return Value(std::move(items), a.list().tuple);
  }
  if (a.is_undefined() || b.is_undefined())
    fail(ErrorCode::invalid_input, "\"{}\" is undefined", (a.is_undefined() ? a : b).undefined_name());
  fail(ErrorCode::invalid_input, "no sum of {} and {}", a.type_name(), b.type_name());
}

Value Evaluator::evaluate_binary(const Expression& node, Scope& scope) {
  const Value a = evaluate(*node.operands[0], scope);
  if (node.text == "and") return a.truth() ? evaluate(*node.operands[1], scope) : a;
  if (node.text == "or") return a.truth() ? a : evaluate(*node.operands[1], scope);
  const Value b = evaluate(*node.operands[1], scope);
  line_ = node.line;
  if (a.is_number() && b.is_number()) return arithmetic(node.text[0], a, b, node.text == "//");
  if (node.text == "+") return plus(a, b);
  if (node.text == "*" && (a.is_string() || b.is_string()) && (a.is_int() || b.is_int())) {
    const std::string& text = (a.is_string() ? a : b).string();
    const std::int64_t times = (a.is_int() ? a : b).integer();
    std::string out;
    for (std::int64_t i = 0; i < times; ++i) {
      budget_.charge(text.size() + 1);
      out += text;
    }
    return out;
  }
  fail(ErrorCode::unsupported, "the operator {} between {} and {}", node.text, a.type_name(), b.type_name());
}

// a < b <= c means a < b and b <= c.
Value Evaluator::evaluate_comparison(const Expression& node, Scope& scope) {
  Value left = evaluate(*node.operands[0], scope);
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    const std::string& op = node.operators[i];
    Value right = evaluate(*node.operands[i + 1], scope);
    budget_.charge(std::min(left.weight(), right.weight()));
    bool holds = false;
    if (op == "==" || op == "!=")
      holds = equal(left, right) == (op == "==");
    else if (op == "in" || op == "not in")
      holds = contains(right, left, budget_) == (op == "in");
    else if (const int order = compare(left, right); order != 0)
      holds = (order < 0) == (op[0] == '<');
    else
      holds = op.size() == 2;
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

}  // namespace

std::string render(const Block& block, const Value& variables) {
  return Evaluator(variables).run(block);
}

}  // namespace quire::jinja
