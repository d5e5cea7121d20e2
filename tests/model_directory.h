// Model directories that tests write themselves.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/error.h"
#include "temporary_directory.h"

namespace quire {

// One tensor of a file to be written. `data` empty: zeros, which take no room on disk.
struct StoredTensor {
  std::string name;
  std::string dtype = "BF16";
  std::vector<std::int64_t> shape;
  std::string data;
};

inline std::string bytes_of(const auto& values) {
  std::string bytes(values.size() * sizeof(values[0]), '\0');
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Header length and header of a safetensors file.
inline std::string safetensors_prefix(std::string_view header) {
  std::string file(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, sizeof(length));
  return file.append(header);
}

// Writes a safetensors file; tensors without data become a hole at the end of it.
inline void write_safetensors(const std::filesystem::path& path, const std::vector<StoredTensor>& tensors) {
  std::string header = "{", data;
  std::uint64_t end = 0;
  for (const StoredTensor& t : tensors) {
    std::uint64_t bytes = t.dtype == "F32" || t.dtype == "I32" ? 4
                          : t.dtype == "I64"                   ? 8
                          : t.dtype == "U8"                    ? 1
                                                               : 2;
    for (std::int64_t side : t.shape) bytes *= static_cast<std::uint64_t>(side);
    header +=
        fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                    header.size() > 1 ? "," : "", t.name, t.dtype, fmt::join(t.shape, ","), end, end + bytes);
    if (!t.data.empty()) data.resize(end), data += t.data;
    end += bytes;
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string prefix = safetensors_prefix(header);
  std::ofstream(path, std::ios::binary) << prefix << data;
  std::filesystem::resize_file(path, prefix.size() + end);
}

// The message of the Error that `call` throws, "CODE: text"; "" when it throws none.
inline std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return fmt::format("{}: {}", to_string(error.code()), error.what());
  }
  return "";
}

}  // namespace quire
