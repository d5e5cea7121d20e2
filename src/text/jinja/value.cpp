#include "text/jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <utf8proc.h>

#include "core/error.h"
#include "text/unicode/unicode.h"

namespace quire::jinja {
namespace {

constexpr std::size_t kWeight = 16;  // of a scalar

// Lists that hold a list twice, which does the same, weigh more than any integer holds.
std::size_t add(std::size_t a, std::size_t b) {
  return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

void refuse_depth(int depth) {
  if (depth > kMaxValueDepth)
    fail(ErrorCode::limit_exceeded, "values nested deeper than {} levels", kMaxValueDepth);
}

void refuse_length(const std::string& text) {
  if (text.size() > kMaxText) fail(ErrorCode::limit_exceeded, "a text of more than {} bytes", kMaxText);
}

// repr() of a float: the shortest digits that read back, an exponent outside 1e-4 to 1e16.
std::string float_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x < 0 ? "-inf" : "inf";
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, x, std::chars_format::scientific).ptr;
  const std::string_view shortest(digits, static_cast<std::size_t>(end - digits));
  const int exponent = std::stoi(std::string(shortest.substr(shortest.find('e') + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  const auto fixed = std::to_chars(digits, digits + sizeof digits, x, std::chars_format::fixed).ptr;
  std::string text(digits, static_cast<std::size_t>(fixed - digits));
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

bool is_printable(char32_t code) {
  if (code == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(code))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void append_repr(std::string& out, const std::string& text) {
  const char quote = text.find('\'') != std::string::npos && text.find('"') == std::string::npos ? '"' : '\'';
  out += quote;
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Unit unit = valid_utf8_at(text, i);
    const auto code = static_cast<std::uint32_t>(unit.code);
    if (code == static_cast<unsigned char>(quote) || code == '\\')
      out.append({'\\', static_cast<char>(code)});
    else if (code == '\n')
      out += "\\n";
    else if (code == '\r')
      out += "\\r";
    else if (code == '\t')
      out += "\\t";
    else if (is_printable(unit.code))
      out.append(text, i, unit.bytes);
    else if (code < 0x100)
      out += fmt::format("\\x{:02x}", code);
    else if (code < 0x10000)
      out += fmt::format("\\u{:04x}", code);
    else
      out += fmt::format("\\U{:08x}", code);
    i += unit.bytes;
  }
  out += quote;
}

void append_members(std::string& out, const std::vector<std::pair<std::string, Value>>& members);

void append_repr(std::string& out, const Value& value) {
  refuse_length(out);
  if (value.is_string()) {
    append_repr(out, value.string());
  } else if (value.is_list()) {
    const List& list = value.list();
    out += list.tuple ? '(' : '[';
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(out, list.items[i]);
    }
    if (list.tuple && list.items.size() == 1) out += ',';
    out += list.tuple ? ')' : ']';
  } else if (value.is_mapping()) {
    append_members(out, value.mapping().members);
  } else if (value.is_undefined()) {
    out += "Undefined";
  } else {
    out += to_text(value);
  }
}

void append_members(std::string& out, const std::vector<std::pair<std::string, Value>>& members) {
  out += '{';
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(out, members[i].first);
    out += ": ";
    append_repr(out, members[i].second);
  }
  out += '}';
}

void append_json_string(std::string& out, const std::string& text, bool ascii) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  const auto append_unit = [&](std::uint32_t unit) { out += fmt::format("\\u{:04x}", unit); };
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const Utf8Unit unit = valid_utf8_at(text, i);
    const auto code = static_cast<std::uint32_t>(unit.code);
    const std::size_t escape = code < 0x80 ? kEscaped.find(static_cast<char>(code)) : std::string_view::npos;
    if (escape != std::string_view::npos) {
      out.append({'\\', kLetters[escape]});
    } else if (code < 0x20 || (ascii && code >= 0x7f && code < 0x10000)) {
      append_unit(code);
    } else if (ascii && code >= 0x10000) {
      append_unit(0xd800 + ((code - 0x10000) >> 10));
      append_unit(0xdc00 + ((code - 0x10000) & 0x3ff));
    } else {
      out.append(text, i, unit.bytes);
    }
    i += unit.bytes;
  }
  out += '"';
}

void append_json(std::string& out, const Value& value, const JsonStyle& style, int level) {
  refuse_length(out);
  const auto new_line = [&](int at) {
    if (style.indent >= 0) out.append(1, '\n').append(static_cast<std::size_t>(at * style.indent), ' ');
  };
  if (value.is_string()) return append_json_string(out, value.string(), style.ascii);
  if (value.is_none()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.boolean() ? "true" : "false";
  } else if (value.is_double() && !std::isfinite(value.number())) {
    out += std::isnan(value.number()) ? "NaN" : value.number() < 0 ? "-Infinity" : "Infinity";
  } else if (value.is_number()) {
    out += to_text(value);
  } else if (value.is_list()) {
    const std::vector<Value>& items = value.list().items;
    out += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += style.item_separator;
      new_line(level + 1);
      append_json(out, items[i], style, level + 1);
    }
    if (!items.empty()) new_line(level);
    out += ']';
  } else if (value.is_mapping()) {
    std::vector<const std::pair<std::string, Value>*> members;
    for (const auto& member : value.mapping().members) members.push_back(&member);
    if (style.sort_keys)
      std::sort(members.begin(), members.end(), [](auto a, auto b) { return a->first < b->first; });
    out += '{';
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i > 0) out += style.item_separator;
      new_line(level + 1);
      append_json_string(out, members[i]->first, style.ascii);
      out += style.key_separator;
      append_json(out, members[i]->second, style, level + 1);
    }
    if (!members.empty()) new_line(level);
    out += '}';
  } else {
    fail(ErrorCode::invalid_input, "{} has no JSON form", value.type_name());
  }
}

