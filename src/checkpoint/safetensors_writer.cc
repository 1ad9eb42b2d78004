#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "checkpoint/safetensors.h"
#include "checkpoint/strict_json.h"

namespace gannet {
namespace {

using nlohmann::ordered_json;

constexpr size_t kBuffer = size_t{1} << 20;
constexpr size_t kAlignment = 8;  // of the payload in the file, as the reference library pads its headers

// Header length and header, padded with spaces.
std::string header_bytes(const std::vector<TensorHeader>& tensors) {
  ordered_json header = ordered_json::object();
  int64_t offset = 0;
  for (const auto& tensor : tensors) {
    const int64_t end = offset + tensor.bytes();
    header[tensor.name] = {{"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  auto text = header.dump();
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const uint64_t length = text.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

}  // namespace

int64_t TensorHeader::bytes() const {
  int64_t total = bytes_of(dtype);
  for (const int64_t size : shape) total *= size;
  return total;
}

// An open temporary file; closed and removed with the object unless it was put in place.
struct SafetensorsWriter::State {
  std::filesystem::path path;
  std::filesystem::path temporary;
  int fd = -1;
  int64_t left = 0;  // bytes of the payload still to come
  std::vector<std::byte> buffer;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (fd < 0) return;
    ::close(fd);
    ::unlink(temporary.c_str());
  }

  Status write(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t written = ::write(fd, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return failed("{}: cannot be written: {}", path.string(), std::strerror(errno));
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return {};
  }

  Status flush() {
    const auto status = write(buffer);
    buffer.clear();
    return status;
  }

  Status append(std::span<const std::byte> bytes) {
    if (buffer.size() + bytes.size() > kBuffer) GANNET_TRY_STATUS(flush());
    if (bytes.size() >= kBuffer) return write(bytes);
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
    return {};
  }
};

SafetensorsWriter::SafetensorsWriter(std::unique_ptr<State> state) : state_(std::move(state)) {}
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter& SafetensorsWriter::operator=(SafetensorsWriter&&) noexcept = default;
SafetensorsWriter::~SafetensorsWriter() = default;

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    std::vector<TensorHeader> tensors) {
  std::set<std::string_view> names;
  auto state = std::make_unique<State>();
  for (const auto& tensor : tensors) {
    GANNET_CHECK(names.insert(tensor.name).second);
    state->left += tensor.bytes();
  }
  state->path = path;
  state->temporary = path;
  state->temporary += ".partial";
  state->fd = ::open(state->temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (state->fd < 0) return failed("{}: cannot be created: {}", path.string(), std::strerror(errno));
  state->buffer.reserve(kBuffer);
  const auto header = header_bytes(tensors);
  GANNET_TRY_STATUS(state->append(std::as_bytes(std::span(header))));
  return SafetensorsWriter(std::move(state));
}

Status SafetensorsWriter::append(std::span<const std::byte> bytes) {
  state_->left -= static_cast<int64_t>(bytes.size());
  GANNET_CHECK(state_->left >= 0);
  return state_->append(bytes);
}

Status SafetensorsWriter::finish() {
  GANNET_CHECK(state_->left == 0);
  GANNET_TRY_STATUS(state_->flush());
  const auto path = state_->path.string();
  if (::fsync(state_->fd) != 0 && errno != EINVAL) {
    return failed("{}: cannot be written: {}", path, std::strerror(errno));
  }
  if (::rename(state_->temporary.c_str(), state_->path.c_str()) != 0) {
    return failed("{}: cannot be put in place: {}", path, std::strerror(errno));
  }
  ::close(std::exchange(state_->fd, -1));
  return {};
}

NamedTensor named_tensor(std::string name, std::vector<int64_t> shape, std::span<const float> values) {
  return {std::move(name), DType::f32, std::move(shape), std::as_bytes(values)};
}

NamedTensor named_tensor(std::string name, std::vector<int64_t> shape, std::span<const int32_t> values) {
  return {std::move(name), DType::i32, std::move(shape), std::as_bytes(values)};
}

Status write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<const NamedTensor*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::stable_sort(order.begin(), order.end(),
                   [](const NamedTensor* a, const NamedTensor* b) { return bytes_of(a->dtype) > bytes_of(b->dtype); });
  std::vector<TensorHeader> headers;
  for (const auto* tensor : order) {
    headers.push_back({tensor->name, tensor->dtype, tensor->shape});
    GANNET_CHECK(headers.back().bytes() == static_cast<int64_t>(tensor->bytes.size()));
  }
  GANNET_TRY(auto writer, SafetensorsWriter::create(path, std::move(headers)));
  for (const auto* tensor : order) GANNET_TRY_STATUS(writer.append(tensor->bytes));
  return writer.finish();
}

}  // namespace gannet
