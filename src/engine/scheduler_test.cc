#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/scheduler_test_harness.h"

namespace gannet {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using Harness = SchedulerHarness;

Harness::Setup setup_of(int64_t blocks, int64_t batched_tokens, int64_t seqs) {
  Harness::Setup setup;
  setup.blocks = blocks;
  setup.options.max_num_batched_tokens = batched_tokens;
  setup.options.max_num_seqs = seqs;
  return setup;
}

TEST(Scheduler, NothingToDo) {
  Harness harness;
  EXPECT_THAT(harness.plan().parts, SizeIs(0));
  EXPECT_TRUE(harness.empty());
}

TEST(Scheduler, OneRequestFromPromptToEnd) {
  Harness harness;
  LiveRequest& request = harness.add(Harness::prompt(40), 3);
  EXPECT_EQ(harness.scheduler.waiting(), 1);
  const StepPlan prompt = harness.step();
  EXPECT_EQ(prompt.rows(), 40);
  EXPECT_TRUE(prompt.parts[0].samples);
  EXPECT_TRUE(prompt.parts[0].begin);
  EXPECT_TRUE(std::holds_alternative<Decoding>(request.state));
  for (int64_t i = 0; i < 2; ++i) {
    const StepPlan step = harness.step();
    EXPECT_EQ(step.rows(), 1);
    EXPECT_EQ(step.parts[0].start, 40 + i);
    EXPECT_FALSE(step.parts[0].begin);
  }
  harness.collect();
  ASSERT_THAT(harness.ended, SizeIs(1));
  EXPECT_EQ(harness.ended[0]->generated(), 3);
  EXPECT_EQ(*std::get<Finished>(harness.ended[0]->state).outcome, FinishReason::length);
  EXPECT_TRUE(harness.empty());
}

TEST(Scheduler, AStopIdEndsARequest) {
  Harness harness;
  Request request{.prompt = Harness::prompt(5)};
  request.sampling.stop_ids = {3};
  harness.add(std::move(request), 100);
  harness.drain();
  EXPECT_EQ(harness.ended[0]->generated(), 4) << "tokens 0, 1, 2, 3";
  EXPECT_EQ(*std::get<Finished>(harness.ended[0]->state).outcome, FinishReason::stop);
}

TEST(Scheduler, PromptsAreCutToTheBudget) {
  Harness harness(setup_of(100, 30, 8));
  const LiveRequest& request = harness.add(Harness::prompt(70), 1);
  std::vector<int64_t> rows;
  std::vector<bool> samples;
  while (harness.scheduler.unfinished() > 0) {
    const StepPlan step = harness.step();
    rows.push_back(rows_of(step, request));
    samples.push_back(step.parts[0].samples);
  }
  EXPECT_THAT(rows, ElementsAre(30, 30, 10));
  EXPECT_THAT(samples, ElementsAre(false, false, true));
}

TEST(Scheduler, DecodesAndPromptsShareAStep) {
  Harness harness(setup_of(100, 30, 8));
  const LiveRequest& first = harness.add(Harness::prompt(10), 50);
  harness.step();
  const LiveRequest& second = harness.add(Harness::prompt(70, 3000), 50);
  const StepPlan step = harness.step();
  EXPECT_EQ(rows_of(step, first), 1);
  EXPECT_EQ(rows_of(step, second), 29);
}

TEST(Scheduler, SlotsLimitHowManyRun) {
  Harness harness(setup_of(100, 100, 2));
  for (int i = 0; i < 3; ++i) harness.add(Harness::prompt(5, 1000 * i), 4);
  EXPECT_THAT(harness.step().parts, SizeIs(2));
  EXPECT_EQ(harness.scheduler.waiting(), 1);
  harness.drain();
  EXPECT_THAT(harness.ended, SizeIs(3));
  EXPECT_TRUE(harness.empty());
}

TEST(Scheduler, LowerPrioritiesAreServedFirst) {
  Harness harness(setup_of(100, 100, 1));
  harness.add(Harness::prompt(5), 1, 5);
  harness.add(Harness::prompt(5), 1, -1);
  harness.add(Harness::prompt(5), 1, 5);
  harness.drain();
  std::vector<RequestId> order;
  for (const auto& request : harness.ended) order.push_back(request->id);
  EXPECT_THAT(order, ElementsAre(2, 1, 3));
}

// A long prompt does not keep short ones waiting, nor they it.
TEST(Scheduler, LongPromptsLeaveRoomForShortOnes) {
  Harness::Setup setup = setup_of(1000, 64, 16);
  Harness harness(setup);
  const LiveRequest& large = harness.add(Harness::prompt(8000), 1);
  harness.step();
  for (int round = 0; round < 20; ++round) {
    std::vector<LiveRequest*> shorts;
    for (int i = 0; i < 4; ++i) shorts.push_back(&harness.add(Harness::prompt(8, 100000 + 100 * i + 10000 * round), 1));
    const StepPlan step = harness.plan();
    EXPECT_EQ(rows_of(step, large), 32);
    for (const LiveRequest* request : shorts) EXPECT_EQ(rows_of(step, *request), 8);
    harness.run(step);
    harness.collect();
  }
}

TEST(Scheduler, ALonePromptGetsTheWholeStep) {
  Harness::Setup setup = setup_of(1000, 64, 16);
  setup.options.long_prefill_token_threshold = 16;
  Harness harness(setup);
  const LiveRequest& large = harness.add(Harness::prompt(800), 1);
  EXPECT_EQ(rows_of(harness.step(), large), 64);
}

TEST(Scheduler, LongPromptsTakeTurns) {
  Harness::Setup setup = setup_of(1000, 64, 16);
  setup.options.long_prefill_token_threshold = 32;
  Harness harness(setup);
  std::vector<LiveRequest*> requests;
  for (int i = 0; i < 4; ++i) requests.push_back(&harness.add(Harness::prompt(640, 10000 * i), 1));
  for (int step = 0; step < 8; ++step) harness.step();
  for (const LiveRequest* request : requests) {
    EXPECT_EQ(const_cast<LiveRequest*>(request)->residence()->next, 8 * 64 / 4);
  }
}

// Nobody overtakes a request that waits for room; when room comes it is the first.
TEST(Scheduler, WaitingForRoomKeepsTheOrder) {
  Harness harness(setup_of(10, 200, 8));
  const LiveRequest& first = harness.add(Harness::prompt(100), 20);
  harness.step();
  const LiveRequest& large = harness.add(Harness::prompt(100, 5000), 1);
  const LiveRequest& small = harness.add(Harness::prompt(5, 9000), 1);
  const StepPlan step = harness.step();
  EXPECT_EQ(rows_of(step, first), 1);
  EXPECT_EQ(rows_of(step, large), 0);
  EXPECT_EQ(rows_of(step, small), 0);
  harness.drain();
  EXPECT_EQ(harness.ended.front()->id, 1U);
  EXPECT_EQ(harness.scheduler.counts().preemptions, 0);
}

TEST(Scheduler, TheLastServedGivesWayWhenBlocksRunOut) {
  Harness harness(setup_of(6, 100, 8));
  const LiveRequest& first = harness.add(Harness::prompt(30), 60);
  const LiveRequest& second = harness.add(Harness::prompt(30, 5000), 40);
  harness.step();
  EXPECT_EQ(harness.scheduler.running(), 2);
  const RequestId ids[] = {first.id, second.id};
  harness.drain();
  EXPECT_GT(harness.scheduler.counts().preemptions, 0);
  ASSERT_THAT(harness.ended, SizeIs(2));
  EXPECT_EQ(harness.ended[0]->id, ids[0]);
  EXPECT_EQ(harness.ended[0]->generated(), 60);
  EXPECT_EQ(harness.ended[1]->generated(), 40);
  for (const auto& request : harness.ended) {
    for (int64_t i = 0; i < request->generated(); ++i) EXPECT_EQ(request->tokens[request->prompt_tokens + i], i);
  }
  EXPECT_TRUE(harness.empty());
}

TEST(Scheduler, APreemptedRequestFindsItsOwnBlocks) {
  Harness harness(setup_of(12, 200, 8));
  harness.add(Harness::prompt(80), 30);
  LiveRequest& second = harness.add(Harness::prompt(64, 5000), 60);
  std::optional<int64_t> restarted_at;
  while (harness.scheduler.unfinished() > 0) {
    const StepPlan step = harness.step();
    const StepPart* part = part_of(step, second);
    if (part != nullptr && part->begin && part->start > 0) restarted_at = part->begin->cached;
    harness.collect();
  }
  ASSERT_TRUE(restarted_at);
  EXPECT_GE(*restarted_at, 64);
}

TEST(Scheduler, AHighPriorityIsNotPreemptedForALowOne) {
  Harness harness(setup_of(6, 100, 8));
  const RequestId low = harness.add(Harness::prompt(30), 50, 1).id;
  const RequestId high = harness.add(Harness::prompt(30, 5000), 50, 0).id;
  harness.drain();
  EXPECT_EQ(harness.ended[0]->id, high);
  EXPECT_EQ(harness.ended[1]->id, low);
}

// The order of calls that the engine makes: the next step is planned before the tokens of the running one are known.
class PlannedAhead : public testing::Test {
 protected:
  // One turn; returns the step that ran.
  StepPlan turn() {
    StepPlan ahead = harness_.scheduler.plan();
    harness_.run(running_);
    harness_.scheduler.settle(ahead);
    return std::exchange(running_, std::move(ahead));
  }
  Harness harness_;
  StepPlan running_;
};

TEST_F(PlannedAhead, DecodesGoOnWithoutAGap) {
  const LiveRequest& request = harness_.add(Harness::prompt(10), 4);
  running_ = harness_.plan();
  std::vector<int64_t> starts;
  while (!running_.parts.empty()) starts.push_back(part_of(turn(), request)->start);
  EXPECT_THAT(starts, ElementsAre(0, 10, 11, 12));
  harness_.collect();
  EXPECT_EQ(harness_.ended[0]->generated(), 4);
  EXPECT_TRUE(harness_.empty());
}

TEST_F(PlannedAhead, ARowPlannedForARequestThatStopsIsDropped) {
  Request stopping{.prompt = Harness::prompt(10)};
  stopping.sampling.stop_ids = {1};
  harness_.add(std::move(stopping), 10);
  LiveRequest& other = harness_.add(Harness::prompt(10, 500), 10);
  running_ = harness_.plan();
  turn();
  turn();
  EXPECT_THAT(running_.parts, SizeIs(1));
  EXPECT_EQ(running_.parts[0].request, &other);
  harness_.collect();
  EXPECT_EQ(harness_.ended[0]->generated(), 2);
}

TEST_F(PlannedAhead, BlocksAreOnlyTakenFromOthersWhenNothingRuns) {
  Harness::Setup setup = setup_of(4, 100, 8);
  Harness harness(setup);
  LiveRequest& first = harness.add(Harness::prompt(31), 30);
  LiveRequest& second = harness.add(Harness::prompt(31, 700), 30);
  StepPlan running = harness.plan();
  for (int i = 0; i < 3; ++i) {
    StepPlan ahead = harness.scheduler.plan();
    EXPECT_EQ(harness.scheduler.counts().preemptions, 0);
    harness.run(running);
    harness.scheduler.settle(ahead);
    running = std::move(ahead);
    if (harness.scheduler.counts().preemptions > 0) break;
  }
  EXPECT_EQ(harness.scheduler.counts().preemptions, 1);
  EXPECT_TRUE(std::holds_alternative<Waiting>(second.state));
  EXPECT_EQ(rows_of(running, first), 1);
  EXPECT_EQ(rows_of(running, second), 0);
}

// What a request holds in each of its states goes back, however it ends there.
enum class Where { waiting, waiting_for_kv, prefilling, decoding, preempted };

class SlowSource : public KvSource {
 public:
  Match match(const LiveRequest&) override { return {.tokens = 64}; }
  void load(RequestId, std::span<const int32_t>, int64_t, int64_t) override {}
  void abandon(RequestId) override { ++abandoned; }
  int abandoned = 0;
};

class EndsIn : public testing::TestWithParam<std::tuple<Where, bool>> {};

TEST_P(EndsIn, NothingIsLeft) {
  const auto [where, by_error] = GetParam();
  SlowSource source;
  Harness::Setup setup = setup_of(where == Where::preempted ? 4 : 100, 40, where == Where::waiting ? 1 : 8);
  if (where == Where::waiting_for_kv) setup.source = &source;
  Harness harness(setup);
  LiveRequest* other = nullptr;
  if (where == Where::waiting || where == Where::preempted) other = &harness.add(Harness::prompt(20, 7000), 40);
  const int64_t length = where == Where::prefilling || where == Where::waiting_for_kv ? 100 : 20;
  LiveRequest& request = harness.add(Harness::prompt(length), 40);
  for (int i = 0; i < (where == Where::preempted ? 20 : 1); ++i) harness.step();
  switch (where) {
    case Where::waiting:
      EXPECT_TRUE(std::holds_alternative<Waiting>(request.state));
      break;
    case Where::waiting_for_kv:
      EXPECT_TRUE(std::holds_alternative<WaitingForKv>(request.state));
      break;
    case Where::prefilling:
      EXPECT_TRUE(std::holds_alternative<Prefilling>(request.state));
      break;
    case Where::decoding:
      EXPECT_TRUE(std::holds_alternative<Decoding>(request.state));
      break;
    case Where::preempted:
      EXPECT_TRUE(std::holds_alternative<Waiting>(request.state));
      EXPECT_GT(request.generated(), 0);
      break;
  }
  if (by_error) {
    harness.scheduler.finish(request, failed("too slow"));
  } else {
    harness.scheduler.finish(request, FinishReason::cancelled);
  }
  if (other != nullptr) harness.scheduler.finish(*other, FinishReason::cancelled);
  EXPECT_TRUE(harness.empty());
  EXPECT_EQ(source.abandoned, where == Where::waiting_for_kv ? 1 : 0);
  harness.scheduler.kv_arrived(1, true);  // too late
  EXPECT_THAT(harness.plan().parts, SizeIs(0));
}

INSTANTIATE_TEST_SUITE_P(Scheduler, EndsIn,
                         testing::Combine(testing::Values(Where::waiting, Where::waiting_for_kv, Where::prefilling,
                                                          Where::decoding, Where::preempted),
                                          testing::Bool()));

TEST(Scheduler, ALostStepEndsItsRequestsOnly) {
  Harness harness(setup_of(100, 20, 1));
  harness.add(Harness::prompt(10), 5);
  LiveRequest& waiting = harness.add(Harness::prompt(10, 300), 5);
  const StepPlan step = harness.plan();
  harness.scheduler.fail(step, Error{ErrorKind::failed, "lost"});
  harness.collect();
  ASSERT_THAT(harness.ended, SizeIs(1));
  EXPECT_FALSE(std::get<Finished>(harness.ended[0]->state).outcome);
  EXPECT_GT(rows_of(harness.plan(), waiting), 0);
}

// The request loses its blocks between its first token and the moment when that is told.
TEST(Scheduler, CompleteLogprobsOfAPromptOutliveAPreemption) {
  Harness::Setup setup = setup_of(5, 100, 8);
  setup.options.max_prompt_logprob_rows = 1;
  Harness harness(setup);
  harness.add(Harness::prompt(17), 50);
  harness.step();
  Request wanted{.prompt = Harness::prompt(31, 5000)};
  wanted.sampling.prompt_logprobs = 0;
  const LiveRequest& request = harness.add(std::move(wanted), 50);
  while (harness.scheduler.counts().preemptions == 0) {
    const StepPlan step = harness.plan();
    StepResult result;
    for (const StepPart& part : step.parts) {
      auto& came = result.parts.emplace_back();
      if (part.samples) came.token.emplace();
      if (part.prompt_logprobs) came.prompt_logprobs.resize(part.rows);
    }
    harness.scheduler.apply(step, result);
  }
  EXPECT_EQ(request.generated(), 1);
  EXPECT_THAT(request.prompt_logprobs, SizeIs(31));
}

// A full batch that ends one request at a time, down to the last.
TEST(Scheduler, ABatchOf256Drains) {
  constexpr int64_t kRequests = 256;
  Harness harness(setup_of(8000, 512, kRequests));
  for (int32_t i = 0; i < kRequests; ++i) harness.add(Harness::prompt(5, 1000 * i), 300 + i);
  int64_t most = 0;
  while (harness.scheduler.unfinished() > 0) {
    const StepPlan step = harness.step();
    ASSERT_FALSE(step.parts.empty());
    most = std::max(most, static_cast<int64_t>(step.parts.size()));
    harness.collect();
  }
  EXPECT_EQ(most, kRequests);
  ASSERT_THAT(harness.ended, SizeIs(kRequests));
  for (const auto& request : harness.ended) {
    EXPECT_EQ(request->generated(), 299 + static_cast<int64_t>(request->id));
  }
  EXPECT_TRUE(harness.empty());
}

// Random requests that come, are cancelled and run out of blocks: every step keeps its limits, no answer loses or
// repeats a token, and in the end everything is free.
TEST(Scheduler, RandomTraffic) {
  for (const uint32_t seed : {1U, 2U, 3U, 4U}) {
    std::mt19937 random(seed);
    const auto draw = [&](int64_t from, int64_t to) {
      return std::uniform_int_distribution<int64_t>(from, to)(random);
    };
    Harness::Setup setup = setup_of(draw(20, 60), draw(16, 80), 8);
    setup.options.replay.bounded = seed % 2 == 0;
    setup.options.long_prefill_token_threshold = draw(8, 64);
    setup.snapshots = 6;
    Harness harness(setup);
    const int64_t longest = setup.blocks * Harness::kBlock;
    StepPlan running;
    for (int turn = 0; turn < 3000; ++turn) {
      if (draw(0, 3) == 0 && harness.scheduler.unfinished() < 20) {
        const int64_t length = draw(1, draw(0, 9) == 0 ? longest / 2 : 60);
        harness.add(Harness::prompt(length, static_cast<int32_t>(draw(0, 2) * 5000)), draw(1, longest / 4), draw(0, 2));
      }
      StepPlan ahead = harness.scheduler.plan();
      harness.run(running);
      if (draw(0, 9) == 0 && harness.scheduler.unfinished() > 0) {
        const auto ids = harness.scheduler.ids();
        harness.scheduler.finish(*harness.scheduler.find(ids[draw(0, static_cast<int64_t>(ids.size()) - 1)]),
                                 FinishReason::cancelled);
      }
      harness.scheduler.settle(ahead);
      running = std::move(ahead);
      harness.collect();
      EXPECT_LE(running.rows(), setup.options.max_num_batched_tokens);
      if (harness.scheduler.unfinished() > 0 && running.parts.empty()) running = harness.plan();
      EXPECT_TRUE(harness.scheduler.unfinished() == 0 || !running.parts.empty()) << "stalled in turn " << turn;
    }
    harness.run(running);
    harness.collect();
    harness.drain();
    EXPECT_TRUE(harness.empty());
    EXPECT_GT(harness.ended.size(), 100U);
    for (const auto& request : harness.ended) {
      for (int64_t i = 0; i < request->generated(); ++i) EXPECT_EQ(request->tokens[request->prompt_tokens + i], i);
    }
  }
}

}  // namespace
}  // namespace gannet
