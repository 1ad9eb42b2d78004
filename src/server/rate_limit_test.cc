#include "server/rate_limit.h"

#include <gtest/gtest.h>

namespace gannet::server {
namespace {

using std::chrono::seconds;

const RateLimit::Clock::time_point kStart(std::chrono::hours(1));

TEST(RateLimit, LetsAMinutesWorthThroughAndThenOneAtATime) {
  RateLimit limit(6);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(limit.admit("a", kStart), seconds(0)) << i;
  EXPECT_EQ(limit.admit("a", kStart), seconds(10));
  EXPECT_EQ(limit.admit("a", kStart + seconds(4)), seconds(6));
  EXPECT_EQ(limit.admit("a", kStart + seconds(10)), seconds(0));
  EXPECT_EQ(limit.admit("a", kStart + seconds(10)), seconds(10));
}

TEST(RateLimit, CountsEachClientAlone) {
  RateLimit limit(1);
  EXPECT_EQ(limit.admit("a", kStart), seconds(0));
  EXPECT_EQ(limit.admit("b", kStart), seconds(0));
  EXPECT_EQ(limit.admit("a", kStart), seconds(60));
}

TEST(RateLimit, SavesUpNoMoreThanAMinute) {
  RateLimit limit(2);
  EXPECT_EQ(limit.admit("a", kStart), seconds(0));
  const auto later = kStart + seconds(100'000);
  EXPECT_EQ(limit.admit("a", later), seconds(0));
  EXPECT_EQ(limit.admit("a", later), seconds(0));
  EXPECT_EQ(limit.admit("a", later), seconds(30));
}

TEST(RateLimit, ZeroIsNoLimit) {
  RateLimit limit(0);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limit.admit("a", kStart), seconds(0));
}

TEST(RateLimit, NewcomersBeyondTheMemoryShareOneAllowance) {
  RateLimit limit(1);
  for (size_t i = 0; i < RateLimit::kMostClients; ++i) limit.admit(std::to_string(i), kStart);
  EXPECT_EQ(limit.admit("new", kStart), seconds(0));
  EXPECT_EQ(limit.admit("newer", kStart), seconds(60));
  EXPECT_EQ(limit.admit("0", kStart), seconds(60));
  EXPECT_EQ(limit.admit("newest", kStart + seconds(61)), seconds(0)) << "quiet clients were not forgotten";
}

}  // namespace
}  // namespace gannet::server
