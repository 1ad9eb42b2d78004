#include "ops/linear/sm90.h"

namespace gannet::ops::cuda {

void linear(cudaStream_t stream, const LinearParams& params) {
  linear_few_rows(stream, params);
}

}  // namespace gannet::ops::cuda
