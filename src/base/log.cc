#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <string>

namespace gannet {

bool start_logging(std::string_view level) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") return false;
  auto logger = spdlog::get("gannet");
  if (!logger) logger = spdlog::stderr_color_mt("gannet");
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  logger->set_level(parsed);
  spdlog::set_default_logger(logger);
  return true;
}

}  // namespace gannet
