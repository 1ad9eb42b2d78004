#include "ops/experts/sm90.h"

namespace gannet::ops::cuda {

void experts(cudaStream_t stream, const ExpertsParams& params) {
  params.most <= kFewExpertRows ? experts_few_rows(stream, params) : experts_many_rows(stream, params);
}

}  // namespace gannet::ops::cuda
