#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

namespace gannet {
namespace {

using Parts = std::vector<std::pair<int64_t, int64_t>>;

// The parts that parallel_for made, by position.
Parts parts_of(ThreadPool& pool, int64_t n, int64_t grain) {
  Parts parts;
  std::mutex mutex;
  pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const std::lock_guard lock(mutex);
    parts.emplace_back(begin, end);
  });
  std::sort(parts.begin(), parts.end());
  return parts;
}

class PoolOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, PoolOfSize, ::testing::Range(1, 9));

TEST_P(PoolOfSize, RunsTheBodyOnceOnEveryThread) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.size(), GetParam());
  std::vector<std::atomic<int>> calls(GetParam());
  pool.run([&](int thread) { ++calls.at(thread); });
  for (const auto& count : calls) EXPECT_EQ(count, 1);
}

TEST_P(PoolOfSize, ThreadsAreDistinctAndTheCallerIsNumberZero) {
  ThreadPool pool(GetParam(), false);
  std::vector<std::thread::id> ids(GetParam());
  pool.run([&](int thread) { ids.at(thread) = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(std::unique(ids.begin(), ids.end()), ids.end());
}

TEST_P(PoolOfSize, ForEveryIndexExactlyOnce) {
  ThreadPool pool(GetParam());
  for (const int64_t n : {0, 1, 2, 3, 7, 8, 9, 64, 1000}) {
    for (const int64_t grain : {1, 2, 3, 16, 1000, 5000}) {
      std::vector<std::atomic<int>> visits(n);
      pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits.at(i);
      });
      EXPECT_TRUE(std::all_of(visits.begin(), visits.end(), [](const auto& count) { return count == 1; }))
          << "n " << n << ", grain " << grain;
    }
  }
}

TEST_P(PoolOfSize, PartsAreFewContiguousAndCutAtTheGrain) {
  ThreadPool pool(GetParam());
  for (const int64_t n : {1, 5, 16, 31, 32, 33, 1000}) {
    for (const int64_t grain : {1, 4, 32, 100}) {
      const Parts parts = parts_of(pool, n, grain);
      EXPECT_LE(std::ssize(parts), pool.size());
      int64_t next = 0;
      for (const auto& [begin, end] : parts) {
        EXPECT_EQ(begin, next);
        EXPECT_LT(begin, end);
        EXPECT_TRUE(end % grain == 0 || end == n) << "n " << n << ", grain " << grain << ", end " << end;
        next = end;
      }
      EXPECT_EQ(next, n);
    }
  }
}

// Adds i to value i in every round; each part reads what another thread wrote the round before.
void expect_rounds_add_up(ThreadPool& pool, int64_t rounds) {
  std::vector<int64_t> value(64);
  for (int64_t round = 0; round < rounds; ++round) {
    pool.parallel_for(std::ssize(value), round % 7 + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) value[i] += i;
    });
  }
  for (int64_t i = 0; i < std::ssize(value); ++i) EXPECT_EQ(value[i], rounds * i);
}

TEST_P(PoolOfSize, ResultsOfWorkersAreVisibleToEachOther) {
  ThreadPool pool(GetParam());
  expect_rounds_add_up(pool, 100);
}

TEST(ThreadPool, IsReusedThousandsOfTimes) {
  ThreadPool pool(2);
  expect_rounds_add_up(pool, 2000);
}

TEST_P(PoolOfSize, MayBeDestroyedWithoutHavingWorked) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(GetParam());
}

TEST(ThreadPool, NothingToDoCallsNothing) {
  ThreadPool pool(3);
  EXPECT_EQ(parts_of(pool, 0, 1), Parts());
  EXPECT_EQ(parts_of(pool, -5, 1), Parts());
}

TEST(ThreadPool, WorkOfOneGrainStaysOnTheCaller) {
  ThreadPool pool(4);
  std::thread::id worker;
  pool.parallel_for(10, 10, [&](int64_t, int64_t) { worker = std::this_thread::get_id(); });
  EXPECT_EQ(worker, std::this_thread::get_id());
}

TEST(ThreadPool, FewerItemsThanThreadsGiveOnePartEach) {
  ThreadPool pool(8);
  EXPECT_EQ(parts_of(pool, 3, 1), (Parts{{0, 1}, {1, 2}, {2, 3}}));
}

TEST(ThreadPool, WorkersSleepBetweenCallsAndWakeAgain) {
  ThreadPool pool(4);
  std::atomic<int> calls = 0;
  for (int i = 0; i < 5; ++i) {
    // Longer than any spin of the workers; whether they do sleep does not change the outcome.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    pool.run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls, 20);
}

TEST(ThreadPool, SlowWorkersAreWaitedFor) {
  ThreadPool pool(4);
  std::atomic<int> finished = 0;
  pool.run([&](int thread) {
    if (thread != 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    ++finished;
  });
  EXPECT_EQ(finished, 4);
}

TEST(ThreadPool, TwoPoolsLiveSideBySide) {
  ThreadPool first(3);
  ThreadPool second(2);
  std::atomic<int> calls = 0;
  for (int i = 0; i < 100; ++i) {
    first.run([&](int) { ++calls; });
    second.run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls, 500);
}

TEST(ThreadPoolDeathTest, NeedsAThread) {
  EXPECT_DEATH(ThreadPool(0), "threads >= 1");
}

}  // namespace
}  // namespace gannet
