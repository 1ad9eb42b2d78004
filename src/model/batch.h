#pragma once

#include <cstdint>
#include <vector>

#include "cache/sequence_state.h"

namespace gannet {

// Consecutive rows of one sequence in a batch; they continue at the sequence's length().
struct SequenceRows {
  SequenceState* state = nullptr;
  int64_t first_row = 0;
  int64_t rows = 0;
};

// The rows of one forward pass: prompt chunks and decodes of any number of sequences, each sequence at most once. The
// sequences' blocks must already hold room for the rows.
struct Batch {
  std::vector<int32_t> ids;  // [rows], each inside the vocabulary
  std::vector<SequenceRows> sequences;
  // Rows whose logits are wanted, rising. Each must be one that the decoder layers run on, i.e. at or behind its
  // sequence's decoder_from().
  std::vector<int32_t> logit_rows;

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
  void clear() {
    ids.clear();
    sequences.clear();
    logit_rows.clear();
  }
};

}  // namespace gannet