const Value* find_member(const std::vector<std::pair<std::string, Value>>& members, std::string_view key) {
  const auto found =
      std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.first == key; });
  return found == members.end() ? nullptr : &found->second;
}

template <typename T>
int order(T a, T b) {
  return a < b ? -1 : b < a ? 1 : 0;
}

}  // namespace

Value::Value(std::vector<Value> items, bool tuple) {
  int depth = 1;
  std::size_t weight = kWeight;
  for (const Value& item : items) {
    depth = std::max(depth, item.depth() + 1);
    weight = add(weight, item.weight());
  }
  refuse_depth(depth);
  data_ = std::make_shared<const List>(List{std::move(items), tuple, depth, weight});
}

Value::Value(std::vector<std::pair<std::string, Value>> members) {
  int depth = 1;
  std::size_t weight = kWeight;
  for (const auto& [key, value] : members) {
    depth = std::max(depth, value.depth() + 1);
    weight = add(weight, add(key.size(), value.weight()));
  }
  refuse_depth(depth);
  data_ = std::make_shared<const Mapping>(Mapping{std::move(members), depth, weight});
}

std::int64_t Value::integer() const {
  return is_bool() ? boolean() : std::get<std::int64_t>(data_);
}

double Value::number() const {
  return is_double() ? std::get<double>(data_) : static_cast<double>(integer());
}

Namespace* Value::name_space() const {
  const auto* space = std::get_if<Namespace*>(&data_);
  return space ? *space : nullptr;
}

const std::shared_ptr<const Callable>* Value::callable() const {
  return std::get_if<std::shared_ptr<const Callable>>(&data_);
}

int Value::depth() const {
  if (is_list()) return list().depth;
  if (is_mapping()) return mapping().depth;
  return callable() ? (*callable())->object.depth() + 1 : 0;
}

std::size_t Value::weight() const {
  if (is_string()) return add(kWeight, string().size());
  if (is_list()) return list().weight;
  if (is_mapping()) return mapping().weight;
  return callable() ? add(kWeight, (*callable())->object.weight()) : kWeight;
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return number() != 0;
  if (is_string()) return !string().empty();
  if (is_list()) return !list().items.empty();
  if (is_mapping()) return !mapping().members.empty();
  return true;
}

