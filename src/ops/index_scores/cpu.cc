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

class IndexScores {
 public:
  IndexScores(const Device& device, const IndexScoresParams& params)
      : device_(device),
        p_(params),
        linear_(*linear_kernels(device.simd)),
        decode_(record_decoders(device.simd)),
        in_whole_numbers_(device.simd == Simd::avx512_bf16 && params.dim == kIndexDim),
        width_(prepared_cols(params.dim)),
        key_stride_(params.dim + 16) {}

  void run() {
    prepare_queries();
    int64_t most = 0;
    for (int64_t r = 0; r < p_.rows; ++r) most = std::max<int64_t>(most, p_.visible[r]);
    const int64_t blocks = (most + kKeys - 1) / kKeys;
    const int64_t grain = std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(1, kKeys * p_.heads * p_.dim));
    device_.pool->parallel_for(p_.rows * blocks, grain, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; ++item) {
        const int64_t r = item / blocks;
        const int64_t first = item % blocks * kKeys;
        const int64_t count = std::min<int64_t>(kKeys, p_.visible[r] - first);
        if (count > 0) score_keys(r, first, count);
      }
    });
  }

 private:
  // Multiply-adds that are worth a thread of their own: some ten microseconds.
  static constexpr int64_t kWorthAThread = 512 * 1024;

  // Rotates and rounds all queries, then puts them into the order of the kernels.
  void prepare_queries() {
    const int64_t all = p_.rows * p_.heads;
    if (in_whole_numbers_) {
      whole_ = reinterpret_cast<IndexQuery*>(
          scratch<struct IndexWholeQueriesTag, uint8_t>(all * static_cast<int64_t>(sizeof(IndexQuery))));
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
            uint8_t record[q4mx_bytes(kIndexDim)];
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

  const Device& device_;
  const IndexScoresParams& p_;
  const LinearKernels& linear_;
  const RecordDecoders& decode_;
  const bool in_whole_numbers_;
  const int64_t width_;          // of a prepared query
  const int64_t key_stride_;     // of decoded keys: not a power of two, see attention/cpu.cc
  float* queries_ = nullptr;     // [rows, heads, width_], prepared, or
  IndexQuery* whole_ = nullptr;  // [rows, heads]
};

}  // namespace

void index_scores(const Device& device, const IndexScoresParams& p) {
  if (device.simd == Simd::none) {
    return device.pool->parallel_for(p.rows, 1, [&](int64_t b, int64_t e) { index_scores_reference(p, b, e); });
  }
  IndexScores(device, p).run();
}

}  // namespace gannet::ops
