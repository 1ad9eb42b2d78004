#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "model/batch.h"

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

// What a device gives of a row: its likeliest ids.
RowCandidates candidates_of(const Logits& logits) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  RowCandidates row;
  for (int64_t i = 0; i < RowCandidates::kCount; ++i) {
    row.ids[i] = ids[i];
    row.logits[i] = logits[ids[i]];
  }
  return row;
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

// A request that was preempted and recomputed goes on with the numbers it would have had.
TEST(Seed, NumbersDependOnTheIndexAlone) {
  const auto whole = sequence({.seed = 7}, 100);
  for (const size_t from : {size_t{1}, size_t{50}, size_t{99}}) {
    Logits logits(50, 0.0F);
    Sampler sampler({.seed = 7}, {}, {});
    EXPECT_EQ(sampler.choose(logits, static_cast<int64_t>(from), {}).id, whole[from]);
  }
}

TEST(Seed, NumbersAreEven) {
  std::map<int32_t, int> counts;
  for (const int32_t id : sequence({.seed = 3}, 10000)) ++counts[id];
  ASSERT_THAT(counts, SizeIs(50));
  for (const auto& [id, count] : counts) EXPECT_NEAR(count, 200, 75) << id;
}

// What a whole vocabulary's filters leave, by sorting all of it.
std::set<int32_t> left_by_sorting(const SamplingParams& params, const Logits& logits) {
  std::vector<std::pair<double, int32_t>> order;
  for (size_t i = 0; i < logits.size(); ++i) order.emplace_back(-logits[i] / params.temperature, i);
  std::sort(order.begin(), order.end());
  if (params.top_k > 0) order.resize(std::min<size_t>(params.top_k, order.size()));
  double total = 0;
  for (const auto& one : order) total += std::exp(order[0].first - one.first);
  IdSet left;
  double mass = 0;
  for (const auto& one : order) {
    const double weight = std::exp(order[0].first - one.first);
    if (!left.empty() && (mass >= params.top_p * total || weight < params.min_p)) break;
    mass += weight;
    left.insert(one.second);
  }
  return left;
}

TEST(LargeVocabulary, FiltersLeaveWhatSortingLeaves) {
  std::mt19937 random(1);
  for (const int size : {1000, 1023, 5000}) {
    for (const double spread : {0.1, 1.0, 4.0}) {
      std::normal_distribution<double> normal(0, spread);
      Logits logits(size);
      for (float& logit : logits) logit = static_cast<float>(normal(random));
      logits[size - 1] = static_cast<float>(3 * spread);
      for (const SamplingParams& params :
           {SamplingParams{.top_p = 0.02}, SamplingParams{.temperature = 0.3, .top_p = 0.5}, SamplingParams{.top_k = 7},
            SamplingParams{.temperature = 0.5, .top_p = 0.9, .top_k = 30}, SamplingParams{.min_p = 0.4},
            SamplingParams{.temperature = 0.4, .top_p = 0.8, .min_p = 0.3}}) {
        const IdSet left = left_by_sorting(params, logits);
        const IdSet came = chosen(params, logits);
        EXPECT_TRUE(std::includes(left.begin(), left.end(), came.begin(), came.end()));
        if (left.size() < 30) {
          EXPECT_GT(came.size(), left.size() / 3);
        }
      }
    }
  }
}

