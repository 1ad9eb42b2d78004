#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "checkpoint/strict_json.h"

namespace gannet {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr uint64_t kMaxHeader = 100'000'000;  // the reference library's own limit
constexpr std::string_view kMetadata = "__metadata__";

struct TypeInfo {
  std::string_view name;
  int64_t bits;
};

// In the order of DType.
constexpr TypeInfo kTypes[] = {{"F8_E8M0", 8}, {"F8_E4M3", 8}, {"I8", 8}, {"BF16", 16}, {"F32", 32}, {"I32", 32}};
// The other types of the format; their size is needed to check the file.
constexpr TypeInfo kOtherTypes[] = {{"BOOL", 8}, {"U8", 8},      {"F8_E5M2", 8}, {"I16", 16},   {"U16", 16},
                                    {"F16", 16}, {"U32", 32},    {"I64", 64},    {"U64", 64},   {"F64", 64},
                                    {"F4", 4},   {"F6_E2M3", 6}, {"C64", 64},    {"F6_E3M2", 6}};

std::optional<int64_t> bits_of_type(std::string_view name) {
  for (const auto& type : kTypes) {
    if (type.name == name) return type.bits;
  }
  for (const auto& type : kOtherTypes) {
    if (type.name == name) return type.bits;
  }
  return std::nullopt;
}

// Bytes of a tensor; none when they are no whole number or more than 64 bits can say.
std::optional<uint64_t> bytes_of_shape(std::span<const int64_t> shape, int64_t bits) {
  uint64_t total = static_cast<uint64_t>(bits);
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(size), &total)) return std::nullopt;
  }
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

}  // namespace

std::string_view name_of(DType dtype) {
  return kTypes[static_cast<size_t>(dtype)].name;
}

std::optional<DType> dtype_named(std::string_view name) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t bytes_of(DType dtype) {
  return kTypes[static_cast<size_t>(dtype)].bits / 8;
}

std::string describe(DType dtype, std::span<const int64_t> shape) {
  return fmt::format("{} [{}]", name_of(dtype), fmt::join(shape, ", "));
}

// Takes a header apart. Everything in it is somebody else's claim.
class HeaderReader {
 public:
  explicit HeaderReader(SafetensorsFile& file) : file_(file) {}

  Status read() {
    const auto bytes = file_.file_.bytes();
    GANNET_TRY(const uint64_t length, header_length(bytes));
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
    GANNET_TRY(const json header, parse_strict_json(text, file_.path_ + ": header"));
    if (!header.is_object())
      return invalid_input("{}: header is {}; it must be a JSON object", file_.path_, shown(header));
    payload_ = bytes.subspan(kLengthBytes + length);
    for (const auto& [name, entry] : header.items()) {
      GANNET_TRY_STATUS(name == kMetadata ? read_metadata(entry) : read_tensor(name, entry));
    }
    return check_coverage();
  }

 private:
  struct Range {
    uint64_t begin, end;
    std::string_view name;
  };

  Result<uint64_t> header_length(std::span<const std::byte> bytes) const {
    if (bytes.size() < kLengthBytes) {
      return invalid_input("{}: has {} bytes; a safetensors file starts with 8 bytes of header length", file_.path_,
                           bytes.size());
    }
    uint64_t length = 0;
    std::memcpy(&length, bytes.data(), kLengthBytes);
    if (length > kMaxHeader) {
      return invalid_input("{}: header length is {}; it must be at most {}", file_.path_, length, kMaxHeader);
    }
    if (length > bytes.size() - kLengthBytes) {
      return invalid_input("{}: header length is {}; the file has only {} bytes after it (truncated?)", file_.path_,
                           length, bytes.size() - kLengthBytes);
    }
    return length;
  }

