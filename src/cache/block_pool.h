#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/block_hash.h"
#include "cache/record_layout.h"

namespace gannet {

class BlockPool;

// The blocks that one sequence holds, in token order; some may be shared with other sequences, which only read them.
// They go back to the pool with the object.
class BlockTable {
 public:
  BlockTable() = default;
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable();

  const std::vector<int32_t>& ids() const { return ids_; }
  // From now on ids() stays where it is while it grows up to `tokens` tokens: a running step may read it while the next
  // one is planned.
  void reserve(int64_t tokens);
  // Makes room for `tokens` tokens; false (and unchanged) when the pool has too few free blocks.
  bool grow(int64_t tokens);
  // Gives back the blocks that `tokens` tokens do not need. The last ones are the first to be used again.
  void shrink(int64_t tokens);
  // Shares the pool's blocks of these hashes, which must all be there (BlockPool::match). The table must be empty.
  void share(std::span<const BlockHash> hashes);

 private:
  friend class BlockPool;
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}
  BlockPool* pool_ = nullptr;
  std::vector<int32_t> ids_;
};

// All cache blocks, allocated once, and the index that finds them by content. A block is either held by one or more
// tables, or free; a free one whose content was published is found and revived by share() until it is used for
// something else. Free blocks without content are used first, then those that have been free longest. Not thread-safe:
// it belongs to the engine's thread.
class BlockPool {
 public:
  BlockPool(const BlockLayout& layout, int64_t blocks);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  const BlockLayout& layout() const { return layout_; }
  std::byte* data() { return memory_; }
  int64_t bytes() const { return static_cast<int64_t>(memory_bytes_); }
  int64_t blocks() const { return static_cast<int64_t>(blocks_.size()); }
  int64_t free_blocks() const { return free_; }
  // Free blocks whose content can still be found.
  int64_t cached_blocks() const { return cached_; }
  int64_t blocks_for(int64_t tokens) const { return (tokens + layout_.tokens - 1) / layout_.tokens; }
  BlockTable table() { return BlockTable(*this); }

  // The block's content is complete and will not change: others may find it. Nothing happens when a block of that
  // content is known already.
  void publish(int32_t block, const BlockHash& hash);
  struct Match {
    int64_t blocks = 0;  // leading hashes whose blocks are there
    int64_t free = 0;    // how many of these are free: what sharing them takes from free_blocks()
  };
  Match match(std::span<const BlockHash> hashes) const;
  // Forgets all content. Blocks that are held stay with their holders.
  void forget();

 private:
  friend class BlockTable;
  static constexpr int32_t kNone = -1;
  struct Block {
    int32_t holders = 0;
    int32_t previous = kNone;  // in its list of free blocks
    int32_t next = kNone;
    bool published = false;
    BlockHash hash;
  };
  // Doubly linked through the blocks.
  struct FreeList {
    int32_t first = kNone;  // the next to be used
    int32_t last = kNone;
  };

  int32_t take();
  void hold(int32_t id);
  void release(int32_t id);
  void unlink(FreeList& list, int32_t id);
  void push_front(FreeList& list, int32_t id);
  void push_back(FreeList& list, int32_t id);
  void withdraw(int32_t id);

  BlockLayout layout_;
  std::byte* memory_ = nullptr;
  size_t memory_bytes_ = 0;
  std::vector<Block> blocks_;
  FreeList blank_;      // free, without content
  FreeList published_;  // free, with content: longest free first
  int64_t free_ = 0;
  int64_t cached_ = 0;
  std::unordered_map<BlockHash, int32_t> index_;
};

}  // namespace gannet
