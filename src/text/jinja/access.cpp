#include <algorithm>
#include <cstring>

#include <utf8proc.h>

#include "core/error.h"
#include "text/jinja/builtins.h"
#include "text/unicode/unicode.h"

namespace quire::jinja {
namespace {

constexpr std::string_view kStringMethods[] = {
    "startswith", "endswith", "strip",   "lstrip",       "rstrip",      "split", "rsplit",
    "splitlines", "replace",  "upper",   "lower",        "title",       "find",  "capitalize",
    "count",      "join",     "isdigit", "removeprefix", "removesuffix"};
constexpr std::string_view kMappingMethods[] = {"items", "keys", "values", "get"};
// What Python's objects have and this code does not. Mappings: they hide keys of the same name.
constexpr std::string_view kOtherStringMethods[] = {
    "casefold",    "center",  "encode",  "expandtabs", "format",       "format_map", "index",
    "isalnum",     "isalpha", "isascii", "isdecimal",  "isidentifier", "islower",    "isnumeric",
    "isprintable", "isspace", "istitle", "isupper",    "ljust",        "maketrans",  "partition",
    "rfind",       "rindex",  "rjust",   "rpartition", "swapcase",     "translate",  "zfill"};
constexpr std::string_view kOtherMappingMethods[] = {"clear",   "copy",       "fromkeys", "pop",
                                                     "popitem", "setdefault", "update"};
constexpr std::string_view kOtherListMethods[] = {"append", "clear", "copy",   "count",   "extend", "index",
                                                  "insert", "pop",   "remove", "reverse", "sort"};

template <std::size_t N>
bool is_one_of(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

const std::string& text_argument(std::string_view method, const Value* value) {
  if (value == nullptr || !value->is_string())
    fail(ErrorCode::invalid_input, "{}() expects a str, not {}", method,
         value ? value->type_name() : "nothing");
  return value->string();
}

std::int64_t integer_argument(std::string_view method, const Value* value, std::int64_t absent) {
  if (value == nullptr) return absent;
  if (!value->is_int())
    fail(ErrorCode::invalid_input, "{}() expects an int, not {}", method, value->type_name());
  return value->integer();
}

bool has_affix(const std::string& method, const std::string& text, const Value* affix) {
  const auto matches = [&](const std::string& one) {
    return method == "startswith" ? text.starts_with(one) : text.ends_with(one);
  };
  if (affix == nullptr || !affix->is_list() || !affix->list().tuple)
    return matches(text_argument(method, affix));
  const std::vector<Value>& all = affix->list().items;
  return std::any_of(all.begin(), all.end(),
                     [&](const Value& one) { return matches(text_argument(method, &one)); });
}

// Linear, where std::string::find may take the product of both lengths.
std::size_t find_text(std::string_view text, std::string_view part) {
  const void* found = ::memmem(text.data(), text.size(), part.data(), part.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data())
               : std::string_view::npos;
}

// Pieces between white space; no empty ones. `most`: cuts, -1 for all.
std::vector<Value> split_at_spaces(std::string_view text, std::int64_t most) {
  std::vector<Value> pieces;
  std::size_t begin = 0;
  const auto skip = [&](std::size_t from, bool spaces) {
    while (from < text.size()) {
      const Utf8Unit unit = valid_utf8_at(text, from);
      if (is_python_space(unit.code) != spaces) break;
      from += unit.bytes;
    }
    return from;
  };
  while ((begin = skip(begin, true)) < text.size()) {
    if (most-- == 0) {
      pieces.emplace_back(std::string(text.substr(begin)));
      break;
    }
    const std::size_t end = skip(begin, false);
    pieces.emplace_back(std::string(text.substr(begin, end - begin)));
    begin = end;
  }
  return pieces;
}

std::vector<Value> split(std::string_view text, std::string_view separator, std::int64_t most,
                         bool from_right) {
  if (separator.empty()) fail(ErrorCode::invalid_input, "split(): empty separator");
  std::vector<Value> pieces;
  for (; most != 0; --most) {
    const std::size_t at = from_right ? text.rfind(separator) : find_text(text, separator);
    if (at == std::string_view::npos) break;
    const std::string_view before = text.substr(0, at), after = text.substr(at + separator.size());
    pieces.emplace_back(std::string(from_right ? after : before));
    text = from_right ? before : after;
  }
  pieces.emplace_back(std::string(text));
  if (from_right) std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::vector<Value> split_lines(std::string_view text) {
  std::vector<Value> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of("\n\r"), text.size());
    lines.emplace_back(std::string(text.substr(0, end)));
    const std::size_t newline = text.substr(end).starts_with("\r\n") ? 2 : 1;
    text.remove_prefix(std::min(end + newline, text.size()));
  }
  return lines;
}

std::string replace(std::string_view text, std::string_view old, std::string_view by, std::int64_t most,
                    Budget& budget) {
  if (old.empty()) fail(ErrorCode::unsupported, "replace() of an empty str");
  std::string out;
  for (; most != 0; --most) {
    const std::size_t at = find_text(text, old);
    if (at == std::string_view::npos) break;
    budget.charge(at + by.size());
    out.append(text.substr(0, at)).append(by);
    text.remove_prefix(at + old.size());
  }
  return out.append(text);
}

enum class Case { upper, lower, title, capital };

std::string change_case(std::string_view text, Case wanted) {
  std::string out;
  bool in_word = false;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Unit unit = valid_utf8_at(text, i);
    const auto code = static_cast<utf8proc_int32_t>(unit.code);
    const utf8proc_category_t category = utf8proc_category(code);
    const bool initial = wanted == Case::title ? !in_word : wanted == Case::capital && i == 0;
    in_word = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LT;
    if (unit.code == 0xdf && wanted == Case::upper)
      out += "SS";
    else
      append_utf8(out, static_cast<char32_t>(wanted == Case::upper ? utf8proc_toupper(code)
                                             : initial             ? utf8proc_totitle(code)
                                                                   : utf8proc_tolower(code)));
    i += unit.bytes;
  }
  return out;
}

std::string join(const std::string& separator, const Value* parts, Budget& budget) {
  std::string out;
  if (parts == nullptr) fail(ErrorCode::invalid_input, "join() expects a list");
  const std::vector<Value> all = elements(*parts, budget);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::string& part = text_argument("join", &all[i]);
    budget.charge(part.size() + separator.size());
    if (i > 0) out += separator;
    out += part;
  }
  return out;
}

