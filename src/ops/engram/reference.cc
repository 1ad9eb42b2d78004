#include <algorithm>
#include <cmath>

#include "base/quantize.h"
#include "ops/engram/op.h"
#include "ops/math.h"

namespace gannet::ops {
namespace {

void gather(const EngramParams& p, int64_t r, float* e) {
  for (int64_t c = 0; c < p.columns; ++c) {
    const int64_t row = p.table_rows[r * p.columns + c];
    q8_unpack(p.table + row * p.dim, p.table_scale + row * (p.dim / kMxGroup),
              {e + c * p.dim, static_cast<size_t>(p.dim)});
  }
}

void add_gated_value(const EngramParams& p, int64_t r, const float* kv) {
  const float* value = kv + p.streams_per_row * p.hidden;
  for (int64_t j = 0; j < p.streams_per_row; ++j) {
    float* h = p.streams + (r * p.streams_per_row + j) * p.hidden;
    const float* key = kv + j * p.hidden;
    const uint16_t* qw = p.q_weight + j * p.hidden;
    const uint16_t* kw = p.k_weight + j * p.hidden;
    float sum = 0;
    for (int64_t i = 0; i < p.hidden; ++i) sum += h[i] * (bf16_to_float(qw[i]) * bf16_to_float(kw[i])) * key[i];
    const float unit = inverse_rms(h, p.hidden, p.norm_eps) * inverse_rms(key, p.hidden, p.norm_eps);
    const float gate = engram_gate(sum * unit / std::sqrt(static_cast<float>(p.hidden)));
    for (int64_t i = 0; i < p.hidden; ++i) h[i] = rounded(h[i] + gate * value[i], p.activations);
  }
}

template <class Linear, class ForEach>
void apply(const EngramParams& p, const Linear& run_linear, const ForEach& for_each) {
  const int64_t width = p.columns * p.dim;
  const int64_t outputs = (p.streams_per_row + 1) * p.hidden;
  float* e = scratch<struct EngramRowTag>(p.rows * width);
  float* kv = scratch<struct EngramKvTag>(p.rows * outputs);
  for_each(p.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) gather(p, r, e + r * width);
  });
  run_linear(LinearParams{.x = e,
                          .x_stride = width,
                          .rows = p.rows,
                          .weight = p.wkv,
                          .outputs = outputs,
                          .y = kv,
                          .y_stride = outputs,
                          .quantize_input = p.quantize_input,
                          .activations = Activations::fp32});
  for_each(p.rows, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) add_gated_value(p, r, kv + r * outputs);
  });
}

}  // namespace

float engram_gate(float dot) {
  return sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6F)), dot));
}

void engram_reference(const EngramParams& p) {
  apply(p, linear_reference, [](int64_t count, const auto& body) { body(0, count); });
}

void engram(const Device& device, const EngramParams& p) {
  apply(
      p, [&](const LinearParams& linear_params) { linear(device, linear_params); },
      [&](int64_t count, const auto& body) { device.pool->parallel_for(count, 1, body); });
}

}  // namespace gannet::ops
