#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace gannet {

class SlotPool;

// One of the runner's sequence states, lent to a request until the object is gone.
class Slot {
 public:
  Slot() = default;
  Slot(Slot&& other) noexcept : pool_(std::exchange(other.pool_, nullptr)), index_(other.index_) {}
  Slot& operator=(Slot&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
    return *this;
  }
  inline ~Slot();

  int32_t index() const { return index_; }

 private:
  friend class SlotPool;
  Slot(SlotPool& pool, int32_t index) : pool_(&pool), index_(index) {}
  SlotPool* pool_ = nullptr;
  int32_t index_ = -1;
};

class SlotPool {
 public:
  explicit SlotPool(int64_t count) : count_(count) {
    for (int64_t i = count; i > 0; --i) free_.push_back(static_cast<int32_t>(i - 1));
  }
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  int64_t count() const { return count_; }
  int64_t free() const { return static_cast<int64_t>(free_.size()); }
  // One must be free.
  Slot take() {
    const int32_t index = free_.back();
    free_.pop_back();
    return Slot(*this, index);
  }

 private:
  friend class Slot;
  int64_t count_;
  std::vector<int32_t> free_;
};

inline Slot::~Slot() {
  if (pool_ != nullptr) pool_->free_.push_back(index_);
}

}  // namespace gannet
