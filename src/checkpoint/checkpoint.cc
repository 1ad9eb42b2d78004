#include "checkpoint/checkpoint.h"

#include <algorithm>
#include <set>
#include <system_error>
#include <utility>

#include "checkpoint/manifest.h"
#include "checkpoint/strict_json.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr const char* kOnlyFile = "model.safetensors";
constexpr size_t kMaxIndex = size_t{1} << 30;

// tensor -> shard's file name, as the index says; empty for a checkpoint in one file.
using WeightMap = std::map<std::string, std::string, std::less<>>;

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

// Reads the index; entries that name no file are faults.
Result<WeightMap> read_index(const fs::path& path, std::vector<std::string>& faults) {
  GANNET_TRY(const std::string text, read_file(path, kMaxIndex));
  GANNET_TRY(const json index, parse_strict_json(text, path.string()));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object()) {
    return invalid_input("{}: weight_map is {}; it must be an object of tensor names and file names", path.string(),
                         map == index.end() ? "missing" : shown(*map));
  }
  WeightMap result;
  for (const auto& [tensor, file] : map->items()) {
    if (file.is_string() && is_plain_file_name(file.get_ref<const std::string&>())) {
      result.emplace(tensor, file.get<std::string>());
    } else {
      faults.push_back(fmt::format("{}: weight_map['{}'] is {}; it must be a file name without folders", kIndexFile,
                                   tensor, shown(file)));
    }
  }
  return result;
}

// Compares what the files hold with what index and manifest ask for.
class Verifier {
 public:
  Verifier(const fs::path& directory, const Config& config) : directory_(directory), config_(config) {}

  Status run() {
    if (exists(kIndexFile)) {
      GANNET_TRY(index_, read_index(directory_ / kIndexFile, faults_));
      std::set<std::string> shards;
      for (const auto& [tensor, shard] : index_) shards.insert(shard);
      for (const auto& shard : shards) GANNET_TRY_STATUS(open_shard(shard));
      compare_with_index();
    } else if (exists(kOnlyFile)) {
      GANNET_TRY_STATUS(open_shard(kOnlyFile));
    } else {
      return invalid_input("{}: has neither {} nor {}; it is no checkpoint", directory_.string(), kIndexFile,
                           kOnlyFile);
    }
    compare_with_manifest();
    return verdict();
  }

  std::vector<SafetensorsFile> take_files() { return std::move(files_); }
  std::map<std::string, TensorView, std::less<>> take_tensors() { return std::move(tensors_); }

