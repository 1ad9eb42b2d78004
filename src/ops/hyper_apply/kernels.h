#pragma once

#include <cstdint>

#include "ops/hyper_apply/op.h"

// hyper_apply_reference in vectors, bit for bit: the same sums in the same order, no fused multiply-adds.
namespace gannet::ops {

using HyperApplyRows = void (*)(const HyperApplyParams& params, int64_t begin, int64_t end);

extern const HyperApplyRows kHyperApplyAvx2;
extern const HyperApplyRows kHyperApplyAvx512;

}  // namespace gannet::ops
