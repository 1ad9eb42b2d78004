#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace gannet::ops::cuda {

inline constexpr int64_t kCandidates = 64;

// What a sampler on the host needs of most rows: the likeliest ids, and the mass of all, so that it knows whether those
// suffice. Logits count as engine/sampler.cc takes them: NaN as -infinity, +infinity as the largest float.
struct CandidatesParams {
  const float* logits = nullptr;   // [most, vocabulary]
  const int32_t* count = nullptr;  // [1]
  int64_t most = 0;
  int64_t vocabulary = 0;                      // a multiple of 4, at most 131072
  const float* inverse_temperature = nullptr;  // [most] or null: all 1
  float* values = nullptr;                     // [most, kCandidates], falling; -infinity behind the vocabulary's end
  int32_t* ids = nullptr;    // [most, kCandidates]; of equal logits the lowest id first; -1 behind the end
  float* log_sum = nullptr;  // [most]: log of the sum of exp(logit) over the vocabulary
  float* mass = nullptr;     // [most]: sum of exp((logit - largest) * inverse_temperature)
};
void candidates(cudaStream_t stream, const CandidatesParams& params);

}  // namespace gannet::ops::cuda
