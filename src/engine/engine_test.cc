#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <numeric>
#include <thread>

#include "engine/engine_test_fixture.h"

namespace gannet {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(Engine, KnowsItsModel) {
  const auto engine = open_engine();
  EXPECT_EQ(engine->config().vocab_size, kVocab);
  EXPECT_EQ(engine->max_model_len(), kContext);
  EXPECT_EQ(engine->unfinished(), 0);
}

TEST(Engine, TheContextIsTheModelsUnlessLimited) {
  EngineOptions options = tiny_options();
  options.max_model_len = 0;
  EXPECT_EQ(open_engine(options)->max_model_len(), 65536);
}

TEST(Engine, GreedyAnswersEqualTheModelSteppedByHand) {
  for (const bool replay : {false, true}) {
    EngineOptions options = tiny_options();
    options.swa_bounded_replay = replay;
    const auto engine = open_engine(options);
    for (const int64_t length : {1, 7, 8, 9, 50, 130}) {
      EXPECT_EQ(answer_of(*engine, prompt_of(length), greedy(30)), stepped_by_hand(prompt_of(length), 30, replay))
          << "prompt of " << length << ", replay " << replay;
    }
  }
}

TEST(Engine, ReplayOnlyChangesPromptsBeyondTheWindow) {
  EngineOptions options = tiny_options();
  const auto on = open_engine(options);
  options.swa_bounded_replay = false;
  const auto off = open_engine(options);
  SamplingParams params = greedy(3);
  params.logprobs = 0;
  const auto logprobs = [&](Engine& engine, int64_t length) {
    const auto answer = start(engine, prompt_of(length), params);
    EXPECT_EQ(answer->reason(), FinishReason::length);
    std::vector<float> values;
    for (const Token& token : answer->tokens) values.push_back(token.logprob->logprob);
    return values;
  };
  EXPECT_EQ(logprobs(*on, 8), logprobs(*off, 8));
  EXPECT_NE(logprobs(*on, 100), logprobs(*off, 100));
}

// A row's result does not depend on what runs beside it, so neither chunks nor threads change a bit.
TEST(Engine, ChunksAndThreadsDoNotChangeTheAnswer) {
  SamplingParams params{.seed = 3, .max_tokens = 20, .logprobs = 4};
  for (const bool replay : {false, true}) {
    std::vector<std::vector<std::pair<int32_t, float>>> answers;
    for (const auto& [chunk, threads] : {std::pair{512, 1}, {1, 1}, {7, 1}, {64, 3}}) {
      EngineOptions options = tiny_options();
      options.max_num_batched_tokens = chunk;
      options.max_num_seqs = 1;
      options.threads = threads;
      options.swa_bounded_replay = replay;
      const auto engine = open_engine(options);
      const auto answer = start(*engine, prompt_of(150), params);
      answer->reason();
      auto& entries = answers.emplace_back();
      for (const Token& token : answer->tokens) {
        for (const auto& entry : token.top_logprobs) entries.emplace_back(entry.id, entry.logprob);
      }
      EXPECT_THAT(entries, SizeIs(80));
      EXPECT_EQ(entries, answers[0]) << "chunk " << chunk << ", threads " << threads;
    }
  }
}

TEST(Engine, EngramNeedsATokenMap) {
  EngineOptions options = tiny_options();
  options.model = checkpoints().engram;
  const auto without = create_engine(options);
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(without.error().message, AllOf(HasSubstr("has 0 ids"), HasSubstr("512")));
  options.engram_token_map.resize(512);
  std::iota(options.engram_token_map.begin(), options.engram_token_map.end(), 0);
  EXPECT_THAT(answer_of(*open_engine(options), prompt_of(40), greedy(5)), SizeIs(5));
}

TEST(Engine, SeedsDecideWhateverRanBefore) {
  const auto engine = open_engine();
  const SamplingParams params{.temperature = 2, .seed = 9, .max_tokens = 20};
  const Ids first = answer_of(*engine, prompt_of(20), params);
  answer_of(*engine, prompt_of(33), {.temperature = 1, .max_tokens = 4});
  EXPECT_EQ(answer_of(*engine, prompt_of(20), params), first);
  SamplingParams other = params;
  other.seed = 10;
  EXPECT_NE(answer_of(*engine, prompt_of(20), other), first);
}

TEST(Engine, MaxTokensEndsAtLength) {
  const auto engine = open_engine();
  for (const int64_t count : {1, 2, 17}) {
    const auto answer = start(*engine, prompt_of(5), greedy(count));
    EXPECT_EQ(answer->reason(), FinishReason::length);
    ASSERT_THAT(answer->tokens, SizeIs(count));
    for (const Token& token : answer->tokens) {
      const bool last = &token == &answer->tokens.back();
      EXPECT_EQ(token.finish, last ? std::optional(FinishReason::length) : std::nullopt);
    }
  }
}

TEST(Engine, TheEndOfTheContextEndsAtLength) {
  EngineOptions options = tiny_options();
  options.max_model_len = 30;
  const auto engine = open_engine(options);
  for (const int64_t length : {1, 10, 29}) {
    const auto answer = start(*engine, prompt_of(length), greedy(0));
    EXPECT_EQ(answer->reason(), FinishReason::length);
    EXPECT_THAT(answer->tokens, SizeIs(30 - length));
  }
}

// The first token that the greedy answer has not had before, and its place.
std::pair<int32_t, int64_t> late_token(const Ids& ids) {
  for (size_t i = ids.size(); i-- > 1;) {
    const auto at = static_cast<int64_t>(i);
    if (std::find(ids.begin(), ids.begin() + at, ids[i]) == ids.begin() + at) return {ids[i], at};
  }
  return {ids[0], 0};
}

TEST(Engine, AStopIdEndsTheAnswerAndIsReported) {
  const auto engine = open_engine();
  const Ids whole = answer_of(*engine, prompt_of(20), greedy(40));
  const auto [stop, at] = late_token(whole);
  ASSERT_GT(at, 0);
  SamplingParams params = greedy(40);
  params.stop_ids = {stop};
  const auto answer = start(*engine, prompt_of(20), params);
  EXPECT_EQ(answer->reason(), FinishReason::stop);
  EXPECT_EQ(answer->ids(), Ids(whole.begin(), whole.begin() + at + 1));
  EXPECT_EQ(answer->tokens.back().finish, FinishReason::stop);
}

TEST(Engine, AStopIdAsTheLastAllowedTokenIsAStop) {
  const auto engine = open_engine();
  SamplingParams params = greedy(1);
  params.stop_ids = answer_of(*engine, prompt_of(20), params);
  EXPECT_EQ(start(*engine, prompt_of(20), params)->reason(), FinishReason::stop);
}

TEST(Engine, MinTokensKeepsStopIdsAway) {
  const auto engine = open_engine();
  SamplingParams params{.seed = 1, .max_tokens = 40, .min_tokens = 12};
  Ids even;
  for (int32_t id = 0; id < kVocab; id += 2) even.push_back(id);
  params.stop_ids = even;
  const auto answer = start(*engine, prompt_of(20), params);
  EXPECT_EQ(answer->reason(), FinishReason::stop);
  ASSERT_GE(answer->tokens.size(), 13U);
  for (const Token& token : answer->tokens) EXPECT_EQ(token.id % 2 == 0, &token == &answer->tokens.back());
}

TEST(Engine, RequestsAnswerAsIfTheyWereAlone) {
  const auto engine = open_engine();
  Gate gate;
  std::vector<std::shared_ptr<Answer>> answers;
  for (int32_t i = 0; i < 6; ++i) {
    const auto& answer = answers.emplace_back(std::make_shared<Answer>());
    Request request = request_for(answer, prompt_of(3 + i * 5), greedy(1 + i % 3));
    ASSERT_TRUE(engine->submit(i == 0 ? gate.hold(std::move(request)) : std::move(request)));
  }
  EXPECT_EQ(engine->unfinished(), 6);
  gate.open();
  for (int32_t i = 0; i < 6; ++i) {
    EXPECT_EQ(answers[i]->reason(), FinishReason::length);
    EXPECT_EQ(answers[i]->ids(), stepped_by_hand(prompt_of(3 + i * 5), 1 + i % 3, true));
  }
  EXPECT_EQ(engine->unfinished(), 0);
}

TEST(Engine, ManyThreadsMaySubmit) {
  const auto engine = open_engine();
  std::vector<std::shared_ptr<Answer>> answers(8);
  {
    std::vector<std::jthread> threads;
    for (auto& answer : answers) {
      threads.emplace_back([&] { answer = start(*engine, prompt_of(12), greedy(3)); });
    }
  }
  for (const auto& answer : answers) {
    answer->reason();
    EXPECT_EQ(answer->ids(), answers[0]->ids());
  }
}

TEST(Engine, ARunningRequestIsCancelled) {
  const auto engine = open_engine();
  Gate gate;
  const auto answer = std::make_shared<Answer>();
  const auto id = engine->submit(gate.hold(request_for(answer, prompt_of(5), greedy(0))));
  ASSERT_TRUE(id);
  gate.wait_until_reached();
  engine->cancel(*id);
  gate.open();
  EXPECT_EQ(answer->reason(), FinishReason::cancelled);
  ASSERT_THAT(answer->tokens, SizeIs(1));
  EXPECT_FALSE(answer->tokens[0].finish);
  EXPECT_EQ(engine->unfinished(), 0);
  EXPECT_EQ(answer_of(*engine, prompt_of(5), greedy(3)), stepped_by_hand(prompt_of(5), 3, true));
}

TEST(Engine, ARequestMayBeCancelledFromItsOwnToken) {
  const auto engine = open_engine();
  std::promise<RequestId> id;
  auto known = id.get_future();
  const auto answer = std::make_shared<Answer>();
  Request request = request_for(answer, prompt_of(5), greedy(0));
  request.on_token = [&](const Token& token) {
    answer->tokens.push_back(token);
    if (answer->tokens.size() == 3) engine->cancel(known.get());
  };
  id.set_value(engine->submit(std::move(request)).value());
  EXPECT_EQ(answer->reason(), FinishReason::cancelled);
  EXPECT_THAT(answer->tokens, SizeIs(3));
}

TEST(Engine, CancellingAfterTheLastTokenChangesNothing) {
  const auto engine = open_engine();
  Gate gate;
  const auto answer = std::make_shared<Answer>();
  const auto id = engine->submit(gate.hold(request_for(answer, prompt_of(5), greedy(1))));
  gate.wait_until_reached();
  engine->cancel(*id);
  gate.open();
  EXPECT_EQ(answer->reason(), FinishReason::length);
}

// It ends with the step that is running, not with the request that is running.
TEST(Engine, AQueuedRequestIsCancelledWhileAnotherRuns) {
  EngineOptions options = tiny_options();
  options.max_num_seqs = 1;
  const auto engine = open_engine(options);
  Gate gate;
  const auto running = std::make_shared<Answer>();
  const auto queued = std::make_shared<Answer>();
  const auto behind = std::make_shared<Answer>();
  const auto first = engine->submit(gate.hold(request_for(running, prompt_of(5), greedy(0))));
  const auto second = engine->submit(request_for(queued, prompt_of(5), greedy(5)));
  ASSERT_TRUE(engine->submit(request_for(behind, prompt_of(5), greedy(5))));
  gate.wait_until_reached();
  engine->cancel(*second);
  gate.open();
  EXPECT_EQ(queued->reason(), FinishReason::cancelled);
  EXPECT_THAT(queued->tokens, IsEmpty());
  engine->cancel(*first);
  EXPECT_EQ(running->reason(), FinishReason::cancelled);
  EXPECT_EQ(behind->reason(), FinishReason::length);
}

TEST(Engine, UnknownAndEndedIdsAreIgnored) {
  const auto engine = open_engine();
  engine->cancel(0);
  engine->cancel(12345);
  const auto answer = std::make_shared<Answer>();
  const auto id = engine->submit(request_for(answer, prompt_of(5), greedy(2)));
  EXPECT_EQ(answer->reason(), FinishReason::length);
  engine->cancel(*id);
  EXPECT_THAT(answer_of(*engine, prompt_of(5), greedy(2)), SizeIs(2));
  EXPECT_EQ(answer->ends, 1);
}

TEST(Engine, ItsEndCancelsRunningAndQueuedRequests) {
  std::vector<std::shared_ptr<Answer>> answers;
  Gate gate;
  EngineOptions options = tiny_options();
  options.max_model_len = 0;  // an answer that nobody waits for
  options.max_num_seqs = 1;
  {
    const auto engine = open_engine(options);
    auto& running = answers.emplace_back(std::make_shared<Answer>());
    ASSERT_TRUE(engine->submit(gate.hold(request_for(running, prompt_of(5), greedy(0)))));
    for (int i = 0; i < 3; ++i) answers.push_back(start(*engine, prompt_of(9), greedy(2)));
    gate.wait_until_reached();
    gate.open();
  }
  for (const auto& answer : answers) {
    EXPECT_EQ(answer->ends, 1);
    EXPECT_EQ(answer->reason(), FinishReason::cancelled);
  }
  EXPECT_GE(answers[0]->tokens.size(), 1U);
  for (size_t i = 1; i < 4; ++i) EXPECT_THAT(answers[i]->tokens, IsEmpty());
}

TEST(Engine, CallbacksMayBeLeftOut) {
  const auto engine = open_engine();
  ASSERT_TRUE(engine->submit({.prompt = {1, 2}, .sampling = greedy(3)}));
  EXPECT_THAT(answer_of(*engine, {1, 2}, greedy(3)), SizeIs(3));
}

class RefusedRequest : public testing::Test {
 protected:
  // The message of a request that must be refused; none of its callbacks may be called.
  std::string message(Ids prompt, SamplingParams sampling) {
    const auto answer = std::make_shared<Answer>();
    const auto id = engine_->submit(request_for(answer, std::move(prompt), std::move(sampling)));
    EXPECT_FALSE(id);
    EXPECT_EQ(engine_->unfinished(), 0);
    EXPECT_EQ(answer->ends, 0);
    EXPECT_EQ(answer.use_count(), 1);
    if (id) return "accepted";
    EXPECT_EQ(id.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(id.error().message, testing::Not(HasSubstr("\n")));
    return id.error().message;
  }

  std::unique_ptr<Engine> engine_ = [] {
    EngineOptions options = tiny_options();
    options.max_model_len = 40;
    return open_engine(options);
  }();
};

TEST_F(RefusedRequest, EmptyPrompt) {
  EXPECT_THAT(message({}, {}), AllOf(HasSubstr("prompt is empty"), HasSubstr("at least one token")));
}

TEST_F(RefusedRequest, PromptWithoutRoomForAnAnswer) {
  for (const int64_t length : {40, 41, 1000}) {
    EXPECT_THAT(message(prompt_of(length), {}),
                AllOf(HasSubstr("context length is 40 tokens"), HasSubstr(fmt::format("prompt has {}", length))));
  }
}

TEST_F(RefusedRequest, AnswerThatCannotFit) {
  EXPECT_THAT(message(prompt_of(30), {.max_tokens = 11}),
              AllOf(HasSubstr("context length is 40 tokens"), HasSubstr("max_tokens asks for 11")));
  EXPECT_THAT(message(prompt_of(30), {.max_tokens = INT64_MAX}), HasSubstr("max_tokens asks for"));
  EXPECT_THAT(answer_of(*engine_, prompt_of(30), greedy(10)), SizeIs(10));
}

TEST_F(RefusedRequest, IdsOutsideTheVocabulary) {
  EXPECT_THAT(message({5, -1}, {}), AllOf(HasSubstr("token -1 at position 1"), HasSubstr("vocabulary of 64")));
  EXPECT_THAT(message({64}, {}), AllOf(HasSubstr("token 64 at position 0"), HasSubstr("vocabulary of 64")));
}

TEST_F(RefusedRequest, SamplingOutOfRange) {
  EXPECT_THAT(message({1}, {.temperature = -1}), AllOf(HasSubstr("temperature is -1"), HasSubstr("from 0")));
  EXPECT_THAT(message({1}, {.stop_ids = {64}}), AllOf(HasSubstr("stop_token_ids holds 64"), HasSubstr("to 63")));
  EXPECT_THAT(message({1}, {.max_tokens = -1}), AllOf(HasSubstr("max_tokens is -1"), HasSubstr("1 or more")));
}

TEST_F(RefusedRequest, OthersGoOn) {
  EXPECT_THAT(message({}, {}), HasSubstr("empty"));
  EXPECT_THAT(answer_of(*engine_, prompt_of(4), greedy(4)), SizeIs(4));
}

TEST(CreateEngine, RefusesWhatCannotBeLoaded) {
  EngineOptions options = tiny_options();
  options.max_model_len = 65537;
  const auto longer = create_engine(options);
  ASSERT_FALSE(longer);
  EXPECT_THAT(longer.error().message, AllOf(HasSubstr("65537"), HasSubstr("max_position_embeddings is 65536")));
  options.model = checkpoints().root / "missing";
  const auto missing = create_engine(options);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(missing.error().message, HasSubstr("missing"));
}

}  // namespace
}  // namespace gannet
