#include "base/log.h"

#include <gtest/gtest.h>

namespace gannet {
namespace {

TEST(Log, AcceptsItsLevelsOnly) {
  for (const char* level : {"trace", "debug", "info", "warning", "error", "off"})
    EXPECT_TRUE(start_logging(level)) << level;
  for (const char* level : {"", "loud", "INFO", "info ", "2"}) EXPECT_FALSE(start_logging(level)) << level;
}

TEST(Log, SetsTheLevelAndARefusalKeepsIt) {
  ASSERT_TRUE(start_logging("error"));
  EXPECT_EQ(spdlog::get_level(), spdlog::level::err);
  ASSERT_FALSE(start_logging("loud"));
  EXPECT_EQ(spdlog::get_level(), spdlog::level::err);
}

TEST(Log, LinesGoToStderrAndNotToStdout) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  ASSERT_TRUE(start_logging("info"));
  spdlog::info("a line");
  spdlog::debug("a hidden line");
  const std::string out = ::testing::internal::GetCapturedStdout();
  const std::string err = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(out, "");
  EXPECT_NE(err.find("a line"), std::string::npos);
  EXPECT_EQ(err.find("a hidden line"), std::string::npos);
}

}  // namespace
}  // namespace gannet
