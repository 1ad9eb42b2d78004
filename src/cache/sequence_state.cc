#include "cache/sequence_state.h"

#include <utility>

#include "base/error.h"

namespace gannet {

SequenceState::SequenceState(const Config& config, BlockPool& pool, int64_t slot, Place place)
    : pool_(&pool),
      slot_(slot),
      records_(record_layout(config)),
      ring_bytes_(config.sliding_window * records_.window_bytes),
      pending_size_(2 * config.head_dim),
      rings_(place == Place::host ? config.num_hidden_layers * ring_bytes_ : 0),
      pending_(place == Place::host ? config.kv_source_layer_ids.size() * pending_size_ : 0) {}

void SequenceState::begin(Start start) {
  GANNET_CHECK(start.first <= start.cached || start.cached == 0);
  ++generation_;
  blocks_ = start.blocks;
  history_ = std::move(start.history);
  length_ = start.first;
  cached_ = start.cached;
  encoder_from_ = start.encoder_from;
  decoder_from_ = start.decoder_from;
}

ops::PagedRecords SequenceState::records(int64_t source, int64_t offset, int64_t bytes) {
  return {.base = pool_->data() + offset,
          .block_table = blocks_,
          .block_stride = pool_->layout().bytes,
          .block_records = pool_->layout().sources[source].records,
          .record_bytes = bytes};
}

ops::PagedRecords SequenceState::entries(int64_t source) {
  return records(source, pool_->layout().sources[source].entry_offset, records_.entry_bytes);
}

ops::PagedRecords SequenceState::keys(int64_t source) {
  return records(source, pool_->layout().sources[source].key_offset, records_.key_bytes);
}

}  // namespace gannet