const char* Value::type_name() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_bool()) return "bool";
  if (is_int()) return "int";
  if (is_double()) return "float";
  if (is_string()) return "str";
  if (is_list()) return list().tuple ? "tuple" : "list";
  if (is_mapping()) return "dict";
  return name_space() ? "Namespace" : "function";
}

const Value* Mapping::find(std::string_view key) const {
  return find_member(members, key);
}
const Value* Namespace::find(std::string_view key) const {
  return find_member(members, key);
}

void Namespace::set(std::string_view key, Value value) {
  for (auto& [name, old] : members)
    if (name == key) {
      old = std::move(value);
      return;
    }
  members.emplace_back(key, std::move(value));
}

Value from_json(const Json& json) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) return json.get<double>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number_float()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json) items.push_back(from_json(item));
    return items;
  }
  if (json.is_object()) {
    std::vector<std::pair<std::string, Value>> members;
    for (const auto& [key, value] : json.items()) members.emplace_back(key, from_json(value));
    return members;
  }
  return {};
}

std::string to_text(const Value& value) {
  if (value.is_string()) return value.string();
  if (value.is_undefined()) return {};
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.boolean() ? "True" : "False";
  if (value.is_int()) return std::to_string(value.integer());
  if (value.is_double()) return float_text(value.number());
  if (!value.is_list() && !value.is_mapping())
    fail(ErrorCode::unsupported, "printing a {}", value.type_name());
  std::string out;
  append_repr(out, value);
  refuse_length(out);
  return out;
}

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string out;
  append_json(out, value, style, 0);
  refuse_length(out);
  return out;
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    return a.is_double() || b.is_double() ? a.number() == b.number() : a.integer() == b.integer();
  }
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_list() && b.is_list()) {
    const List &x = a.list(), &y = b.list();
    return x.tuple == y.tuple &&
           std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), equal);
  }
  if (a.is_mapping() && b.is_mapping()) {
    const Mapping &x = a.mapping(), &y = b.mapping();
    if (x.members.size() != y.members.size()) return false;
    return std::all_of(x.members.begin(), x.members.end(), [&](const auto& member) {
      const Value* other = y.find(member.first);
      return other != nullptr && equal(member.second, *other);
    });
  }
  if (a.name_space() || b.name_space()) return a.name_space() == b.name_space();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int compare(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return order<std::string_view>(a.string(), b.string());
  if (a.is_number() && b.is_number())
    return a.is_double() || b.is_double() ? order(a.number(), b.number()) : order(a.integer(), b.integer());
  fail(ErrorCode::invalid_input, "no order between {} and {}", a.type_name(), b.type_name());
}

std::vector<std::string> characters(std::string_view text) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t n = valid_utf8_at(text, i).bytes;
    result.emplace_back(text.substr(i, n));
    i += n;
  }
  return result;
}

std::size_t length_of(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

bool is_python_space(char32_t code) {
  return (code >= 0x9 && code <= 0xd) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
         code == 0x202f || code == 0x205f || code == 0x3000;
}

namespace {

template <typename Predicate>
std::string strip_if(std::string_view text, bool left, bool right, const Predicate& stripped) {
  while (left && !text.empty()) {
    const Utf8Unit unit = valid_utf8_at(text, 0);
    if (!stripped(unit.code)) break;
    text.remove_prefix(unit.bytes);
  }
  while (right && !text.empty()) {
    std::size_t last = text.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(text[last]) & 0xc0) == 0x80) --last;
    if (!stripped(valid_utf8_at(text, last).code)) break;
    text = text.substr(0, last);
  }
  return std::string(text);
}

}  // namespace

std::string strip(std::string_view text, bool left, bool right) {
  return strip_if(text, left, right, is_python_space);
}

std::string strip(std::string_view text, std::string_view set, bool left, bool right) {
  return strip_if(text, left, right, [&](char32_t code) {
    std::string character;
    append_utf8(character, code);
    return set.find(character) != std::string_view::npos;
  });
}

}  // namespace quire::jinja
