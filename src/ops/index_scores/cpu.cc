#include <algorithm>

#include "base/quantize.h"
#include "ops/index_scores/kernels.h"
#include "ops/index_scores/op.h"
#include "ops/linear/kernels.h"
#include "ops/math.h"
#include "ops/record_decode/op.h"
#include "ops/record_encode/op.h"
#include "ops/rope/op.h"

namespace gannet::ops {
namespace {

// Keys decoded at a time: they and their products with all heads stay in L2.
constexpr int64_t kKeys = 64;

int64_t most_visible(const IndexScoresParams& p, int64_t begin, int64_t end) {
  return begin < end ? *std::max_element(p.visible + begin, p.visible + end) : 0;
}

// Each row by itself, whatever its sequence, and all queries.
class IndexRows {
 public:
  IndexRows(const Device& device, const IndexScoresParams& params)
      : device_(device),
        p_(params),
        linear_(*linear_kernels(device.simd)),
        decode_(record_decoders(device.simd)),
        in_whole_numbers_(device.simd == Simd::avx512_bf16 && params.dim == kIndexDim),
        width_(prepared_cols(params.dim)),
        key_stride_(params.dim + 16) {
    prepare_queries();
  }

  void score_rows(int64_t first_row, int64_t end_row) const {
    const int64_t blocks = (most_visible(p_, first_row, end_row) + kKeys - 1) / kKeys;
    const int64_t grain = std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(1, kKeys * p_.heads * p_.dim));
    device_.pool->parallel_for((end_row - first_row) * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t r = first_row + item / blocks;
        const int64_t first = item % blocks * kKeys;
        const int64_t count = std::min<int64_t>(kKeys, p_.visible[r] - first);
        if (count > 0) score_keys(r, first, count);
      }
    });
  }

  // Of row r the scores of `count` entries from `first` on, at most kKeys.
  void score_keys(int64_t r, int64_t first, int64_t count) const {
    const uint8_t* records[kKeys];
    for (int64_t j = 0; j < count; ++j) {
      const int64_t entry = p_.entries != nullptr ? p_.entries[r * p_.stride + first + j] : first + j;
      records[j] = reinterpret_cast<const uint8_t*>(p_.keys[r].at(entry));
      // Records come from memory, and each is short: the first ones of a block are waited for, the others come
      // meanwhile.
      __builtin_prefetch(records[j]);
      __builtin_prefetch(records[j] + q4mx_bytes(p_.dim) - 1);
    }
    float* scores = p_.scores + r * p_.stride + first;
    if (in_whole_numbers_) {
      return index_scores_avx512(whole_ + r * p_.heads, p_.weights + r * p_.heads, p_.heads, records, count, scores);
    }
    float* keys = scratch<struct IndexKeysTag>(kKeys * key_stride_);
    for (int64_t j = 0; j < count; ++j) decode_.q4mx(records[j], p_.dim, keys + j * key_stride_);
    float* products = scratch<struct IndexProductsTag>(p_.heads * kKeys);
    linear_.dots({.x = queries_ + r * p_.heads * width_,
                  .x_stride = width_,
                  .rows = p_.heads,
                  .w = keys,
                  .w_stride = key_stride_,
                  .count = count,
                  .cols = p_.dim,
                  .y = products,
                  .y_stride = kKeys});
    std::fill_n(scores, count, 0.0F);
    for (int64_t h = 0; h < p_.heads; ++h) {
      const float weight = p_.weights[r * p_.heads + h];
      for (int64_t j = 0; j < count; ++j) scores[j] += std::max(products[h * kKeys + j], 0.0F) * weight;
    }
  }

  // The Q4mx record of query r * heads + h; where they are taken in whole numbers.
  const uint8_t* query_record(int64_t query) const { return query_records_ + query * q4mx_bytes(kIndexDim); }
  bool in_whole_numbers() const { return in_whole_numbers_; }

 private:
  // Multiply-adds that are worth a thread of their own: some ten microseconds.
  static constexpr int64_t kWorthAThread = 512 * 1024;

  // Rotates and rounds all queries, then puts them into the order of the kernels.
  void prepare_queries() {
    const int64_t all = p_.rows * p_.heads;
    if (in_whole_numbers_) {
      whole_ = reinterpret_cast<IndexQuery*>(
          scratch<struct IndexWholeQueriesTag, uint8_t>(all * static_cast<int64_t>(sizeof(IndexQuery))));
      query_records_ = scratch<struct IndexQueryRecordsTag, uint8_t>(all * q4mx_bytes(kIndexDim));
    } else {
      queries_ = scratch<struct IndexQueriesTag>(all * width_);
    }
    const RecordEncoders& encode = record_encoders(device_.simd);
    const int64_t rotated = 2 * static_cast<int64_t>(p_.frequencies->size());
    device_.pool->parallel_for(p_.rows, 1, [&](int64_t begin, int64_t end) {
      thread_local RopeAngle angle;
      for (int64_t r = begin; r < end; ++r) {
        angle.set(p_.positions[r], *p_.frequencies);
        for (int64_t h = 0; h < p_.heads; ++h) {
          float* q = p_.q + (r * p_.heads + h) * p_.dim;
          rope_rotate(q + p_.dim - rotated, angle, false, Activations::fp32);
          if (in_whole_numbers_) {
            uint8_t* record = query_records_ + (r * p_.heads + h) * q4mx_bytes(kIndexDim);
            encode.q4mx(q, kIndexDim, record);
            index_query_avx512(record, whole_[r * p_.heads + h]);
          } else {
            encode.q4mx_round(q, p_.dim);
          }
        }
      }
    });
    if (in_whole_numbers_) return;
    prepare_rows(device_, linear_, p_.q, p_.dim, all, p_.dim, false, queries_);
  }

  const Device& device_;
  const IndexScoresParams& p_;
  const LinearKernels& linear_;
  const RecordDecoders& decode_;
  const bool in_whole_numbers_;
  const int64_t width_;          // of a prepared query
  const int64_t key_stride_;     // of decoded keys: not a power of two, see attention/cpu.cc
  float* queries_ = nullptr;     // [rows, heads, width_], prepared, or
  IndexQuery* whole_ = nullptr;  // [rows, heads], of
  uint8_t* query_records_ = nullptr;
};

