#include "ops/linear/sm90_many.cuh"

namespace gannet::ops::cuda::many_rows {

void multiply_bf16(cudaStream_t stream, const Dense& dense, int tokens) {
  multiply_format<WeightFormat::bf16>(stream, dense, tokens);
}

}  // namespace gannet::ops::cuda::many_rows
