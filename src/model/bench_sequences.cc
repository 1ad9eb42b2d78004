#include "model/bench_sequences.h"

#include <algorithm>

#include "base/error.h"

namespace gannet {

BenchSequences::BenchSequences(const Config& config, BlockPool& pool, int64_t sequences, SequenceState::Place place)
    : pool_(pool), vocabulary_(config.vocab_size), window_(config.sliding_window) {
  for (int64_t slot = 0; slot < sequences; ++slot) states_.emplace_back(config, pool, slot, place);
}

void BenchSequences::give_blocks(int64_t sequences, int64_t tokens) {
  tables_.clear();
  for (int64_t s = 0; s < sequences; ++s) {
    tables_.push_back(pool_.table());
    const bool enough = tables_.back().grow(tokens);
    GANNET_CHECK(enough);
  }
}

void BenchSequences::begin(int64_t sequence, int64_t length) {
  states_[sequence].begin({.blocks = tables_[sequence].ids().data(), .first = length, .cached = length});
}

void BenchSequences::begin_prompt(int64_t tokens, bool replay) {
  begin(0, 0);
  if (replay) states_[0].set_decoder_from(std::max<int64_t>(0, tokens - window_));
}

Batch BenchSequences::decode_batch(int64_t sequences) {
  Batch batch;
  for (int64_t s = 0; s < sequences; ++s) {
    batch.ids.push_back(random_id());
    batch.sequences.push_back({.state = &states_[s], .first_row = s, .rows = 1});
    batch.logit_rows.push_back(static_cast<int32_t>(s));
  }
  return batch;
}

Batch BenchSequences::prompt_batch(int64_t rows, bool last) {
  Batch batch;
  for (int64_t r = 0; r < rows; ++r) batch.ids.push_back(random_id());
  batch.sequences.push_back({.state = &states_[0], .first_row = 0, .rows = rows});
  if (last) batch.logit_rows.push_back(static_cast<int32_t>(rows - 1));
  return batch;
}

std::vector<int32_t> any_token_map(const Config& config) {
  std::vector<int32_t> map(config.vocab_size);
  for (int64_t i = 0; i < config.vocab_size; ++i) {
    map[i] = static_cast<int32_t>(i % config.engram_compressed_vocab_size);
  }
  return map;
}

}  // namespace gannet
