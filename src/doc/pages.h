// Inputs of a run (files, folders, standard input) as one sequence of page images. Reading and rendering go
// on in a thread of their own, a page or two ahead of whoever takes the pages, so that memory does not grow
// with the length of a document.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "io/image.h"

namespace quire {

struct Input {
  std::string name;            // for people: as it was given, "stdin" for standard input
  std::filesystem::path path;  // "-" for standard input
};

// Expands arguments: a file is itself, even when it does not exist (the run then reports it); "-" is standard
// input; a folder is its documents, one level deep, hidden files left out, in natural order (page2 before
// page10). A file of a folder counts as a document by its content, or by its name when the content is
// damaged; `skipped` is called with the names of the others.
std::vector<Input> list_inputs(const std::vector<std::string>& arguments,
                               const std::function<void(const std::string&)>& skipped);

// Digits compare as numbers, the rest by bytes.
bool natural_less(std::string_view a, std::string_view b);

struct PageRange {
  int first = 1;
  int last = 1;  // INT_MAX: to the end
  bool operator==(const PageRange&) const = default;
};

// "1-3,7,10-": Throws Error{invalid_input} saying what is wrong.
std::vector<PageRange> parse_page_ranges(std::string_view text);

struct PageOptions {
  std::vector<PageRange> ranges;  // pages of each document, which always come in their order; empty: all
  std::string password;           // of encrypted PDFs
  double dpi = 0;                 // of PDFs; 0: as much as the model can use
  std::int64_t max_pixels = std::int64_t{1} << 20;  // what the model can use of a page
};

// How much there is to see on a page.
struct Ink {
  double share = 0;        // pixels that stand out from the paper, of all pixels
  std::int64_t edges = 0;  // pixels that differ clearly from the one two to their left: outlines of print
  bool uniform = false;    // no two pixels differ by more than scanner noise: nothing is printed there

  // Whether a page with next to no ink (less than ten small letters need) can hold so many letters and
  // digits. Legible print has at least 40 edge pixels a character (42 was the least on 50 pages of all
  // kinds); a text with fewer than 8 is made up. Any page with more ink than that is trusted.
  bool can_hold(std::int64_t characters) const { return edges >= 400 || characters * 8 <= edges; }
};
Ink measure_ink(const Image& image);

// One page, or the reason why there is none.
struct Page {
  std::size_t input = 0;         // index of its input
  int number = 0;                // from 1; 0 when the whole input could not be read
  int pages = 1;                 // how many pages this input gives in this run
  std::string input_hash;        // content_hash of the input; "" when it could not be read
  std::int64_t input_bytes = 0;  // size of the input
  Image image;
  Ink ink;
  double decode_seconds = 0;
  std::string error;  // why `image` is empty; "" when it is not
};

class PageStream {
 public:
  PageStream(std::vector<Input> inputs, PageOptions options);
  ~PageStream();
  PageStream(const PageStream&) = delete;
  PageStream& operator=(const PageStream&) = delete;

  // The next page, in order; nothing at the end, or once `stop` is requested. Waits for it. Never throws for
  // a bad file or page.
  std::optional<Page> next(std::stop_token stop = {});

  // Pages of this run as far as known; an input that has not been opened yet counts as one.
  struct Total {
    int pages = 0;
    bool exact = false;
  };
  Total total() const;

 private:
  void read_all(std::stop_token stop);
  void read_input(std::size_t index, std::stop_token stop);
  void read_pages(const Input& input, const std::filesystem::path& path, Page& page, std::stop_token stop);
  void render(Page& page, std::string_view name, const std::function<Image()>& decode);
  std::vector<int> select(int count, std::string_view name) const;
  bool put(Page page, std::stop_token stop);
  void opened(int pages);

  const std::vector<Input> inputs_;
  const PageOptions options_;

  mutable std::mutex mutex_;  // of the four that follow
  std::condition_variable_any changed_;
  std::deque<Page> ready_;
  bool finished_ = false;
  Total total_;
  std::size_t inputs_opened_ = 0;

  std::jthread reader_;  // last: it uses all of the above
};

// XXH3-128 as 32 hexadecimal digits, as `xxhsum -H128` prints it: of bytes, and of a file.
std::string content_hash(std::string_view bytes);
std::string file_hash(const std::filesystem::path& file);  // throws Error{not_found | io}

}  // namespace quire
