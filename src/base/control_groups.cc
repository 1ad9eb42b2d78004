#include "base/control_groups.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <vector>

namespace gannet {
namespace {

namespace fs = std::filesystem;

// A mounted hierarchy of control groups that can limit something.
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

// The system writes blanks and backslashes in names as a backslash and three octal digits.
std::string unescaped(const std::string& name) {
  std::string result;
  for (size_t i = 0; i < name.size(); ++i) {
    const auto digit = [&](size_t at) { return at < name.size() && name[at] >= '0' && name[at] <= '7'; };
    if (name[i] == '\\' && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
      result += static_cast<char>((name[i + 1] - '0') * 64 + (name[i + 2] - '0') * 8 + (name[i + 3] - '0'));
      i += 3;
    } else {
      result += name[i];
    }
  }
  return result;
}

// Of /proc/self/mountinfo: number, parent, device, root, mount point, options, ..., "-", type, source, options.
std::vector<Hierarchy> hierarchies(const std::string& controller, const fs::path& root) {
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
    if (type == "cgroup2" || (type == "cgroup" && lists(options, controller))) {
      result.push_back({type == "cgroup2", unescaped(group), unescaped(mount)});
    }
  }
  return result;
}

// This process's group in a hierarchy; empty if it has none. Lines of /proc/self/cgroup: number, controllers, group.
std::string group_in(const Hierarchy& hierarchy, const std::string& controller, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (hierarchy.version_2 ? controllers.empty() : lists(controllers, controller)) return line.substr(second + 1);
  }
  return {};
}

// The way from what is mounted to a group inside of it; empty if the group is elsewhere.
fs::path way_to(const std::string& group, const Hierarchy& hierarchy) {
  const fs::path way = fs::path(group).lexically_relative(hierarchy.group);
  return way.empty() || *way.begin() == ".." ? fs::path() : way;
}

}  // namespace

void for_each_control_group(const std::string& controller, const fs::path& root,
                            const std::function<void(const fs::path& group, bool version_2)>& visit) {
  const auto mounted = hierarchies(controller, root);
  for (const Hierarchy& hierarchy : mounted) {
    const std::string group = group_in(hierarchy, controller, root);
    if (group.empty()) continue;
    const fs::path way = way_to(group, hierarchy);
    // A container may see its own group as the root of what is mounted, but name it "/". Where another mount of the
    // hierarchy holds the group, this one is another group's.
    const bool is_elsewhere = way.empty() && std::any_of(mounted.begin(), mounted.end(), [&](const Hierarchy& other) {
                                return other.version_2 == hierarchy.version_2 && !way_to(group, other).empty();
                              });
    if (is_elsewhere) continue;
    fs::path path = root / hierarchy.mount.relative_path();
    visit(path, hierarchy.version_2);
    for (const auto& part : way) visit(path /= part, hierarchy.version_2);
  }
}

}  // namespace gannet
