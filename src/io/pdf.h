// PDF pages through poppler's pdfinfo and pdftoppm as child processes: a crash, a hang or a memory bomb in a
// document stays in the child.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "io/image.h"

namespace quire {

struct PdfLimits {
  double seconds = 60;                              // wall time of one child
  std::size_t memory_bytes = std::size_t{4} << 30;  // address space of one child
};

struct PdfOptions {
  // User or owner password, at most 32 bytes. Poppler takes it on its command line, where other users of the
  // machine can see it while the child runs.
  std::string password = {};
  double dpi = 0;               // 0: the largest, up to 300, whose page has at most `max_pixels`
  std::int64_t max_pixels = 0;  // bound on a rendered page, also for a given dpi; 0: none but 150 megapixels
  PdfLimits limits = {};
  std::stop_token stop = {};  // once requested, a child that runs is ended and its call fails
};

class Pdf {
 public:
  // Reads page count and sizes. Throws Error{invalid_input} for a file that is not a usable PDF,
  // Error{invalid_input} naming --password when it is encrypted, Error{limit_exceeded} for a child over its
  // limits, Error{not_found} when poppler is not installed.
  Pdf(std::filesystem::path file, PdfOptions options);

  int pages() const { return pages_; }

  // Page `number`, from 1: its crop box, turned as the document says, on white. The same errors, for this
  // page only; Error{limit_exceeded} also when it would have more than 150 megapixels at the given dpi. May
  // be called from several threads.
  Image render(int number) const;

 private:
  struct PageSize {
    double width, height;  // points, upright
  };
  PageSize page_size(int number) const;
  double resolution(PageSize page, int number) const;  // dpi
  std::string run(const char* program, std::vector<std::string> arguments, std::size_t output_bytes,
                  const std::string& what) const;

  std::filesystem::path file_;
  PdfOptions options_;
  int pages_ = 0;
};

// True when the bytes are a PDF's: "%PDF-" within the first 1,024, as viewers accept it.
bool is_pdf(std::span<const std::byte> head);

}  // namespace quire
