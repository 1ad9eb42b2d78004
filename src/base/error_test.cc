#include "base/error.h"

#include <gtest/gtest.h>

#include <memory>

namespace gannet {
namespace {

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_input("value: {} is odd; an even number is needed", value);
  return value / 2;
}

Result<int> quarter(int value) {
  GANNET_TRY(const int once, half(value));
  GANNET_TRY(const int twice, half(once));
  return twice;
}

Status check_even(int value, bool* checked) {
  GANNET_TRY_STATUS(half(value));
  *checked = true;
  return {};
}

TEST(Error, KindsAndFormattedMessages) {
  const Status usage = invalid_input("--port: {} is not in 1..{}", 0, 65535);
  EXPECT_EQ(usage.error().kind, ErrorKind::invalid_input);
  EXPECT_EQ(usage.error().message, "--port: 0 is not in 1..65535");
  const Status failure = failed("disk full");
  EXPECT_EQ(failure.error().kind, ErrorKind::failed);
  EXPECT_EQ(failure.error().message, "disk full");
}

TEST(Error, TryGivesTheValueOrReturnsTheFirstError) {
  EXPECT_EQ(quarter(12), 3);
  EXPECT_EQ(quarter(7).error().message, "value: 7 is odd; an even number is needed");
  EXPECT_EQ(quarter(6).error().message, "value: 3 is odd; an even number is needed");
}

TEST(Error, TryTakesMoveOnlyValues) {
  const auto make = []() -> Result<std::unique_ptr<int>> { return std::make_unique<int>(4); };
  const auto use = [&]() -> Result<int> {
    GANNET_TRY(const auto pointer, make());
    return *pointer;
  };
  EXPECT_EQ(use(), 4);
}

TEST(Error, TryStatusStopsAtAnError) {
  bool checked = false;
  EXPECT_FALSE(check_even(3, &checked));
  EXPECT_FALSE(checked);
  EXPECT_TRUE(check_even(4, &checked));
  EXPECT_TRUE(checked);
}

TEST(ErrorDeathTest, FailedCheckNamesConditionAndPlace) {
  EXPECT_DEATH(GANNET_CHECK(1 + 1 == 3), "internal check failed: 1 \\+ 1 == 3 \\(.*error_test\\.cc:[0-9]+\\)");
  GANNET_CHECK(1 + 1 == 2);
}

}  // namespace
}  // namespace gannet
