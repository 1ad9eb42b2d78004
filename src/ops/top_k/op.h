#pragma once

#include <cstdint>

#include "base/device.h"

namespace gannet::ops {

// The k largest scores of each row, as entry numbers in rising order; of equal scores the lowest positions win (spec:
// model 3.7 leaves it open, the oracle decides so). NaN and -infinity are never chosen.
struct TopKParams {
  const float* scores = nullptr;  // [rows, stride]
  int64_t stride = 0;
  const int32_t* counts = nullptr;   // [rows]: scores 0 .. count - 1 are there
  const int32_t* entries = nullptr;  // [rows, stride]: entry number of each score, rising; null: its own index
  int64_t rows = 0;
  int64_t k = 0;
  int32_t* selected = nullptr;         // [rows, selected_stride]
  int64_t selected_stride = 0;         // at least k
  int32_t* selected_counts = nullptr;  // [rows]
};

void top_k(const Device& device, const TopKParams& params);
void top_k_reference(const TopKParams& params, int64_t begin, int64_t end);

// One row: writes the indices of the chosen scores in rising order to `chosen` [k], returns their number.
int64_t top_k_row(const float* scores, int64_t count, int64_t k, int32_t* chosen);

}  // namespace gannet::ops
