#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"

namespace gannet {

// Where the device's weights come from: a checkpoint, or nowhere, for benchmarks of shapes whose weights do not fit.
class TensorSource {
 public:
  explicit TensorSource(const Checkpoint& checkpoint);
  // Random weights. Only `unique_experts` of each layer's routed experts exist, and the others share them; an Engram
  // table has at most `table_rows` rows.
  struct Synthetic {
    int64_t unique_experts = 128;
    int64_t table_rows = 4'000'000;
  };
  TensorSource(const Config& config, const Synthetic& synthetic);

  const Config& config() const { return config_; }
  bool synthetic() const { return checkpoint_ == nullptr; }
  // Routed experts of a layer that have weights of their own.
  int64_t unique_experts() const { return unique_experts_; }
  int64_t table_rows(int64_t engram) const;

  const TensorSpec& spec(const std::string& name) const;
  const std::map<std::string, TensorSpec>& specs() const { return specs_; }
  // The tensor's bytes in host memory; null when synthetic.
  const std::byte* bytes(const std::string& name) const;

 private:
  Config config_;
  const Checkpoint* checkpoint_ = nullptr;
  int64_t unique_experts_;
  int64_t table_rows_ = 0;
  std::map<std::string, TensorSpec> specs_;
};

}  // namespace gannet
