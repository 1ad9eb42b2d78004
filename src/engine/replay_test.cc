#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "engine/scheduler_test_harness.h"

// Bounded replay and hits as the scheduler sees them (spec: serving 1.2, 1.3, 1.6): blocks of 16 tokens, a window
// of 32.
namespace gannet {
namespace {

using testing::ElementsAre;
using testing::SizeIs;
using Harness = SchedulerHarness;

// A source of KV that has what it is told to have, and delivers when it is told to.
class FakeSource : public KvSource {
 public:
  Match has;
  std::vector<std::tuple<RequestId, int64_t, int64_t, size_t>> loads;  // id, from, to, blocks
  std::vector<RequestId> abandoned;

  Match match(const LiveRequest&) override { return has; }
  void load(RequestId id, std::span<const int32_t> blocks, int64_t from, int64_t to) override {
    loads.emplace_back(id, from, to, blocks.size());
  }
  void abandon(RequestId id) override { abandoned.push_back(id); }
};

Harness::Setup with_source(FakeSource& source) {
  Harness::Setup setup;
  setup.source = &source;
  return setup;
}

TEST(PlanReplay, NothingCached) {
  const ReplayPlan plan = plan_replay({.window = 32}, 0, 100);
  EXPECT_EQ(plan.first, 0);
  EXPECT_EQ(plan.cached, 0);
  EXPECT_EQ(plan.encoder_from, 0);
  EXPECT_EQ(plan.decoder_from, 68);
}

TEST(PlanReplay, DraftsThatMayBeTakenBackKeepMoreRows) {
  EXPECT_EQ(plan_replay({.window = 128, .draft_rollback = 12}, 0, 1000).decoder_from, 1000 - 140);
}

TEST(PlanReplay, ShortPromptsKeepAllRows) {
  for (const int64_t length : {1, 31, 32}) EXPECT_EQ(plan_replay({.window = 32}, 0, length).decoder_from, 0);
}

TEST(PlanReplay, UnboundedRunsEverythingBehindTheHit) {
  const ReplayPlan plan = plan_replay({.bounded = false, .window = 32}, 16, 100);
  EXPECT_EQ(plan.first, 16);
  EXPECT_EQ(plan.cached, 16);
  EXPECT_EQ(plan.encoder_from, 0);
  EXPECT_EQ(plan.decoder_from, 0);
}

// Behaviour 1: a hit of H tokens begins at H - W, shares all its blocks, and takes new ones for the rest only.
TEST(Replay, AHitBeginsAWindowBeforeItsEnd) {
  Harness harness;
  harness.add(Harness::prompt(70));
  harness.step();
  const LiveRequest& second = harness.add(Harness::prompt(70), 1);
  const int64_t free = harness.pool.free_blocks();
  const StepPlan step = harness.plan();
  const StepPart& part = *part_of(step, second);
  ASSERT_TRUE(part.begin);
  EXPECT_EQ(part.begin->first, 64 - 32);
  EXPECT_EQ(part.begin->cached, 64);
  EXPECT_EQ(part.begin->encoder_from, 32);
  EXPECT_EQ(part.start, 32);
  EXPECT_EQ(part.rows, 70 - 32);
  EXPECT_TRUE(part.samples);
  EXPECT_EQ(second.cached_tokens, 64);
  EXPECT_EQ(free - harness.pool.free_blocks(), 1) << "only the last block is new";
}

// Behaviour 2: chunks shorter than the window make progress, and take no block while they only replay.
TEST(Replay, ChunksShorterThanTheWindowMakeProgress) {
  Harness::Setup setup;
  setup.options.max_num_batched_tokens = 16;
  Harness harness(setup);
  harness.add(Harness::prompt(64), 1);
  harness.drain();
  const LiveRequest& second = harness.add(Harness::prompt(68), 1);
  std::vector<int64_t> rows;
  std::vector<int64_t> free;
  while (harness.scheduler.unfinished() > 0) {
    const StepPlan step = harness.plan();
    rows.push_back(rows_of(step, second));
    free.push_back(harness.pool.free_blocks());
    harness.run(step);
  }
  EXPECT_THAT(rows, ElementsAre(16, 16, 4));
  EXPECT_THAT(free, ElementsAre(96, 96, 95));
}

// Behaviours 3 and 4: KV from elsewhere is waited for; then the replay begins as behind any hit. It ends on a whole
// block.
TEST(Replay, AHitElsewhereIsWaitedForAndCutToWholeBlocks) {
  FakeSource source;
  source.has = {.tokens = 79};  // one short of a block
  Harness harness(with_source(source));
  LiveRequest& request = harness.add(Harness::prompt(100), 1);
  EXPECT_THAT(harness.plan().parts, SizeIs(0));
  EXPECT_TRUE(std::holds_alternative<WaitingForKv>(request.state));
  EXPECT_THAT(source.loads, ElementsAre(std::tuple(request.id, 0, 64, 4U)));
  EXPECT_EQ(harness.scheduler.counts().deferred, 1);
  EXPECT_THAT(harness.plan().parts, SizeIs(0));

  harness.scheduler.kv_arrived(request.id, true);
  const StepPlan step = harness.plan();
  EXPECT_EQ(part_of(step, request)->start, 64 - 32);
  EXPECT_EQ(part_of(step, request)->rows, 100 - 64 + 32);
  EXPECT_EQ(request.cached_tokens, 64);
  harness.run(step);
  harness.drain();
  EXPECT_TRUE(harness.empty());
}

TEST(Replay, OnlyWhatIsNotHereIsLoaded) {
  FakeSource source;
  Harness harness(with_source(source));
  harness.add(Harness::prompt(64), 1);
  harness.drain();
  source.has = {.tokens = 96};
  const LiveRequest& request = harness.add(Harness::prompt(100), 1);
  harness.plan();
  EXPECT_THAT(source.loads, ElementsAre(std::tuple(request.id, 64, 96, 6U)));
}

TEST(Replay, ALoadThatFailsIsComputedInstead) {
  FakeSource source;
  source.has = {.tokens = 64};
  Harness harness(with_source(source));
  const LiveRequest& request = harness.add(Harness::prompt(100), 1);
  harness.plan();
  harness.scheduler.kv_arrived(request.id, false);
  const StepPlan step = harness.plan();
  EXPECT_EQ(rows_of(step, request), 100);
  EXPECT_EQ(request.cached_tokens, 0);
  EXPECT_THAT(source.loads, SizeIs(1));
  harness.run(step);
  EXPECT_TRUE(harness.empty());
}

// Behaviour 5: hits that are no longer than the window are not adopted, and such a load is not even started.
TEST(Replay, HitsWithinTheWindowAreIgnored) {
  FakeSource source;
  source.has = {.tokens = 32};
  Harness harness(with_source(source));
  harness.add(Harness::prompt(32), 1);
  harness.drain();
  const LiveRequest& second = harness.add(Harness::prompt(40), 1);
  const StepPlan step = harness.plan();
  EXPECT_EQ(part_of(step, second)->start, 0);
  EXPECT_EQ(part_of(step, second)->begin->cached, 0);
  EXPECT_EQ(second.cached_tokens, 0);
  EXPECT_THAT(source.loads, SizeIs(0));
}

TEST(Replay, TheShortestHitThatCounts) {
  Harness harness;
  harness.add(Harness::prompt(48), 1);
  harness.drain();
  const LiveRequest& second = harness.add(Harness::prompt(49), 1);
  const StepPlan step = harness.plan();
  EXPECT_EQ(part_of(step, second)->start, 16);
  EXPECT_EQ(second.cached_tokens, 48);
}

// Behaviour 6: with the windows nothing is replayed; they stay cut off where the other engine cut them.
TEST(Replay, WindowsThatComeAlongAreNotRebuilt) {
  FakeSource source;
  source.has = {.tokens = 100, .windows = true};
  Harness harness(with_source(source));
  const LiveRequest& request = harness.add(Harness::prompt(100), 3);
  EXPECT_THAT(harness.plan().parts, SizeIs(0));
  harness.scheduler.kv_arrived(request.id, true);
  const StepPlan step = harness.plan();
  const StepPart& part = *part_of(step, request);
  EXPECT_EQ(part.start, 99);
  EXPECT_EQ(part.rows, 1);
  EXPECT_TRUE(part.samples);
  EXPECT_EQ(part.begin->encoder_from, 100 - 32);
  EXPECT_EQ(part.begin->decoder_from, 100 - 32);
  EXPECT_EQ(request.cached_tokens, 100);
}

// Behaviour 7: a request whose KV is handed over runs its last window once more, without new blocks, and samples there.
TEST(Replay, AHandOverRebuildsTheWindows) {
  Harness harness;
  LiveRequest& request = harness.add(Harness::prompt(100), 1);
  request.hand_over = true;
  const StepPlan first = harness.plan();
  EXPECT_EQ(rows_of(first, request), 100);
  EXPECT_FALSE(part_of(first, request)->samples);
  EXPECT_EQ(part_of(first, request)->decoder_from, 100) << "decoder layers have nothing to do yet";
  const int64_t free = harness.pool.free_blocks();
  harness.run(first);
  const StepPlan second = harness.plan();
  const StepPart& part = *part_of(second, request);
  EXPECT_EQ(part.begin->first, 68);
  EXPECT_EQ(part.begin->encoder_from, 68);
  EXPECT_EQ(part.begin->cached, 100);
  EXPECT_EQ(part.rows, 32);
  EXPECT_TRUE(part.samples);
  EXPECT_EQ(harness.pool.free_blocks(), free);
  harness.run(second);
  EXPECT_TRUE(harness.empty());
}

TEST(Replay, SeveralReplaysShareAStep) {
  Harness harness;
  harness.add(Harness::prompt(64), 1);
  harness.drain();
  std::vector<LiveRequest*> requests;
  for (int i = 0; i < 5; ++i) {
    auto ids = Harness::prompt(70);
    ids[66] = i;
    requests.push_back(&harness.add(ids, 1));
  }
  const StepPlan step = harness.plan();
  ASSERT_THAT(step.parts, SizeIs(5));
  for (const StepPart& part : step.parts) {
    EXPECT_EQ(part.rows, 38);
    EXPECT_TRUE(part.samples);
  }
}

TEST(Replay, AHitDoesNotDependOnWhatFollows) {
  Harness harness;
  harness.add(Harness::prompt(640), 1);
  harness.drain();
  for (const int64_t tail : {1, 15, 16, 100, 700}) {
    auto ids = Harness::prompt(640);
    ids.resize(640 + tail, 7);
    ids[640] = static_cast<int32_t>(tail);
    harness.add(ids, 1);
    harness.drain();
    EXPECT_EQ(harness.ended.back()->cached_tokens, 640) << tail;
  }
}

// What cannot be found again does not drive out what can.
TEST(Replay, LongPromptsDoNotDriveEachOtherOut) {
  Harness harness;
  for (int round = 0; round < 3; ++round) {
    for (const int32_t first : {1000, 5000}) {
      harness.add(Harness::prompt(640, first), 20);
      harness.drain();
      EXPECT_EQ(harness.ended.back()->cached_tokens, round == 0 ? 0 : 624);
      for (int i = 0; i < 10; ++i) harness.add(Harness::prompt(15, 9000 + 100 * i), 1);  // no whole block
      harness.drain();
    }
  }
}

TEST(Replay, ManyConversationsAtOnceKeepTheirPrefixes) {
  constexpr int32_t kConversations = 64;
  Harness::Setup setup;
  setup.blocks = kConversations * 20;
  setup.options.max_num_seqs = kConversations;
  Harness harness(setup);
  const auto ask = [&](int64_t tokens) {
    for (int32_t i = 0; i < kConversations; ++i) harness.add(Harness::prompt(tokens, 10'000 * i), 5);
    harness.drain();
    std::vector<int64_t> cached;
    for (const auto& request : harness.ended) cached.push_back(*request->cached_tokens);
    harness.ended.clear();
    return cached;
  };
  EXPECT_THAT(ask(100), testing::Each(0));
  EXPECT_THAT(ask(200), testing::Each(96));
  EXPECT_THAT(ask(300), testing::Each(192));
}

TEST(Replay, TheLastTokenAlwaysRuns) {
  Harness harness;
  harness.add(Harness::prompt(64), 1);
  harness.drain();
  const LiveRequest& again = harness.add(Harness::prompt(64), 1);
  harness.plan();
  EXPECT_EQ(again.cached_tokens, 48);
}

// The next turn of a conversation finds the answer of the one before.
TEST(Replay, AnswersAreCachedToo) {
  Harness harness;
  const LiveRequest& first = harness.add(Harness::prompt(60), 60);
  harness.drain();
  auto conversation = Harness::prompt(60);
  for (int32_t i = 0; i < 60; ++i) conversation.push_back(i);
  std::vector<int32_t> tokens;
  harness.ended.front()->tokens.append_to(tokens, 0, 120);
  EXPECT_EQ(tokens, conversation);
  (void)first;
  conversation.resize(130, 7);
  const LiveRequest& second = harness.add(conversation, 1);
  harness.plan();
  EXPECT_EQ(second.cached_tokens, 112) << "the last token of an answer is never fed: 119 tokens have KV";
}

TEST(Replay, SaltsAndTurnedOffCachesShareNothing) {
  Harness harness;
  harness.add({.prompt = Harness::prompt(64), .cache_salt = "a"}, 1);
  harness.drain();
  const LiveRequest& other = harness.add({.prompt = Harness::prompt(70), .cache_salt = "b"}, 1);
  const LiveRequest& same = harness.add({.prompt = Harness::prompt(70), .cache_salt = "a"}, 1);
  harness.plan();
  EXPECT_EQ(other.cached_tokens, 0);
  EXPECT_EQ(same.cached_tokens, 64);

  Harness::Setup setup;
  setup.options.prefix_caching = false;
  Harness off(setup);
  off.add(Harness::prompt(64), 1);
  off.drain();
  const LiveRequest& second = off.add(Harness::prompt(70), 1);
  off.plan();
  EXPECT_EQ(second.cached_tokens, 0);
  EXPECT_EQ(off.pool.cached_blocks(), 0);
}

TEST(Replay, AResetForgetsPrefixes) {
  Harness harness;
  harness.add(Harness::prompt(64), 1);
  harness.drain();
  harness.scheduler.forget_prefixes();
  const LiveRequest& second = harness.add(Harness::prompt(70), 1);
  harness.plan();
  EXPECT_EQ(second.cached_tokens, 0);
}

// Two prompts that begin alike: the second waits for what the first computes, and is not computed twice.
TEST(Replay, WhatAnotherComputesIsWaitedFor) {
  Harness::Setup setup;
  setup.options.max_num_batched_tokens = 48;
  Harness harness(setup);
  const LiveRequest& first = harness.add(Harness::prompt(200), 1);
  const LiveRequest& second = harness.add(Harness::prompt(200), 1);
  const LiveRequest& other = harness.add(Harness::prompt(10, 5000), 1);
  const StepPlan step = harness.step();
  EXPECT_GT(rows_of(step, first), 0);
  EXPECT_EQ(rows_of(step, second), 0);
  EXPECT_EQ(rows_of(step, other), 10) << "nobody else waits";
  EXPECT_EQ(harness.scheduler.counts().deferred, 1);
  harness.drain();
  for (const auto& request : harness.ended) {
    EXPECT_EQ(request->cached_tokens, request->id == 2 ? 192 : 0);
  }
}

TEST(Replay, WhoWaitsForAnotherIsLookedUpTwice) {
  Harness::Setup setup;
  setup.options.max_num_batched_tokens = 48;
  Harness harness(setup);
  for (int i = 0; i < 6; ++i) harness.add(Harness::prompt(400), 1);
  harness.drain();
  EXPECT_EQ(harness.scheduler.counts().lookups, 1 + 5 * 2);
  for (const auto& request : harness.ended) EXPECT_EQ(request->cached_tokens, request->id == 1 ? 0 : 384);
}

TEST(Replay, WaitingForAnotherIsOverWhenPrefixesAreForgotten) {
  Harness::Setup setup;
  setup.options.max_num_batched_tokens = 48;
  Harness harness(setup);
  harness.add(Harness::prompt(200), 1);
  const LiveRequest& second = harness.add(Harness::prompt(200), 1);
  harness.step();
  EXPECT_EQ(second.cached_tokens, std::nullopt);
  harness.scheduler.forget_prefixes();
  harness.step();
  EXPECT_EQ(second.cached_tokens, 0);
}

// A request that waits for blocks needs fewer of them when others have computed more of its prompt.
TEST(Replay, ARequestWithoutRoomIsTriedAgainWhenMoreOfItIsCached) {
  Harness::Setup setup;
  setup.blocks = 21;
  Harness harness(setup);
  LiveRequest& first = harness.add(Harness::prompt(100), 60);
  LiveRequest& other = harness.add(Harness::prompt(33, 5000), 60);
  harness.step();
  auto conversation = Harness::prompt(100);
  for (int32_t i = 0; i < 60; ++i) conversation.push_back(i);
  conversation.resize(280, 7);
  const LiveRequest& next = harness.add(conversation, 1);
  while (first.residence()->published < 9) EXPECT_EQ(rows_of(harness.step(), next), 0);
  harness.scheduler.finish(other, FinishReason::cancelled);
  EXPECT_GT(rows_of(harness.plan(), next), 0);
  EXPECT_EQ(next.cached_tokens, 144);
}

TEST(Replay, WaitingForAnotherIsOverWhenThatIsCancelled) {
  Harness::Setup setup;
  setup.options.max_num_batched_tokens = 48;
  Harness harness(setup);
  LiveRequest& first = harness.add(Harness::prompt(200), 1);
  const LiveRequest& second = harness.add(Harness::prompt(200), 1);
  harness.step();
  harness.scheduler.finish(first, FinishReason::cancelled);
  const StepPlan step = harness.plan();
  EXPECT_GT(rows_of(step, second), 0);
  EXPECT_EQ(second.cached_tokens, 48);
}

TEST(Replay, LogprobsOfAPromptNeedAllOfIt) {
  Harness harness;
  harness.add(Harness::prompt(64), 1);
  harness.drain();
  Request request{.prompt = Harness::prompt(70)};
  request.sampling.prompt_logprobs = 0;
  const LiveRequest& second = harness.add(std::move(request), 1);
  const StepPlan step = harness.plan();
  const StepPart& part = *part_of(step, second);
  EXPECT_EQ(part.start, 0);
  EXPECT_EQ(part.decoder_from, 0);
  EXPECT_TRUE(part.prompt_logprobs);
  EXPECT_EQ(part.rows, 64) << "each row needs a row of logits";
}

// Without bounded replay a hit ends where windows were kept, and nothing runs twice.
TEST(Snapshots, AHitContinuesBehindIt) {
  Harness::Setup setup;
  setup.options.replay.bounded = false;
  setup.snapshots = 4;
  Harness harness(setup);
  const LiveRequest& first = harness.add(Harness::prompt(70), 1);
  const StepPlan step = harness.plan();
  EXPECT_EQ(rows_of(step, first), 64) << "windows are kept at the last whole block";
  EXPECT_TRUE(step.parts[0].save);
  harness.run(step);
  harness.drain();
  const LiveRequest& second = harness.add(Harness::prompt(70), 1);
  const StepPlan hit = harness.plan();
  const StepPart& part = *part_of(hit, second);
  EXPECT_EQ(part.start, 64);
  EXPECT_EQ(part.rows, 6);
  EXPECT_EQ(part.restore, step.parts[0].save);
  EXPECT_EQ(part.begin->encoder_from, 0);
  EXPECT_EQ(second.cached_tokens, 64);
}

TEST(Snapshots, WithoutOneThereIsNoHit) {
  Harness::Setup setup;
  setup.options.replay.bounded = false;
  Harness harness(setup);
  harness.add(Harness::prompt(70), 1);
  harness.drain();
  const LiveRequest& second = harness.add(Harness::prompt(70), 1);
  harness.plan();
  EXPECT_EQ(second.cached_tokens, 0);
}

TEST(Snapshots, NoneGivesWayBeforeItIsRead) {
  Harness::Setup setup;
  setup.options.max_num_batched_tokens = Harness::kBlock;
  setup.options.replay.bounded = false;
  setup.snapshots = 4;
  Harness harness(setup);
  harness.add(Harness::prompt(33), 1);
  harness.drain();
  // Each of the others keeps windows with every chunk, and all come before the one with the hit.
  for (int32_t i = 0; i < 6; ++i) harness.add(Harness::prompt(32, 5000 + 100 * i), 1);
  const LiveRequest& request = harness.add(Harness::prompt(72), 1);
  StepPlan step;
  while (part_of(step, request) == nullptr) step = harness.step();
  ASSERT_TRUE(part_of(step, request)->restore);
  EXPECT_EQ(harness.windows.find(request.hashes[1]), part_of(step, request)->restore);
}

TEST(Snapshots, AnswersKeepWindowsAtEachBlock) {
  Harness::Setup setup;
  setup.options.replay.bounded = false;
  setup.snapshots = 8;
  Harness harness(setup);
  harness.add(Harness::prompt(20), 50);
  harness.drain();
  std::vector<int32_t> conversation;
  harness.ended.front()->tokens.append_to(conversation, 0, 70);
  conversation.resize(90, 7);
  const LiveRequest& second = harness.add(conversation, 1);
  const StepPlan step = harness.plan();
  EXPECT_EQ(second.cached_tokens, 64);
  EXPECT_EQ(part_of(step, second)->start, 64);
}

}  // namespace
}  // namespace gannet
