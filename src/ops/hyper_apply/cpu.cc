#include "ops/hyper_apply/kernels.h"
#include "ops/hyper_apply/op.h"

namespace gannet::ops {
namespace {

HyperApplyRows rows_function(Simd simd) {
  switch (simd) {
    case Simd::none:
      return hyper_apply_reference;
    case Simd::avx2:
      return kHyperApplyAvx2;
    case Simd::avx512:
    case Simd::avx512_bf16:
      return kHyperApplyAvx512;
  }
  return hyper_apply_reference;
}

}  // namespace

void hyper_apply(const Device& device, const HyperApplyParams& p) {
  const HyperApplyRows run = rows_function(device.simd);
  // Channels that are worth a thread of their own: some microseconds.
  constexpr int64_t kWorthAThread = 4096;
  const int64_t grain = kWorthAThread / (p.streams_per_row * p.hidden + 1) + 1;
  device.pool->parallel_for(p.rows, grain, [&](int64_t begin, int64_t end) { run(p, begin, end); });
}

}  // namespace gannet::ops
