#include "base/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>

#include "base/log_context.h"

namespace gannet {
namespace {

using spdlog::memory_buf_t;

// Of this thread: what the lines that it logs belong to.
thread_local std::string_view current_request;
thread_local const std::initializer_list<LogField>* current_fields = nullptr;

std::initializer_list<LogField> fields_now() {
  return current_fields == nullptr ? std::initializer_list<LogField>() : *current_fields;
}

void append(memory_buf_t& line, std::string_view text) {
  line.append(text.data(), text.data() + text.size());
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

// Without characters that end the line or tell a terminal what to do.
void append_visible(memory_buf_t& line, std::string_view text) {
  for (const char c : text) {
    if (is_control(c)) {
      fmt::format_to(fmt::appender(line), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      line.push_back(c);
    }
  }
}

// As a JSON string. Bytes that are not ASCII are taken for UTF-8.
void append_json(memory_buf_t& line, std::string_view text) {
  line.push_back('"');
  for (const char& c : text) {
    if (c == '"' || c == '\\') line.push_back('\\');
    append_visible(line, {&c, 1});
  }
  line.push_back('"');
}

// Values that a client chose must not look like another line or field.
void append_plain(memory_buf_t& line, std::string_view text) {
  const bool plain = !text.empty() && text.find_first_of(" \"\\=") == std::string_view::npos &&
                     std::none_of(text.begin(), text.end(), is_control);
  if (plain) {
    append(line, text);
  } else {
    append_json(line, text);
  }
}

void append_value(memory_buf_t& line, const LogField& field, bool json) {
  if (const auto* text = std::get_if<std::string_view>(&field.value)) {
    json ? append_json(line, *text) : append_plain(line, *text);
  } else if (const auto* integer = std::get_if<int64_t>(&field.value)) {
    fmt::format_to(fmt::appender(line), "{}", *integer);
  } else {
    fmt::format_to(fmt::appender(line), "{:.6f}", std::get<double>(field.value));
  }
}

int64_t milliseconds_of(const spdlog::details::log_msg& message) {
  const auto since = message.time.time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count() % 1000;
}

std::string_view as_view(spdlog::string_view_t text) {
  return {text.data(), text.size()};
}

class TextFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, memory_buf_t& line) override {
    const auto seconds = spdlog::log_clock::to_time_t(message.time);
    fmt::format_to(fmt::appender(line), "{:%Y-%m-%d %H:%M:%S}.{:03} ", fmt::localtime(seconds),
                   milliseconds_of(message));
    message.color_range_start = line.size();
    append(line, as_view(spdlog::level::to_string_view(message.level)));
    message.color_range_end = line.size();
    line.push_back(' ');
    if (!current_request.empty()) fmt::format_to(fmt::appender(line), "[{}] ", current_request);
    append_visible(line, as_view(message.payload));  // it may name what a client sent
    for (const auto& field : fields_now()) {
      fmt::format_to(fmt::appender(line), " {}=", field.name);
      append_value(line, field, false);
    }
    line.push_back('\n');
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<TextFormatter>(); }
};

class JsonFormatter : public spdlog::formatter {
 public:
  void format(const spdlog::details::log_msg& message, memory_buf_t& line) override {
    const auto seconds = spdlog::log_clock::to_time_t(message.time);
    fmt::format_to(fmt::appender(line), R"({{"time":"{:%Y-%m-%dT%H:%M:%S}.{:03}Z","level":)", fmt::gmtime(seconds),
                   milliseconds_of(message));
    append_json(line, as_view(spdlog::level::to_string_view(message.level)));
    if (!current_request.empty()) {
      append(line, R"(,"request_id":)");
      append_json(line, current_request);
    }
    append(line, R"(,"message":)");
    append_json(line, as_view(message.payload));
    for (const auto& field : fields_now()) {
      fmt::format_to(fmt::appender(line), R"(,"{}":)", field.name);
      append_value(line, field, true);
    }
    append(line, "}\n");
  }
  std::unique_ptr<spdlog::formatter> clone() const override { return std::make_unique<JsonFormatter>(); }
};

}  // namespace

bool start_logging(std::string_view level) {
  return start_logging(level, LogFormat::text);
}

bool start_logging(std::string_view level, LogFormat format) {
  const auto parsed = spdlog::level::from_str(std::string(level));
  if (parsed == spdlog::level::off && level != "off") return false;
  auto logger = spdlog::get("gannet");
  if (!logger) logger = spdlog::stderr_color_mt("gannet");
  if (format == LogFormat::json) {
    logger->set_formatter(std::make_unique<JsonFormatter>());
  } else {
    logger->set_formatter(std::make_unique<TextFormatter>());
  }
  logger->set_level(parsed);
  spdlog::set_default_logger(logger);
  return true;
}

LogContext::LogContext(std::string_view request_id) : outer_(current_request) {
  current_request = request_id;
}

LogContext::~LogContext() {
  current_request = outer_;
}

void log_fields(spdlog::level::level_enum level, std::string_view message, std::initializer_list<LogField> fields) {
  if (!spdlog::should_log(level)) return;
  current_fields = &fields;
  spdlog::log(level, "{}", message);
  current_fields = nullptr;
}

}  // namespace gannet
