// Values of chat templates: Python's, as far as templates can tell. Errors do not name the template or a
// line: render() in evaluator.h adds both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/json.h"

namespace quire::jinja {

class Value;
struct List;
struct Mapping;
struct Namespace;
struct Callable;

struct Undefined {
  std::string name;  // what was looked up, for messages
};
struct None {};

// Values nest at most so deep, so that walking them and freeing them cannot exhaust the stack.
inline constexpr int kMaxValueDepth = 64;

// Cheap to copy: strings, lists and mappings are immutable and shared.
class Value {
 public:
  Value() : data_(None{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(bool b) : data_(b) {}
  Value(std::int64_t i) : data_(i) {}
  Value(double d) : data_(d) {}
  Value(std::string text) : data_(std::make_shared<const std::string>(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::vector<Value> items, bool tuple = false);        // throws Error{limit_exceeded} when too deep
  Value(std::vector<std::pair<std::string, Value>> members);  // the same; keys differ
  Value(Namespace* space) : data_(space) {}
  Value(std::shared_ptr<const Callable> callable) : data_(std::move(callable)) {}

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(data_); }  // not a bool
  bool is_double() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_double(); }
  bool is_string() const { return std::holds_alternative<String>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const List>>(data_); }
  bool is_mapping() const { return std::holds_alternative<std::shared_ptr<const Mapping>>(data_); }

  // Each for its kind only.
  const std::string& undefined_name() const { return std::get<Undefined>(data_).name; }
  bool boolean() const { return std::get<bool>(data_); }
  std::int64_t integer() const;  // of an int or bool
  double number() const;         // of any number
  const std::string& string() const { return *std::get<String>(data_); }
  const List& list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const Mapping& mapping() const { return *std::get<std::shared_ptr<const Mapping>>(data_); }
  Namespace* name_space() const;                            // null for other kinds
  const std::shared_ptr<const Callable>* callable() const;  // null for other kinds

  int depth() const;  // 0 for scalars
  std::size_t weight()
      const;  // about the bytes that a walk over the value meets; shared parts count each time
  bool truth() const;
  const char* type_name() const;  // as Python calls it

 private:
  using String = std::shared_ptr<const std::string>;
  std::variant<Undefined, None, bool, std::int64_t, double, String, std::shared_ptr<const List>,
               std::shared_ptr<const Mapping>, Namespace*, std::shared_ptr<const Callable>>
      data_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
  std::size_t weight = 0;
};

struct Mapping {
  std::vector<std::pair<std::string, Value>> members;  // in order
  int depth = 1;
  std::size_t weight = 0;

  const Value* find(std::string_view key) const;
};

// The one mutable kind. The evaluator owns it, so that a namespace in a namespace makes no cycle of owners.
struct Namespace {
  std::vector<std::pair<std::string, Value>> members;

  const Value* find(std::string_view key) const;
  void set(std::string_view key, Value value);
};

struct Statement;

// A macro, a global function, or a method with its object.
struct Callable {
  const Statement* macro = nullptr;  // null for the other two
  std::string name;
  Value object;
};

Value from_json(const Json& json);  // throws Error{limit_exceeded}

// What {{ value }} prints and what repr() shows of it, as Python writes them. A list may hold one string many
// times: throws Error{limit_exceeded} rather than write more than kMaxText bytes.
inline constexpr std::size_t kMaxText = std::size_t{64} << 20;
std::string to_text(const Value& value);

struct JsonStyle {
  int indent = -1;  // spaces a level; -1: one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
// As Python's json.dumps. Throws Error{invalid_input} for what JSON cannot say.
std::string to_json(const Value& value, const JsonStyle& style);

bool equal(const Value& a, const Value& b);
// Below 0, 0 or above 0. Throws Error{invalid_input} when the kinds have no order.
int compare(const Value& a, const Value& b);

// Length, items and slices count code points.
std::vector<std::string> characters(std::string_view text);
std::size_t length_of(const std::string& text);
bool is_python_space(char32_t code);
std::string strip(std::string_view text, bool left, bool right);  // of white space
std::string strip(std::string_view text, std::string_view characters, bool left, bool right);

}  // namespace quire::jinja
