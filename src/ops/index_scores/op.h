#pragma once

#include <cstdint>
#include <vector>

#include "base/device.h"
#include "ops/records.h"

namespace gannet::ops {

// Scores of index keys for each query row (spec: model 3.7): S[j] = sum_h relu(q_h . k_j) w_h, fp32. The query is
// rotated and rounded to Q4mx here. Row r scores entries 0 .. visible[r] - 1, or, when `entries` is given, the entries
// listed there (a Reindex layer's candidates), whose number is visible[r].
struct IndexScoresParams {
  float* q = nullptr;                  // [rows, heads, dim], the output of the indexer's wq_b; overwritten
  const float* weights = nullptr;      // [rows, heads], already times dim^-1/2 heads^-1/2
  const int32_t* positions = nullptr;  // [rows]
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t dim = 0;
  const std::vector<float>* frequencies = nullptr;  // table C; rotates the last 2 * size channels of a head
  const PagedRecords* keys = nullptr;               // [rows]: each row's sequence, records of q4mx_bytes(dim)
  const int32_t* visible = nullptr;                 // [rows]
  const int32_t* entries = nullptr;                 // [rows, stride] or null
  float* scores = nullptr;                          // [rows, stride]; written up to visible[r]
  int64_t stride = 0;
};

void index_scores(const Device& device, const IndexScoresParams& params);
void index_scores_reference(const IndexScoresParams& params, int64_t begin, int64_t end);

// What comes before the dot products: rotates row r's queries and rounds them to Q4mx, in place.
void index_rotate_and_round(const IndexScoresParams& params, int64_t r);

}  // namespace gannet::ops
