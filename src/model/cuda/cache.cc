#include "model/cuda/cache.h"

#include <algorithm>

#include "base/error.h"
#include "ops/cuda/check.h"

namespace gannet {

CudaCache::CudaCache(const Config& config, const BlockPool& pool, int64_t slots, int64_t max_tokens, bool measure)
    : layout_(pool.layout()),
      record_layout_(gannet::record_layout(config)),
      block_count_(pool.blocks()),
      table_stride_(pool.blocks_for(max_tokens)),
      ring_bytes_(config.sliding_window * record_layout_.window_bytes),
      slot_bytes_(window_state_bytes(config)),
      pending_size_(2 * config.head_dim),
      pending_stride_(static_cast<int64_t>(config.kv_source_layer_ids.size()) * pending_size_),
      arena_(measure),
      blocks_(arena_.get<std::byte>(block_count_ * layout_.bytes)),
      rings_(arena_.get<std::byte>(slots * slot_bytes_)),
      pending_(arena_.get<float>(slots * pending_stride_)),
      block_tables_(arena_.get<int32_t>(slots * table_stride_)),
      host_tables_(measure ? 0 : slots * table_stride_ * static_cast<int64_t>(sizeof(int32_t))),
      tables_(slots) {}

void CudaCache::update_table(cudaStream_t stream, const SequenceState& state, int64_t end) {
  GANNET_CHECK(state.slot() < slots());
  Table& table = tables_[state.slot()];
  if (table.generation != state.generation()) table = {.generation = state.generation(), .blocks = 0};
  const int64_t needed = (end + layout_.tokens - 1) / layout_.tokens;
  GANNET_CHECK(needed <= table_stride_);
  if (needed <= table.blocks) return;
  const int64_t first = state.slot() * table_stride_ + table.blocks;
  auto* host = reinterpret_cast<int32_t*>(host_tables_.data()) + first;
  std::copy(state.blocks() + table.blocks, state.blocks() + needed, host);
  const auto bytes = static_cast<size_t>(needed - table.blocks) * sizeof(int32_t);
  GANNET_CUDA_CHECK(cudaMemcpyAsync(block_tables_ + first, host, bytes, cudaMemcpyHostToDevice, stream));
  table.blocks = needed;
}

ops::cuda::Records CudaCache::records(int64_t source, int64_t offset, int64_t bytes) const {
  return {.base = blocks_ + offset,
          .block_tables = block_tables_,
          .table_stride = table_stride_,
          .block_stride = layout_.bytes,
          .block_records = layout_.sources[source].records,
          .record_bytes = bytes};
}

ops::cuda::Records CudaCache::entries(int64_t source) const {
  return records(source, layout_.sources[source].entry_offset, record_layout_.entry_bytes);
}

ops::cuda::Records CudaCache::keys(int64_t source) const {
  return records(source, layout_.sources[source].key_offset, record_layout_.key_bytes);
}

}  // namespace gannet
