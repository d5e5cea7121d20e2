#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>

#include "core/error.h"
#include "text/jinja/builtins.h"
#include "text/unicode/unicode.h"

namespace quire::jinja {
namespace {

// An expected kind of argument; `absent` when it was not given.
std::int64_t integer_or(const Value* value, std::int64_t absent) {
  if (value == nullptr || value->is_none()) return absent;
  if (!value->is_int() && !value->is_bool())
    fail(ErrorCode::invalid_input, "an int was expected, not {}", value->type_name());
  return value->integer();
}

std::string text_or(const Value* value, const char* absent = "") {
  if (value == nullptr || value->is_none()) return absent;
  if (!value->is_string()) fail(ErrorCode::invalid_input, "a str was expected, not {}", value->type_name());
  return value->string();
}

bool truth_or(const Value* value, bool absent) {
  return value ? value->truth() : absent;
}

Value length(const Value& input, Budget& budget) {
  if (input.is_string()) {
    budget.charge(input.string().size());
    return static_cast<std::int64_t>(length_of(input.string()));
  }
  if (input.is_list()) return static_cast<std::int64_t>(input.list().items.size());
  if (input.is_mapping()) return static_cast<std::int64_t>(input.mapping().members.size());
  if (input.is_undefined()) return std::int64_t{0};
  fail(ErrorCode::invalid_input, "a {} has no length", input.type_name());
}

std::string tojson(const Value& input, const Arguments& arguments, Budget& budget) {
  const auto given = arguments.bind("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = truth_or(given[0], false);
  style.indent = static_cast<int>(std::clamp<std::int64_t>(integer_or(given[1], -1), -1, 100));
  if (style.indent >= 0) style.item_separator.resize(1);  // lines end in no space
  if (given[2] != nullptr && !given[2]->is_none()) {
    const bool pair = given[2]->is_list() && given[2]->list().items.size() == 2;
    if (!pair) fail(ErrorCode::invalid_input, "tojson(): separators must be two str");
    style.item_separator = text_or(&given[2]->list().items[0]);
    style.key_separator = text_or(&given[2]->list().items[1]);
  }
  style.sort_keys = truth_or(given[3], false);
  budget.charge(input.weight());
  std::string text = to_json(input, style);
  budget.charge(text.size());
  return text;
}

std::string join(const Value& input, const Arguments& arguments, Budget& budget) {
  const auto given = arguments.bind("join", {"d", "attribute"});
  const std::string separator = given[0] ? to_text(*given[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& element : elements(input, budget)) {
    const Value part = given[1] ? attribute(element, text_or(given[1]), budget) : element;
    budget.charge(part.weight() + separator.size());
    if (!first) out += separator;
    first = false;
    out += to_text(part);
  }
  return out;
}

// The number that a text starts with in Python's notation, or nothing.
template <typename Number>
bool parse_number(const std::string& text, Number& value) {
  std::string stripped = strip(text, true, true);
  if (stripped.starts_with('+')) stripped.erase(0, 1);
  const char* end = stripped.data() + stripped.size();
  const auto result = std::from_chars(stripped.data(), end, value);
  return result.ec == std::errc() && result.ptr == end && !stripped.empty();
}

Value to_integer(const Value& input, const Arguments& arguments) {
  const auto given = arguments.bind("int", {"default", "base"});
  if (given[1] != nullptr && integer_or(given[1], 10) != 10)
    fail(ErrorCode::unsupported, "int() of another base than 10");
  std::int64_t integer = 0;
  double number = 0;
  if (input.is_string() && parse_number(input.string(), integer)) return integer;
  if (input.is_int() || input.is_bool()) return input.integer();
  const bool has_number = input.is_double() || (input.is_string() && parse_number(input.string(), number));
  if (input.is_double()) number = input.number();
  if (has_number && std::abs(number) < 9e18) return static_cast<std::int64_t>(number);
  return given[0] ? *given[0] : Value(std::int64_t{0});
}

Value to_float(const Value& input, const Arguments& arguments) {
  const auto given = arguments.bind("float", {"default"});
  double number = 0;
  if (input.is_number()) return input.number();
  if (input.is_string() && parse_number(input.string(), number)) return number;
  return given[0] ? *given[0] : Value(0.0);
}

Value reverse(const Value& input, Budget& budget) {
  std::vector<Value> items = elements(input, budget);
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) return items;
  std::string out;
  for (const Value& character : items) out += character.string();
  return out;
}

Value items_of(const Value& input, Budget& budget) {
  if (input.is_undefined()) return std::vector<Value>{};
  if (!input.is_mapping()) fail(ErrorCode::invalid_input, "items expects a dict, not {}", input.type_name());
  return call_method(input, "items", {}, budget);
}

// Sorting compares texts without case unless asked otherwise, as Jinja does.
Value sort_key(const Value& value, bool case_sensitive, Budget& budget) {
  return !case_sensitive && value.is_string() ? call_method(value, "lower", {}, budget) : value;
}

std::vector<Value> sort(std::vector<Value> values, const std::function<Value(const Value&)>& key,
                        bool reverse, Budget& budget) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& value : values) keyed.emplace_back(key(value), std::move(value));
  const auto less = [&](const auto& a, const auto& b) {
    budget.charge(std::min(a.first.weight(), b.first.weight()));
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  };
  std::stable_sort(keyed.begin(), keyed.end(), less);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::move(keyed[i].second);
  return values;
}

Value sorted(const Value& input, const Arguments& arguments, Budget& budget) {
  const auto given = arguments.bind("sort", {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = truth_or(given[1], false);
  const auto key = [&](const Value& value) {
    return sort_key(given[2] ? attribute(value, text_or(given[2]), budget) : value, case_sensitive, budget);
  };
  return sort(elements(input, budget), key, truth_or(given[0], false), budget);
}

Value dictsort(const Value& input, const Arguments& arguments, Budget& budget) {
  const auto given = arguments.bind("dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = text_or(given[1], "key");
  if (by != "key" && by != "value")
    fail(ErrorCode::invalid_input, "dictsort by \"{}\": expected key or value", by);
  const std::size_t part = by == "value";
  const auto key = [&](const Value& pair) {
    return sort_key(pair.list().items[part], truth_or(given[0], false), budget);
  };
  return sort(elements(items_of(input, budget), budget), key, truth_or(given[2], false), budget);
}

// a.b.c, one attribute after the other.
Value path(Value value, std::string_view names, Budget& budget) {
  while (!names.empty()) {
    const std::size_t dot = std::min(names.find('.'), names.size());
    value = attribute(value, std::string(names.substr(0, dot)), budget);
    names.remove_prefix(std::min(dot + 1, names.size()));
  }
  return value;
}

// Filters over elements take none and 0 for an empty list, as Jinja's do.
std::vector<Value> elements_or_none(const Value& input, Budget& budget) {
  return input.truth() ? elements(input, budget) : std::vector<Value>();
}

Value map(const Value& input, const Arguments& arguments, Budget& budget) {
  std::vector<Value> result;
  if (arguments.positional.empty()) {
    const auto given = arguments.bind("map", {"attribute", "default"});
    for (const Value& element : elements_or_none(input, budget)) {
      Value found = path(element, text_or(given[0]), budget);
      result.push_back(found.is_undefined() && given[1] ? *given[1] : std::move(found));
    }
    return result;
  }
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin());
  const std::string filter = text_or(&arguments.positional[0]);
  for (const Value& element : elements_or_none(input, budget))
    result.push_back(apply_filter(filter, element, rest, budget));
  return result;
}

// select, reject, selectattr and rejectattr: [attribute,] [test, arguments...].
Value select(const std::string& name, const Value& input, const Arguments& arguments, Budget& budget) {
  const bool wanted = name.starts_with("select"), by_attribute = name.ends_with("attr");
  Arguments rest = arguments;
  const auto take = [&]() -> std::string {
    if (rest.positional.empty()) return {};
    const std::string text = text_or(&rest.positional[0]);
    rest.positional.erase(rest.positional.begin());
    return text;
  };
  const std::string of = by_attribute ? take() : "", test = take();
  if (by_attribute && of.empty())
    fail(ErrorCode::invalid_input, "{}() expects the name of an attribute", name);
  std::vector<Value> result;
  for (const Value& element : elements_or_none(input, budget)) {
    const Value value = path(element, of, budget);
    if ((test.empty() ? value.truth() : apply_test(test, value, rest, budget)) == wanted)
      result.push_back(element);
  }
  return result;
}

Value unique(const Value& input, Budget& budget) {
  std::vector<Value> result;
  for (const Value& element : elements(input, budget)) {
    const Value key = sort_key(element, false, budget);
    const bool seen = std::any_of(result.begin(), result.end(), [&](const Value& other) {
      budget.charge(16 + std::min(key.weight(), other.weight()));
      return equal(key, sort_key(other, false, budget));
    });
    if (!seen) result.push_back(element);
  }
  return result;
}

std::string indent(const Value& input, const Arguments& arguments, Budget& budget) {
  const auto given = arguments.bind("indent", {"width", "first", "blank"});
  const std::string space =
      given[0] && given[0]->is_string()
          ? given[0]->string()
          : std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(integer_or(given[0], 4), 0, 100)),
                        ' ');
  const bool blank = truth_or(given[2], false);
  const std::string text = text_or(&input);
  std::string_view rest = text;
  std::string out;
  for (bool first = !truth_or(given[1], false);; first = false) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    budget.charge(end + space.size());
    if (!first && (end > 0 || blank)) out += space;
    out += rest.substr(0, end);
    if (end == rest.size()) return out;
    out += '\n';
    rest.remove_prefix(end + 1);
  }
}