// Where in `text` `part` first is, in code points, or -1.
std::int64_t find(const std::string& text, const std::string& part) {
  const std::size_t at = find_text(text, part);
  return at == std::string::npos ? -1 : static_cast<std::int64_t>(length_of(text.substr(0, at)));
}

std::int64_t count(std::string_view text, std::string_view part) {
  if (part.empty()) fail(ErrorCode::unsupported, "count() of an empty str");
  std::int64_t n = 0;
  for (std::size_t at = 0; (at = find_text(text, part)) != std::string_view::npos; ++n)
    text.remove_prefix(at + part.size());
  return n;
}

Value call_string_method(const std::string& text, const std::string& name, const Arguments& arguments,
                         Budget& budget) {
  const auto bind = [&](std::initializer_list<std::string_view> names) {
    return arguments.bind(name, names);
  };
  budget.charge(text.size());
  if (name == "startswith" || name == "endswith") return has_affix(name, text, bind({"affix"})[0]);
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Value* set = bind({"chars"})[0];
    const bool left = name != "rstrip", right = name != "lstrip";
    if (set == nullptr || set->is_none()) return strip(text, left, right);
    budget.charge(text.size() * text_argument(name, set).size());
    return strip(text, set->string(), left, right);
  }
  if (name == "split" || name == "rsplit") {
    const auto given = bind({"sep", "maxsplit"});
    const std::int64_t most = integer_argument(name, given[1], -1);
    budget.charge(32 * text.size());
    if (given[0] != nullptr && !given[0]->is_none()) {
      const std::string& separator = text_argument(name, given[0]);
      if (name == "rsplit") budget.charge(text.size() * separator.size());
      return split(text, separator, most, name == "rsplit");
    }
    if (name == "rsplit" && most >= 0) fail(ErrorCode::unsupported, "rsplit() at white space with a limit");
    return split_at_spaces(text, most);
  }
  if (name == "replace") {
    const auto given = bind({"old", "new", "count"});
    return replace(text, text_argument(name, given[0]), text_argument(name, given[1]),
                   integer_argument(name, given[2], -1), budget);
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const std::string& affix = text_argument(name, bind({"affix"})[0]);
    if (name == "removeprefix") return text.starts_with(affix) ? text.substr(affix.size()) : text;
    return text.ends_with(affix) ? text.substr(0, text.size() - affix.size()) : text;
  }
  if (name == "find") return find(text, text_argument(name, bind({"sub"})[0]));
  if (name == "count") return count(text, text_argument(name, bind({"sub"})[0]));
  if (name == "join") return join(text, bind({"iterable"})[0], budget);

  bind({});
  budget.charge(8 * text.size());
  if (name == "splitlines") return split_lines(text);
  if (name == "isdigit")
    return !text.empty() &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (name == "upper") return change_case(text, Case::upper);
  if (name == "lower") return change_case(text, Case::lower);
  if (name == "title") return change_case(text, Case::title);
  return change_case(text, Case::capital);
}

Value call_mapping_method(const Mapping& mapping, const std::string& name, const Arguments& arguments,
                          Budget& budget) {
  budget.charge(16 * mapping.members.size());
  if (name == "get") {
    const auto given = arguments.bind(name, {"key", "default"});
    const Value* found = mapping.find(text_argument(name, given[0]));
    return found ? *found : given[1] ? *given[1] : Value();
  }
  arguments.bind(name, {});
  std::vector<Value> result;
  for (const auto& [key, value] : mapping.members) {
    budget.charge(key.size() + 16);
    if (name == "keys")
      result.emplace_back(key);
    else if (name == "values")
      result.push_back(value);
    else
      result.emplace_back(std::vector<Value>{key, value}, true);
  }
  return result;
}

}  // namespace

