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

// ---- Many queries of one sequence, by the matrix units (cpu_amx_avx512.cc) ----

inline constexpr int64_t kIndexTile = 16;  // queries or keys of a tile
inline constexpr int64_t kIndexQueries =
    2 * kIndexTile;  // that meet as many keys at once: a row's heads, or some rows'
inline constexpr int64_t kIndexKeys = 2 * kIndexTile;

// Codes of the scales of some records: the least and the most of all, and the largest distance of two in one record.
struct IndexScales {
  uint8_t least = 255;
  uint8_t most = 0;
  uint8_t spread = 0;
};

// Whether sums of products are exact in fp32 in any order, so that the units' are those of index_scores_avx512 bit for
// bit. A product is a multiple of a quarter of its group's two scales, and 128 of them add up to less than 2^14.2 such
// quarters of the largest scales: 24 bits leave room for scales 2^9 apart. Between the bounds of `least` and `most`
// nothing overflows or is subnormal, which the units would take for zero.
inline bool exact_index_products(const IndexScales& queries, const IndexScales& keys) {
  constexpr uint8_t kLeast = 70;
  constexpr uint8_t kMost = 180;
  constexpr int kSpread = 9;
  return queries.least >= kLeast && keys.least >= kLeast && queries.most <= kMost && keys.most <= kMost &&
         queries.spread + keys.spread <= kSpread;
}

// Sixteen records as bf16: queries as [groups][queries][channels], keys as [groups][pairs of channels][keys][2].
struct alignas(64) IndexTile {
  uint16_t values[kIndexGroups][kIndexTile][kMxGroup];
  IndexScales scales;
};

// Of 32 queries with 32 keys.
struct alignas(64) IndexProducts {
  float values[kIndexQueries][kIndexKeys];
};

// What becomes scores of the products of some rows' queries, [rows, heads].
struct IndexProductRows {
  const float* weights = nullptr;  // [rows, heads]
  int64_t rows = 0;                // at most kIndexQueries / heads
  int64_t heads = 0;               // a divisor of kIndexQueries
  float* scores = nullptr;         // of the first row and key
  int64_t stride = 0;              // from row to row
  int32_t visible[kIndexQueries] =
      {};  // of each row: how many of the keys get a score; may be more than there are, or none
};

struct MatrixIndexKernels {
  // Before and after a thread's use of `multiply`.
  void (*begin)();
  void (*end)();
  // One to sixteen records; the rest of a tile is zero.
  void (*pack_queries)(const uint8_t* const* records, int64_t count, IndexTile& tile);
  void (*pack_keys)(const uint8_t* const* records, int64_t count, IndexTile& tile);
  // Of two tiles each.
  void (*multiply)(const IndexTile* queries, const IndexTile* keys, IndexProducts& products);
  // Scores as those of index_scores_avx512, where exact_index_products says so for all four pairs of tiles.
  void (*add_heads)(const IndexProducts& products, const IndexProductRows& rows);
};

extern const MatrixIndexKernels kMatrixIndex;

}  // namespace gannet::ops
