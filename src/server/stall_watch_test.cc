#include "server/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gannet::server {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

class StallWatchTest : public testing::Test {
 protected:
  std::optional<std::string> at(int second, int64_t unfinished) {
    return watch_.check(stats_, unfinished, StallWatch::Clock::time_point(seconds(second)));
  }

  EngineStats stats_;
  StallWatch watch_{seconds(10)};
};

TEST_F(StallWatchTest, SaysWhatStandsWhere) {
  stats_.running = 2;
  stats_.waiting = 3;
  stats_.deferred = 1;
  stats_.blocks = 40;
  stats_.blocks_held = 12;
  stats_.blocks_cached = 5;
  stats_.steps = 77;
  EXPECT_FALSE(at(100, 6));
  EXPECT_FALSE(at(109, 6));
  const auto report = at(110, 6);
  ASSERT_TRUE(report);
  EXPECT_THAT(*report, HasSubstr("for 10 s: 6 requests are unfinished, 2 running, 3 waiting (1 of them"));
  EXPECT_THAT(*report, HasSubstr("1 new; of 40 KV blocks 12 are held and 5 cached; 77 steps"));
}

TEST_F(StallWatchTest, RepeatsItselfNotTooOften) {
  EXPECT_FALSE(at(0, 1));
  EXPECT_TRUE(at(10, 1));
  EXPECT_FALSE(at(11, 1));
  EXPECT_FALSE(at(19, 1));
  EXPECT_THAT(at(20, 1).value_or(""), HasSubstr("for 20 s"));
}

TEST_F(StallWatchTest, StepsAreProgress) {
  for (int second = 0; second < 100; second += 5) {
    ++stats_.steps;
    EXPECT_FALSE(at(second, 1));
  }
  EXPECT_FALSE(at(104, 1));
  EXPECT_TRUE(at(105, 1));
}

TEST_F(StallWatchTest, AnIdleEngineDoesNotStall) {
  for (int second = 0; second < 100; second += 5) EXPECT_FALSE(at(second, 0));
  EXPECT_FALSE(at(100, 1)) << "a request that has just come";
  EXPECT_FALSE(at(109, 1));
  EXPECT_TRUE(at(110, 1));
}

}  // namespace
}  // namespace gannet::server