Value absolute(const Value& input) {
  if (input.is_double()) return std::abs(input.number());
  if (!input.is_number() || input.integer() == INT64_MIN)
    fail(ErrorCode::invalid_input, "abs expects a number");
  return std::abs(input.integer());
}

using Filter = Value (*)(const Value&, const Arguments&, Budget&);

Value text_method(const char* method, const Value& input, const Arguments& arguments, Budget& budget) {
  budget.charge(input.weight());
  return call_method(input.is_string() ? input : Value(to_text(input)), method, arguments, budget);
}

// Filters that take no arguments.
struct Plain {
  std::string_view name;
  Value (*apply)(const Value&, Budget&);
};
constexpr Plain kPlain[] = {
    {"length", length},
    {"count", length},
    {"reverse", reverse},
    {"items", items_of},
    {"unique", unique},
    {"list", [](const Value& v, Budget& b) { return Value(elements(v, b)); }},
    {"safe", [](const Value& v, Budget&) { return v.is_string() ? v : Value(to_text(v)); }},
    {"string",
     [](const Value& v, Budget& b) { return b.charge(v.weight()), v.is_string() ? v : Value(to_text(v)); }},
    {"abs", [](const Value& v, Budget&) { return absolute(v); }},
    {"upper", [](const Value& v, Budget& b) { return text_method("upper", v, {}, b); }},
    {"lower", [](const Value& v, Budget& b) { return text_method("lower", v, {}, b); }},
    {"capitalize", [](const Value& v, Budget& b) { return text_method("capitalize", v, {}, b); }},
    {"first",
     [](const Value& v, Budget& b) {
       const std::vector<Value> all = elements(v, b);
       return all.empty() ? Value(Undefined{"first item"}) : all.front();
     }},
    {"last",
     [](const Value& v, Budget& b) {
       const std::vector<Value> all = elements(v, b);
       return all.empty() ? Value(Undefined{"last item"}) : all.back();
     }},
};

