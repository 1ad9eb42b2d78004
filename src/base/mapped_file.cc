#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gannet {
namespace {

// A file descriptor that closes itself. Files are opened without blocking: a pipe with nobody at its other end must be
// refused, not waited for.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<size_t> regular_file_size(const Descriptor& file, const std::filesystem::path& path) {
  if (file.get() < 0) return invalid_input("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return failed("{}: {}", path.string(), std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return invalid_input("{}: is not a regular file", path.string());
  return static_cast<size_t>(info.st_size);
}

Status write_all(const Descriptor& file, std::span<const std::byte> bytes, const std::filesystem::path& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed("{}: cannot be written: {}", path.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  if (::fsync(file.get()) != 0 && errno != EINVAL) {
    return failed("{}: cannot be written: {}", path.string(), std::strerror(errno));
  }
  return {};
}

// A device or a pipe (/dev/stdout): renaming a file over it would replace it. A directory is refused here.
Status write_in_place(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0) return failed("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  return write_all(file, bytes, path);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  GANNET_TRY(const size_t size, regular_file_size(file, path));
  MappedFile mapped;
  if (size == 0) return mapped;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) return failed("{}: cannot be mapped: {}", path.string(), std::strerror(errno));
  mapped.bytes_ = {static_cast<const std::byte*>(address), size};
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Result<std::string> read_file(const std::filesystem::path& path, size_t limit) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  GANNET_TRY(const size_t size, regular_file_size(file, path));
  if (size > limit) return invalid_input("{}: has {} bytes; at most {} are accepted", path.string(), size, limit);
  std::string text(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = ::read(file.get(), text.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("{}: cannot be read: {}", path.string(), std::strerror(errno));
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  text.resize(done);
  return text;
}

Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) return write_in_place(path, bytes);
  auto temporary = path;
  temporary += ".partial";
  Status status;
  {
    const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (file.get() < 0) return failed("{}: cannot be created: {}", temporary.string(), std::strerror(errno));
    status = write_all(file, bytes, path);
  }
  if (status && ::rename(temporary.c_str(), path.c_str()) != 0) {
    status = failed("{}: cannot be renamed: {}", temporary.string(), std::strerror(errno));
  }
  if (!status) ::unlink(temporary.c_str());
  return status;
}

}  // namespace gannet
