#include "ops/attention_output/op.h"
#include "ops/math.h"

namespace gannet::ops {
namespace {

template <class Linear>
void project(const AttentionOutputParams& p, const Linear& run_linear) {
  const int64_t rank = p.wo_a.rows / p.groups;
  float* low = scratch<struct LowRankTag>(p.rows * p.wo_a.rows);
  for (int64_t g = 0; g < p.groups; ++g) {
    run_linear(LinearParams{.x = p.heads + g * p.wo_a.cols,
                            .x_stride = p.groups * p.wo_a.cols,
                            .rows = p.rows,
                            .weight = p.wo_a,
                            .first_output = g * rank,
                            .outputs = rank,
                            .y = low + g * rank,
                            .y_stride = p.wo_a.rows,
                            .activations = Activations::fp32});
  }
  run_linear(LinearParams{.x = low,
                          .x_stride = p.wo_a.rows,
                          .rows = p.rows,
                          .weight = p.wo_b,
                          .outputs = p.wo_b.rows,
                          .y = p.y,
                          .y_stride = p.wo_b.rows,
                          .quantize_input = p.quantize_input,
                          .activations = p.activations});
}

}  // namespace

void attention_output_reference(const AttentionOutputParams& p) {
  project(p, linear_reference);
}

void attention_output(const Device& device, const AttentionOutputParams& p) {
  project(p, [&](const LinearParams& linear_params) { linear(device, linear_params); });
}

}  // namespace gannet::ops