// Rows of one sequence by the matrix units: packed keys meet the queries of all rows.
class IndexTiles {
 public:
  IndexTiles(const Device& device, const IndexScoresParams& params, const IndexRows& rows)
      : device_(device), p_(params), rows_(rows) {}

  bool usable() const {
    return rows_.in_whole_numbers() && has_matrix_units(device_.simd) && p_.entries == nullptr && p_.heads > 0 &&
           kIndexQueries % p_.heads == 0;
  }

  // Whether so many rows are worth packing keys for.
  bool worth(int64_t rows) const { return rows * p_.heads >= 2 * kIndexQueries; }

  void score(int64_t first_row, int64_t end_row) const {
    const int64_t unit_rows = kIndexQueries / p_.heads;
    const int64_t units = (end_row - first_row + unit_rows - 1) / unit_rows;
    auto* queries = reinterpret_cast<IndexTile*>(
        scratch<struct IndexQueryTilesTag, uint8_t>(2 * units * static_cast<int64_t>(sizeof(IndexTile))));
    device_.pool->parallel_for(2 * units, 4, [&](int64_t begin, int64_t end) {
      for (int64_t tile = begin; tile < end; ++tile) pack_queries(first_row, end_row, tile, queries[tile]);
    });
    const int64_t blocks = (most_visible(p_, first_row, end_row) + kIndexKeys - 1) / kIndexKeys;
    const int64_t work = kIndexKeys * (end_row - first_row) * p_.heads * p_.dim;
    const int64_t grain = std::max<int64_t>(1, kWorthAThread / work);
    device_.pool->parallel_for(blocks, grain, [&](int64_t begin, int64_t end) {
      kMatrixIndex.begin();
      for (int64_t block = begin; block < end; ++block) {
        score_block(first_row, end_row, block * kIndexKeys, queries);
      }
      kMatrixIndex.end();
    });
  }

 private:
  // Multiply-adds that are worth a thread of their own.
  static constexpr int64_t kWorthAThread = 4 * 1024 * 1024;

