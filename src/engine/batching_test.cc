#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <random>
#include <set>
#include <stdexcept>

#include "base/cuda_error.h"
#include "cache/sequence_state.h"
#include "engine/engine_test_fixture.h"

// Many requests at once with a real model: what a request answers depends on nothing but itself.
namespace gannet {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;
using testing::SizeIs;

EngineOptions many(int64_t seqs = 16, int64_t batched = 48) {
  EngineOptions options = tiny_options();
  options.max_num_seqs = seqs;
  options.max_num_batched_tokens = batched;
  return options;
}

Ids random_prompt(std::mt19937& random, int64_t length) {
  Ids ids(length);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % kVocab);
  return ids;
}

// What an answer shows, bits included.
std::vector<std::pair<int32_t, float>> bits_of(const Answer& answer) {
  std::vector<std::pair<int32_t, float>> bits;
  for (const Token& token : answer.tokens) {
    bits.emplace_back(token.id, token.logprob ? token.logprob->logprob : 0);
    for (const auto& entry : token.top_logprobs) bits.emplace_back(entry.id, entry.logprob);
  }
  return bits;
}

struct Wanted {
  Ids prompt;
  SamplingParams sampling;
};

std::vector<Wanted> random_requests(std::mt19937& random, int count, int64_t longest) {
  std::vector<Wanted> wanted;
  for (int i = 0; i < count; ++i) {
    SamplingParams sampling;
    sampling.temperature = random() % 2 == 0 ? 0 : 1;
    sampling.seed = random();
    sampling.max_tokens = 1 + static_cast<int64_t>(random() % 40);
    sampling.logprobs = 2;
    sampling.frequency_penalty = static_cast<double>(random() % 2);
    wanted.push_back({random_prompt(random, 1 + static_cast<int64_t>(random()) % longest), sampling});
  }
  return wanted;
}

// Batch invariance: each request alone, then all together in random order, with other limits.
TEST(Batching, AnswersDoNotDependOnCompany) {
  std::mt19937 random(7);
  for (const bool replay : {false, true}) {
    const auto wanted = random_requests(random, 24, 150);
    std::vector<std::vector<std::pair<int32_t, float>>> alone;
    EngineOptions options = many(1, 512);
    options.swa_bounded_replay = replay;
    options.enable_prefix_caching = false;
    {
      const auto engine = open_engine(options);
      for (const Wanted& one : wanted) {
        const auto answer = start(*engine, one.prompt, one.sampling);
        answer->reason();
        alone.push_back(bits_of(*answer));
      }
    }
    for (const auto& [seqs, batched, threads] : {std::tuple{16, 48, 2}, {5, 7, 1}, {24, 512, 3}}) {
      options.max_num_seqs = seqs;
      options.max_num_batched_tokens = batched;
      options.threads = threads;
      options.long_prefill_token_threshold = batched / 2;
      const auto engine = open_engine(options);
      std::vector<size_t> order(wanted.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::shuffle(order.begin(), order.end(), random);
      std::map<size_t, std::shared_ptr<Answer>> answers;
      for (const size_t i : order) answers[i] = start(*engine, wanted[i].prompt, wanted[i].sampling);
      for (const auto& [i, answer] : answers) {
        answer->reason();
        EXPECT_EQ(bits_of(*answer), alone[i]) << "request " << i << ", " << seqs << " at once, replay " << replay;
      }
    }
  }
}

// With windows kept instead of replayed, neither hits nor preemption change a bit.
TEST(Batching, ExactHitsAndPreemptionChangeNothing) {
  std::mt19937 random(11);
  const Ids shared = random_prompt(random, 200);
  std::vector<Wanted> wanted = random_requests(random, 20, 60);
  for (size_t i = 0; i < wanted.size(); ++i) {
    wanted[i].prompt.insert(wanted[i].prompt.begin(), shared.begin(),
                            shared.begin() + static_cast<int64_t>(i % 4) * 66);
    wanted[i].sampling.max_tokens = 60;
  }
  EngineOptions options = many(8, 64);
  options.swa_bounded_replay = false;
  options.max_model_len = 320;
  options.enable_prefix_caching = false;
  std::vector<std::vector<std::pair<int32_t, float>>> cold;
  {
    const auto engine = open_engine(options);
    for (const Wanted& one : wanted) {
      const auto answer = start(*engine, one.prompt, one.sampling);
      answer->reason();
      cold.push_back(bits_of(*answer));
    }
  }
  options.enable_prefix_caching = true;
  options.kv_cache_tokens = 1100;  // not enough for all eight
  const auto engine = open_engine(options);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::shared_ptr<Answer>> answers;
    for (const Wanted& one : wanted) answers.push_back(start(*engine, one.prompt, one.sampling));
    for (size_t i = 0; i < wanted.size(); ++i) {
      answers[i]->reason();
      EXPECT_EQ(bits_of(*answers[i]), cold[i]) << "request " << i << " in round " << round;
    }
  }
  EXPECT_GT(engine->stats().prefix_cache_hits, 0);
  EXPECT_GT(engine->stats().preemptions, 0);
}

