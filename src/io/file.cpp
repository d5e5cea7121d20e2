#include "io/file.h"

#include <algorithm>
#include <cerrno>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/error.h"

namespace quire {
namespace {

std::string reason(int error) {
  return std::generic_category().message(error);
}

// An open descriptor, closed at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;

  int get() const { return fd_; }

  // Some file systems report a failed write only here.
  int close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

Descriptor open_for_reading(const std::filesystem::path& path, struct stat& status) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    fail(error == ENOENT || error == ENOTDIR ? ErrorCode::not_found : ErrorCode::io, "cannot open {}: {}",
         path.string(), reason(error));
  }
  if (::fstat(file.get(), &status) != 0)
    fail(ErrorCode::io, "cannot read the size of {}: {}", path.string(), reason(errno));
  if (S_ISDIR(status.st_mode)) fail(ErrorCode::io, "{} is a folder, expected a file", path.string());
  return file;
}

// A new file of an unused name beside `path`: rename() is atomic only within one file system. The name does
// not grow with that of `path`, which may already be as long as the file system allows.
std::pair<Descriptor, std::filesystem::path> create_beside(const std::filesystem::path& path) {
  std::random_device random;
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::filesystem::path name = path.parent_path() / fmt::format(".quire-{:08x}.tmp", random());
    Descriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() >= 0) return {std::move(file), std::move(name)};
    if (errno != EEXIST) break;
  }
  fail(ErrorCode::io, "cannot create a file beside {}: {}", path.string(), reason(errno));
}

// Returns 0 or an errno value.
int write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t n = ::write(fd, content.data(), content.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    content.remove_prefix(static_cast<std::size_t>(n));
  }
  return 0;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  struct stat status = {};
  const Descriptor file = open_for_reading(path, status);
  const auto refuse = [&] {
    fail(ErrorCode::limit_exceeded, "{} is larger than {} bytes, the most that is read here", path.string(),
         max_bytes);
  };
  std::size_t expected = S_ISREG(status.st_mode) ? static_cast<std::size_t>(status.st_size) : 0;
  if (expected > max_bytes) refuse();

  // One byte more than expected, so that a regular file ends in one read; pipes and /proc report no size.
  std::string content;
  std::size_t used = 0;
  for (;;) {
    if (used == content.size()) content.resize(std::max(used * 2, std::max<std::size_t>(expected + 1, 4096)));
    const ssize_t n = ::read(file.get(), content.data() + used, content.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail(ErrorCode::io, "cannot read {}: {}", path.string(), reason(errno));
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
    if (used > max_bytes) refuse();
  }
  content.resize(used);
  return content;
}

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  auto [file, temporary] = create_beside(path);
  int error = write_all(file.get(), content);
  if (error == 0 && ::fsync(file.get()) != 0) error = errno;
  if (file.close() != 0 && error == 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    ::unlink(temporary.c_str());
    fail(ErrorCode::io, "cannot write {}: {}", path.string(), reason(error));
  }
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  struct stat status = {};
  const Descriptor file = open_for_reading(path, status);
  if (!S_ISREG(status.st_mode))
    fail(ErrorCode::io, "{} is not a regular file and cannot be mapped", path.string());
  size_ = static_cast<std::size_t>(status.st_size);
  if (size_ == 0) return;  // mmap refuses empty ranges
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (address == MAP_FAILED) fail(ErrorCode::io, "cannot map {}: {}", path.string(), reason(errno));
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace quire