  // The 16 queries of a tile, of all heads of a row or of some rows.
  void pack_queries(int64_t first_row, int64_t end_row, int64_t tile, IndexTile& to) const {
    const int64_t first = first_row * p_.heads + tile * kIndexTile;
    const int64_t count = std::min(kIndexTile, end_row * p_.heads - first);
    const uint8_t* records[kIndexTile];
    for (int64_t i = 0; i < count; ++i) records[i] = rows_.query_record(first + i);
    if (count > 0) {
      kMatrixIndex.pack_queries(records, count, to);
    } else {
      to = {};
    }
  }

  void score_block(int64_t first_row, int64_t end_row, int64_t first_key, const IndexTile* queries) const {
    const int64_t keys = std::min(kIndexKeys, most_visible(p_, first_row, end_row) - first_key);
    const uint8_t* records[kIndexKeys];
    for (int64_t j = 0; j < keys; ++j) {
      records[j] = reinterpret_cast<const uint8_t*>(p_.keys[first_row].at(first_key + j));
    }
    IndexTile tiles[2];
    kMatrixIndex.pack_keys(records, std::min(keys, kIndexTile), tiles[0]);
    if (keys > kIndexTile) {
      kMatrixIndex.pack_keys(records + kIndexTile, keys - kIndexTile, tiles[1]);
    } else {
      tiles[1] = tiles[0];
    }
    const int64_t unit_rows = kIndexQueries / p_.heads;
    IndexProducts products;
    IndexProductRows unit;
    for (int64_t r = first_row; r < end_row; r += unit_rows, queries += 2) {
      if (!describe(unit, r, std::min(unit_rows, end_row - r), first_key)) continue;
      if (exact(queries, tiles)) {
        kMatrixIndex.multiply(queries, tiles, products);
        kMatrixIndex.add_heads(products, unit);
        continue;
      }
      for (int64_t i = 0; i < unit.rows; ++i) {
        const int64_t count = std::min<int64_t>(kIndexKeys, unit.visible[i]);
        if (count > 0) rows_.score_keys(r + i, first_key, count);
      }
    }
  }

  // False if no row sees a key from `first_key` on.
  bool describe(IndexProductRows& unit, int64_t row, int64_t rows, int64_t first_key) const {
    unit.weights = p_.weights + row * p_.heads;
    unit.rows = rows;
    unit.heads = p_.heads;
    unit.scores = p_.scores + row * p_.stride + first_key;
    unit.stride = p_.stride;
    bool some = false;
    for (int64_t i = 0; i < rows; ++i) {
      unit.visible[i] = p_.visible[row + i] - static_cast<int32_t>(first_key);
      some = some || unit.visible[i] > 0;
    }
    return some;
  }

  static bool exact(const IndexTile* queries, const IndexTile* keys) {
    return exact_index_products(queries[0].scales, keys[0].scales) &&
           exact_index_products(queries[0].scales, keys[1].scales) &&
           exact_index_products(queries[1].scales, keys[0].scales) &&
           exact_index_products(queries[1].scales, keys[1].scales);
  }

  const Device& device_;
  const IndexScoresParams& p_;
  const IndexRows& rows_;
};

int64_t end_of_sequence(const IndexScoresParams& p, int64_t begin) {
  const PagedRecords& keys = p.keys[begin];
  int64_t end = begin + 1;
  while (end < p.rows && p.keys[end].block_table == keys.block_table && p.keys[end].base == keys.base) ++end;
  return end;
}

}  // namespace

void index_scores(const Device& device, const IndexScoresParams& p) {
  if (device.simd == Simd::none) {
    return device.pool->parallel_for(p.rows, 1, [&](int64_t b, int64_t e) { index_scores_reference(p, b, e); });
  }
  const IndexRows rows(device, p);
  const IndexTiles tiles(device, p, rows);
  int64_t done = 0;
  for (int64_t begin = 0; tiles.usable() && begin < p.rows;) {
    const int64_t end = end_of_sequence(p, begin);
    if (tiles.worth(end - begin)) {
      rows.score_rows(done, begin);
      tiles.score(begin, end);
      done = end;
    }
    begin = end;
  }
  rows.score_rows(done, p.rows);
}

}  // namespace gannet::ops
