#pragma once

#include <cstdint>

#include "base/device.h"

// The parts of a fast attention that linear's kernels do not do.
namespace gannet::ops {

// Keys beside each other, decoded in the order of linear's kernels, `stride` floats apart.
struct KeySegment {
  const float* keys = nullptr;
  int64_t count = 0;
};

// The weighted sum of the keys of one row, those of the first segment first.
struct CombineParams {
  const float* weights = nullptr;  // [heads, weight_stride]
  int64_t weight_stride = 0;
  const float* totals = nullptr;  // [heads]
  int64_t heads = 0;
  KeySegment segments[2];  // not both empty
  int64_t key_stride = 0;
  int64_t dim = 0;       // a multiple of 32
  float* out = nullptr;  // [heads, dim], in the keys' order
};

struct AttentionKernels {
  // Turns the n scores of a head into exp(score * scale - M), M the largest (at least -1e30), and returns their sum and
  // the sink's exp(sink - M).
  float (*softmax)(float* scores, int64_t n, float scale, float sink);
  // out[h][c] = (sum over keys in order of weights[h][j] * keys[j][c]) / totals[h].
  void (*combine)(const CombineParams& params);
  // From the order of linear's kernels (in every group of 32 the even ones, then the odd ones) to the usual one, in
  // place; n a multiple of 32.
  void (*restore_order)(float* values, int64_t n);
  void (*round_to_bf16)(float* values, int64_t n);
};

extern const AttentionKernels kAttentionAvx2;
extern const AttentionKernels kAttentionAvx512;

// ---- The matrix units' way (cpu_amx_avx512.cc): keys decoded to bf16, sixteen heads or rows of heads at a time ----

// Keys, or rows of heads, that are taken together. What is not there is zero.
inline constexpr int64_t kKeyBlock = 32;
inline constexpr int64_t kColumnGroup = 16;

inline constexpr int64_t kChannelUnit = 64;
inline int64_t units_of(int64_t dim) {
  return (dim + kChannelUnit - 1) / kChannelUnit;
}

// 16-bit words of the packed queries of a group of columns (a column is one head of one row), of a block's decoded keys
// and of the workspace for it.
inline int64_t packed_query_words(int64_t dim) {
  return kColumnGroup * units_of(dim) * kChannelUnit;
}
inline int64_t key_block_words(int64_t dim) {
  return kKeyBlock * units_of(dim) * kChannelUnit;
}
inline int64_t key_block_workspace_words(int64_t dim) {
  return kKeyBlock * (units_of(dim) + 1) * kChannelUnit;
}

enum class KeyFormat { q8, q4nv };

// Records that are needed soon and come into the cache meanwhile.
struct NextRecords {
  const uint8_t* const* records = nullptr;  // [kKeyBlock], of which some may be null; null: none
  int64_t bytes = 0;                        // of each
};

struct KeyBlockParams {
  const uint8_t* const* records = nullptr;  // [kKeyBlock]; null: no key
  KeyFormat format = KeyFormat::q8;
  NextRecords next;
  int64_t dim = 0;                    // a multiple of 32
  const uint16_t* queries = nullptr;  // [groups, packed_query_words]
  int64_t groups = 0;
  float* const* scores = nullptr;  // [groups * kColumnGroup]: where the block's products with a column go, or null
  uint16_t* values = nullptr;      // [key_block_words], aligned to 64 bytes: the keys for weighted_sum
  uint16_t* workspace = nullptr;   // key_block_workspace_words, aligned to 64 bytes
};

struct WeightedSumParams {
  const float* weights = nullptr;  // [heads, weight_stride]: those of all blocks' keys, aligned to 64 bytes
  int64_t weight_stride = 0;       // a multiple of kKeyBlock
  const float* totals = nullptr;   // [heads]
  int64_t heads = 0;
  const uint16_t* const* blocks = nullptr;  // [count]: the values of key blocks, aligned to 64 bytes
  int64_t count = 0;
  int64_t dim = 0;
  NextRecords next;
  uint16_t* workspace = nullptr;  // weighted_sum_words(heads, count), aligned to 64 bytes
  float* out = nullptr;           // [heads, dim], in the usual order
};

// Heads whose weights, in three parts, fill a tile but for a row.
inline constexpr int64_t kSumHeads = 5;
inline int64_t weighted_sum_words(int64_t heads, int64_t blocks) {
  return ((heads + kSumHeads) * 3 + 1) * blocks * kKeyBlock;
}

struct MatrixAttentionKernels {
  // Before and after a thread's use of the other functions.
  void (*begin)();
  void (*end)();
  // Packs `columns` queries of bf16 values, at `q` one behind the other.
  void (*pack_queries)(const float* q, int64_t columns, int64_t dim, uint16_t* packed);
  // Decodes a block of keys and multiplies it by the queries. Returns which keys the units may not have (NaN, or a
  // scale far from one), a bit each: they are zero in `values`, and their products mean nothing.
  uint32_t (*key_block)(const KeyBlockParams& params);
  // As AttentionKernels::combine. Weights are taken in three parts of 8 bits, which is all of them.
  void (*weighted_sum)(const WeightedSumParams& params);
};

extern const MatrixAttentionKernels kMatrixAttention;

}  // namespace gannet::ops
