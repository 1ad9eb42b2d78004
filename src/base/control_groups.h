#pragma once

#include <filesystem>
#include <functional>
#include <string>

namespace gannet {

// Calls `visit` for this process's control group and each of those around it that this process can see, as directories,
// with whether they are of version 2. `controller` is "cpu" or "memory". `root` is where the system's files lie.
void for_each_control_group(const std::string& controller, const std::filesystem::path& root,
                            const std::function<void(const std::filesystem::path& group, bool version_2)>& visit);

}  // namespace gannet