  Status read_metadata(const json& entry) {
    if (!entry.is_object())
      return invalid_input("{}: {} is {}; it must be an object", file_.path_, kMetadata, shown(entry));
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) {
        return invalid_input("{}: {}.{} is {}; it must be a string", file_.path_, kMetadata, key, shown(value));
      }
      file_.metadata_.emplace(key, value.get<std::string>());
    }
    return {};
  }

  // Complains about one field of one tensor's entry.
  tl::unexpected<Error> refuse(const std::string& name, std::string_view field, const json& entry,
                               std::string_view right) const {
    const auto found = entry.is_object() && entry.contains(field) ? shown(entry[std::string(field)]) : "missing";
    return invalid_input("{}: tensor '{}': {} is {}; it must be {}", file_.path_, name, field, found, right);
  }

  static bool is_size(const json& value) {
    return value.is_number_unsigned() &&
           value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  }

  Status read_tensor(const std::string& name, const json& entry) {
    if (!entry.is_object()) {
      return invalid_input("{}: tensor '{}' is {}; it must be an object", file_.path_, name, shown(entry));
    }
    const auto dtype = entry.find("dtype");
    const auto bits =
        dtype != entry.end() && dtype->is_string() ? bits_of_type(dtype->get_ref<const std::string&>()) : std::nullopt;
    if (!bits) return refuse(name, "dtype", entry, "the name of a safetensors element type");
    GANNET_TRY(auto shape, read_shape(name, entry));
    GANNET_TRY(const Range range, read_range(name, entry));
    const auto bytes = bytes_of_shape(shape, *bits);
    if (!bytes || *bytes != range.end - range.begin) {
      return invalid_input("{}: tensor '{}': data_offsets span {} bytes; {} [{}] needs {}", file_.path_, name,
                           range.end - range.begin, dtype->get_ref<const std::string&>(), fmt::join(shape, ", "),
                           bytes ? fmt::format("{}", *bytes) : "more than any file has");
    }
    if (range.end > payload_.size()) {
      return invalid_input("{}: tensor '{}': data_offsets end at {}; the file has {} bytes of data (truncated?)",
                           file_.path_, name, range.end, payload_.size());
    }
    if (const auto known = dtype_named(dtype->get_ref<const std::string&>())) {
      const auto data = payload_.subspan(range.begin, range.end - range.begin);
      file_.tensors_.emplace(name, TensorView{*known, std::move(shape), data});
    } else {
      file_.unsupported_.emplace(name, dtype->get<std::string>());
    }
    return {};
  }

  Result<std::vector<int64_t>> read_shape(const std::string& name, const json& entry) const {
    const auto found = entry.find("shape");
    const bool good = found != entry.end() && found->is_array() && std::all_of(found->begin(), found->end(), is_size);
    if (!good) return refuse(name, "shape", entry, "an array of sizes");
    return found->get<std::vector<int64_t>>();
  }

  Result<Range> read_range(const std::string& name, const json& entry) {
    const auto found = entry.find("data_offsets");
    const bool good = found != entry.end() && found->is_array() && found->size() == 2 && is_size((*found)[0]) &&
                      is_size((*found)[1]) && (*found)[0].get<uint64_t>() <= (*found)[1].get<uint64_t>();
    if (!good) return refuse(name, "data_offsets", entry, "[begin, end] with begin <= end");
    ranges_.push_back({(*found)[0].get<uint64_t>(), (*found)[1].get<uint64_t>(), {}});
    return ranges_.back();
  }

  Status check_coverage();

  SafetensorsFile& file_;
  std::span<const std::byte> payload_;
  std::vector<Range> ranges_;
};

// Together the tensors cover the data exactly once.
Status HeaderReader::check_coverage() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return std::pair(a.begin, a.end) < std::pair(b.begin, b.end); });
  uint64_t end = 0;
  for (const auto& range : ranges_) {
    if (range.begin < end) {
      return invalid_input("{}: two tensors share bytes {} to {} of the data", file_.path_, range.begin, end);
    }
    if (range.begin > end) {
      return invalid_input("{}: no tensor owns bytes {} to {} of the data", file_.path_, end, range.begin);
    }
    end = range.end;
  }
  if (end != payload_.size()) {
    return invalid_input("{}: has {} bytes of data; its header describes {}", file_.path_, payload_.size(), end);
  }
  return {};
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  file.path_ = path.string();
  GANNET_TRY(file.file_, MappedFile::open(path));
  GANNET_TRY_STATUS(HeaderReader(file).read());
  return file;
}

Result<std::vector<int32_t>> SafetensorsFile::int32_vector(std::string_view name) const {
  if (const auto other = unsupported_.find(name); other != unsupported_.end()) {
    return invalid_input("{}: tensor '{}' is {}; it must be an I32 vector", path_, name, other->second);
  }
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    return invalid_input("{}: tensor '{}' is missing; it must be an I32 vector", path_, name);
  const auto& tensor = found->second;
  if (tensor.dtype != DType::i32 || tensor.shape.size() != 1) {
    return invalid_input("{}: tensor '{}' is {}; it must be an I32 vector", path_, name,
                         describe(tensor.dtype, tensor.shape));
  }
  std::vector<int32_t> values(static_cast<size_t>(tensor.shape[0]));
  if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

}  // namespace gannet
