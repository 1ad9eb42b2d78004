#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace gannet {

// What memory this process may take. `root` is where the system's files lie; tests have files of their own.

// Bytes that it may still take before the system swaps or ends it: what the machine has available, and what the limits
// of its control group and of those around it (version 1 or 2) leave. None when the system does not tell.
std::optional<int64_t> available_memory(const std::filesystem::path& root = "/");

// Bytes that it may take in all: the machine's, or the least of those limits. None when the system does not tell.
std::optional<int64_t> memory_limit(const std::filesystem::path& root = "/");

}  // namespace gannet
