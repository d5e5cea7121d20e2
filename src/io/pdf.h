// PDF pages through poppler's pdfinfo and pdftoppm as child processes: a crash, a hang or a memory bomb in a
// document stays in the child.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "io/image.h"

namespace quire {

struct PdfLimits {
  double seconds = 60;                              // wall time of one child
  std::size_t memory_bytes = std::size_t{4} << 30;  // address space of one child
};

struct PdfOptions {
  std::string password;         // user or owner password
  double dpi = 0;               // 0: the largest resolution whose page has at most `max_pixels`
  std::int64_t max_pixels = 0;  // bound on a rendered page, also for a given dpi; 0: none
  PdfLimits limits;
};

class Pdf {
 public:
  // Reads page count and sizes. Throws Error{invalid_input} for a file that is not a usable PDF,
  // Error{invalid_input} naming --password when it is encrypted, Error{limit_exceeded} for a child over its
  // limits, Error{not_found} when poppler is not installed.
  Pdf(std::filesystem::path file, PdfOptions options);

  int pages() const { return pages_; }

  // Page `number`, from 1. The same errors, for this page only.
  Image render(int number) const;

 private:
  std::filesystem::path file_;
  PdfOptions options_;
  int pages_ = 0;
};

// True when the bytes are a PDF's: "%PDF-" within the first 1,024, as viewers accept it.
bool is_pdf(std::span<const std::byte> head);

}  // namespace quire
