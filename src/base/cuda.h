#pragma once

#include <string>

namespace gannet {

// What this program and this machine have of CUDA.
struct CudaSupport {
  bool built_in = false;  // the CUDA code was compiled
  std::string usable;     // the first GPU's name and compute capability; empty when none can be used
  std::string obstacle;   // why none can be used; empty otherwise
};
CudaSupport cuda_support();

}  // namespace gannet
