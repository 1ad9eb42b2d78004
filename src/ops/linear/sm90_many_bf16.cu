#include "ops/linear/sm90_many.cuh"

namespace gannet::ops::cuda::many_rows {

void multiply_bf16(cudaStream_t stream, const Dense& dense, int tokens) {
  constexpr auto kFormat = WeightFormat::bf16;
  switch (dense.output) {
    case Output::f32:
      return multiply_blocks<kFormat, Output::f32>(stream, dense, tokens);
    case Output::bf16:
      return multiply_blocks<kFormat, Output::bf16>(stream, dense, tokens);
    case Output::q8:
      return multiply_blocks<kFormat, Output::q8>(stream, dense, tokens);
    case Output::swiglu:
      break;
  }
}

}  // namespace gannet::ops::cuda::many_rows
