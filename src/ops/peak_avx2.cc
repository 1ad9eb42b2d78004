#include "ops/peak.h"
#include "ops/peak_fma.h"

namespace gannet::ops {

double multiply_avx2(int64_t rounds) {
  return multiply_in_registers(rounds);
}

}  // namespace gannet::ops
