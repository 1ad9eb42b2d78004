#include "server/access_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/log_context.h"

namespace gannet::server {
namespace {

std::string logged(const RequestRecord& record, LogFormat format) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(start_logging("info", format));
  log_request(record);
  return testing::internal::GetCapturedStderr();
}

TEST(AccessLog, IsJsonWhateverTheClientSent) {
  const RequestRecord record{
      .id = "r", .method = "POST", .path = "/a\xff\xc2\x9b=\"\n", .remote = "::1", .status = 404, .tokens = 3};
  const auto line = nlohmann::json::parse(logged(record, LogFormat::json), nullptr, false);
  ASSERT_TRUE(line.is_object());
  EXPECT_EQ(line["path"], "/a%FF%C2%9B=\"\n");
  EXPECT_EQ(line["status"], 404);
  EXPECT_EQ(line["tokens"], 3);
  EXPECT_THAT(logged(record, LogFormat::text), testing::HasSubstr("path=\"/a%FF%C2%9B=\\\"\\u000a\" status=404"));
}

TEST(AccessLog, ProbesAreQuiet) {
  EXPECT_EQ(logged({.id = "r", .method = "GET", .path = "/health", .remote = "::1", .status = 200}, LogFormat::text),
            "");
}

}  // namespace
}  // namespace gannet::server