// The logits of a hit as the definition has them: the prefix's global KV, and its last window run again.
Ids answer_by_hand(const Ids& prompt, int64_t hit, int64_t tokens) {
  const auto loaded =
      LoadedModel::open(
          {.directory = checkpoints().tiny, .threads = 1, .model = {.max_rows = 1, .max_tokens = 400}, .token_map = {}})
          .value();
  const int64_t window = loaded->config().sliding_window;
  BlockTable blocks = loaded->pool().table();
  EXPECT_TRUE(blocks.grow(400));
  SequenceState state(loaded->config(), loaded->pool());
  Ids ids = prompt;
  std::vector<float> logits(kVocab);
  const auto run_to = [&](int64_t end) {
    while (state.length() < end) {
      const Batch batch{.ids = {ids[state.length()]},
                        .sequences = {{&state, 0, 1}},
                        .logit_rows = state.length() >= state.decoder_from() ? Ids{0} : Ids{}};
      loaded->model().forward(batch, logits.data());
    }
  };
  state.begin({.blocks = blocks.ids().data(), .decoder_from = 100000});
  run_to(hit);
  const auto length = static_cast<int64_t>(prompt.size());
  state.begin({.blocks = blocks.ids().data(),
               .first = hit - window,
               .cached = hit,
               .encoder_from = hit - window,
               .decoder_from = std::max(hit - window, length - window)});
  run_to(length);
  Ids answer;
  while (static_cast<int64_t>(answer.size()) < tokens) {
    answer.push_back(static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    ids.push_back(answer.back());
    run_to(static_cast<int64_t>(ids.size()));
  }
  return answer;
}

TEST(Batching, AHitWithReplayIsWhatTheDefinitionSays) {
  std::mt19937 random(3);
  for (const int64_t length : {129, 150, 200}) {
    const auto engine = open_engine(many());
    const Ids prompt = random_prompt(random, length);
    answer_of(*engine, prompt, greedy(1));
    int64_t cached = -1;
    const auto answer = std::make_shared<Answer>();
    Request request = request_for(answer, prompt, greedy(20));
    request.on_start = [&cached](int64_t tokens) { cached = tokens; };
    ASSERT_TRUE(engine->submit(std::move(request)));
    answer->reason();
    EXPECT_EQ(cached, (length - 1) / kBlockTokens * kBlockTokens);
    EXPECT_EQ(answer->ids(), answer_by_hand(prompt, cached, 20));
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.prefix_cache_hits, cached);
    EXPECT_EQ(stats.prompt_tokens_cached, cached);
    EXPECT_EQ(stats.replayed_rows, 8) << "one window";
    EXPECT_EQ(stats.encoder_rows, length + (length - cached + 8) + 19);
  }
}

TEST(Batching, ReplaySkipsDecoderRows) {
  EngineOptions options = many(4, 512);
  for (const bool replay : {false, true}) {
    options.swa_bounded_replay = replay;
    const auto engine = open_engine(options);
    answer_of(*engine, prompt_of(300), greedy(1));
    EXPECT_EQ(engine->stats().encoder_rows, 300);
    EXPECT_EQ(engine->stats().decoder_rows, replay ? 8 : 300);
  }
}

