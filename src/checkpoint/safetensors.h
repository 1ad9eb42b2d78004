#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"

namespace gannet {

// Element types that occur in the released checkpoint, by their safetensors names.
enum class DType { f8_e8m0, f8_e4m3, i8, bf16, f32, i32 };
std::string_view name_of(DType dtype);  // as in a file: "F8_E8M0", ...
std::optional<DType> dtype_named(std::string_view name);
int64_t bytes_of(DType dtype);

// Type and shape as messages show them: "BF16 [2, 3]".
std::string describe(DType dtype, std::span<const int64_t> shape);

// A tensor inside a mapped file, row-major. Files that the usual writers made, ours among them, align every tensor to
// its element; the format itself does not promise it.
struct TensorView {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};

// A mapped safetensors file whose header was checked: every tensor lies inside the file, no two overlap, no byte is
// left over. Tensor data is only read when it is used. Views live as long as the object, also when it is moved.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  // Tensors whose element type this program has no use for: name -> type. They are not in tensors().
  const std::map<std::string, std::string, std::less<>>& unsupported() const { return unsupported_; }
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }

  // The tensor of that name, which must be an I32 vector; `name` and the type found are in the message.
  Result<std::vector<int32_t>> int32_vector(std::string_view name) const;

 private:
  friend class HeaderReader;
  std::string path_;
  MappedFile file_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unsupported_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

// A tensor to be written: what the header says of it.
struct TensorHeader {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  int64_t bytes() const;
};

// Writes one file tensor by tensor, so that only one needs to be in memory. All goes to a temporary file beside `path`
// which finish() puts in place; without it, or after an error, nothing is left behind. Tensors are laid out in the
// order given; those of wider elements should come first, which keeps all aligned.
class SafetensorsWriter {
 public:
  static Result<SafetensorsWriter> create(const std::filesystem::path& path, std::vector<TensorHeader> tensors);
  SafetensorsWriter(SafetensorsWriter&&) noexcept;
  SafetensorsWriter& operator=(SafetensorsWriter&&) noexcept;
  ~SafetensorsWriter();

  // The next bytes of the payload: the tensors one after another, each in as many pieces as is convenient.
  Status append(std::span<const std::byte> bytes);
  // Every tensor must have been appended in full.
  Status finish();

 private:
  struct State;
  explicit SafetensorsWriter(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// A tensor to be written, in memory.
struct NamedTensor {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;
};
NamedTensor named_tensor(std::string name, std::vector<int64_t> shape, std::span<const float> values);
NamedTensor named_tensor(std::string name, std::vector<int64_t> shape, std::span<const int32_t> values);

// Writes a whole file. Names must differ; bytes must have the size that type and shape ask for.
Status write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

}  // namespace gannet
