#include "base/cuda.h"

// Stands in for cuda_support.cu in builds without the CUDA toolkit.
namespace gannet {

CudaSupport cuda_support() {
  return {.built_in = false, .usable = "", .obstacle = "this build has no CUDA code"};
}

}  // namespace gannet
