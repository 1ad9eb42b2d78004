#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/device.h"
#include "ops/linear/op.h"
#include "ops/records.h"

namespace gannet::ops {

// The window record of each row (spec: model 3.5): Q8(RoPE(RMSNorm(kv))), packed as head_dim codes and head_dim / 32
// scales.
struct InsertWindowParams {
  const float* kv = nullptr;           // [rows, head_dim], the output of wkv
  const int32_t* positions = nullptr;  // [rows]
  int64_t rows = 0;
  int64_t head_dim = 0;
  const uint16_t* norm = nullptr;  // bf16 [head_dim]
  float norm_eps = 0;
  const std::vector<float>* frequencies = nullptr;  // of the layer's rotary table; rotates the last 2 * size channels
  std::byte* records = nullptr;                     // [rows, q8_bytes(head_dim)]
};

void insert_window(const Device& device, const InsertWindowParams& params);
void insert_window_reference(const InsertWindowParams& params, int64_t begin, int64_t end);

// Rows of one sequence whose global entries are to be written: consecutive positions from `start`. A pair that `start`
// cuts is completed from `pending`; a trailing half pair is left there.
struct InsertSequence {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t start = 0;         // position of the first row
  float* pending = nullptr;  // f32 [2, head_dim]: (a, g) of the token at an even position; unused at ratio 1
  PagedRecords entries;      // records of q4nv_bytes(head_dim)
  PagedRecords keys;         // records of q4mx_bytes(index_dim)
};

// Global KV entries and index keys of a source layer (spec: model 3.6, 3.7). Ratio 2 pools each token pair per channel
// by the softmax of its two gates; ratio 1 takes every token. The latent is normalised; un-rotated it gives the index
// key (projected, normalised, rotated, Q4mx), rotated it gives the entry (Q4nv). Positions are the group's first
// token's.
struct InsertGlobalParams {
  const float* a = nullptr;     // [rows, head_dim]: the compressor's wkv; fp32 at ratio 2, an activation at ratio 1
  const float* gate = nullptr;  // [rows, head_dim]: the compressor's wgate, fp32; null at ratio 1
  int64_t ratio = 1;            // 1 or 2
  int64_t head_dim = 0;
  int64_t index_dim = 0;
  const InsertSequence* sequences = nullptr;
  int64_t sequence_count = 0;
  const uint16_t* norm = nullptr;        // bf16 [head_dim]
  WeightMatrix index_key;                // [index_dim, head_dim]
  const uint16_t* index_norm = nullptr;  // bf16 [index_dim]
  float norm_eps = 0;
  const std::vector<float>* frequencies = nullptr;  // table C
  Activations activations = Activations::bf16;      // bf16: keys are projected from the rounded latent
};

void insert_global(const Device& device, const InsertGlobalParams& params);
void insert_global_reference(const InsertGlobalParams& params);

}  // namespace gannet::ops
