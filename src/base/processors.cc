#include "base/processors.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

namespace gannet {
namespace {

namespace fs = std::filesystem;

// A mounted hierarchy of control groups that can limit processors.
struct Hierarchy {
  bool version_2 = false;
  fs::path group;  // the mounted group's name
  fs::path mount;  // where it is mounted
};

bool lists(const std::string& names, const std::string& name) {
  std::istringstream stream(names);
  for (std::string each; std::getline(stream, each, ',');) {
    if (each == name) return true;
  }
  return false;
}

// Of /proc/self/mountinfo: number, parent, device, root, mount point, options, ..., "-", type, source, options.
std::vector<Hierarchy> hierarchies(const fs::path& root) {
  std::vector<Hierarchy> result;
  std::ifstream file(root / "proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t separator = line.find(" - ");
    if (separator == std::string::npos) continue;
    std::istringstream before(line.substr(0, separator));
    std::istringstream after(line.substr(separator + 3));
    std::string skipped, group, mount, type, source, options;
    before >> skipped >> skipped >> skipped >> group >> mount;
    after >> type >> source >> options;
    if (type == "cgroup2" || (type == "cgroup" && lists(options, "cpu"))) {
      result.push_back({type == "cgroup2", group, mount});
    }
  }
  return result;
}

// This process's group in a hierarchy; empty if it has none. Lines of /proc/self/cgroup: number, controllers, group.
std::string group_in(const Hierarchy& hierarchy, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (hierarchy.version_2 ? controllers.empty() : lists(controllers, "cpu")) return line.substr(second + 1);
  }
  return {};
}

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

// The way from what is mounted to a group inside of it; empty if the group is elsewhere.
fs::path way_to(const std::string& group, const Hierarchy& hierarchy) {
  const fs::path way = fs::path(group).lexically_relative(hierarchy.group);
  return way.empty() || *way.begin() == ".." ? fs::path() : way;
}

// The least limit of a mounted group and of those on the way from it.
std::optional<double> least_limit(const Hierarchy& hierarchy, const fs::path& way, const fs::path& root) {
  fs::path path = root / hierarchy.mount.relative_path();
  std::optional<double> least = limit_of(path, hierarchy.version_2);
  for (const auto& part : way) {
    const auto limit = limit_of(path /= part, hierarchy.version_2);
    if (limit) least = std::min(least.value_or(*limit), *limit);
  }
  return least;
}

}  // namespace

std::optional<double> cpu_quota(const fs::path& root) {
  const auto mounted = hierarchies(root);
  std::optional<double> least;
  for (const Hierarchy& hierarchy : mounted) {
    const std::string group = group_in(hierarchy, root);
    if (group.empty()) continue;
    const fs::path way = way_to(group, hierarchy);
    // A container may see its own group as the root of what is mounted, but name it "/". Where another mount of the
    // hierarchy holds the group, this one is another group's.
    const bool is_elsewhere = way.empty() && std::any_of(mounted.begin(), mounted.end(), [&](const Hierarchy& other) {
                                return other.version_2 == hierarchy.version_2 && !way_to(group, other).empty();
                              });
    if (is_elsewhere) continue;
    const auto limit = least_limit(hierarchy, way, root);
    if (limit) least = std::min(least.value_or(*limit), *limit);
  }
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
