#include "ops/experts/op.h"

namespace gannet::ops {

void experts(const Device&, const ExpertsParams& params) {
  experts_reference(params);
}

}  // namespace gannet::ops
