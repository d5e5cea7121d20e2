// Filters, tests, methods and attributes: what templates can ask of a value.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace quire::jinja {

// What a rendering may still do: a template that never ends, or that builds ever larger values, ends here.
class Budget {
 public:
  // Throws Error{limit_exceeded} once more than kMaxWork bytes were handled.
  void charge(std::size_t bytes);

 private:
  static constexpr std::size_t kMaxWork = std::size_t{128} << 20;
  std::size_t used_ = 0;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The arguments in the order of `names`, null where absent. Throws Error{invalid_input} naming `callee` for
  // one that has no place.
  std::vector<const Value*> bind(std::string_view callee,
                                 std::initializer_list<std::string_view> names) const;
};

// Throws Error{unsupported} for a name that is not known, Error{invalid_input} for values that do not fit.
Value apply_filter(const std::string& name, const Value& input, const Arguments& arguments, Budget& budget);
bool apply_test(const std::string& name, const Value& input, const Arguments& arguments, Budget& budget);
Value call_method(const Value& object, const std::string& name, const Arguments& arguments, Budget& budget);

// object.name and object[key]; Undefined when there is no such thing.
Value attribute(const Value& object, const std::string& name, Budget& budget);
Value item(const Value& object, const Value& key, Budget& budget);

// What a loop over the value sees. Throws Error{invalid_input} when it cannot be looped over.
std::vector<Value> elements(const Value& value, Budget& budget);
bool contains(const Value& container, const Value& element, Budget& budget);

}  // namespace quire::jinja