struct WithArguments {
  std::string_view name;
  Filter apply;
};
constexpr WithArguments kWithArguments[] = {
    {"tojson", [](const Value& v, const Arguments& a, Budget& b) { return Value(tojson(v, a, b)); }},
    {"join", [](const Value& v, const Arguments& a, Budget& b) { return Value(join(v, a, b)); }},
    {"indent", [](const Value& v, const Arguments& a, Budget& b) { return Value(indent(v, a, b)); }},
    {"int", [](const Value& v, const Arguments& a, Budget&) { return to_integer(v, a); }},
    {"float", [](const Value& v, const Arguments& a, Budget&) { return to_float(v, a); }},
    {"trim", [](const Value& v, const Arguments& a, Budget& b) { return text_method("strip", v, a, b); }},
    {"replace",
     [](const Value& v, const Arguments& a, Budget& b) { return text_method("replace", v, a, b); }},
    {"sort", sorted},
    {"dictsort", dictsort},
    {"map", map},
};

Value default_of(const Value& input, const Arguments& arguments) {
  const auto given = arguments.bind("default", {"default_value", "boolean"});
  const bool absent = truth_or(given[1], false) ? !input.truth() : input.is_undefined();
  return !absent ? input : given[0] ? *given[0] : Value("");
}

bool is_iterable(const Value& v) {
  return v.is_string() || v.is_list() || v.is_mapping() || v.is_undefined();
}

