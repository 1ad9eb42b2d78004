#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

#include "base/error.h"

namespace gannet {

// A file mapped for reading: pages are read when they are touched. Move-only; the bytes live as long as the object.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

// The whole text of a small file (config, tokenizer); refuses one larger than `limit` bytes.
Result<std::string> read_file(const std::filesystem::path& path, size_t limit = size_t{256} << 20);

// Writes through a temporary file beside `path`, flushes and renames it, so that a full disk or a crash never leaves
// half a file under that name. What is there and no regular file (/dev/stdout, a pipe) is written in place.
Status write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

}  // namespace gannet
