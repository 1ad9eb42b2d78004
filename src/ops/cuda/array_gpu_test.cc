#include "ops/cuda/testing.h"

namespace gannet::ops::cuda::test {
namespace {

TEST(CudaArray, GuardSeesWritesBehindTheEnd) {
  const Array<float> array(10);
  EXPECT_TRUE(array.guard_intact());
  GANNET_CUDA_CHECK(cudaMemset(array.get() + 10, 0, 1));
  EXPECT_FALSE(array.guard_intact());
}

}  // namespace
}  // namespace gannet::ops::cuda::test
