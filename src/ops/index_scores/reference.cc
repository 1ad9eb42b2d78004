#include <algorithm>

#include "base/quantize.h"
#include "ops/index_scores/op.h"
#include "ops/math.h"
#include "ops/rope/op.h"

namespace gannet::ops {

void index_rotate_and_round(const IndexScoresParams& p, int64_t r) {
  RopeAngle angle;
  angle.set(p.positions[r], *p.frequencies);
  const int64_t rotated = 2 * static_cast<int64_t>(p.frequencies->size());
  for (int64_t h = 0; h < p.heads; ++h) {
    float* q = p.q + (r * p.heads + h) * p.dim;
    rope_rotate(q + p.dim - rotated, angle, false, Activations::fp32);
    q4mx_round({q, static_cast<size_t>(p.dim)});
  }
}

void index_scores_reference(const IndexScoresParams& p, int64_t begin, int64_t end) {
  float* key = scratch<struct ScoreKeyTag>(p.dim);
  for (int64_t r = begin; r < end; ++r) {
    index_rotate_and_round(p, r);
    for (int64_t j = 0; j < p.visible[r]; ++j) {
      const int64_t entry = p.entries != nullptr ? p.entries[r * p.stride + j] : j;
      const auto* record = reinterpret_cast<const uint8_t*>(p.keys[r].at(entry));
      q4mx_unpack(record, record + p.dim / 2, {key, static_cast<size_t>(p.dim)});
      float score = 0;
      for (int64_t h = 0; h < p.heads; ++h) {
        const float product = dot(p.q + (r * p.heads + h) * p.dim, key, p.dim);
        score += std::max(product, 0.0F) * p.weights[r * p.heads + h];
      }
      p.scores[r * p.stride + j] = score;
    }
  }
}

}  // namespace gannet::ops