TEST(Batching, SamplesOfOnePromptShareItsPrefill) {
  const auto engine = open_engine(many());
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 4; ++i) {
    SamplingParams sampling{.seed = static_cast<uint64_t>(i), .max_tokens = 5};
    answers.push_back(start(*engine, prompt_of(300), sampling));
  }
  for (const auto& answer : answers) answer->reason();
  EXPECT_LE(engine->stats().encoder_rows, 300 + 3 * (8 + 300 - 256) + 4 * 4);
}

TEST(Batching, ASeedGivesTheSameAnswerInAnyCompany) {
  SamplingParams sampling{.seed = 42, .max_tokens = 30};
  const auto engine = open_engine(many());
  const Ids alone = answer_of(*engine, prompt_of(20), sampling);
  std::vector<std::shared_ptr<Answer>> others;
  for (int i = 0; i < 10; ++i) others.push_back(start(*engine, prompt_of(5 + 9 * i), greedy(40)));
  EXPECT_EQ(answer_of(*engine, prompt_of(20), sampling), alone);
  for (const auto& answer : others) answer->reason();
}

TEST(Batching, PromptLogprobsAreThoseOfTheModel) {
  for (const int64_t batched : {16, 512}) {
    const auto engine = open_engine(many(4, batched));
    const Ids prompt = prompt_of(150);
    PromptLogprobs got;
    const auto answer = std::make_shared<Answer>();
    SamplingParams sampling = greedy(3);
    sampling.prompt_logprobs = 2;
    Request request = request_for(answer, prompt, sampling);
    request.on_prompt = [&](PromptLogprobs logprobs) {
      EXPECT_THAT(answer->tokens, SizeIs(0));
      got = std::move(logprobs);
    };
    ASSERT_TRUE(engine->submit(std::move(request)));
    answer->reason();
    ASSERT_THAT(got, SizeIs(150));
    EXPECT_FALSE(got[0].logprob);
    for (size_t p = 0; p < got.size(); ++p) EXPECT_EQ(got[p].id, prompt[p]);
    // The same tokens as answers to their own prefixes, without replay.
    EngineOptions options = many(4, batched);
    options.swa_bounded_replay = false;
    const auto exact = open_engine(options);
    for (const size_t p : {1, 17, 100, 149}) {
      SamplingParams one = greedy(1);
      one.logprobs = 2;
      const auto token = start(*exact, Ids(prompt.begin(), prompt.begin() + static_cast<int64_t>(p)), one);
      token->reason();
      ASSERT_THAT(got[p].top_logprobs, SizeIs(2));
      EXPECT_EQ(got[p].top_logprobs[0].id, token->tokens[0].top_logprobs[0].id);
      EXPECT_EQ(got[p].top_logprobs[0].logprob, token->tokens[0].top_logprobs[0].logprob);
    }
  }
}

// Lets only one id through, a different one each time.
class Dictated : public TokenConstraint {
 public:
  bool active() const override { return accepted >= 2; }
  void fill_mask(std::span<uint32_t> mask) override {
    std::fill(mask.begin(), mask.end(), 0);
    const int id = accepted * 3;
    mask[id / 32] |= 1U << (id % 32);
  }
  void accept(int32_t) override { ++accepted; }
  int accepted = 0;
};

TEST(Batching, AConstraintDecidesOnceItIsActive) {
  const auto engine = open_engine(many());
  const Ids free = answer_of(*engine, prompt_of(9), greedy(2));
  const auto answer = std::make_shared<Answer>();
  Request request = request_for(answer, prompt_of(9), greedy(6));
  request.constraint = std::make_shared<Dictated>();
  ASSERT_TRUE(engine->submit(std::move(request)));
  answer->reason();
  EXPECT_THAT(answer->ids(), ElementsAre(free[0], free[1], 6, 9, 12, 15));
}

struct Ended {
  std::promise<Result<FinishReason>> promise;
  std::future<Result<FinishReason>> future = promise.get_future();
};

// Fails where it is told to.
class Failing : public TokenConstraint {
 public:
  enum class Where { mask, accept, step, device };
  explicit Failing(Where where) : where_(where) {}
  bool active() const override {
    if (where_ == Where::step) throw std::runtime_error("no memory for the step");
    if (where_ == Where::device) throw CudaError("an illegal memory access");
    return true;
  }
  void fill_mask(std::span<uint32_t> mask) override {
    if (where_ == Where::mask) throw std::runtime_error("no such mask");
    std::fill(mask.begin(), mask.end(), ~0U);
  }
  void accept(int32_t) override {
    if (where_ == Where::accept) throw std::runtime_error("no such token");
  }

