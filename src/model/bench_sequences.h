#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "cache/block_pool.h"
#include "cache/sequence_state.h"
#include "checkpoint/config.h"
#include "model/batch.h"

namespace gannet {

// The sequences that a benchmark of passes runs, with their cache blocks, and batches of random ids for them.
class BenchSequences {
 public:
  BenchSequences(const Config& config, BlockPool& pool, int64_t sequences, SequenceState::Place place);

  SequenceState& state(int64_t sequence) { return states_[sequence]; }
  int64_t count() const { return static_cast<int64_t>(states_.size()); }
  // Gives the first `sequences` blocks for `tokens` tokens each, which the pool must have, and takes those of others.
  void give_blocks(int64_t sequences, int64_t tokens);
  // As if `length` tokens had run; the sequence must have blocks.
  void begin(int64_t sequence, int64_t length);
  // The first sequence begins a prompt; with `replay` decoder layers run on its last window only.
  void begin_prompt(int64_t tokens, bool replay);
  // One row for each of the first `sequences`.
  Batch decode_batch(int64_t sequences);
  // The next rows of the first sequence; logits of the last one, if these are the last.
  Batch prompt_batch(int64_t rows, bool last);

 private:
  int32_t random_id() { return static_cast<int32_t>(random_() % static_cast<uint64_t>(vocabulary_)); }

  BlockPool& pool_;
  int64_t vocabulary_;
  int64_t window_;
  std::vector<SequenceState> states_;
  std::vector<BlockTable> tables_;
  std::mt19937_64 random_{1};
};

// A map onto all of Engram's compressed ids. Which one does not matter for speed: rows are looked up at random.
std::vector<int32_t> any_token_map(const Config& config);

}  // namespace gannet
