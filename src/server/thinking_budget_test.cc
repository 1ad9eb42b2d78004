#include "server/thinking_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace gannet::server {
namespace {

constexpr int32_t kThinkEnd = 37;

// Constrains everything once the reasoning has ended, and writes down what it is told.
class Recorder : public TokenConstraint {
 public:
  bool active() const override { return !seen.empty() && ended; }
  void fill_mask(std::span<uint32_t> mask) override { mask[0] = 0xF0; }
  void accept(int32_t id) override {
    seen.push_back(id);
    ended = ended || id == kThinkEnd;
  }
  std::vector<int32_t> seen;
  bool ended = false;
};

std::vector<uint32_t> mask_of(TokenConstraint& constraint) {
  std::vector<uint32_t> mask(2, 0xFFFFFFFF);
  constraint.fill_mask(mask);
  return mask;
}

TEST(ThinkingBudget, EndsTheReasoning) {
  ThinkingBudget budget(2, kThinkEnd, nullptr);
  for (const int32_t id : {1, 2}) {
    EXPECT_FALSE(budget.active());
    budget.accept(id);
  }
  ASSERT_TRUE(budget.active());
  EXPECT_EQ(mask_of(budget), (std::vector<uint32_t>{0, 1U << (kThinkEnd - 32)}));
  budget.accept(kThinkEnd);
  EXPECT_FALSE(budget.active());
  budget.accept(3);
  EXPECT_FALSE(budget.active());
}

TEST(ThinkingBudget, OfNothingEndsItAtOnce) {
  EXPECT_TRUE(ThinkingBudget(0, kThinkEnd, nullptr).active());
}

TEST(ThinkingBudget, LeavesReasoningThatEndsEarlier) {
  ThinkingBudget budget(5, kThinkEnd, nullptr);
  budget.accept(1);
  budget.accept(kThinkEnd);
  for (int i = 0; i < 10; ++i) budget.accept(1);
  EXPECT_FALSE(budget.active());
}

TEST(ThinkingBudget, LeavesTheContentToTheOtherConstraint) {
  const auto inner = std::make_shared<Recorder>();
  ThinkingBudget budget(1, kThinkEnd, inner);
  budget.accept(1);
  EXPECT_TRUE(budget.active());
  budget.accept(kThinkEnd);
  EXPECT_TRUE(budget.active());
  EXPECT_EQ(mask_of(budget)[0], 0xF0);
  budget.accept(4);
  EXPECT_THAT(inner->seen, testing::ElementsAre(1, kThinkEnd, 4));
}

}  // namespace
}  // namespace gannet::server
