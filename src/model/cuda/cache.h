#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/block_pool.h"
#include "cache/sequence_state.h"
#include "checkpoint/config.h"
#include "model/cuda/memory.h"
#include "ops/cuda/rows.h"

namespace gannet {

// What the device remembers between passes: the blocks of global KV, and for each slot the window rings, the pending
// halves of pairs and the block table. SequenceState keeps the host's part of a sequence and says which slot is its
// own.
class CudaCache {
 public:
  // `pool` decides layout and number of blocks; its own memory is not used. `max_tokens` of one sequence.
  CudaCache(const Config& config, const BlockPool& pool, int64_t slots, int64_t max_tokens, bool measure = false);

  // Brings the slot's block table up to date for rows up to position `end`.
  void update_table(cudaStream_t stream, const SequenceState& state, int64_t end);

  ops::cuda::Records entries(int64_t source) const;
  ops::cuda::Records keys(int64_t source) const;
  std::byte* rings() const { return rings_; }
  std::byte* ring(int64_t layer) const { return rings_ + layer * ring_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }  // rings of one slot: window_state_bytes()
  float* pending(int64_t source) const { return pending_ + source * pending_size_; }
  int64_t pending_stride() const { return pending_stride_; }
  int64_t slots() const { return static_cast<int64_t>(tables_.size()); }
  std::byte* blocks() const { return blocks_; }
  int64_t block_bytes() const { return layout_.bytes; }
  int64_t block_count() const { return block_count_; }
  int64_t block_tokens() const { return layout_.tokens; }
  int64_t device_bytes() const { return arena_.bytes(); }

 private:
  // How much of a slot's table the device has.
  struct Table {
    uint64_t generation = 0;
    int64_t blocks = 0;
  };
  ops::cuda::Records records(int64_t source, int64_t offset, int64_t bytes) const;

  BlockLayout layout_;
  RecordLayout record_layout_;
  int64_t block_count_;
  int64_t table_stride_;
  int64_t ring_bytes_;
  int64_t slot_bytes_;
  int64_t pending_size_;
  int64_t pending_stride_;
  DeviceArena arena_;
  std::byte* blocks_;
  std::byte* rings_;
  float* pending_;
  int32_t* block_tables_;
  PinnedBuffer host_tables_;  // [slots][table_stride]: what the device gets
  std::vector<Table> tables_;
};

}  // namespace gannet
