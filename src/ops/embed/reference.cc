#include "base/number_formats.h"
#include "ops/embed/op.h"

namespace gannet::ops {

void embed_reference(const EmbedParams& p, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const uint16_t* row = p.weight + p.ids[r] * p.hidden;
    for (int64_t j = 0; j < p.streams_per_row; ++j) {
      float* stream = p.streams + (r * p.streams_per_row + j) * p.hidden;
      for (int64_t i = 0; i < p.hidden; ++i) stream[i] = bf16_to_float(row[i]);
      p.pre[r * p.streams_per_row + j] = j == 0 ? 1.0F : 0.0F;
    }
  }
}

void embed(const Device& device, const EmbedParams& p) {
  device.pool->parallel_for(p.rows, 1, [&](int64_t begin, int64_t end) { embed_reference(p, begin, end); });
}

}  // namespace gannet::ops
