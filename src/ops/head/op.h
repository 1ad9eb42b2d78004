#pragma once

#include <cstdint>

#include "base/device.h"
#include "ops/linear/op.h"

namespace gannet::ops {

// Logits (spec: model 3.11): streams collapsed by the last site's `pre`, normalised, times the head in fp32. No cap, no
// bias; the product is not rounded.
struct HeadParams {
  float* streams = nullptr;    // [rows, streams_per_row, hidden]; only read
  const float* pre = nullptr;  // [rows, streams_per_row]
  int64_t rows = 0;
  int64_t streams_per_row = 0;
  int64_t hidden = 0;
  const uint16_t* norm = nullptr;  // bf16 [hidden]
  float norm_eps = 0;
  WeightMatrix weight;      // bf16 [vocabulary, hidden]
  float* logits = nullptr;  // [rows, vocabulary]
  Activations activations = Activations::bf16;
};

void head(const Device& device, const HeadParams& params);
void head_reference(const HeadParams& params);

}  // namespace gannet::ops
