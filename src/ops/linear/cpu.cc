#include "ops/linear/op.h"

namespace gannet::ops {

void linear(const Device&, const LinearParams& params) {
  linear_reference(params);
}

}  // namespace gannet::ops
