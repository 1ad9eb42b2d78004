#include "cache/block_pool.h"

#include <utility>

namespace gannet {

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), ids_(std::exchange(other.ids_, {})) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(ids_, other.ids_);
  return *this;
}

BlockTable::~BlockTable() {
  if (pool_ != nullptr) shrink(0);
}

bool BlockTable::grow(int64_t tokens) {
  const auto needed = (tokens + pool_->layout_.tokens - 1) / pool_->layout_.tokens;
  const auto missing = needed - static_cast<int64_t>(ids_.size());
  if (missing > pool_->free_blocks()) return false;
  for (int64_t i = 0; i < missing; ++i) {
    ids_.push_back(pool_->free_.back());
    pool_->free_.pop_back();
  }
  return true;
}

void BlockTable::shrink(int64_t tokens) {
  const auto needed = static_cast<size_t>((tokens + pool_->layout_.tokens - 1) / pool_->layout_.tokens);
  while (ids_.size() > needed) {
    pool_->free_.push_back(ids_.back());
    ids_.pop_back();
  }
}

BlockPool::BlockPool(const BlockLayout& layout, int64_t blocks)
    : layout_(layout), blocks_(blocks), memory_(new std::byte[layout.bytes * blocks]) {
  free_.reserve(blocks);
  for (int64_t i = blocks; i > 0; --i) free_.push_back(static_cast<int32_t>(i - 1));
}

}  // namespace gannet
