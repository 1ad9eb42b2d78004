#pragma once

#include <cstdint>

#include "base/device.h"

namespace gannet::ops {

// The entries that later Reindex layers may choose from (spec: model 3.7, "Candidate set"): entries are grouped in
// blocks, a block scores its largest visible entry, the block of the newest visible entry always counts as best, and
// the `max_blocks` best blocks are kept; of equal ones the lowest positions.
struct IndexCandidatesParams {
  const float* scores = nullptr;  // [rows, score_stride]
  int64_t score_stride = 0;
  const int32_t* visible = nullptr;  // [rows]: entries 0 .. visible - 1 have scores
  int64_t rows = 0;
  int64_t block_size = 0;
  int64_t max_blocks = 0;
  int32_t* entries = nullptr;  // [rows, entry_stride]: candidate entries in rising order
  int64_t entry_stride = 0;    // at least max_blocks * block_size
  int32_t* counts = nullptr;   // [rows]
};

void index_candidates(const Device& device, const IndexCandidatesParams& params);
void index_candidates_reference(const IndexCandidatesParams& params, int64_t begin, int64_t end);

}  // namespace gannet::ops
