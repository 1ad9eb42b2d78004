#include "ops/index_scores/sm90_rows.cuh"

namespace gannet::ops::cuda {

template void launch_index_rows<32>(cudaStream_t stream, const SelectArguments& arguments, int stretches);

}  // namespace gannet::ops::cuda
