#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cache/record_layout.h"

namespace gannet {

class BlockPool;

// The blocks that one sequence holds, in token order. They go back to the pool with the object.
class BlockTable {
 public:
  BlockTable() = default;
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable();

  const std::vector<int32_t>& ids() const { return ids_; }
  // Makes room for `tokens` tokens; false (and unchanged) when the pool has too few free blocks.
  bool grow(int64_t tokens);
  // Gives back the blocks that `tokens` tokens do not need.
  void shrink(int64_t tokens);

 private:
  friend class BlockPool;
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}
  BlockPool* pool_ = nullptr;
  std::vector<int32_t> ids_;
};

// All cache blocks, allocated once. Not thread-safe: it belongs to the engine's thread.
class BlockPool {
 public:
  BlockPool(const BlockLayout& layout, int64_t blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  const BlockLayout& layout() const { return layout_; }
  std::byte* data() { return memory_.get(); }
  int64_t blocks() const { return blocks_; }
  int64_t free_blocks() const { return static_cast<int64_t>(free_.size()); }
  BlockTable table() { return BlockTable(*this); }

 private:
  friend class BlockTable;
  BlockLayout layout_;
  int64_t blocks_;
  // Left uninitialised: a block's pages come from the system when it is first written.
  std::unique_ptr<std::byte[]> memory_;
  std::vector<int32_t> free_;
};

}  // namespace gannet
