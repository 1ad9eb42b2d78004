#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/block_pool.h"
#include "cache/record_layout.h"
#include "checkpoint/config.h"
#include "ops/records.h"

namespace gannet {

// Everything that the model remembers of one sequence. On a prefix-cache hit of P tokens each part is
//   global entries, index keys   cached: read from the blocks, never written again for tokens before P
//   window rings                 replayed: the last `sliding_window` tokens before P run again (spec: model 5); without
//                                bounded replay cached: a snapshot taken at P is copied back
//   pending pairs                recomputed: a hit ends on a whole group, so nothing is pending
//   n-gram history               recomputed from the prompt's ids
// There is no other per-sequence state. The blocks belong to the sequence's BlockTable.
class SequenceState {
 public:
  // `pool` is where the blocks lie. A model on a GPU keeps rings and pending pairs there, by `slot`.
  enum class Place { host, gpu };
  SequenceState(const Config& config, BlockPool& pool, int64_t slot = 0, Place place = Place::host);

  // How a sequence begins: from nothing, or behind a prefix whose global KV exists.
  struct Start {
    const int32_t* blocks = nullptr;  // block ids; must stay there, and hold room for all rows that run
    int64_t first = 0;                // position of the first row
    int64_t cached = 0;               // global entries of tokens before this position exist
    int64_t encoder_from = 0;         // first position with window KV, in encoder and in decoder layers
    int64_t decoder_from = 0;
    std::vector<int32_t> history = {};  // compressed ids before `first` (Model::history)
  };
  // Forgets what was. The rings keep their bytes: a snapshot may be copied over them.
  void begin(Start start);

  // Its number among the sequences of a model.
  int64_t slot() const { return slot_; }
  // How often it has begun.
  uint64_t generation() const { return generation_; }
  const int32_t* blocks() const { return blocks_; }

  // Tokens that have run: the position of the next row.
  int64_t length() const { return length_; }
  void advance(int64_t rows) { length_ += rows; }
  // Global entries of tokens before this position exist already and are not written by the rows that replay them.
  int64_t cached() const { return cached_; }

  // First position with window KV in the encoder and in the decoder layers (bounded replay truncates there). Decoder
  // layers run on rows from decoder_from on only.
  int64_t encoder_from() const { return encoder_from_; }
  int64_t decoder_from() const { return decoder_from_; }
  void set_decoder_from(int64_t position) { decoder_from_ = position; }

  // The rings of all backbone layers, one after another: window_state_bytes(). Empty when they lie on a GPU.
  std::byte* windows() { return rings_.data(); }
  int64_t window_bytes() const { return static_cast<int64_t>(rings_.size()); }
  // Ring of a backbone layer: `sliding_window` records, slot = position mod sliding_window.
  std::byte* ring(int64_t layer) { return rings_.data() + layer * ring_bytes_; }
  // (a, g) of a ratio-2 source's half pair, f32 [2, head_dim]; `source` counts in kv_source_layer_ids.
  float* pending(int64_t source) { return pending_.data() + source * pending_size_; }
  ops::PagedRecords entries(int64_t source);
  ops::PagedRecords keys(int64_t source);
  // Compressed ids of the last engram_max_ngram_size - 1 tokens, nearest last; shorter at the start.
  std::vector<int32_t>& history() { return history_; }

 private:
  ops::PagedRecords records(int64_t source, int64_t offset, int64_t bytes);

  BlockPool* pool_;
  int64_t slot_;
  uint64_t generation_ = 0;
  RecordLayout records_;
  int64_t ring_bytes_;
  int64_t pending_size_;
  const int32_t* blocks_ = nullptr;
  std::vector<std::byte> rings_;
  std::vector<float> pending_;
  std::vector<int32_t> history_;
  int64_t length_ = 0;
  int64_t cached_ = 0;
  int64_t encoder_from_ = 0;
  int64_t decoder_from_ = 0;
};

}  // namespace gannet
