#include "server/http_connection.h"

#include <gtest/gtest.h>

#include <thread>

namespace gannet::server {
namespace {

using std::chrono::milliseconds;

TEST(BusyWorkers, LetsNobodyBeginOnceTheServerEnds) {
  BusyWorkers busy;
  EXPECT_TRUE(busy.begin());
  busy.end();
  EXPECT_TRUE(busy.close_and_wait(milliseconds(0)));
  EXPECT_FALSE(busy.begin()) << "a worker that took its request just before would not be waited for";
}

TEST(BusyWorkers, WaitsForThoseThatHaveBegun) {
  BusyWorkers busy;
  ASSERT_TRUE(busy.begin());
  EXPECT_FALSE(busy.close_and_wait(milliseconds(1)));
  std::thread worker([&] { busy.end(); });
  EXPECT_TRUE(busy.close_and_wait(std::chrono::seconds(30)));
  worker.join();
}

}  // namespace
}  // namespace gannet::server
