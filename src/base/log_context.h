#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <variant>

#include "base/log.h"

// Log lines of a server: which request they belong to, and lines made of fields.
namespace gannet {

enum class LogFormat {
  text,  // 2026-01-31 12:00:00.000 info [request id] message name=value ...
  json,  // one object a line: time (UTC), level, request_id, message, and the fields
};

// As start_logging(level) in log.h, in that format.
bool start_logging(std::string_view level, LogFormat format);

// Lines that this thread logs while the object lives carry the id. The text must outlive the object.
class LogContext {
 public:
  explicit LogContext(std::string_view request_id);
  ~LogContext();
  LogContext(const LogContext&) = delete;
  LogContext& operator=(const LogContext&) = delete;

 private:
  std::string_view outer_;
};

struct LogField {
  std::string_view name;
  std::variant<std::string_view, int64_t, double> value;
};
void log_fields(spdlog::level::level_enum level, std::string_view message, std::initializer_list<LogField> fields);

}  // namespace gannet
