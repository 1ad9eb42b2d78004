#pragma once

#include <array>
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

// The likeliest ids of a row, falling; of equal logits the lowest id first. Unused places hold -1.
struct RowCandidates {
  static constexpr int64_t kCount = 64;
  std::array<float, kCount> logits{};
  std::array<int32_t, kCount> ids{};
};

// The rows of one forward pass: prompt chunks and decodes of any number of sequences, each sequence at most once. The
// sequences' blocks must already hold room for the rows.
struct Batch {
  std::vector<int32_t> ids;  // [rows], each inside the vocabulary
  std::vector<SequenceRows> sequences;
  // Rows whose logits are wanted, rising. Each must be one that the decoder layers run on, i.e. at or behind its
  // sequence's decoder_from().
  std::vector<int32_t> logit_rows;
  // For each of them, whether its candidates suffice and its logits need not be written. Empty: none.
  std::vector<uint8_t> candidates_only = {};

  int64_t rows() const { return static_cast<int64_t>(ids.size()); }
  void clear() {
    ids.clear();
    sequences.clear();
    logit_rows.clear();
    candidates_only.clear();
  }
};

}  // namespace gannet
