// The golden cases of oracle/make_golden.py: a model, a page, and every value the model must compute on it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "io/image.h"
#include "io/safetensors.h"
#include "ops/ops.h"
#include "sanitized.h"

namespace quire {

struct GoldenCase {
  const char* name;
  const char* model;   // directory
  const char* page;    // of tests/golden/pages
  const char* prompt;  // nullptr: only make_golden.py has it (the ids are in the fixture)
};

inline constexpr GoldenCase kGoldenCases[] = {
    {"tiny-a", "tests/golden/tiny-a", "stamp", "Read the stamp."},
    {"tiny-a-long", "tests/golden/tiny-a", "label", nullptr},
    {"tiny-b", "tests/golden/tiny-b", "stamp", "Read the stamp."},
    {"tiny-c", "tests/golden/tiny-c", "stamp", "What does it say?"},
    {"mini-notice", "models/quire-mini", "notice", "Convert this page to Markdown."},
};

inline Image golden_page(const GoldenCase& c) {
  const std::string path = fmt::format("tests/golden/pages/{}.png", c.page);
  const std::string file = read_file(path);
  return decode_image(std::as_bytes(std::span(file)), 0, path);
}

// CASE.f32 or CASE.bf16.
class Golden {
 public:
  Golden(const GoldenCase& c, Format format)
      : Golden(
            fmt::format("tests/golden/{}.{}.safetensors", c.name, format == Format::f32 ? "f32" : "bf16")) {}
  explicit Golden(std::string path)
      : path_(std::move(path)), file_(path_), tensors_(parse_safetensors(file_.bytes(), path_)) {}

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const Tensor& at(const std::string& name) const {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) fail(ErrorCode::not_found, "{} has no {}", path_, name);
    return it->second;
  }
  std::vector<std::int32_t> ints(const std::string& name) const {
    const Tensor& t = at(name);
    const auto* p = reinterpret_cast<const std::int32_t*>(t.data);
    return {p, p + t.elements()};
  }
  std::vector<float> floats(const std::string& name) const {
    const Tensor& t = at(name);
    std::vector<float> x;
    for (std::int64_t i = 0; i < t.elements(); ++i) {
      x.push_back(t.dtype == DType::bf16 ? to_float(reinterpret_cast<const bf16*>(t.data)[i])
                                         : reinterpret_cast<const float*>(t.data)[i]);
    }
    return x;
  }

 private:
  std::string path_;
  MappedFile file_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace quire
