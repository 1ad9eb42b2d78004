#pragma once

#include <cstdint>

#include "base/device.h"
#include "ops/linear/op.h"

namespace gannet::ops {

// Grouped low-rank output (spec: model 3.8): group g projects its own heads through rows [g rank, (g + 1) rank) of wo_a
// without input quantisation, then wo_b takes all groups back to the hidden size.
struct AttentionOutputParams {
  const float* heads = nullptr;  // [rows, groups * wo_a.cols]
  int64_t rows = 0;
  int64_t groups = 0;
  WeightMatrix wo_a;                            // [groups * rank, heads per group * head_dim]
  WeightMatrix wo_b;                            // [hidden, groups * rank]
  float* y = nullptr;                           // [rows, hidden]
  bool quantize_input = false;                  // Q8 in front of wo_b
  Activations activations = Activations::bf16;  // bf16: y is rounded
};

void attention_output(const Device& device, const AttentionOutputParams& params);
void attention_output_reference(const AttentionOutputParams& params);

}  // namespace gannet::ops
