#include "doc/pages.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#include <xxhash.h>

#include "core/error.h"
#include "io/file.h"
#include "io/pdf.h"

namespace quire {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kAhead = 2;                               // pages held ready
constexpr std::size_t kMaxInputBytes = std::size_t{1} << 30;    // of a picture file or of standard input
constexpr std::int64_t kDpiMaxPixels = std::int64_t{40} << 20;  // of a page at the --dpi asked for
// A picture may be decoded at a reduced size when at least so many times the model's pixels remain: the
// model's own resampling then sees no difference that matters.
constexpr std::int64_t kOversampling = 4;
constexpr std::size_t kHeadBytes = 1024;  // where is_pdf looks

std::span<const std::byte> as_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

bool is_picture(std::string_view head) {
  return image_format(as_bytes(head)) != ImageFormat::unknown;
}

// A picture's metadata may hold "%PDF-" among its first bytes, so it is asked for first.
bool is_pdf_document(std::string_view head) {
  return !is_picture(head) && is_pdf(as_bytes(head));
}

bool is_document(std::string_view head) {
  return is_picture(head) || is_pdf_document(head);
}

bool has_document_name(const fs::path& path) {
  static constexpr std::array kExtensions = {".pdf",  ".png", ".jpg",  ".jpeg", ".jpe",
                                             ".webp", ".tif", ".tiff", ".bmp",  ".gif"};
  std::string extension = path.extension().string();
  for (char& c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return std::find(kExtensions.begin(), kExtensions.end(), extension) != kExtensions.end();
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

// Does not wait for the writer of a pipe.
File open_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  File file(fd < 0 ? nullptr : ::fdopen(fd, "rb"));
  if (!file) {
    const int error = errno;
    fail(error == ENOENT || error == ENOTDIR ? ErrorCode::not_found : ErrorCode::io, "cannot open it: {}",
         std::generic_category().message(error));
  }
  return file;
}

// The first bytes of a file.
std::string read_head(const fs::path& path) {
  const File file = open_file(path);
  std::string head(kHeadBytes, '\0');
  head.resize(std::fread(head.data(), 1, head.size(), file.get()));
  return head;
}

void require_document(std::string_view head) {
  if (head.empty()) fail(ErrorCode::invalid_input, "is empty");
  if (!is_document(head))
    fail(ErrorCode::unsupported,
         "is neither a picture (PNG, JPEG, WebP, TIFF, BMP, GIF) nor a PDF, by its content");
}

// Standard input, a pipe or a device, to its end. Whoever writes may take any time, so it is waited for in
// short turns; what may have no end must be a document from its first bytes on.
std::string read_stream(int fd, const std::stop_token& stop) {
  std::string content;
  std::array<char, 1 << 16> chunk;
  while (!stop.stop_requested()) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    if (::poll(&ready, 1, 100) <= 0) continue;
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) fail(ErrorCode::io, "cannot be read: {}", std::generic_category().message(errno));
    if (n == 0) break;
    const std::size_t before = content.size();
    content.append(chunk.data(), static_cast<std::size_t>(n));
    if (before < kHeadBytes && content.size() >= kHeadBytes) require_document(content);
    if (content.size() > kMaxInputBytes)
      fail(ErrorCode::limit_exceeded, "is larger than {} bytes, the most that is read here", kMaxInputBytes);
  }
  return content;
}

// What arrives through a pipe, as a file for programs that need one. Removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::string_view content) {
    std::string name = (fs::temp_directory_path() / "quire-XXXXXX").string();
    const int fd = ::mkstemp(name.data());
    const File file(fd < 0 ? nullptr : ::fdopen(fd, "wb"));
    if (!file) fail(ErrorCode::io, "cannot create {}: {}", name, std::generic_category().message(errno));
    path_ = name;
    if (std::fwrite(content.data(), 1, content.size(), file.get()) != content.size() ||
        std::fflush(file.get()) != 0) {
      const int error = errno;
      ::unlink(path_.c_str());
      fail(ErrorCode::io, "cannot write {}: {}", name, std::generic_category().message(error));
    }
  }
  ~TemporaryFile() { ::unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

std::string hexadecimal(XXH128_hash_t hash) {
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// A message that begins with the file's name, without it: whoever prints it adds the name itself.
std::string reason_of(const std::exception& error, std::string_view name) {
  std::string_view message = error.what();
  if (dynamic_cast<const std::bad_alloc*>(&error)) message = "out of memory";
  if (message.starts_with(name) && message.substr(name.size()).starts_with(": "))
    message.remove_prefix(name.size() + 2);
  return std::string(message);
}

}  // namespace

// ------------------------------------------------------------------------------------------------ inputs

bool natural_less(std::string_view a, std::string_view b) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto number_at = [&](std::string_view text, std::size_t at) {
    std::size_t end = at;
    while (end < text.size() && is_digit(text[end])) ++end;
    while (at + 1 < end && text[at] == '0') ++at;
    return std::pair(text.substr(at, end - at), end);
  };
  std::size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const auto [x, x_end] = number_at(a, i);
      const auto [y, y_end] = number_at(b, j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
      i = x_end, j = y_end;
    } else {
      if (a[i] != b[j]) return static_cast<unsigned char>(a[i]) < static_cast<unsigned char>(b[j]);
      ++i, ++j;
    }
  }
  if (a.size() - i != b.size() - j) return a.size() - i < b.size() - j;
  return a < b;  // 01 and 1
}

