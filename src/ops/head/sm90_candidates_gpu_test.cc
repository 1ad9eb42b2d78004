#include <cmath>
#include <limits>
#include <numeric>

#include "ops/cuda/testing.h"
#include "ops/cuda/testing_kernels.h"
#include "ops/head/sm90_candidates.h"

namespace gannet::ops::cuda::test {
namespace {

using ops::test::kInfinity;
using ops::test::Random;

constexpr float kLargest = std::numeric_limits<float>::max();

struct Found {
  std::vector<float> values;
  std::vector<int32_t> ids;
  std::vector<float> log_sum, mass;
};

Found run(const std::vector<float>& logits, int64_t count, int64_t most, int64_t vocabulary,
          const std::vector<float>& inverse_temperature) {
  const Array<float> logit_array(logits), inverse(inverse_temperature), values(most * kCandidates), log_sum(most),
      mass(most);
  const Array<int32_t> counts(std::vector{static_cast<int32_t>(count)}), ids(most * kCandidates);
  candidates(nullptr, {.logits = logit_array.get(),
                       .count = counts.get(),
                       .most = most,
                       .vocabulary = vocabulary,
                       .inverse_temperature = inverse_temperature.empty() ? nullptr : inverse.get(),
                       .values = values.get(),
                       .ids = ids.get(),
                       .log_sum = log_sum.get(),
                       .mass = mass.get()});
  Found found{values.host(), ids.host(), log_sum.host(), mass.host()};
  EXPECT_TRUE(values.guard_intact() && ids.guard_intact() && log_sum.guard_intact() && mass.guard_intact());
  return found;
}

float sane(float logit) {
  return std::isnan(logit) ? -kInfinity : std::min(logit, kLargest);
}

void expect_row(const Found& found, int64_t r, std::span<const float> logits, float inverse_temperature) {
  std::vector<float> row(logits.begin(), logits.end());
  for (float& logit : row) logit = sane(logit);
  std::vector<int32_t> order(row.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](int32_t a, int32_t b) { return row[a] != row[b] ? row[a] > row[b] : a < b; };
  const auto wanted = std::min<int64_t>(kCandidates, static_cast<int64_t>(row.size()));
  std::partial_sort(order.begin(), order.begin() + wanted, order.end(), likelier);
  for (int64_t i = 0; i < kCandidates; ++i) {
    ASSERT_EQ(found.ids[r * kCandidates + i], i < wanted ? order[i] : -1) << "candidate " << i;
    ASSERT_EQ(found.values[r * kCandidates + i], i < wanted ? row[order[i]] : -kInfinity) << "candidate " << i;
  }
  const double top = std::max(row[order[0]], -kLargest);
  double sum = 0, mass = 0;
  for (const float logit : row) {
    sum += std::exp(static_cast<double>(logit) - top);
    mass += std::exp((static_cast<double>(logit) - top) * static_cast<double>(inverse_temperature));
  }
  if (sum > 0) {
    EXPECT_NEAR(found.log_sum[r], top + std::log(sum), 1e-5 + std::fabs(top) * 1e-6);
  }
  EXPECT_NEAR(found.mass[r], mass, mass * 1e-5);
}

TEST(CudaCandidates, AreTheLikeliest) {
  for (const auto& [count, most, vocabulary] : {std::tuple<int64_t, int64_t, int64_t>{0, 2, 64},
                                                {1, 1, 4},
                                                {2, 3, 64},
                                                {3, 3, 260},
                                                {4, 4, 4096},
                                                {2, 2, 129280},
                                                {1, 2, 131072}}) {
    SCOPED_TRACE(std::to_string(count) + " of " + std::to_string(most) + " rows of " + std::to_string(vocabulary));
    Random random(1);
    const auto logits = random.normals(most * vocabulary, 4);
    std::vector<float> inverse;
    for (int64_t r = 0; r < most; ++r) inverse.push_back(r % 2 == 0 ? 1.0F : 0.7F);
    const Found found = run(logits, count, most, vocabulary, inverse);
    for (int64_t r = 0; r < count; ++r) {
      expect_row(found, r, std::span(logits).subspan(r * vocabulary, vocabulary), inverse[r]);
    }
    for (int64_t i = count * kCandidates; i < most * kCandidates; ++i) ASSERT_EQ(found.ids[i], -1);  // the poison
    for (int64_t r = count; r < most; ++r) ASSERT_TRUE(std::isnan(found.log_sum[r]));
  }
}

// Rows in which many logits are equal, or are all in one thread's hands.
TEST(CudaCandidates, TiesGoToTheLowestIds) {
  constexpr int64_t kVocabulary = 129280;
  std::vector<std::vector<float>> rows(5, std::vector<float>(kVocabulary, 0.0F));
  Random random(2);
  for (float& logit : rows[1]) logit = static_cast<float>(random.integer(-1, 1));
  for (float& logit : rows[1]) logit = logit == 0 && random.integer(0, 1) == 0 ? -0.0F : logit;
  for (int64_t i = 0; i < kVocabulary; ++i) rows[2][i] = i / 4 % 2048 < 70 ? static_cast<float>(i % 7) : -5;
  rows[3].assign(kVocabulary, -kInfinity);
  for (int64_t i = 0; i < kVocabulary; ++i) rows[4][i] = static_cast<float>(i);
  std::vector<float> logits;
  for (const auto& row : rows) logits.insert(logits.end(), row.begin(), row.end());
  const Found found = run(logits, 5, 5, kVocabulary, {});
  for (int64_t r = 0; r < 5; ++r) {
    SCOPED_TRACE(r);
    if (r == 3) {
      for (int64_t i = 0; i < kCandidates; ++i) ASSERT_EQ(found.ids[r * kCandidates + i], i);
    } else {
      expect_row(found, r, rows[r], 1);
    }
  }
}

TEST(CudaCandidates, BrokenLogitsAreTakenAsTheSamplerTakesThem) {
  constexpr int64_t kVocabulary = 4096;
  Random random(3);
  std::vector<float> logits = random.normals(2 * kVocabulary);
  for (int64_t i = 0; i < kVocabulary; i += 3) logits[i] = NAN;
  logits[kVocabulary + 100] = kInfinity;
  logits[kVocabulary + 50] = kInfinity;
  logits[kVocabulary + 70] = -kInfinity;
  const Found found = run(logits, 2, 2, kVocabulary, {});
  expect_row(found, 0, std::span(logits).first(kVocabulary), 1);
  expect_row(found, 1, std::span(logits).subspan(kVocabulary), 1);
  EXPECT_EQ(found.ids[kCandidates], 50);
}

TEST(CudaCandidates, RepeatsBitForBit) {
  constexpr int64_t kVocabulary = 129280;
  Random random(4);
  const auto logits = random.normals(3 * kVocabulary, 3);
  const Found first = run(logits, 3, 3, kVocabulary, {0.5F, 1, 2});
  for (int i = 0; i < 30; ++i) {
    const Found again = run(logits, 3, 3, kVocabulary, {0.5F, 1, 2});
    ASSERT_TRUE(same_bits(again.values, first.values) && again.ids == first.ids &&
                same_bits(again.log_sum, first.log_sum) && same_bits(again.mass, first.mass));
  }
  const Found alone = run({logits.begin() + 2 * kVocabulary, logits.end()}, 1, 1, kVocabulary, {2});
  EXPECT_EQ(std::memcmp(alone.values.data(), &first.values[2 * kCandidates], kCandidates * 4), 0);
  EXPECT_EQ(alone.log_sum[0], first.log_sum[2]);
  EXPECT_EQ(alone.mass[0], first.mass[2]);
}

TEST(Benchmark, Candidates) {
  constexpr int64_t kVocabulary = 129280;
  for (const int64_t rows : {1, 8, 64, 256}) {
    const int sets = static_cast<int>(std::clamp<int64_t>(512 / rows, 2, 20));
    const Array<float> logits(sets * rows * kVocabulary), values(rows * kCandidates), log_sum(rows), mass(rows);
    const Array<int32_t> ids(rows * kCandidates), count(std::vector{static_cast<int32_t>(rows)});
    fill(logits.get(), logits.size(), 1);
    const double time = time_launch([&](cudaStream_t stream, int i) {
      candidates(stream, {.logits = logits.get() + i % sets * rows * kVocabulary,
                          .count = count.get(),
                          .most = rows,
                          .vocabulary = kVocabulary,
                          .values = values.get(),
                          .ids = ids.get(),
                          .log_sum = log_sum.get(),
                          .mass = mass.get()});
    });
    report(("candidates, rows: " + std::to_string(rows)).c_str(), time, static_cast<double>(rows * kVocabulary * 4), 0);
  }
}

}  // namespace
}  // namespace gannet::ops::cuda::test
