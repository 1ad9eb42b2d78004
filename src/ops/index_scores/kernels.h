#pragma once

#include <cstdint>

#include "base/quantize.h"

// Index scores in whole numbers: E2M1 values times two are some, and 32 of their products with one pair of scales add
// up exactly. For processors with the AVX-512 of level avx512_bf16, all of which have the dot products of bytes (VNNI).
namespace gannet::ops {

inline constexpr int64_t kIndexDim = 128;  // channels of the queries and keys that these take
inline constexpr int64_t kIndexGroups = kIndexDim / kMxGroup;

// A query as it meets keys: sixteen lanes, of which four belong to each group of channels.
struct alignas(64) IndexQuery {
  int8_t even[kIndexDim / 2];  // channels, times two
  int8_t odd[kIndexDim / 2];
  int32_t start[4 * kIndexGroups];  // what takes back that keys' values are raised to be unsigned
  float scale[4 * kIndexGroups];    // a quarter of the group's
};

// From the query's Q4mx record.
void index_query_avx512(const uint8_t* record, IndexQuery& query);

// scores[j] = sum_h relu(q_h . k_j) weights[h] for `count` keys' records. A score does not depend on the others.
void index_scores_avx512(const IndexQuery* queries, const float* weights, int64_t heads, const uint8_t* const* keys,
                         int64_t count, float* scores);

}  // namespace gannet::ops
