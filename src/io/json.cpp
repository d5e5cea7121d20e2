#include "io/json.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "io/file.h"

namespace quire {
namespace {

constexpr std::size_t kMaxDepth = 128;

// The library's messages open with "[json.exception.parse_error.101] ", which says nothing to a reader, and
// may quote a string as long as the file.
std::string_view reason(const nlohmann::detail::exception& error) {
  const std::string_view text = error.what();
  const std::size_t end = text.find("] ");
  return text.substr(end == std::string_view::npos ? 0 : end + 2, 300);
}

// Builds the document from the parser's events. The library's own builder looks every new key up among those
// before it, one by one: quadratic in the keys, minutes for a vocabulary.
class DocumentBuilder {
 public:
  explicit DocumentBuilder(std::string_view what) : what_(what) {}

  Json take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(std::int64_t value) { return add(value); }
  bool number_unsigned(std::uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }  // does not occur in text

  bool start_object(std::size_t) { return open(Json::object()); }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool key(std::string& name) {
    keys_.back() = std::move(name);
    return true;
  }
  bool end_object() {
    refuse_repeated_keys(*open_.back());
    return end_array();
  }
  bool end_array() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    fail(ErrorCode::invalid_input, "{}: not valid JSON at byte {}: {}", what_, position, reason(error));
  }

 private:
  Json* place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Json& parent = *open_.back();
    if (parent.is_array()) return &parent.get_ref<Json::array_t&>().emplace_back(std::move(value));
    std::vector<Json::object_t::value_type>& members = parent.get_ref<Json::object_t&>();
    return &members.emplace_back(std::move(keys_.back()), std::move(value)).second;
  }

  bool add(Json value) {
    place(std::move(value));
    return true;
  }

  bool open(Json container) {
    if (open_.size() == kMaxDepth)
      fail(ErrorCode::invalid_input, "{}: JSON nested deeper than {} levels", what_, kMaxDepth);
    open_.push_back(place(std::move(container)));
    keys_.emplace_back();
    return true;
  }

  // Programs disagree about which of two equal keys counts, so a file must not depend on it.
  void refuse_repeated_keys(const Json& object) const {
    std::vector<std::pair<std::size_t, std::string_view>> names;  // hashes first: they sort faster
    names.reserve(object.size());
    for (const auto& [name, value] : object.get_ref<const Json::object_t&>())
      names.emplace_back(std::hash<std::string_view>()(name), name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end())
      fail(ErrorCode::invalid_input, "{}: the key \"{}\" occurs twice in one object", what_,
           twice->second.substr(0, 100));
  }

  std::string_view what_;
  Json root_;
  std::vector<Json*> open_;        // containers from the root to the current one
  std::vector<std::string> keys_;  // of each: the key that waits for its value
};

}  // namespace

Json parse_json(std::string_view text, std::string_view what) {
  DocumentBuilder builder(what);
  Json::sax_parse(text, &builder);
  return builder.take();
}

Json read_json(const std::filesystem::path& path, std::size_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path.string());
}

}  // namespace quire