 private:
  template <class... Args>
  void fault(fmt::format_string<Args...> format, Args&&... args) {
    faults_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  bool exists(const char* file) const {
    std::error_code error;
    return fs::exists(directory_ / file, error);
  }

  // A broken file is a fault, and its tensors are not complained about one by one; a failing disk ends it all.
  Status open_shard(const std::string& shard) {
    auto file = SafetensorsFile::open(directory_ / shard);
    if (!file) {
      if (file.error().kind == ErrorKind::failed) return tl::unexpected(std::move(file).error());
      broken_.insert(shard);
      faults_.push_back(std::move(file).error().message);
      return {};
    }
    for (const auto& [name, view] : file->tensors()) {
      if (note_owner(name, shard)) tensors_.emplace(name, view);
    }
    for (const auto& [name, type] : file->unsupported()) {
      if (note_owner(name, shard)) unsupported_.emplace(name, type);
    }
    files_.push_back(std::move(*file));
    return {};
  }

  bool note_owner(const std::string& name, const std::string& shard) {
    const auto [owner, is_new] = owners_.emplace(name, shard);
    if (!is_new) fault("{}: is in {} and in {}; it must be in one file", name, owner->second, shard);
    return is_new;
  }

  void compare_with_index() {
    for (const auto& [name, shard] : owners_) {
      const auto entry = index_.find(name);
      if (entry == index_.end()) {
        fault("{}: is in {}, but {} does not list it", name, shard, kIndexFile);
      } else if (entry->second != shard && !broken_.contains(entry->second)) {
        fault("{}: is in {}, but {} says {}", name, shard, kIndexFile, entry->second);
      }
    }
    for (const auto& [name, shard] : index_) {
      if (owners_.contains(name) || broken_.contains(shard)) continue;
      fault("{}: {} says it is in {}, but it is not there", name, kIndexFile, shard);
    }
  }

  void compare_with_manifest() {
    std::set<std::string, std::less<>> wanted;
    for (auto& spec : manifest(config_)) {
      compare(spec);
      wanted.insert(std::move(spec.name));
    }
    for (const auto& [name, shard] : owners_) {
      if (!wanted.contains(name)) fault("{}: is in {}, but config.json asks for no such tensor", name, shard);
    }
  }

  void compare(const TensorSpec& spec) {
    const auto found = tensors_.find(spec.name);
    if (found != tensors_.end()) {
      const auto& view = found->second;
      if (view.dtype != spec.dtype || view.shape != spec.shape) {
        fault("{}: is {}; it must be {}", spec.name, describe(view.dtype, view.shape),
              describe(spec.dtype, spec.shape));
      }
    } else if (const auto other = unsupported_.find(spec.name); other != unsupported_.end()) {
      fault("{}: is {}; it must be {}", spec.name, other->second, describe(spec.dtype, spec.shape));
    } else if (!is_explained(spec.name)) {
      fault("{}: is missing; it must be {}", spec.name, describe(spec.dtype, spec.shape));
    }
  }

  // Whether another fault already says why a tensor is not there.
  bool is_explained(const std::string& name) const {
    if (index_.empty()) return !broken_.empty();
    return index_.contains(name);
  }

  Status verdict() const {
    if (faults_.empty()) return {};
    return invalid_input("{}: {} fault{} in the checkpoint:\n  {}", directory_.string(), faults_.size(),
                         faults_.size() == 1 ? "" : "s", fmt::join(faults_, "\n  "));
  }

  const fs::path& directory_;
  const Config& config_;
  WeightMap index_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> unsupported_;
  WeightMap owners_;  // tensor -> file that has it
  std::set<std::string, std::less<>> broken_;
  std::vector<std::string> faults_;
};

// Where `gannet` itself lies; empty if the system does not tell.
fs::path program_directory() {
  std::error_code error;
  const auto program = fs::read_symlink("/proc/self/exe", error);
  return error ? fs::path() : program.parent_path();
}

}  // namespace

Result<Checkpoint> Checkpoint::open(const fs::path& directory) {
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return invalid_input("{}: {}; it must be a checkpoint directory", directory.string(),
                         fs::exists(directory, error) ? "is not a directory" : "does not exist");
  }
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  GANNET_TRY(checkpoint.config_, load_config(directory / "config.json"));
  Verifier verifier(directory, checkpoint.config_);
  GANNET_TRY_STATUS(verifier.run());
  checkpoint.files_ = verifier.take_files();
  checkpoint.tensors_ = verifier.take_tensors();
  return checkpoint;
}

Checkpoint Checkpoint::in_memory(Config config, std::map<std::string, TensorView, std::less<>> tensors,
                                 std::shared_ptr<const std::byte[]> memory) {
  Checkpoint checkpoint;
  checkpoint.config_ = std::move(config);
  checkpoint.tensors_ = std::move(tensors);
  checkpoint.memory_ = std::move(memory);
  return checkpoint;
}

const TensorView& Checkpoint::tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  GANNET_CHECK(found != tensors_.end());
  return found->second;
}

Result<fs::path> find_model(std::string_view model) {
  std::error_code error;
  fs::path given(model);
  if (fs::is_directory(given, error)) return given;
  const auto program = program_directory();
  const bool is_name = is_plain_file_name(std::string(model));
  if (is_name) {
    // The program lies in the repository's build folder, or is installed beside models/.
    for (const auto& root : {fs::path("."), program, program / ".."}) {
      auto candidate = root / "models" / given;
      if (fs::is_directory(candidate, error)) return candidate;
    }
  }
  return invalid_input("MODEL is '{}'; it must be a checkpoint directory or the name of one under models/{}", model,
                       fs::exists(given, error) ? " (this is not a directory)" : "");
}

}  // namespace gannet
