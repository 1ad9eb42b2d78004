#pragma once

// Logging goes to stderr through spdlog; stdout belongs to results.
#include <spdlog/spdlog.h>

#include <string_view>

namespace gannet {

// Sends all log lines to stderr with time and level. `level` is one of trace, debug, info, warning, error, off;
// false if it is none of these.
bool start_logging(std::string_view level);

}  // namespace gannet
