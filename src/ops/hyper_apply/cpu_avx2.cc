#include "ops/hyper_apply/tile.h"

namespace gannet::ops {

const HyperApplyRows kHyperApplyAvx2 = apply;

}  // namespace gannet::ops
