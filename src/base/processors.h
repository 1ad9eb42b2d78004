#pragma once

#include <filesystem>
#include <optional>
#include <vector>

namespace gannet {

// The processors of the machine as this process may use them. `root` is where the system's files lie; tests have files
// of their own.

// Time that control groups (version 1 or 2) grant this process and the groups around it, in processors: 1.5 is half as
// much again as one has. None when there is no limit, or the files cannot be read.
std::optional<double> cpu_quota(const std::filesystem::path& root = "/");

// The processors given, those first that share a core with none before them.
std::vector<int> cores_first(const std::vector<int>& processors, const std::filesystem::path& root = "/");

// How many of the processors given are not the second or later one of a core.
int count_cores(const std::vector<int>& processors, const std::filesystem::path& root = "/");

// Those in this process's affinity mask.
std::vector<int> allowed_processors();

// Threads worth having: one for each core that this process may use, no more than the quota pays for.
int usable_processors();

}  // namespace gannet
