#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"

namespace gannet {

// A checkpoint directory, mapped and verified against the manifest of its config: every tensor the config asks for is
// there with the right type and shape, and no other. Nothing but headers has been read yet.
class Checkpoint {
 public:
  // All faults of all tensors are reported at once, one a line, behind a first line that counts them.
  static Result<Checkpoint> open(const std::filesystem::path& directory);
  // One that has no directory: the tensors of config's manifest, which `memory` holds.
  static Checkpoint in_memory(Config config, std::map<std::string, TensorView, std::less<>> tensors,
                              std::shared_ptr<const std::byte[]> memory);

  const std::filesystem::path& directory() const { return directory_; }
  const Config& config() const { return config_; }
  // The tensor of that name; it must be in the manifest.
  const TensorView& tensor(std::string_view name) const;
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }

 private:
  std::filesystem::path directory_;
  Config config_;
  std::vector<SafetensorsFile> files_;
  std::shared_ptr<const std::byte[]> memory_;  // instead of files
  std::map<std::string, TensorView, std::less<>> tensors_;
};

// MODEL of the command line: a directory, or the name of one under models/ (beside the program or in the current
// directory).
Result<std::filesystem::path> find_model(std::string_view model);

}  // namespace gannet
