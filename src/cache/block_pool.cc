#include "cache/block_pool.h"

#include <sys/mman.h>

#include <new>
#include <utility>

#include "base/error.h"

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

void BlockTable::reserve(int64_t tokens) {
  ids_.reserve(pool_->blocks_for(tokens));
}

bool BlockTable::grow(int64_t tokens) {
  const int64_t missing = pool_->blocks_for(tokens) - static_cast<int64_t>(ids_.size());
  if (missing > pool_->free_blocks()) return false;
  for (int64_t i = 0; i < missing; ++i) ids_.push_back(pool_->take());
  return true;
}

void BlockTable::shrink(int64_t tokens) {
  const auto needed = static_cast<size_t>(pool_->blocks_for(tokens));
  while (ids_.size() > needed) {
    pool_->release(ids_.back());
    ids_.pop_back();
  }
}

void BlockTable::share(std::span<const BlockHash> hashes) {
  GANNET_CHECK(ids_.empty());
  for (const BlockHash& hash : hashes) {
    const auto found = pool_->index_.find(hash);
    GANNET_CHECK(found != pool_->index_.end());
    pool_->hold(found->second);
    ids_.push_back(found->second);
  }
}

// Pages come from the system when a block is first written, so a large pool costs nothing until it is used.
BlockPool::BlockPool(const BlockLayout& layout, int64_t blocks)
    : layout_(layout), memory_bytes_(static_cast<size_t>(layout.bytes * blocks)), blocks_(blocks), free_(blocks) {
  if (memory_bytes_ > 0) {
    void* memory =
        mmap(nullptr, memory_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<std::byte*>(memory);
  }
  for (int64_t i = 0; i < blocks; ++i) push_back(blank_, static_cast<int32_t>(i));
}

BlockPool::~BlockPool() {
  if (memory_ != nullptr) munmap(memory_, memory_bytes_);
}

void BlockPool::publish(int32_t block, const BlockHash& hash) {
  GANNET_CHECK(blocks_[block].holders > 0);
  if (blocks_[block].published || !index_.try_emplace(hash, block).second) return;
  blocks_[block].published = true;
  blocks_[block].hash = hash;
}

BlockPool::Match BlockPool::match(std::span<const BlockHash> hashes) const {
  Match match;
  for (const BlockHash& hash : hashes) {
    const auto found = index_.find(hash);
    if (found == index_.end()) break;
    ++match.blocks;
    if (blocks_[found->second].holders == 0) ++match.free;
  }
  return match;
}

void BlockPool::forget() {
  for (int32_t id = published_.first; id != kNone;) {
    const int32_t next = blocks_[id].next;
    unlink(published_, id);
    push_back(blank_, id);
    id = next;
  }
  cached_ = 0;
  for (const auto& [hash, block] : index_) blocks_[block].published = false;
  index_.clear();
}

int32_t BlockPool::take() {
  const bool blank = blank_.first != kNone;
  const int32_t id = blank ? blank_.first : published_.first;
  hold(id);
  if (!blank) withdraw(id);
  return id;
}

void BlockPool::hold(int32_t id) {
  Block& block = blocks_[id];
  if (block.holders++ > 0) return;
  unlink(block.published ? published_ : blank_, id);
  if (block.published) --cached_;
  --free_;
}

void BlockPool::release(int32_t id) {
  Block& block = blocks_[id];
  if (--block.holders > 0) return;
  ++free_;
  if (block.published) {
    ++cached_;
    push_back(published_, id);
  } else {
    push_front(blank_, id);  // its memory is likelier to be in a cache of the processor
  }
}

void BlockPool::withdraw(int32_t id) {
  index_.erase(blocks_[id].hash);
  blocks_[id].published = false;
}

void BlockPool::unlink(FreeList& list, int32_t id) {
  Block& block = blocks_[id];
  (block.previous == kNone ? list.first : blocks_[block.previous].next) = block.next;
  (block.next == kNone ? list.last : blocks_[block.next].previous) = block.previous;
  block.previous = block.next = kNone;
}

void BlockPool::push_front(FreeList& list, int32_t id) {
  blocks_[id].next = list.first;
  (list.first == kNone ? list.last : blocks_[list.first].previous) = id;
  list.first = id;
}

void BlockPool::push_back(FreeList& list, int32_t id) {
  blocks_[id].previous = list.last;
  (list.last == kNone ? list.first : blocks_[list.last].next) = id;
  list.last = id;
}

}  // namespace gannet