TEST(LargeVocabulary, FrequenciesFollowProbabilities) {
  Logits logits(2000, -30.0F);
  logits[3] = 1;
  logits[700] = 0;
  logits[1999] = 2;
  const double total = std::exp(0.0) + std::exp(1.0) + std::exp(2.0);
  for (const SamplingParams& base : {SamplingParams{}, SamplingParams{.top_p = 0.9999}, SamplingParams{.top_k = 5}}) {
    std::map<int32_t, int> counts;
    SamplingParams params = base;
    for (uint64_t seed = 0; seed < 3000; ++seed) {
      params.seed = seed;
      ++counts[choose(params, logits).id];
    }
    EXPECT_NEAR(counts[3] / 3000.0, std::exp(1.0) / total, 0.03);
    EXPECT_NEAR(counts[700] / 3000.0, std::exp(0.0) / total, 0.03);
    EXPECT_NEAR(counts[1999] / 3000.0, std::exp(2.0) / total, 0.03);
  }
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

int32_t greedy_after(const SamplingParams& params, const std::vector<int32_t>& prompt,
                     const std::vector<int32_t>& answer, Logits logits) {
  Sampler sampler(params, prompt, {});
  for (size_t i = 0; i < answer.size(); ++i) {
    Logits forced(logits.size(), 0.0F);
    forced[answer[i]] = kInfinity;
    EXPECT_EQ(sampler.choose(forced, static_cast<int64_t>(i), {}).id, answer[i]);
  }
  return sampler.choose(logits, static_cast<int64_t>(answer.size()), {}).id;
}

TEST(Penalties, RepetitionCountsPromptAndAnswer) {
  const SamplingParams params{.temperature = 0, .repetition_penalty = 2};
  EXPECT_EQ(greedy_after(params, {}, {}, {5, 4, 3}), 0);
  EXPECT_EQ(greedy_after(params, {0, 0}, {}, {5, 4, 3}), 1);
  EXPECT_EQ(greedy_after(params, {0}, {1}, {5, 4, 3}), 2);
  EXPECT_EQ(greedy_after(params, {0}, {0}, {5, 2, 2}), 0);  // once only: 2.5
  EXPECT_EQ(greedy_after(params, {0}, {}, {-1, -1.5F, -3}), 1);
}

TEST(Penalties, ARepetitionPenaltyBelowOneFavours) {
  EXPECT_EQ(greedy_after({.temperature = 0, .repetition_penalty = 0.5}, {2}, {}, {5, 4, 3}), 2);
  EXPECT_EQ(greedy_after({.temperature = 0, .repetition_penalty = 1e-300}, {2}, {}, {5, 4, 3}), 2);
}

TEST(Penalties, PresenceCountsTheAnswerOnce) {
  const SamplingParams params{.temperature = 0, .presence_penalty = 1.5};
  EXPECT_EQ(greedy_after(params, {0}, {}, {5, 4, 3}), 0);
  EXPECT_EQ(greedy_after(params, {}, {0}, {5, 4, 3}), 1);
  EXPECT_EQ(greedy_after(params, {}, {0, 0, 0}, {5, 3, 3}), 0);
}

TEST(Penalties, FrequencyCountsEachTime) {
  const SamplingParams params{.temperature = 0, .frequency_penalty = 0.6};
  EXPECT_EQ(greedy_after(params, {0, 0}, {0}, {5, 4, 3}), 0);
  EXPECT_EQ(greedy_after(params, {}, {0, 0}, {5, 4, 3}), 1);
  EXPECT_EQ(greedy_after({.temperature = 0, .frequency_penalty = -1}, {}, {2, 2, 2}, {5, 4, 3}), 2);
}

TEST(LogitBias, IsAddedBeforeThePenalties) {
  EXPECT_EQ(choose({.temperature = 0, .logit_bias = {{0, -100}, {2, 3}}}, {5, 4, 3}).id, 2);
  EXPECT_EQ(chosen({.logit_bias = {{1, 100}}}, {0, 0, 0}), (IdSet{1}));
  EXPECT_EQ(chosen({.logit_bias = {{1, -100}}}, {0, 0, 0}), (IdSet{0, 2}));
  const SamplingParams both{.temperature = 0, .repetition_penalty = 2, .logit_bias = {{0, 4}}};
  EXPECT_EQ(greedy_after(both, {0}, {}, {4, 5, 3}), 1);  // (4 + 4) / 2
}

TEST(AllowedIds, NothingElseComes) {
  EXPECT_EQ(chosen({.allowed_ids = {1, 3, 3}}, {0, 0, 0, 0}), (IdSet{1, 3}));
  EXPECT_EQ(choose({.temperature = 0, .allowed_ids = {2}}, {5, 4, -kInfinity}).id, 2);
}

TEST(BadWords, ASingleIdNeverComes) {
  EXPECT_EQ(chosen({.bad_words = {{1}, {2}}}, {0, 0, 0, 0}), (IdSet{0, 3}));
}

TEST(BadWords, ASequenceIsCutBeforeItsLastId) {
  const SamplingParams params{.temperature = 0, .bad_words = {{1, 2, 0}, {2, 2}}};
  const Logits logits = {9, 8, 7};
  EXPECT_EQ(greedy_after(params, {1, 2}, {}, logits), 0);  // only the answer counts
  EXPECT_EQ(greedy_after(params, {}, {2}, logits), 0);
  EXPECT_EQ(greedy_after(params, {}, {1, 2}, logits), 1);
  EXPECT_EQ(greedy_after(params, {}, {1, 1, 2}, logits), 1);
  EXPECT_EQ(greedy_after(params, {}, {1, 2, 1}, logits), 0);
}

TEST(NeverSampled, NeverComes) {
  const std::vector<int32_t> never = {0, 2};
  for (const double temperature : {0.0, 1.0}) {
    Logits logits = {9, 1, 8};
    EXPECT_EQ(Sampler({.temperature = temperature, .logit_bias = {{0, 100}}}, {}, never).choose(logits, 0, {}).id, 1);
  }
}

int32_t masked(const SamplingParams& params, Logits logits, const std::vector<uint32_t>& mask) {
  return Sampler(params, {}, {}).choose(logits, 0, mask).id;
}

TEST(Mask, NothingElseComes) {
  const Logits logits(70, 0.0F);
  for (const int32_t allowed : {0, 31, 32, 63, 64, 69}) {
    std::vector<uint32_t> mask(3);
    mask[allowed / 32] = uint32_t{1} << (allowed % 32);
    for (const double temperature : {0.0, 1.0}) {
      EXPECT_EQ(masked({.temperature = temperature, .logit_bias = {{5, 100}}}, logits, mask), allowed);
    }
  }
  EXPECT_EQ(masked({.temperature = 0}, {1, 3, 2}, {~uint32_t{0}}), 1);
}

// Bits beyond the vocabulary are not looked at.
TEST(Mask, MayBeLongerThanTheVocabulary) {
  EXPECT_EQ(masked({.temperature = 0}, {1, 3, 2}, {~uint32_t{2}}), 2);
}

// The request forbids what its grammar wants, or the logits are broken: the grammar wins.
TEST(Mask, IsKeptEvenIfNothingElseIsPossible) {
  const std::vector<uint32_t> only_two = {4};
  EXPECT_EQ(masked({.temperature = 0, .min_tokens = 5, .stop_ids = {2}}, {1, 2, 3}, only_two), 2);
  EXPECT_EQ(masked({.allowed_ids = {0}}, {1, 2, 3}, only_two), 2);
  EXPECT_EQ(masked({.bad_words = {{2}}}, {1, 2, 3}, only_two), 2);
  EXPECT_EQ(masked({}, {1, 2, kNaN}, only_two), 2);
}

TEST(AllowedIds, AreKeptEvenIfTheirLogitsAreBroken) {
  EXPECT_EQ(choose({.allowed_ids = {2, 1}}, {0, kNaN, kNaN}).id, 1);
}

TEST(Describe, GivesAnyIdAndTheLikeliest) {
  const Token token = Sampler::describe(logs({0.5, 0.3, 0.2}), 1, 2);
  EXPECT_EQ(token.id, 1);
  EXPECT_EQ(token.logprob->id, 1);
  EXPECT_NEAR(token.logprob->logprob, std::log(0.3), 1e-6);
  ASSERT_THAT(token.top_logprobs, SizeIs(2));
  EXPECT_EQ(token.top_logprobs[0].id, 0);
  EXPECT_FALSE(token.finish);
  EXPECT_FALSE(std::isnan(Sampler::describe(Logits{kNaN, kInfinity}, 1, 2).logprob->logprob));
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
TEST(Candidates, GiveTheChoiceOfAllLogits) {
  std::mt19937 random(3);
  const std::vector<int32_t> never = {7, 100, 999};
  for (const int64_t top_k : {1, 5, 40, 61}) {
    for (const double temperature : {0.0, 0.7, 2.0}) {
      for (uint64_t seed = 0; seed < 50; ++seed) {
        Logits logits(1000);
        // Few distinct values: ties are common.
        for (float& logit : logits) logit = static_cast<float>(random() % 64) / 8;
        const SamplingParams params{
            .temperature = temperature, .top_p = 0.9, .top_k = top_k, .min_p = 0.01, .seed = seed};
        Sampler all(params, {}, never);
        Sampler few(params, {}, never);
        ASSERT_TRUE(few.candidates_suffice(3));
        const RowCandidates row = candidates_of(logits);
        EXPECT_EQ(few.choose_among(row.logits, row.ids, 3).id, all.choose(logits, 3, {}).id);
      }
    }
  }
}

TEST(Candidates, SufficeOnlyWhenNothingElseCounts) {
  const auto suffice = [](const SamplingParams& params, int64_t generated = 0) {
    static const std::vector<int32_t> never = {1, 2};
    return Sampler(params, {}, never).candidates_suffice(generated);
  };
  EXPECT_TRUE(suffice({.temperature = 0}));
  EXPECT_TRUE(suffice({.top_k = 62}));
  EXPECT_FALSE(suffice({.top_k = 63}));  // two of the 64 may be forbidden
  EXPECT_FALSE(suffice({}));
  EXPECT_FALSE(suffice({.temperature = 0, .repetition_penalty = 1.1}));
  EXPECT_FALSE(suffice({.temperature = 0, .logit_bias = {{3, 1.0F}}}));
  EXPECT_FALSE(suffice({.temperature = 0, .allowed_ids = {3}}));
  EXPECT_FALSE(suffice({.temperature = 0, .bad_words = {{3}}}));
  EXPECT_FALSE(suffice({.temperature = 0, .logprobs = 0}));
  EXPECT_FALSE(suffice({.temperature = 0, .min_tokens = 2}, 1));
  EXPECT_TRUE(suffice({.temperature = 0, .min_tokens = 2}, 2));
}

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
                    WrongValue{"prompt_logprobs", {.prompt_logprobs = 101}, "101", "from -1 (none) to 100"},
                    WrongValue{"repetition_penalty", {.repetition_penalty = 0}, "0", "above 0"},
                    WrongValue{"repetition_penalty", {.repetition_penalty = kNotANumber}, "nan", "above 0"},
                    WrongValue{"presence_penalty", {.presence_penalty = 2.5}, "2.5", "from -2 to 2"},
                    WrongValue{"presence_penalty", {.presence_penalty = kNotANumber}, "nan", "from -2 to 2"},
                    WrongValue{"frequency_penalty", {.frequency_penalty = -2.5}, "-2.5", "from -2 to 2"},
                    WrongValue{"frequency_penalty", {.frequency_penalty = kNotANumber}, "nan", "from -2 to 2"},
                    WrongValue{"logit_bias", {.logit_bias = {{3, 101.0F}}}, "101", "from -100 to 100"},
                    WrongValue{"logit_bias", {.logit_bias = {{3, kNaN}}}, "nan", "from -100 to 100"},
                    WrongValue{"logit_bias", {.logit_bias = {{100, 1.0F}}}, "100", "from 0 to 99"},
                    WrongValue{"allowed_token_ids", {.allowed_ids = {-1}}, "-1", "from 0 to 99"},
                    WrongValue{"bad_words", {.bad_words = {{1, 100}}}, "100", "from 0 to 99"},
                    WrongValue{"bad_words", {.bad_words = {{}}}, "empty", "at least one token"},
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
