#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/device.h"
#include "ops/records.h"

namespace gannet::ops {

// Where the keys of one sequence's rows lie. Window keys of this pass's own rows are in `chunk`, older ones in `ring`
// (slot = position mod window).
struct AttentionSequence {
  const std::byte* ring = nullptr;   // [window] records of q8_bytes(head_dim)
  const std::byte* chunk = nullptr;  // records of this sequence's rows in this pass, from position chunk_start on
  int64_t chunk_start = 0;
  int64_t window_from = 0;  // first position that any row may see (bounded replay truncates there)
  PagedRecords entries;     // global KV, records of q4nv_bytes(head_dim)
};

// Attention of one layer (spec: model 3.8): rotates the queries, attends to the window positions
// max(window_from, p - window + 1) .. p and to the selected entries in one softmax whose denominator also holds the
// head's sink, and rotates the result back. Key and value are the same vector, shared by all heads; a token in both
// sets counts twice. A row without any key gives 0.
struct AttentionParams {
  float* q = nullptr;                    // [rows, heads, head_dim], the output of wq_b; overwritten
  const int32_t* positions = nullptr;    // [rows]
  const int32_t* sequence_of = nullptr;  // [rows]: index into sequences
  int64_t rows = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;
  const AttentionSequence* sequences = nullptr;
  const int32_t* selected = nullptr;         // [rows, selected_stride]: entry numbers; null in layers without entries
  const int32_t* selected_counts = nullptr;  // [rows]
  int64_t selected_stride = 0;
  const float* sink = nullptr;                      // f32 [heads]
  const std::vector<float>* frequencies = nullptr;  // the layer's table; rotates the last 2 * size channels of a head
  float* out = nullptr;                             // [rows, heads, head_dim]
  Activations activations = Activations::bf16;      // bf16: rotated queries and `out` are rounded
};

void attention(const Device& device, const AttentionParams& params);
void attention_reference(const AttentionParams& params, int64_t begin, int64_t end);

}  // namespace gannet::ops