std::vector<Input> list_inputs(const std::vector<std::string>& arguments,
                               const std::function<void(const std::string&)>& skipped) {
  std::vector<Input> inputs;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    if (argument == "-") {
      inputs.push_back({"stdin", "-"});
      continue;
    }
    if (!fs::is_directory(argument, ignored)) {
      inputs.push_back({argument, argument});
      continue;
    }
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(argument, error), end; !error && entry != end; entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (!name.starts_with(".") && !entry->is_directory(ignored)) names.push_back(name);
    }
    if (error) fail(ErrorCode::io, "{}: cannot read the folder: {}", argument, error.message());
    std::sort(names.begin(), names.end(), natural_less);
    for (const std::string& name : names) {
      const fs::path path = fs::path(argument) / name;
      // A link to nowhere counts by its name, so that it is reported; a pipe or a device never counts.
      const bool is_file = fs::is_regular_file(path, ignored);
      bool counts = has_document_name(path) && (is_file || !fs::exists(path, ignored));
      try {
        counts = counts || (is_file && is_document(read_head(path)));
      } catch (const Error&) {
        // Not readable and not named like a document.
      }
      if (counts) {
        inputs.push_back({path.string(), path});
      } else {
        skipped(path.string());
      }
    }
  }
  return inputs;
}

std::vector<PageRange> parse_page_ranges(std::string_view text) {
  const auto refuse = [&] {
    fail(ErrorCode::invalid_input, "--pages {}: expected page numbers from 1 and ranges, as in 1-3,7,10-",
         text);
  };
  const auto number = [&](std::string_view digits) {
    int value = 0;
    for (const char c : digits) {
      if (c < '0' || c > '9' || value > 9'999'999) refuse();
      value = value * 10 + (c - '0');
    }
    if (value == 0) refuse();
    return value;
  };
  std::vector<PageRange> ranges;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    const std::size_t dash = item.find('-');
    PageRange range{.first = number(item.substr(0, dash))};
    range.last = range.first;
    if (dash != std::string_view::npos)
      range.last = dash + 1 == item.size() ? INT_MAX : number(item.substr(dash + 1));
    if (range.last < range.first) refuse();
    ranges.push_back(range);
    if (comma == std::string_view::npos) return ranges;
    rest.remove_prefix(comma + 1);
  }
}

// --------------------------------------------------------------------------------------------------- ink

Ink measure_ink(const Image& image) {
  constexpr int kSame = 8;        // levels: a plain sheet after compression
  constexpr int kEdge = 16;       // levels: above the grain of scanned paper
  constexpr int kStandsOut = 48;  // levels between paper and faint print
  const auto width = static_cast<std::size_t>(image.width), height = static_cast<std::size_t>(image.height);
  std::array<std::int64_t, 256> count{};
  std::array<std::uint8_t, 3> low = {255, 255, 255}, high = {0, 0, 0};
  std::vector<std::uint8_t> row(width);
  Ink ink;
  for (std::size_t y = 0; y < height; ++y) {
    const std::uint8_t* pixel = image.rgb.data() + 3 * width * y;
    for (std::size_t x = 0; x < width; ++x, pixel += 3) {
      for (std::size_t c = 0; c < 3; ++c) {
        low[c] = std::min(low[c], pixel[c]);
        high[c] = std::max(high[c], pixel[c]);
      }
      row[x] = static_cast<std::uint8_t>((pixel[0] * 77 + pixel[1] * 150 + pixel[2] * 29) >> 8);
      ++count[row[x]];
      if (x >= 2) ink.edges += std::abs(row[x] - row[x - 2]) > kEdge;
    }
  }
  const std::ptrdiff_t paper = std::max_element(count.begin(), count.end()) - count.begin();
  std::int64_t dark = 0;
  for (std::ptrdiff_t level = 0; level < 256; ++level)
    if (std::abs(level - paper) > kStandsOut) dark += count[static_cast<std::size_t>(level)];
  ink.share = static_cast<double>(dark) / std::max(1.0, static_cast<double>(width * height));
  ink.uniform = true;
  for (std::size_t c = 0; c < 3; ++c) ink.uniform = ink.uniform && high[c] <= low[c] + kSame;
  return ink;
}

// ------------------------------------------------------------------------------------------------ stream

PageStream::PageStream(std::vector<Input> inputs, PageOptions options)
    : inputs_(std::move(inputs)), options_(std::move(options)) {
  total_ = {.pages = static_cast<int>(inputs_.size()), .exact = inputs_.empty()};
  reader_ = std::jthread([this](std::stop_token stop) { read_all(stop); });
}

PageStream::~PageStream() {
  reader_.request_stop();
}