 private:
  Where where_;
};

Result<FinishReason> outcome_with(Engine& engine, Failing::Where where) {
  const auto ended = std::make_shared<Ended>();
  Request request{.prompt = prompt_of(9), .sampling = greedy(5)};
  request.constraint = std::make_shared<Failing>(where);
  request.on_end = [ended](Result<FinishReason> reason) { ended->promise.set_value(std::move(reason)); };
  GANNET_TRY_STATUS(engine.submit(std::move(request)));
  return ended->future.get();
}

TEST(Batching, AFailingConstraintEndsItsRequestOnly) {
  const auto engine = open_engine(many());
  const auto other = start(*engine, prompt_of(20), greedy(400));
  for (const auto where : {Failing::Where::mask, Failing::Where::accept}) {
    const auto outcome = outcome_with(*engine, where);
    ASSERT_FALSE(outcome);
    EXPECT_THAT(outcome.error().message, HasSubstr(where == Failing::Where::mask ? "no such mask" : "no such token"));
  }
  EXPECT_EQ(other->reason(), FinishReason::length);
  EXPECT_TRUE(engine->health());
}

TEST(Batching, ALostDeviceIsTheEndAtOnce) {
  const auto engine = open_engine(many());
  EXPECT_FALSE(outcome_with(*engine, Failing::Where::device));
  const Status health = engine->health();
  ASSERT_FALSE(health);
  EXPECT_THAT(health.error().message, HasSubstr("the GPU failed: an illegal memory access"));
}

TEST(Batching, AnEngineThatLosesStepAfterStepSaysSo) {
  const auto engine = open_engine(many());
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(engine->health());
    const auto outcome = outcome_with(*engine, Failing::Where::step);
    ASSERT_FALSE(outcome);
    EXPECT_THAT(outcome.error().message, HasSubstr("no memory for the step"));
  }
  const Status health = engine->health();
  ASSERT_FALSE(health);
  EXPECT_THAT(health.error().message, HasSubstr("no memory for the step"));
  EXPECT_FALSE(engine->submit({.prompt = {1, 2}, .sampling = greedy(1)}));
  EXPECT_EQ(engine->unfinished(), 0);
}

TEST(Batching, ALostStepNowAndThenIsForgiven) {
  const auto engine = open_engine(many());
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(outcome_with(*engine, Failing::Where::step));
    EXPECT_THAT(answer_of(*engine, prompt_of(9), greedy(2)), SizeIs(2));
  }
  EXPECT_TRUE(engine->health());
  EXPECT_EQ(engine->stats().blocks_held, 0);
}

TEST(Batching, IdsThatAreNeverSampledAreNot) {
  EngineOptions options = many();
  const Ids likely = answer_of(*open_engine(options), prompt_of(9), greedy(1));
  options.never_sampled = likely;
  EXPECT_NE(answer_of(*open_engine(options), prompt_of(9), greedy(1)), likely);
}

TEST(Batching, ADeadlineEndsARequest) {
  const auto engine = open_engine(many());
  const auto ended = std::make_shared<Ended>();
  Request request{.prompt = prompt_of(5), .sampling = greedy(0), .timeout = std::chrono::milliseconds(20)};
  request.on_end = [ended](Result<FinishReason> reason) { ended->promise.set_value(std::move(reason)); };
  ASSERT_TRUE(engine->submit(std::move(request)));
  const auto reason = ended->future.get();
  ASSERT_FALSE(reason);
  EXPECT_EQ(reason.error().kind, ErrorKind::timed_out);
  EXPECT_THAT(reason.error().message, HasSubstr("0.02 seconds"));
  answer_of(*engine, prompt_of(5), greedy(1));
  EXPECT_EQ(engine->stats().finished_error, 1);
  EXPECT_EQ(engine->stats().blocks_held, 0);
}

