#include "ops/peak.h"

#include "ops/bench.h"
#include "ops/linear/kernels.h"

namespace gannet::ops {
namespace {

using Multiply = double (*)(int64_t rounds);

// Of the best call: the limit is what the machine can do, not what it does beside other programs.
double operations_a_second(const Device& device, Multiply multiply) {
  constexpr int64_t kRounds = 20'000;  // some 100 us
  const double operations = multiply(1) * static_cast<double>(kRounds * device.pool->size());
  const Benchmark multiplying{
      .run = [multiply](const Device& all) { all.pool->run([multiply](int) { multiply(kRounds); }); }};
  return operations / time_benchmark(multiplying, device).best;
}

}  // namespace

PeakOperations peak_operations(const Device& device) {
  PeakOperations peak;
  if (device.simd >= Simd::avx2) {
    peak.vectors = operations_a_second(device, device.simd == Simd::avx2 ? multiply_avx2 : multiply_avx512);
  }
  if (has_matrix_units(device.simd)) peak.matrix_units = operations_a_second(device, multiply_matrix_units);
  return peak;
}

}  // namespace gannet::ops
