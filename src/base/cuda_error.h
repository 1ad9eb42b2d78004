#pragma once

#include <stdexcept>
#include <string>

namespace gannet {

// The device failed: its memory can no longer be trusted, and neither can anything that runs on it.
class CudaError : public std::runtime_error {
 public:
  explicit CudaError(const std::string& what) : std::runtime_error(what) {}
};

}  // namespace gannet
