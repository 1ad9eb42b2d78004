#include "ops/hyper_apply/tile.h"

namespace gannet::ops {

const HyperApplyRows kHyperApplyAvx512 = apply;

}  // namespace gannet::ops
