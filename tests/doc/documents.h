// Small documents for the tests of doc/, made on the spot.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace quire::testing {

inline void write(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string read(const std::filesystem::path& path) {
  std::ostringstream content;
  content << std::ifstream(path, std::ios::binary).rdbuf();
  return content.str();
}

// A BMP of 24 bits: `paper` everywhere, and black where (x, y) is inside the first `ink_rows` rows, every
// other column.
inline std::string bmp(int width, int height, int ink_rows, std::uint8_t paper = 255) {
  std::string file = "BM";
  const auto put = [&](std::uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) file += static_cast<char>(value >> (8 * i) & 255);
  };
  const int stride = (width * 3 + 3) / 4 * 4;
  put(static_cast<std::uint32_t>(54 + stride * height), 4);
  put(0, 4);
  put(54, 4);
  put(40, 4);
  put(static_cast<std::uint32_t>(width), 4);
  put(static_cast<std::uint32_t>(height), 4);
  put(1, 2);
  put(24, 2);
  for (int i = 0; i < 6; ++i) put(0, 4);
  for (int row = height - 1; row >= 0; --row) {  // from the bottom up
    for (int x = 0; x < width; ++x) {
      const std::uint8_t level = row < ink_rows && x / 2 % 2 == 0 ? 0 : paper;
      for (int c = 0; c < 3; ++c) put(level, 1);
    }
    put(0, stride - width * 3);
  }
  return file;
}

// A PDF of empty pages with one black square each, readable for poppler.
inline std::string pdf(int pages) {
  std::string file = "%PDF-1.4\n";
  std::vector<std::size_t> offsets;
  const auto object = [&](const std::string& body) {
    offsets.push_back(file.size());
    file += std::to_string(offsets.size()) + " 0 obj\n" + body + "\nendobj\n";
  };
  std::string kids;
  for (int i = 0; i < pages; ++i) kids += std::to_string(4 + i) + " 0 R ";
  object("<< /Type /Catalog /Pages 2 0 R >>");
  object("<< /Type /Pages /Kids [" + kids + "] /Count " + std::to_string(pages) + " >>");
  object("<< /Length 18 >>\nstream\n10 10 50 50 re f  \nendstream");
  for (int i = 0; i < pages; ++i)
    object("<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 140] /Contents 3 0 R >>");
  const std::size_t table = file.size();
  file += "xref\n0 " + std::to_string(offsets.size() + 1) + "\n0000000000 65535 f \n";
  for (const std::size_t offset : offsets) {
    const std::string digits = std::to_string(offset);
    file += std::string(10 - digits.size(), '0') + digits + " 00000 n \n";
  }
  return file + "trailer\n<< /Size " + std::to_string(offsets.size() + 1) + " /Root 1 0 R >>\nstartxref\n" +
         std::to_string(table) + "\n%%EOF\n";
}

}  // namespace quire::testing
