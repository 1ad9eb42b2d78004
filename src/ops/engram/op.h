#pragma once

#include <cstdint>

#include "base/device.h"
#include "ops/linear/op.h"

namespace gannet::ops {

// Engram (spec: model 3.10, "Read"): gathers the table rows of each token's n-grams, projects them to one key per
// stream and one value, and adds the gated value to every stream. Tables stay in the mapped file; only the rows named
// are read.
struct EngramParams {
  const int64_t* table_rows = nullptr;  // [rows, columns]
  int64_t rows = 0;
  int64_t columns = 0;                   // (n-gram sizes) * heads
  const uint8_t* table = nullptr;        // E4M3 [table size, dim]
  const uint8_t* table_scale = nullptr;  // E8M0 [table size, dim / 32]
  int64_t dim = 0;
  WeightMatrix wkv;                    // fp8 [(streams + 1) * hidden, columns * dim]
  const uint16_t* q_weight = nullptr;  // bf16 [streams, hidden]
  const uint16_t* k_weight = nullptr;  // bf16 [streams, hidden]
  float norm_eps = 0;
  float* streams = nullptr;  // [rows, streams_per_row, hidden], updated in place
  int64_t streams_per_row = 0;
  int64_t hidden = 0;
  bool quantize_input = false;
  Activations activations = Activations::bf16;
};

void engram(const Device& device, const EngramParams& params);
void engram_reference(const EngramParams& params);

// sigma(sign(dot) sqrt(max(|dot|, 1e-6))).
float engram_gate(float dot);

}  // namespace gannet::ops
