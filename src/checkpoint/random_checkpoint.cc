#include "checkpoint/random_checkpoint.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "base/mapped_file.h"
#include "checkpoint/manifest.h"
#include "checkpoint/random_tensor.h"
#include "checkpoint/safetensors.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr int64_t kShardBytes = int64_t{4} << 30;
constexpr int64_t kPiece = int64_t{1} << 20;

using Shard = std::vector<TensorSpec>;

// Two shards or more of about equal size. A cut falls between a weight and its scale.
std::vector<Shard> split(std::vector<TensorSpec> specs) {
  const int64_t all = totals(specs).all.bytes;
  const int64_t shards = std::max<int64_t>(2, (all + kShardBytes - 1) / kShardBytes);
  std::vector<Shard> result(1);
  int64_t done = 0;
  for (auto& spec : specs) {
    const bool full = done >= all / shards * static_cast<int64_t>(result.size());
    if (full && spec.dtype == DType::f8_e8m0) result.emplace_back();
    done += spec.bytes();
    result.back().push_back(std::move(spec));
  }
  for (auto& shard : result) {
    std::stable_sort(shard.begin(), shard.end(),
                     [](const TensorSpec& a, const TensorSpec& b) { return bytes_of(a.dtype) > bytes_of(b.dtype); });
  }
  return result;
}

// A directory that is filled or, unless keep() was called, emptied again.
class NewDirectory {
 public:
  static Result<NewDirectory> create(const fs::path& path) {
    std::error_code error;
    const bool existed = fs::exists(path, error);
    if (existed && !fs::is_directory(path, error)) {
      return invalid_input("{}: is not a directory; it must be an empty one or not exist", path.string());
    }
    if (existed && !fs::is_empty(path, error) && !error) {
      return invalid_input("{}: is not empty; it must be an empty directory or not exist", path.string());
    }
    if (!existed) fs::create_directories(path, error);
    if (error) return failed("{}: cannot be created: {}", path.string(), error.message());
    return NewDirectory(path, !existed);
  }

  NewDirectory(NewDirectory&& other) noexcept
      : path_(std::move(other.path_)),
        ours_(other.ours_),
        files_(std::exchange(other.files_, {})),
        keep_(std::exchange(other.keep_, true)) {}
  NewDirectory& operator=(NewDirectory&&) = delete;
  ~NewDirectory() {
    if (keep_) return;
    std::error_code ignored;
    for (const auto& file : files_) fs::remove(file, ignored);
    if (ours_) fs::remove(path_, ignored);
  }

  fs::path file(const std::string& name) {
    files_.push_back(path_ / name);
    return files_.back();
  }
  void keep() { keep_ = true; }

 private:
  NewDirectory(fs::path path, bool ours) : path_(std::move(path)), ours_(ours) {}

  fs::path path_;
  bool ours_;  // created here
  std::vector<fs::path> files_;
  bool keep_ = false;
};

class Progress {
 public:
  Progress(std::function<void(int64_t, int64_t)> report, int64_t all) : report_(std::move(report)), all_(all) {}
  void add(int64_t bytes) {
    done_ += bytes;
    if (report_) report_(done_, all_);
  }

 private:
  std::function<void(int64_t, int64_t)> report_;
  int64_t all_;
  int64_t done_ = 0;
};

Status write_shard(const fs::path& path, const Shard& shard, uint64_t seed, Progress& progress) {
  std::vector<TensorHeader> headers;
  for (const auto& spec : shard) headers.push_back({spec.name, spec.dtype, spec.shape});
  GANNET_TRY(auto writer, SafetensorsWriter::create(path, std::move(headers)));
  std::vector<std::byte> buffer(static_cast<size_t>(kPiece));
  for (const auto& spec : shard) {
    const RandomTensor tensor(spec, seed);
    for (int64_t begin = 0; begin < spec.bytes(); begin += kPiece) {
      const auto piece = std::span(buffer).first(static_cast<size_t>(std::min(kPiece, spec.bytes() - begin)));
      tensor.fill(begin, piece);
      GANNET_TRY_STATUS(writer.append(piece));
      progress.add(static_cast<int64_t>(piece.size()));
    }
  }
  return writer.finish();
}

Status write_text(const fs::path& path, std::string_view text) {
  return write_file(path, std::as_bytes(std::span(text)));
}

Status check_space(const fs::path& directory, int64_t bytes) {
  std::error_code error;
  const auto space = fs::space(directory, error);
  if (error || space.available >= static_cast<uint64_t>(bytes)) return {};
  return failed("{}: has {} bytes free; the checkpoint needs {}", directory.string(), space.available, bytes);
}

}  // namespace

Status write_random_checkpoint(const RandomCheckpoint& checkpoint, const fs::path& path) {
  const auto shards = split(manifest(checkpoint.config));
  int64_t all = 0;
  for (const auto& shard : shards) all += totals(shard).all.bytes;
  GANNET_TRY(auto directory, NewDirectory::create(path));
  GANNET_TRY_STATUS(check_space(path, all));

  Progress progress(checkpoint.progress, all);
  ordered_json weight_map = ordered_json::object();
  for (size_t i = 0; i < shards.size(); ++i) {
    const auto name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    for (const auto& spec : shards[i]) weight_map[spec.name] = name;
    GANNET_TRY_STATUS(write_shard(directory.file(name), shards[i], checkpoint.seed, progress));
  }
  const ordered_json index = {{"metadata", {{"total_size", all}}}, {"weight_map", std::move(weight_map)}};
  GANNET_TRY_STATUS(write_text(directory.file("model.safetensors.index.json"), index.dump(1) + "\n"));
  if (!checkpoint.tokenizer_json.empty()) {
    GANNET_TRY_STATUS(write_text(directory.file("tokenizer.json"), checkpoint.tokenizer_json));
  }
  // Last, so that an interrupted write leaves nothing that looks like a checkpoint.
  GANNET_TRY_STATUS(write_text(directory.file("config.json"), config_to_json(checkpoint.config)));
  directory.keep();
  return {};
}

}  // namespace gannet
