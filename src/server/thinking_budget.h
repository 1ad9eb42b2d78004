#pragma once

#include <cstdint>
#include <memory>

#include "engine/token_constraint.h"

namespace gannet::server {

// Ends the reasoning of an answer that begins with it: once `budget` tokens have come, the next one is `</think>`.
// What the content must look like is `inner`'s business; null: nothing.
class ThinkingBudget : public TokenConstraint {
 public:
  ThinkingBudget(int64_t budget, int32_t think_end, std::shared_ptr<TokenConstraint> inner);

  bool active() const override;
  void fill_mask(std::span<uint32_t> mask) override;
  void accept(int32_t id) override;

 private:
  bool is_spent() const { return thinking_ && left_ == 0; }

  int64_t left_;
  const int32_t think_end_;
  const std::shared_ptr<TokenConstraint> inner_;
  bool thinking_ = true;
};

}  // namespace gannet::server
