#include <algorithm>
#include <cmath>

#include "base/quantize.h"
#include "ops/attention/op.h"
#include "ops/math.h"
#include "ops/rope/op.h"

namespace gannet::ops {
namespace {

// Decodes all keys that row r sees into `keys` [n, head_dim], window first; returns n.
int64_t gather_keys(const AttentionParams& p, int64_t r, float* keys) {
  const AttentionSequence& sequence = p.sequences[p.sequence_of[r]];
  const auto width = static_cast<size_t>(p.head_dim);
  const int64_t position = p.positions[r];
  int64_t n = 0;
  for (int64_t t = std::max(sequence.window_from, position - p.window + 1); t <= position; ++t) {
    const std::byte* at = t >= sequence.chunk_start ? sequence.chunk + (t - sequence.chunk_start) * q8_bytes(p.head_dim)
                                                    : sequence.ring + (t % p.window) * q8_bytes(p.head_dim);
    const auto* record = reinterpret_cast<const uint8_t*>(at);
    q8_unpack(record, record + p.head_dim, {keys + n++ * p.head_dim, width});
  }
  const int64_t selected = p.selected != nullptr ? p.selected_counts[r] : 0;
  for (int64_t i = 0; i < selected; ++i) {
    const auto* record = reinterpret_cast<const uint8_t*>(sequence.entries.at(p.selected[r * p.selected_stride + i]));
    q4nv_unpack(record, record + p.head_dim / 2, {keys + n++ * p.head_dim, width});
  }
  return n;
}

// out = sum of exp(s - M) key / (sum of exp(s - M) + exp(sink - M)).
void attend(const AttentionParams& p, const float* q, const float* keys, int64_t n, float sink, float* score,
            float* out) {
  const float scale = 1.0F / std::sqrt(static_cast<float>(p.head_dim));
  float top = -1e30F;
  for (int64_t j = 0; j < n; ++j) top = std::max(top, score[j] = dot(q, keys + j * p.head_dim, p.head_dim) * scale);
  std::fill_n(out, p.head_dim, 0.0F);
  float total = 0;
  for (int64_t j = 0; j < n; ++j) {
    const float weight = std::exp(score[j] - top);
    total += weight;
    for (int64_t i = 0; i < p.head_dim; ++i) out[i] += weight * keys[j * p.head_dim + i];
  }
  total += std::exp(sink - top);
  for (int64_t i = 0; i < p.head_dim; ++i) out[i] = n > 0 ? out[i] / total : 0.0F;
}

}  // namespace

void attention_reference(const AttentionParams& p, int64_t begin, int64_t end) {
  const int64_t most = p.window + (p.selected != nullptr ? p.selected_stride : 0);
  float* keys = scratch<struct AttentionKeyTag>(most * p.head_dim);
  float* score = scratch<struct AttentionScoreTag>(most);
  const int64_t rotated = 2 * static_cast<int64_t>(p.frequencies->size());
  RopeAngle angle;
  for (int64_t r = begin; r < end; ++r) {
    const int64_t n = gather_keys(p, r, keys);
    angle.set(p.positions[r], *p.frequencies);
    for (int64_t h = 0; h < p.heads; ++h) {
      float* q = p.q + (r * p.heads + h) * p.head_dim;
      float* out = p.out + (r * p.heads + h) * p.head_dim;
      rope_rotate(q + p.head_dim - rotated, angle, false, Activations::fp32);
      for (int64_t i = 0; i < p.head_dim; ++i) q[i] = rounded(q[i], p.activations);
      attend(p, q, keys, n, p.sink[h], score, out);
      rope_rotate(out + p.head_dim - rotated, angle, true, Activations::fp32);
      for (int64_t i = 0; i < p.head_dim; ++i) out[i] = rounded(out[i], p.activations);
    }
  }
}

}  // namespace gannet::ops
