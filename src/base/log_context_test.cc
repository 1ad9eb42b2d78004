#include "base/log_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <string>

namespace gannet {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string logged(LogFormat format, const std::function<void()>& log) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(start_logging("info", format));
  log();
  return testing::internal::GetCapturedStderr();
}

void log_two_fields() {
  const LogContext context("req-1");
  log_fields(spdlog::level::info, "request",
             {{"path", std::string_view("/a b\n\"")}, {"status", int64_t{200}}, {"seconds", 0.5}});
}

TEST(LogContext, JsonLinesAreObjects) {
  const std::string line = logged(LogFormat::json, log_two_fields);
  const std::regex shape(
      "\\{\"time\":\"\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z\",\"level\":\"info\",\"request_id\":\"req-1\","
      "\"message\":\"request\",\"path\":\"/a b\\\\u000a\\\\\"\",\"status\":200,\"seconds\":0\\.500000\\}\n");
  EXPECT_TRUE(std::regex_match(line, shape)) << line;
}

TEST(LogContext, TextLinesStayOneLine) {
  const std::string line = logged(LogFormat::text, log_two_fields);
  EXPECT_THAT(line, HasSubstr("[req-1] request path=\"/a b\\u000a\\\"\" status=200 seconds=0.500000\n"));
}

TEST(LogContext, MessagesStayOneLineToo) {
  const auto log = [] { spdlog::info("tool {}", "a\nb\x1b[2J\x08\xc3\xa9"); };
  EXPECT_THAT(logged(LogFormat::text, log), HasSubstr("info tool a\\u000ab\\u001b[2J\\u0008\xc3\xa9\n"));
}

TEST(LogContext, EndsWithItsScopeAndNests) {
  const std::string lines = logged(LogFormat::text, [] {
    {
      const LogContext outer("outer");
      static_cast<void>(LogContext("inner"));
      spdlog::info("one");
    }
    spdlog::info("two");
  });
  EXPECT_THAT(lines, HasSubstr("[outer] one"));
  EXPECT_THAT(lines, Not(HasSubstr("inner")));
  EXPECT_THAT(lines, HasSubstr("info two"));
}

TEST(LogContext, FieldsBelongToTheirLineOnly) {
  const std::string lines = logged(LogFormat::text, [] {
    log_fields(spdlog::level::info, "first", {{"a", int64_t{1}}});
    spdlog::info("second");
    log_fields(spdlog::level::debug, "hidden", {{"a", int64_t{1}}});
  });
  EXPECT_THAT(lines, HasSubstr("first a=1\n"));
  EXPECT_THAT(lines, HasSubstr("second\n"));
  EXPECT_THAT(lines, Not(HasSubstr("hidden")));
}

}  // namespace
}  // namespace gannet
