#include "server/thinking_budget.h"

#include <algorithm>
#include <utility>

namespace gannet::server {

ThinkingBudget::ThinkingBudget(int64_t budget, int32_t think_end, std::shared_ptr<TokenConstraint> inner)
    : left_(budget), think_end_(think_end), inner_(std::move(inner)) {}

bool ThinkingBudget::active() const {
  return is_spent() || (inner_ != nullptr && inner_->active());
}

void ThinkingBudget::fill_mask(std::span<uint32_t> mask) {
  if (!is_spent()) return inner_->fill_mask(mask);
  std::fill(mask.begin(), mask.end(), 0U);
  mask[static_cast<size_t>(think_end_) / 32] |= 1U << (static_cast<uint32_t>(think_end_) % 32);
}

void ThinkingBudget::accept(int32_t id) {
  if (inner_ != nullptr) inner_->accept(id);
  if (id == think_end_) thinking_ = false;
  if (thinking_ && left_ > 0) --left_;
}

}  // namespace gannet::server