void Budget::charge(std::size_t bytes) {
  if (bytes > kMaxWork - used_)
    fail(ErrorCode::limit_exceeded, "rendering handles more than {} bytes: does a loop grow without end?",
         kMaxWork);
  used_ += bytes;
}

std::vector<const Value*> Arguments::bind(std::string_view callee,
                                          std::initializer_list<std::string_view> names) const {
  if (positional.size() > names.size())
    fail(ErrorCode::invalid_input, "{}() takes at most {} arguments, not {}", callee, names.size(),
         positional.size());
  std::vector<const Value*> bound(names.size());
  for (std::size_t i = 0; i < positional.size(); ++i) bound[i] = &positional[i];
  for (const auto& [name, value] : named) {
    const auto at = static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin());
    if (at == names.size() || bound[at] != nullptr)
      fail(ErrorCode::invalid_input, "{}() does not take an argument \"{}\" here", callee, name);
    bound[at] = &value;
  }
  return bound;
}

Value call_method(const Value& object, const std::string& name, const Arguments& arguments, Budget& budget) {
  if (object.is_string() && is_one_of(name, kStringMethods))
    return call_string_method(object.string(), name, arguments, budget);
  if (object.is_mapping() && is_one_of(name, kMappingMethods))
    return call_mapping_method(object.mapping(), name, arguments, budget);
  fail(ErrorCode::unsupported, "the method {}() of a {} is not supported", name, object.type_name());
}

Value attribute(const Value& object, const std::string& name, Budget& budget) {
  if (object.is_undefined()) fail(ErrorCode::invalid_input, "\"{}\" is undefined", object.undefined_name());
  const bool method =
      object.is_string()    ? is_one_of(name, kStringMethods) || is_one_of(name, kOtherStringMethods)
      : object.is_mapping() ? is_one_of(name, kMappingMethods) || is_one_of(name, kOtherMappingMethods)
                            : object.is_list() && is_one_of(name, kOtherListMethods);
  if (method) return std::make_shared<const Callable>(Callable{nullptr, name, object});
  if (const Namespace* space = object.name_space()) {
    budget.charge(space->members.size());
    const Value* found = space->find(name);
    return found ? *found : Value(Undefined{name});
  }
  return object.is_mapping() ? item(object, name, budget) : Value(Undefined{name});
}

Value item(const Value& object, const Value& key, Budget& budget) {
  if (object.is_undefined()) fail(ErrorCode::invalid_input, "\"{}\" is undefined", object.undefined_name());
  if (object.is_mapping() && key.is_string()) {
    budget.charge(object.mapping().members.size());
    const Value* found = object.mapping().find(key.string());
    if (found != nullptr) return *found;
  }
  if ((object.is_list() || object.is_string()) && (key.is_int() || key.is_bool())) {
    if (object.is_string()) budget.charge(8 * object.string().size());
    const std::int64_t size =
        static_cast<std::int64_t>(object.is_list() ? object.list().items.size() : length_of(object.string()));
    const std::int64_t at = key.integer() < 0 ? key.integer() + size : key.integer();
    if (at >= 0 && at < size) {
      if (object.is_list()) return object.list().items[static_cast<std::size_t>(at)];
      return characters(object.string())[static_cast<std::size_t>(at)];
    }
  }
  return Undefined{key.is_string() ? key.string() : "item " + to_text(key)};
}

std::vector<Value> elements(const Value& value, Budget& budget) {
  std::vector<Value> result;
  if (value.is_list()) {
    budget.charge(16 * value.list().items.size());
    return value.list().items;
  }
  if (value.is_mapping()) {
    for (const auto& member : value.mapping().members) {
      budget.charge(member.first.size() + 16);
      result.emplace_back(member.first);
    }
    return result;
  }
  if (value.is_string()) {
    budget.charge(32 * value.string().size());
    for (std::string& character : characters(value.string())) result.emplace_back(std::move(character));
    return result;
  }
  if (!value.is_undefined()) fail(ErrorCode::invalid_input, "a {} cannot be looped over", value.type_name());
  return result;
}

bool contains(const Value& container, const Value& element, Budget& budget) {
  if (container.is_string()) {
    const std::string& part = text_argument("in", &element);
    budget.charge(container.string().size());
    return find_text(container.string(), part) != std::string_view::npos;
  }
  if (container.is_mapping()) {
    budget.charge(container.mapping().members.size());
    return element.is_string() && container.mapping().find(element.string()) != nullptr;
  }
  if (!container.is_list() && !container.is_undefined())
    fail(ErrorCode::invalid_input, "\"in\" expects a str, list or dict on its right, not {}",
         container.type_name());
  if (container.is_undefined()) return false;
  budget.charge(container.weight());
  const std::vector<Value>& items = container.list().items;
  return std::any_of(items.begin(), items.end(), [&](const Value& one) { return equal(one, element); });
}

}  // namespace quire::jinja
