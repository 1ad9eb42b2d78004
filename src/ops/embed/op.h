#pragma once

#include <cstdint>

#include "base/device.h"

namespace gannet::ops {

// Embedding rows copied into all residual streams; `pre` starts as (1, 0, 0, ...) (spec: model 3.2).
struct EmbedParams {
  const int32_t* ids = nullptr;  // [rows], each in [0, vocabulary)
  int64_t rows = 0;
  const uint16_t* weight = nullptr;  // bf16 [vocabulary, hidden]
  int64_t hidden = 0;
  int64_t streams_per_row = 0;
  float* streams = nullptr;  // [rows, streams_per_row, hidden]
  float* pre = nullptr;      // [rows, streams_per_row]
};

void embed(const Device& device, const EmbedParams& params);
void embed_reference(const EmbedParams& params, int64_t begin, int64_t end);

}  // namespace gannet::ops