TEST(Batching, TooManyWaitingRequestsAreRefused) {
  EngineOptions options = many(1);
  options.max_waiting = 3;
  const auto engine = open_engine(options);
  Result<RequestId> last = RequestId(0);
  std::vector<std::shared_ptr<Answer>> answers;
  for (int i = 0; i < 10 && last; ++i) {
    last = engine->submit(request_for(answers.emplace_back(std::make_shared<Answer>()), prompt_of(5), greedy(0)));
  }
  ASSERT_FALSE(last);
  EXPECT_EQ(last.error().kind, ErrorKind::overloaded);
  EXPECT_THAT(last.error().message, HasSubstr("3 requests wait"));
}

// Requests that the engine has taken in but has not counted yet are waiting too.
TEST(Batching, NoMoreThanMaxWaitingWaitDuringTheFirstStep) {
  EngineOptions options = many(1);
  options.max_waiting = 2;
  Gate gate;
  const auto engine = open_engine(options);
  const auto submit = [&] { return engine->submit(request_for(std::make_shared<Answer>(), prompt_of(5), greedy(3))); };
  ASSERT_TRUE(engine->submit(gate.hold(request_for(std::make_shared<Answer>(), prompt_of(5), greedy(0)))));
  ASSERT_TRUE(submit());
  gate.wait_until_reached();
  EXPECT_TRUE(submit());
  EXPECT_FALSE(submit());
  gate.open();
}

TEST(Batching, StatisticsAddUp) {
  const auto engine = open_engine(many());
  for (const int64_t length : {10, 100}) answer_of(*engine, prompt_of(length), greedy(5));
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.prompt_tokens, 110);
  EXPECT_EQ(stats.generation_tokens, 10);
  EXPECT_EQ(stats.finished_length, 2);
  EXPECT_EQ(stats.encoder_rows, 110 + 8);
  EXPECT_EQ(stats.running, 0);
  EXPECT_EQ(stats.waiting, 0);
  EXPECT_EQ(stats.blocks_held, 0);
  EXPECT_EQ(stats.blocks_cached, 1);
  EXPECT_EQ(stats.time_to_first_token.counts().size(), stats.time_to_first_token.bounds().size() + 1);
  EXPECT_EQ(stats.inter_token_latency.sum() > 0, true);
}

TEST(Batching, AnAnswerThatIsCompleteCountsAsStopped) {
  const auto engine = open_engine(many());
  const auto answer = std::make_shared<Answer>();
  const auto id = engine->submit(request_for(answer, prompt_of(5), greedy(0)));
  engine->stop(id.value());
  EXPECT_EQ(answer->reason(), FinishReason::stop);
  answer_of(*engine, prompt_of(5), greedy(1));
  EXPECT_EQ(engine->stats().finished_stop, 1);
  EXPECT_EQ(engine->stats().finished_cancelled, 0);
}

TEST(Batching, AResetEmptiesTheCache) {
  const auto engine = open_engine(many());
  answer_of(*engine, prompt_of(200), greedy(1));
  EXPECT_EQ(engine->stats().blocks_cached, 3);
  engine->reset_prefix_cache();
  answer_of(*engine, prompt_of(5), greedy(1));
  EXPECT_EQ(engine->stats().blocks_cached, 0);
}

// Clients that come, listen for a while and go, from several threads.
TEST(Batching, NothingIsLeftAfterManyCancellations) {
  EngineOptions options = many(8, 32);
  options.max_model_len = 500;
  options.kv_cache_tokens = 1200;
  const auto engine = open_engine(options);
  {
    std::vector<std::jthread> clients;
    for (uint32_t seed = 0; seed < 3; ++seed) {
      clients.emplace_back([&engine, seed] {
        std::mt19937 random(seed);
        for (int i = 0; i < 60; ++i) {
          const auto answer = std::make_shared<Answer>();
          const auto id = engine->submit(request_for(answer, random_prompt(random, 1 + random() % 200), greedy(0)));
          if (random() % 2 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
          engine->cancel(id.value());
          answer->reason();
          EXPECT_EQ(answer->ends, 1);
        }
      });
    }
  }
  answer_of(*engine, prompt_of(5), greedy(1));
  EXPECT_EQ(engine->stats().blocks_held, 0);
  EXPECT_EQ(engine->stats().running, 0);
  EXPECT_EQ(engine->unfinished(), 0);
}

}  // namespace
}  // namespace gannet
