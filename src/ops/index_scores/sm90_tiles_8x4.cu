#include "ops/index_scores/sm90_tiles.cuh"

namespace gannet::ops::cuda {

template void launch_index_tiles<8, 4>(cudaStream_t stream, const SelectArguments& arguments, int stretches);

}  // namespace gannet::ops::cuda
