#include "cache/sequence_state.h"

#include "base/error.h"

namespace gannet {

SequenceState::SequenceState(const Config& config, BlockPool& pool)
    : pool_(&pool),
      records_(record_layout(config)),
      ring_bytes_(config.sliding_window * records_.window_bytes),
      pending_size_(2 * config.head_dim),
      blocks_(pool.table()),
      rings_(config.num_hidden_layers * ring_bytes_),
      pending_(config.kv_source_layer_ids.size() * pending_size_) {}

void SequenceState::reset() {
  keep_prefix(0, 0, {});
}

void SequenceState::keep_prefix(int64_t tokens, int64_t replay_from, const std::vector<int32_t>& history) {
  GANNET_CHECK(replay_from <= tokens && tokens <= length_);
  blocks_.shrink(tokens);
  history_ = history;
  length_ = replay_from;
  cached_ = tokens;
  encoder_from_ = replay_from;
  decoder_from_ = 0;
}

ops::PagedRecords SequenceState::records(int64_t source, int64_t offset, int64_t bytes) {
  return {.base = pool_->data() + offset,
          .block_table = blocks_.ids().data(),
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
