// Fixtures made by tests/text/fixtures.py. The committed ones are in tests/text/data;
// tests/text/differential.py makes larger ones and names their folder in QUIRE_TEXT_FIXTURES.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"

namespace quire {

// The fixtures whose name begins with `kind`, "tokenizer" say. All are JSON.
inline std::vector<std::filesystem::path> fixtures(std::string_view kind) {
  const char* folder = std::getenv("QUIRE_TEXT_FIXTURES");
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder ? folder : "tests/text/data"))
    if (entry.path().filename().string().starts_with(kind)) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

// A string, or {"hex": "..."} for bytes that are not UTF-8.
inline std::string bytes_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  const std::string hex = value.at("hex").get<std::string>();
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

}  // namespace quire
