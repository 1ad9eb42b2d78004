#include "ops/linear/sm90.h"

namespace gannet::ops::cuda {

void linear(cudaStream_t stream, const LinearParams& params) {
  params.most <= kFewRows ? linear_few_rows(stream, params) : linear_many_rows(stream, params);
}

}  // namespace gannet::ops::cuda
