#include "ops/head/op.h"
#include "ops/hyper_apply/op.h"
#include "ops/math.h"

namespace gannet::ops {
namespace {

HyperApplyParams collapse(const HeadParams& p, float* x, float* operand) {
  return {.streams = p.streams,
          .rows = p.rows,
          .streams_per_row = p.streams_per_row,
          .hidden = p.hidden,
          .pre = p.pre,
          .norm = p.norm,
          .norm_eps = p.norm_eps,
          .x = x,
          .operand = operand,
          .activations = p.activations};
}

LinearParams project(const HeadParams& p, const float* x) {
  return {.x = x,
          .x_stride = p.hidden,
          .rows = p.rows,
          .weight = p.weight,
          .outputs = p.weight.rows,
          .y = p.logits,
          .y_stride = p.weight.rows,
          .activations = Activations::fp32};
}

}  // namespace

void head_reference(const HeadParams& p) {
  float* x = scratch<struct HeadTag>(p.rows * p.hidden);
  float* operand = scratch<struct HeadOperandTag>(p.rows * p.hidden);
  hyper_apply_reference(collapse(p, x, operand), 0, p.rows);
  linear_reference(project(p, operand));
}

void head(const Device& device, const HeadParams& p) {
  float* x = scratch<struct HeadTag>(p.rows * p.hidden);
  float* operand = scratch<struct HeadOperandTag>(p.rows * p.hidden);
  hyper_apply(device, collapse(p, x, operand));
  linear(device, project(p, operand));
}

}  // namespace gannet::ops
