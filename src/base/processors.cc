#include "base/processors.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <string>

#include "base/control_groups.h"

namespace gannet {
namespace {

namespace fs = std::filesystem;

// "max" is no number and means no limit, as does a negative one.
std::optional<double> limit_of(const fs::path& group, bool version_2) {
  double quota = 0;  // microseconds a period
  double period = 0;
  if (version_2) {
    std::ifstream(group / "cpu.max") >> quota >> period;
  } else {
    std::ifstream(group / "cpu.cfs_quota_us") >> quota;
    std::ifstream(group / "cpu.cfs_period_us") >> period;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

// The first processor of a processor's core, itself where the system does not tell.
int first_of_core(int processor, const fs::path& root) {
  std::ifstream file(root / fmt::format("sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", processor));
  int first = processor;
  return file >> first ? first : processor;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  std::optional<double> least;
  for_each_control_group("cpu", root, [&](const fs::path& group, bool version_2) {
    const auto limit = limit_of(group, version_2);
    if (limit) least = std::min(least.value_or(*limit), *limit);
  });
  return least;
}

std::vector<int> cores_first(const std::vector<int>& processors, const fs::path& root) {
  std::set<int> cores;
  std::vector<int> result = processors;
  std::vector<int> firsts;
  for (const int processor : processors) {
    if (cores.insert(first_of_core(processor, root)).second) firsts.push_back(processor);
  }
  std::stable_partition(result.begin(), result.end(),
                        [&](int p) { return std::find(firsts.begin(), firsts.end(), p) != firsts.end(); });
  return result;
}

int count_cores(const std::vector<int>& processors, const fs::path& root) {
  std::set<int> cores;
  for (const int processor : processors) cores.insert(first_of_core(processor, root));
  return static_cast<int>(cores.size());
}

std::vector<int> allowed_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> processors;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) processors.push_back(i);
    }
  }
  return processors;
}

int usable_processors() {
  const int cores = std::max(1, count_cores(allowed_processors()));
  const auto quota = cpu_quota();
  if (!quota) return cores;
  return std::clamp(static_cast<int>(std::floor(*quota)), 1, cores);
}

}  // namespace gannet
