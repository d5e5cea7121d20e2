#include "io/pdf.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "core/error.h"
#include "io/child_process.h"

namespace quire {

namespace {

constexpr double kMaxAutomaticDpi = 300, kPointsPerInch = 72;
constexpr std::int64_t kMaxPagePixels = 150'000'000;
constexpr std::size_t kMaxInfoBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxPasswordBytes = 32;  // of poppler's programs: they cut off the rest

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

template <typename Use>
void for_each_line(std::string_view text, Use&& use) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    use(trimmed(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Poppler's last words, which are about what stopped it: printable, one line, not long.
std::string last_line(std::string_view errors) {
  constexpr std::size_t kMaxReason = 200;
  std::string reason;
  for_each_line(errors, [&](std::string_view line) {
    if (!line.empty()) reason = line.substr(0, kMaxReason);
  });
  std::ranges::replace_if(
      reason, [](unsigned char c) { return c < ' ' || c == 127; }, ' ');
  return reason.empty() ? "no reason given" : reason;
}

// Takes a number off the front of `text`, after spaces.
template <typename Number>
std::optional<Number> take_number(std::string_view& text) {
  text = text.substr(std::min(text.find_first_not_of(" \n\t"), text.size()));
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

// The value of the last line "<label>: <value>". Earlier ones may be text of the document.
std::optional<std::string_view> value_of(std::string_view info, std::string_view label) {
  std::optional<std::string_view> value;
  for_each_line(info, [&](std::string_view line) {
    if (line.starts_with(label) && line.substr(label.size()).starts_with(':'))
      value = trimmed(line.substr(label.size() + 1));
  });
  return value;
}

// The value of the line "Page <number> <label>: <value>", in which the number is padded.
std::string_view page_value_of(std::string_view info, int number, std::string_view label) {
  constexpr std::string_view kPage = "Page ";
  std::string_view value;
  for_each_line(info, [&](std::string_view line) {
    if (!line.starts_with(kPage)) return;
    line.remove_prefix(kPage.size());
    if (take_number<int>(line) != number) return;
    if (const std::string_view rest = trimmed(line); rest.starts_with(label))
      value = trimmed(rest.substr(label.size()));
  });
  return value;
}

// Poppler rounds up.
int pixels_at(double points, double dpi) {
  return static_cast<int>(std::ceil(points * dpi / kPointsPerInch));
}

// "P6 <width> <height> 255", one white space, the pixels.
std::optional<Image> parse_ppm(std::string_view ppm) {
  constexpr int kMaxSide = 1 << 28;
  if (!ppm.starts_with("P6")) return std::nullopt;
  ppm.remove_prefix(2);
  const std::optional<int> width = take_number<int>(ppm), height = take_number<int>(ppm),
                           top = take_number<int>(ppm);
  if (!width || !height || top != 255 || ppm.empty()) return std::nullopt;
  if (*width < 1 || *height < 1 || *width > kMaxSide || *height > kMaxSide) return std::nullopt;
  ppm.remove_prefix(1);
  const std::int64_t bytes = 3 * std::int64_t{*width} * *height;
  if (std::ssize(ppm) < bytes) return std::nullopt;
  const auto* rgb = reinterpret_cast<const std::uint8_t*>(ppm.data());
  return Image{.width = *width, .height = *height, .rgb = {rgb, rgb + bytes}};
}

std::string page_of(const std::filesystem::path& file, int number) {
  return fmt::format("{}: page {}", file.string(), number);
}

}  // namespace

bool is_pdf(std::span<const std::byte> head) {
  constexpr std::string_view kMark = "%PDF-";
  constexpr std::size_t kSearched = 1024;
  const std::string_view text(reinterpret_cast<const char*>(head.data()), std::min(head.size(), kSearched));
  return text.find(kMark) != std::string_view::npos;
}

Pdf::Pdf(std::filesystem::path file, PdfOptions options)
    : file_(std::move(file)), options_(std::move(options)) {
  if (options_.password.size() > kMaxPasswordBytes || options_.password.find('\0') != std::string::npos)
    fail(ErrorCode::unsupported, "--password: {} bytes; poppler takes at most {}", options_.password.size(),
         kMaxPasswordBytes);
  if (!(options_.dpi >= 0 && options_.dpi <= 10'000))
    fail(ErrorCode::invalid_input, "--dpi {}: expected 1 to 10000, or 0 to choose", options_.dpi);
  std::error_code error;
  if (!std::filesystem::is_regular_file(file_, error))
    fail(ErrorCode::not_found, "{}: no such file", file_.string());
  const std::string info = run("pdfinfo", {}, kMaxInfoBytes, file_.string());
  std::string_view pages = value_of(info, "Pages").value_or("");
  pages_ = take_number<int>(pages).value_or(0);
  if (pages_ < 1) fail(ErrorCode::invalid_input, "{}: the PDF has no pages", file_.string());
}

std::string Pdf::run(const char* program, std::vector<std::string> arguments, std::size_t output_bytes,
                     const std::string& what) const {
  const std::optional<std::filesystem::path> path = find_program(program);
  if (!path)
    fail(ErrorCode::not_found, "{} is not installed; PDF files need it (package poppler-utils)", program);
  if (!options_.password.empty())
    arguments.insert(arguments.end(), {"-upw", options_.password, "-opw", options_.password});
  arguments.push_back(std::filesystem::absolute(file_).string());  // never looks like an option
  ChildResult result = run_child(*path, arguments,
                                 {.seconds = options_.limits.seconds,
                                  .memory_bytes = options_.limits.memory_bytes,
                                  .output_bytes = output_bytes,
                                  .stop = options_.stop});
  const auto complains_of = [&](std::string_view text) {
    return result.errors.find(text) != std::string::npos;
  };
  if (result.end == ChildEnd::stopped) fail(ErrorCode::limit_exceeded, "{}: {} was stopped", what, program);
  if (result.end == ChildEnd::timed_out)
    fail(ErrorCode::limit_exceeded, "{}: {} took more than {} s", what, program, options_.limits.seconds);
  if (result.end == ChildEnd::output_too_long)
    fail(ErrorCode::limit_exceeded, "{}: {} wrote more than the {} bytes expected", what, program,
         output_bytes);
  // Poppler may say so and still end well, with a page of one pixel or without its pictures.
  if (complains_of("bad_alloc") || complains_of("Out of memory"))
    fail(ErrorCode::limit_exceeded, "{}: {} needs more than {} MB of memory", what, program,
         options_.limits.memory_bytes >> 20);
  if (result.end == ChildEnd::signalled)
    fail(ErrorCode::invalid_input, "{}: {} crashed (signal {}): {}", what, program, result.status,
         last_line(result.errors));
  if (result.status != 0 && complains_of("Incorrect password"))
    fail(ErrorCode::invalid_input, "{}: the PDF is encrypted; {}", what,
         options_.password.empty() ? "give its password with --password"
                                   : "the password given with --password is wrong");
  if (result.status != 0 && complains_of("the last page (0)"))
    fail(ErrorCode::invalid_input, "{}: the PDF has no pages", what);
  if (result.status != 0)
    fail(ErrorCode::invalid_input, "{}: not a usable PDF: {}", what, last_line(result.errors));
  return std::move(result.output);
}

Pdf::PageSize Pdf::page_size(int number) const {
  const std::string page = std::to_string(number), what = page_of(file_, number);
  const std::string info = run("pdfinfo", {"-f", page, "-l", page}, kMaxInfoBytes, what);
  // "Page    7 size:  612 x 792 pts (letter)", "Page    7 rot:   90"; the size is the crop box's.
  std::string_view size = page_value_of(info, number, "size:"), turn = page_value_of(info, number, "rot:");
  const std::optional<double> width = take_number<double>(size);
  size.remove_prefix(std::min(size.find_first_of("0123456789"), size.size()));
  const std::optional<double> height = take_number<double>(size);
  if (!width || !height || !(*width > 0 && *height > 0) || std::isinf(*width * *height))
    fail(ErrorCode::invalid_input, "{}: the page has no usable size", what);
  const bool sideways = take_number<int>(turn).value_or(0) % 180 != 0;
  return sideways ? PageSize{*height, *width} : PageSize{*width, *height};
}

double Pdf::resolution(PageSize page, int number) const {
  const auto [width, height] = page;
  const bool bounded = options_.max_pixels > 0;
  const std::int64_t most = bounded ? std::min(options_.max_pixels, kMaxPagePixels) : kMaxPagePixels;
  double dpi = options_.dpi > 0 ? options_.dpi : kMaxAutomaticDpi;
  if (options_.dpi > 0 && !bounded && width * height * dpi * dpi > static_cast<double>(most) * 72 * 72)
    fail(ErrorCode::limit_exceeded,
         "{}: {:.0f} x {:.0f} points at {} dpi are more than {} megapixels; lower --dpi",
         page_of(file_, number), width, height, dpi, most / 1'000'000);
  const double pixels = static_cast<double>(most);
  dpi = std::min(
      dpi, kPointsPerInch * std::min({std::sqrt(pixels / width / height), pixels / width, pixels / height}));
  while (std::int64_t{pixels_at(width, dpi)} * pixels_at(height, dpi) > most) dpi *= 0.999;
  return dpi;
}

Image Pdf::render(int number) const {
  const std::string what = page_of(file_, number);
  if (number < 1 || number > pages_)
    fail(ErrorCode::invalid_input, "{} does not exist; the document has {}", what, pages_);
  const PageSize size = page_size(number);
  const double dpi = resolution(size, number);
  const int width = pixels_at(size.width, dpi), height = pixels_at(size.height, dpi);
  // Rounded otherwise, a side may be one pixel longer or shorter.
  const std::size_t most =
      64 + 3 * (static_cast<std::size_t>(width) + 1) * (static_cast<std::size_t>(height) + 1);
  const std::string page = std::to_string(number);
  const std::string ppm =
      run("pdftoppm", {"-f", page, "-l", page, "-cropbox", "-r", fmt::format("{:.6f}", dpi)}, most, what);
  std::optional<Image> image = parse_ppm(ppm);
  if (!image)
    fail(ErrorCode::invalid_input, "{}: poppler could not render it ({} bytes came)", what, ppm.size());
  if (std::abs(image->width - width) > 1 || std::abs(image->height - height) > 1)
    fail(ErrorCode::invalid_input, "{}: poppler rendered {}x{} pixels; expected {}x{}", what, image->width,
         image->height, width, height);
  return *std::move(image);
}

}  // namespace quire
