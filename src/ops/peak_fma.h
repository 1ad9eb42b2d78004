#pragma once

#include <cstdint>

#include "ops/simd.h"

// The loop of the peak_avx*.cc files, each of which compiles it for its instruction set.
namespace gannet::ops {
namespace {

// Two FMAs a cycle of four cycles each need eight sums at least.
double multiply_in_registers(int64_t rounds) {
  constexpr int kSums = 12;
  Lanes::Vector sums[kSums];
  GANNET_UNROLL
  for (int i = 0; i < kSums; ++i) sums[i] = Lanes::all(static_cast<float>(i));
  Lanes::Vector factor = Lanes::all(0.5F);
  for (int64_t round = 0; round < rounds; ++round) {
    GANNET_UNROLL
    for (int i = 0; i < kSums; ++i) {
      sums[i] = Lanes::fma(sums[i], factor, factor);
      __asm__ volatile("" : "+v"(sums[i]));  // else nothing would use them
    }
  }
  return 2.0 * kSums * Lanes::kLanes * static_cast<double>(rounds);
}

}  // namespace
}  // namespace gannet::ops
