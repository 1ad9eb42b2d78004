#include "base/memory_limits.h"

#include <algorithm>
#include <fstream>
#include <string>

#include "base/control_groups.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;

// Bytes in a line of /proc/meminfo.
std::optional<int64_t> on_machine(const std::string& wanted, const fs::path& root) {
  std::ifstream file(root / "proc/meminfo");
  std::string rest;
  for (std::string name; file >> name; std::getline(file, rest)) {
    int64_t kib = 0;
    if (name == wanted && file >> kib) return kib * 1024;
  }
  return std::nullopt;
}

// A file's number; "max", which means no limit, is none.
std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// Bytes of files in memory that the system drops before it runs out.
int64_t droppable(const fs::path& group) {
  std::ifstream file(group / "memory.stat");
  int64_t bytes = 0;
  for (std::string name; file >> name >> bytes;) {
    if (name == "inactive_file" || name == "total_inactive_file") return bytes;
  }
  return 0;
}

std::optional<int64_t> limit_of(const fs::path& group, bool version_2) {
  return number_in(group / (version_2 ? "memory.max" : "memory.limit_in_bytes"));
}

void lower(std::optional<int64_t>& least, int64_t bytes) {
  least = std::min(least.value_or(bytes), bytes);
}

}  // namespace

std::optional<int64_t> available_memory(const fs::path& root) {
  auto least = on_machine("MemAvailable:", root);
  for_each_control_group("memory", root, [&](const fs::path& group, bool version_2) {
    const auto limit = limit_of(group, version_2);
    const auto used = number_in(group / (version_2 ? "memory.current" : "memory.usage_in_bytes"));
    if (limit && used) lower(least, std::max<int64_t>(0, *limit - *used + droppable(group)));
  });
  return least;
}

std::optional<int64_t> memory_limit(const fs::path& root) {
  auto least = on_machine("MemTotal:", root);
  for_each_control_group("memory", root, [&](const fs::path& group, bool version_2) {
    const auto limit = limit_of(group, version_2);
    if (limit) lower(least, *limit);
  });
  return least;
}

}  // namespace gannet