std::optional<Page> PageStream::next(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, stop, [&] { return !ready_.empty() || finished_; });
  if (ready_.empty() || stop.stop_requested()) return std::nullopt;
  Page page = std::move(ready_.front());
  ready_.pop_front();
  changed_.notify_all();
  return page;
}

PageStream::Total PageStream::total() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

bool PageStream::put(Page page, std::stop_token stop) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait(lock, stop, [&] { return ready_.size() < kAhead; })) return false;
  ready_.push_back(std::move(page));
  changed_.notify_all();
  return true;
}

void PageStream::opened(int pages) {
  const std::lock_guard lock(mutex_);
  total_.pages += pages - 1;
  total_.exact = ++inputs_opened_ == inputs_.size();
}

void PageStream::read_all(std::stop_token stop) {
  for (std::size_t i = 0; i < inputs_.size() && !stop.stop_requested(); ++i) read_input(i, stop);
  const std::lock_guard lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

void PageStream::read_input(std::size_t index, std::stop_token stop) {
  const Input& input = inputs_[index];
  Page page;
  page.input = index;
  try {
    read_pages(input, input.path, page, stop);
  } catch (const std::exception& error) {
    // The pages before this one, if any, are on their way already.
    page.error = reason_of(error, input.name);
    page.number = 0;
    opened(1);
    put(std::move(page), stop);
  }
}

// Fills in what the pages of this input have in common, then puts one copy for each page. Throws only before
// the first page is out.
void PageStream::read_pages(const Input& input, const fs::path& path, Page& page, std::stop_token stop) {
  std::error_code ignored;
  std::optional<std::string> bytes;  // not of a PDF in a regular file: its pages are rendered from there
  if (path == "-") {
    bytes = read_stream(STDIN_FILENO, stop);
  } else if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) {
    bytes = read_stream(::fileno(open_file(path).get()), stop);
  } else if (!is_pdf_document(read_head(path))) {
    bytes = read_file(path, kMaxInputBytes);
  }

  const auto put_all = [&](int count, const std::function<Image(int)>& decode) {
    const std::vector<int> numbers = select(count, input.name);
    page.pages = static_cast<int>(numbers.size());
    opened(page.pages);
    for (const int number : numbers) {
      Page next = page;
      next.number = number;
      render(next, input.name, [&] { return decode(number); });
      if (!put(std::move(next), stop)) return;
    }
  };

  if (bytes && !is_pdf_document(*bytes)) {
    require_document(*bytes);
    page.input_hash = content_hash(*bytes);
    page.input_bytes = static_cast<std::int64_t>(bytes->size());
    put_all(image_frames(as_bytes(*bytes)), [&](int number) {
      return decode_image(as_bytes(*bytes), number - 1, input.name, {}, kOversampling * options_.max_pixels);
    });
    return;
  }

  std::optional<TemporaryFile> copy;
  if (bytes) copy.emplace(*std::exchange(bytes, std::nullopt));
  const fs::path& file = copy ? copy->path() : path;
  page.input_hash = file_hash(file);
  page.input_bytes = static_cast<std::int64_t>(fs::file_size(file));
  PdfOptions pdf_options;
  pdf_options.password = options_.password;
  pdf_options.dpi = options_.dpi;
  pdf_options.stop = stop;
  pdf_options.max_pixels = options_.dpi > 0 ? kDpiMaxPixels : options_.max_pixels;
  const Pdf pdf(file, std::move(pdf_options));
  put_all(pdf.pages(), [&](int number) { return pdf.render(number); });
}

std::vector<int> PageStream::select(int count, std::string_view name) const {
  std::vector<int> numbers;
  for (int number = 1; number <= count; ++number) {
    const auto holds = [&](const PageRange& r) { return r.first <= number && number <= r.last; };
    if (options_.ranges.empty() || std::any_of(options_.ranges.begin(), options_.ranges.end(), holds))
      numbers.push_back(number);
  }
  if (numbers.empty())
    fail(ErrorCode::invalid_input, "{}: has {} page{}, and --pages names none of them", name, count,
         count == 1 ? "" : "s");
  return numbers;
}

void PageStream::render(Page& page, std::string_view name, const std::function<Image()>& decode) {
  const auto start = Clock::now();
  try {
    page.image = decode();
    page.ink = measure_ink(page.image);
  } catch (const std::exception& error) {
    page.image = {};
    page.error = reason_of(error, name);
  }
  page.decode_seconds = std::chrono::duration<double>(Clock::now() - start).count();
}

// -------------------------------------------------------------------------------------------------- hash

std::string content_hash(std::string_view bytes) {
  return hexadecimal(XXH3_128bits(bytes.data(), bytes.size()));
}

std::string file_hash(const fs::path& path) {
  const File file = open_file(path);
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  if (!state) fail(ErrorCode::out_of_memory, "no memory for a hash");
  XXH3_128bits_reset(state.get());
  std::vector<char> chunk(std::size_t{1} << 20);
  while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), file.get()))
    XXH3_128bits_update(state.get(), chunk.data(), n);
  if (std::ferror(file.get())) fail(ErrorCode::io, "cannot read {}", path.string());
  return hexadecimal(XXH3_128bits_digest(state.get()));
}

}  // namespace quire
