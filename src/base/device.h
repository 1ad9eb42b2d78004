#pragma once

#include <string>

#include "base/thread_pool.h"

namespace gannet {

// Instruction sets that the CPU variants of the ops are written for, in order of preference.
enum class Simd { none, avx2, avx512, avx512_bf16 };
const char* name_of(Simd simd);
// The best one that this processor and operating system support.
Simd detect_simd();
// As the machine calls its processor.
std::string processor_name();

// Where tensors live and ops run. Today: the CPU with its thread pool; every op dispatches on it explicitly.
struct Device {
  ThreadPool* pool = nullptr;  // not owned
  Simd simd = Simd::none;      // variants above this one are not used
};

// Whether activations are rounded to bf16 where the model says (spec: model 3), or kept in fp32 for the oracle.
// Activations are stored as float in both modes; the rounding makes the values bf16's.
enum class Activations { bf16, fp32 };

}  // namespace gannet
