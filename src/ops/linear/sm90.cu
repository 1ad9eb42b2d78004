#include "ops/linear/sm90.h"

namespace gannet::ops::cuda {

// Where the measured times of the two kernels cross: a weight of many rows has enough of the big tiles of the one for
// many rows to fill the card, a weight of few has not.
void linear(cudaStream_t stream, const LinearParams& params) {
  const int64_t outputs = params.weight.rows;
  const int64_t few = outputs >= 4096 ? kFewRows / 2 : outputs > 512 ? kFewRows : 1024;
  params.most <= few ? linear_few_rows(stream, params) : linear_many_rows(stream, params);
}

}  // namespace gannet::ops::cuda
