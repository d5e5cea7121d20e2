// Whole files: read into memory, mapped, or written so that a reader never sees half of one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace quire {

// Throws Error{not_found | io}; {limit_exceeded} when the file is larger than `max_bytes`.
std::string read_file(const std::filesystem::path& path, std::size_t max_bytes = std::size_t{1} << 30);

// Writes to a temporary file in the same folder, syncs it and renames it over `path`. Throws Error{io}.
void write_file_atomically(const std::filesystem::path& path, std::string_view content);

// A read-only memory mapping of a file. Move-only.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);  // throws Error{not_found | io}
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace quire