bool divides(const Value& input, std::int64_t by) {
  if (by == 0) fail(ErrorCode::invalid_input, "divisibleby zero");
  if (!input.is_int() && !input.is_bool())
    fail(ErrorCode::invalid_input, "an int was expected, not {}", input.type_name());
  return by == -1 || input.integer() % by == 0;
}

// Tests without arguments; nothing for a name that is not one of them.
const bool* plain_test(const std::string& name, const Value& v, bool& result) {
  const bool is_boolean = v.is_bool();
  if (name == "defined")
    result = !v.is_undefined();
  else if (name == "undefined")
    result = v.is_undefined();
  else if (name == "none")
    result = v.is_none();
  else if (name == "boolean")
    result = is_boolean;
  else if (name == "true")
    result = is_boolean && v.boolean();
  else if (name == "false")
    result = is_boolean && !v.boolean();
  else if (name == "string")
    result = v.is_string();
  else if (name == "mapping")
    result = v.is_mapping();
  else if (name == "number")
    result = v.is_number();
  else if (name == "integer")
    result = v.is_int();
  else if (name == "float")
    result = v.is_double();
  else if (name == "iterable" || name == "sequence")
    result = is_iterable(v);
  else if (name == "callable")
    result = v.callable() != nullptr;
  else
    return nullptr;
  return &result;
}

}  // namespace

Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments, Budget& budget) {
  budget.charge(64);
  for (const Plain& filter : kPlain)
    if (filter.name == name) {
      arguments.bind(name, {});
      return filter.apply(input, budget);
    }
  for (const WithArguments& filter : kWithArguments)
    if (filter.name == name) return filter.apply(input, arguments, budget);
  if (name == "default" || name == "d") return default_of(input, arguments);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return select(name, input, arguments, budget);
  fail(ErrorCode::unsupported, "the filter \"{}\" is not supported", name);
}

bool apply_test(const std::string& name, const Value& input, const Arguments& arguments, Budget& budget) {
  bool result = false;
  if (plain_test(name, input, result) != nullptr) {
    arguments.bind(name, {});
    return result;
  }
  if (name == "odd" || name == "even") {
    arguments.bind(name, {});
    return divides(input, 2) == (name == "even");
  }
  const Value* other = arguments.bind(name, {"other"})[0];
  const auto operand = [&]() -> const Value& {
    if (other == nullptr) fail(ErrorCode::invalid_input, "the test \"{}\" expects a value", name);
    budget.charge(std::min(input.weight(), other->weight()));
    return *other;
  };
  if (name == "divisibleby") return divides(input, integer_or(&operand(), 1));
  if (name == "equalto" || name == "eq" || name == "==") return equal(input, operand());
  if (name == "ne" || name == "!=") return !equal(input, operand());
  if (name == "lt" || name == "<") return compare(input, operand()) < 0;
  if (name == "le" || name == "<=") return compare(input, operand()) <= 0;
  if (name == "gt" || name == ">") return compare(input, operand()) > 0;
  if (name == "ge" || name == ">=") return compare(input, operand()) >= 0;
  if (name == "in") return contains(operand(), input, budget);
  fail(ErrorCode::unsupported, "the test \"{}\" is not supported", name);
}

}  // namespace quire::jinja
