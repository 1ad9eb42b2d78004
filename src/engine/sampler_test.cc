#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

namespace gannet {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using Logits = std::vector<float>;
using IdSet = std::set<int32_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Token choose(const SamplingParams& params, Logits logits, int64_t generated = 0) {
  return Sampler(params, {}, {}).choose(logits, generated, {});
}

int32_t greedy(const Logits& logits) {
  return choose({.temperature = 0}, logits).id;
}

// The ids that ever come out, over many seeds.
IdSet chosen(SamplingParams params, const Logits& logits, int64_t generated = 0) {
  IdSet ids;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    params.seed = seed;
    ids.insert(choose(params, logits, generated).id);
  }
  return ids;
}

// Probabilities as logits.
Logits logs(std::vector<double> probabilities) {
  Logits logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

std::vector<int32_t> sequence(const SamplingParams& params, size_t length) {
  Sampler sampler(params, {}, {});
  std::vector<int32_t> ids;
  for (size_t i = 0; i < length; ++i) {
    Logits logits(50, 0.0F);
    ids.push_back(sampler.choose(logits, static_cast<int64_t>(i), {}).id);
  }
  return ids;
}

TEST(Greedy, TakesTheLargest) {
  EXPECT_EQ(greedy({1, 5, -2, 4}), 1);
  EXPECT_EQ(greedy({-3}), 0);
}

TEST(Greedy, OfEqualOnesTheLowestId) {
  EXPECT_EQ(greedy({1, 7, 7, 7}), 1);
  EXPECT_EQ(greedy({0.0F, -0.0F, 0.0F}), 0);
}

TEST(Greedy, IgnoresTheFilters) {
  EXPECT_EQ(choose({.temperature = 0, .top_p = 0.1, .top_k = 2, .min_p = 0.5}, {1, 2, 3}).id, 2);
}

TEST(Greedy, NeverTakesWhatIsNotANumber) {
  EXPECT_EQ(greedy({kNaN, 1, -kNaN, 2, kNaN}), 3);
  EXPECT_EQ(greedy({-kInfinity, -1, kNaN}), 1);
  EXPECT_EQ(greedy({1, kInfinity, 2}), 1);
}

TEST(Sampling, EveryPossibleIdComes) {
  EXPECT_EQ(chosen({}, {0, 0, 0, 0}), (IdSet{0, 1, 2, 3}));
  EXPECT_EQ(chosen({.temperature = 1}, logs({0.4, 0.1, 0.5})), (IdSet{0, 1, 2}));
}

TEST(Sampling, ImpossibleIdsNeverCome) {
  EXPECT_EQ(chosen({}, {0, -kInfinity, 0, kNaN}), (IdSet{0, 2}));
  EXPECT_EQ(chosen({}, {-kInfinity, -1e30F, -kInfinity}), (IdSet{1}));
}

TEST(Sampling, AnInfiniteLogitWins) {
  EXPECT_EQ(chosen({}, {3, kInfinity, 2}), (IdSet{1}));
  EXPECT_EQ(chosen({.top_p = 0.9, .top_k = 2}, {3, 2, kInfinity}), (IdSet{2}));
  EXPECT_EQ(chosen({}, {kInfinity, 1, kInfinity}), (IdSet{0, 2}));
}

// Nothing is possible: an id comes out all the same, and it is inside the vocabulary.
TEST(Sampling, SurvivesLogitsThatAreAllBroken) {
  for (const float broken : {kNaN, -kInfinity}) {
    for (const double temperature : {0.0, 1.0}) {
      const Token token = choose({.temperature = temperature, .logprobs = 2}, {broken, broken, broken});
      EXPECT_EQ(token.id, 0);
      EXPECT_THAT(token.top_logprobs, SizeIs(2));
      EXPECT_FALSE(std::isnan(token.logprob->logprob));
    }
  }
}

TEST(Sampling, ALowTemperatureTakesTheLargest) {
  EXPECT_EQ(chosen({.temperature = 1e-3}, {1, 2, 3, 2}), (IdSet{2}));
  EXPECT_EQ(chosen({.temperature = 1e-300}, {1, 2, 3, 3}), (IdSet{2, 3}));
}

TEST(Sampling, AHighTemperatureTakesAnything) {
  EXPECT_EQ(chosen({.temperature = 100}, {-50, 0, 50}), (IdSet{0, 1, 2}));
}

TEST(Sampling, TopKKeepsTheLikeliest) {
  const Logits logits = {0.1F, 0.5F, 0.3F, 0.4F};
  EXPECT_EQ(chosen({.top_k = 1}, logits), (IdSet{1}));
  EXPECT_EQ(chosen({.top_k = 2}, logits), (IdSet{1, 3}));
  EXPECT_EQ(chosen({.top_k = 3}, logits), (IdSet{1, 2, 3}));
  EXPECT_EQ(chosen({.top_k = 4}, logits), (IdSet{0, 1, 2, 3}));
  EXPECT_EQ(chosen({.top_k = 1000}, logits), (IdSet{0, 1, 2, 3}));
  EXPECT_EQ(chosen({.top_k = 0}, logits), (IdSet{0, 1, 2, 3}));
}

TEST(Sampling, TopKTakesTheLowestOfEqualIds) {
  EXPECT_EQ(chosen({.top_k = 2}, {0, 0, 0, 0}), (IdSet{0, 1}));
}

// The smallest set of the likeliest ids that has the mass; the one that reaches it belongs to the set.
TEST(Sampling, TopPKeepsTheSmallestSetWithTheMass) {
  const Logits logits = logs({0.1, 0.5, 0.15, 0.25});
  EXPECT_EQ(chosen({.top_p = 1e-9}, logits), (IdSet{1}));
  EXPECT_EQ(chosen({.top_p = 0.49}, logits), (IdSet{1}));
  EXPECT_EQ(chosen({.top_p = 0.51}, logits), (IdSet{1, 3}));
  EXPECT_EQ(chosen({.top_p = 0.74}, logits), (IdSet{1, 3}));
  EXPECT_EQ(chosen({.top_p = 0.76}, logits), (IdSet{1, 2, 3}));
  EXPECT_EQ(chosen({.top_p = 0.91}, logits), (IdSet{0, 1, 2, 3}));
  EXPECT_EQ(chosen({.top_p = 1}, logits), (IdSet{0, 1, 2, 3}));
}

TEST(Sampling, TopPIsAShareOfWhatTopKLeaves) {
  const Logits logits = logs({0.1, 0.4, 0.3, 0.2});  // the two likeliest are 4/7 and 3/7
  EXPECT_EQ(chosen({.top_p = 0.56, .top_k = 2}, logits), (IdSet{1}));
  EXPECT_EQ(chosen({.top_p = 0.58, .top_k = 2}, logits), (IdSet{1, 2}));
}

TEST(Sampling, TopPIsTakenAfterTheTemperature) {
  const Logits logits = logs({0.8, 0.2});  // at temperature 2: 2/3 and 1/3
  EXPECT_EQ(chosen({.temperature = 1, .top_p = 0.75}, logits), (IdSet{0}));
  EXPECT_EQ(chosen({.temperature = 2, .top_p = 0.75}, logits), (IdSet{0, 1}));
}

TEST(Sampling, MinPIsAShareOfTheLikeliest) {
  const Logits logits = logs({0.1, 0.5, 0.15, 0.25});
  EXPECT_EQ(chosen({.min_p = 0.19}, logits), (IdSet{0, 1, 2, 3}));
  EXPECT_EQ(chosen({.min_p = 0.21}, logits), (IdSet{1, 2, 3}));
  EXPECT_EQ(chosen({.min_p = 0.31}, logits), (IdSet{1, 3}));
  EXPECT_EQ(chosen({.min_p = 1}, logits), (IdSet{1}));
  EXPECT_EQ(chosen({.min_p = 1}, {2, 1, 2}), (IdSet{0, 2}));
}

TEST(Sampling, TheStricterOfTopPAndMinPDecides) {
  const Logits logits = logs({0.1, 0.5, 0.15, 0.25});
  EXPECT_EQ(chosen({.top_p = 0.6, .min_p = 0.19}, logits), (IdSet{1, 3}));
  EXPECT_EQ(chosen({.top_p = 0.91, .min_p = 0.31}, logits), (IdSet{1, 3}));
}

TEST(Seed, TheSameSeedGivesTheSameSequence) {
  EXPECT_EQ(sequence({.seed = 7}, 100), sequence({.seed = 7}, 100));
  EXPECT_EQ(sequence({.top_p = 0.8, .seed = 7}, 100), sequence({.top_p = 0.8, .seed = 7}, 100));
  EXPECT_EQ(sequence({.seed = UINT64_MAX}, 100), sequence({.seed = UINT64_MAX}, 100));
}

TEST(Seed, OtherSeedsAndNoSeedGiveOthers) {
  const auto first = sequence({.seed = 7}, 100);
  EXPECT_NE(sequence({.seed = 8}, 100), first);
  EXPECT_NE(sequence({.seed = 7 + (uint64_t{1} << 32)}, 100), first);
  EXPECT_NE(sequence({}, 100), sequence({}, 100));
}

TEST(MinTokens, NoStopIdComesBefore) {
  const SamplingParams greedily{.temperature = 0, .min_tokens = 3, .stop_ids = {1, 2}};
  const Logits logits = {1, 9, 8, 7};
  EXPECT_EQ(choose(greedily, logits, 0).id, 3);
  EXPECT_EQ(choose(greedily, logits, 2).id, 3);
  EXPECT_EQ(choose(greedily, logits, 3).id, 1);
  const SamplingParams randomly{.min_tokens = 3, .stop_ids = {1, 2}};
  EXPECT_EQ(chosen(randomly, {0, 0, 0, 0}, 2), (IdSet{0, 3}));
  EXPECT_EQ(chosen(randomly, {0, 0, 0, 0}, 3), (IdSet{0, 1, 2, 3}));
}

TEST(Logprobs, AreAbsentUnlessAskedFor) {
  const Token token = choose({.temperature = 0}, {1, 2});
  EXPECT_FALSE(token.logprob);
  EXPECT_TRUE(token.top_logprobs.empty());
}

TEST(Logprobs, OfTheChosenOneAlone) {
  const Token token = choose({.temperature = 0, .logprobs = 0}, logs({0.25, 0.75}));
  ASSERT_TRUE(token.logprob);
  EXPECT_EQ(token.logprob->id, 1);
  EXPECT_NEAR(token.logprob->logprob, std::log(0.75), 1e-6);
  EXPECT_TRUE(token.top_logprobs.empty());
}

TEST(Logprobs, LikeliestFirstAndOfEqualOnesTheLowestId) {
  const Token token = choose({.temperature = 0, .logprobs = 4}, {2, 5, 2, 4, 1});
  std::vector<int32_t> ids;
  for (const auto& entry : token.top_logprobs) ids.push_back(entry.id);
  EXPECT_THAT(ids, ElementsAre(1, 3, 0, 2));
}

TEST(Logprobs, AreLogarithmsOfProbabilities) {
  const Logits logits = {300, 299.5F, 301, 280, -1000, 300};
  const Token token = choose({.seed = 1, .logprobs = 6}, logits);
  ASSERT_THAT(token.top_logprobs, SizeIs(6));
  double sum = 0;
  float last = 0;
  for (const auto& entry : token.top_logprobs) {
    EXPECT_LE(entry.logprob, last);
    last = entry.logprob;
    sum += std::exp(static_cast<double>(entry.logprob));
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_NEAR(token.top_logprobs[0].logprob - token.top_logprobs[1].logprob, 1, 1e-5);
  const auto of_chosen = [&](const TokenLogprob& entry) { return entry.id == token.id; };
  const auto found = std::find_if(token.top_logprobs.begin(), token.top_logprobs.end(), of_chosen);
  EXPECT_EQ(token.logprob->logprob, found->logprob);
}

// They are the model's own: neither temperature nor a filter nor min_tokens moves them.
TEST(Logprobs, DoNotDependOnHowTheTokenIsChosen) {
  const Logits logits = logs({0.5, 0.3, 0.2});
  const SamplingParams params{
      .temperature = 3, .top_p = 0.6, .top_k = 1, .seed = 1, .min_tokens = 5, .stop_ids = {0}, .logprobs = 3};
  const Token token = choose(params, logits);
  EXPECT_EQ(token.id, 1);
  EXPECT_NEAR(token.logprob->logprob, std::log(0.3), 1e-6);
  EXPECT_EQ(token.top_logprobs[0].id, 0);
  EXPECT_NEAR(token.top_logprobs[0].logprob, std::log(0.5), 1e-6);
}

TEST(Logprobs, OfTheWholeVocabulary) {
  EXPECT_THAT(choose({.temperature = 0, .logprobs = 3}, {1, 2, 3}).top_logprobs, SizeIs(3));
}

struct WrongValue {
  const char* name;
  SamplingParams params;
  const char* value;
  const char* range;
};

class CheckSampling : public testing::TestWithParam<WrongValue> {};

TEST_P(CheckSampling, NamesFieldValueAndRange) {
  const Status status = check_sampling(GetParam().params, 100);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::invalid_input);
  EXPECT_THAT(status.error().message,
              AllOf(HasSubstr(GetParam().name), HasSubstr(GetParam().value), HasSubstr(GetParam().range)));
}

constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

INSTANTIATE_TEST_SUITE_P(
    All, CheckSampling,
    testing::Values(WrongValue{"temperature", {.temperature = -0.5}, "-0.5", "from 0 to 100"},
                    WrongValue{"temperature", {.temperature = 101}, "101", "from 0 to 100"},
                    WrongValue{"temperature", {.temperature = kNotANumber}, "nan", "from 0 to 100"},
                    WrongValue{"top_p", {.top_p = 0}, "0", "above 0 and at most 1"},
                    WrongValue{"top_p", {.top_p = 1.5}, "1.5", "above 0 and at most 1"},
                    WrongValue{"top_p", {.top_p = kNotANumber}, "nan", "above 0 and at most 1"},
                    WrongValue{"top_k", {.top_k = -1}, "-1", "0 (off) or more"},
                    WrongValue{"min_p", {.min_p = -0.1}, "-0.1", "from 0 to 1"},
                    WrongValue{"min_p", {.min_p = 1.1}, "1.1", "from 0 to 1"},
                    WrongValue{"min_p", {.min_p = kNotANumber}, "nan", "from 0 to 1"},
                    WrongValue{"max_tokens", {.max_tokens = -2}, "-2", "1 or more"},
                    WrongValue{"min_tokens", {.min_tokens = -3}, "-3", "0 or more"},
                    WrongValue{"min_tokens", {.max_tokens = 4, .min_tokens = 5}, "5", "not be above max_tokens, 4"},
                    WrongValue{"logprobs", {.logprobs = 101}, "101", "from -1 (none) to 100"},
                    WrongValue{"logprobs", {.logprobs = -2}, "-2", "from -1 (none) to 100"},
                    WrongValue{"stop_token_ids", {.stop_ids = {3, 100}}, "100", "from 0 to 99"},
                    WrongValue{"stop_token_ids", {.stop_ids = {-1}}, "-1", "from 0 to 99"}));

TEST(CheckSamplingLimits, AreInclusive) {
  EXPECT_TRUE(check_sampling({}, 100));
  EXPECT_TRUE(check_sampling({.temperature = 0, .top_p = 1, .min_p = 0}, 100));
  EXPECT_TRUE(check_sampling({.temperature = 100, .top_p = 1e-12, .top_k = INT64_MAX, .min_p = 1}, 100));
  EXPECT_TRUE(check_sampling({.max_tokens = 5, .min_tokens = 5, .stop_ids = {0, 99}, .logprobs = 100}, 100));
  EXPECT_TRUE(check_sampling({.max_tokens = 0, .min_tokens = 5}, 100));
}

}  // namespace
}  // namespace gannet
