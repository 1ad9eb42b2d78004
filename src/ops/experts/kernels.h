#pragma once

#include <cstdint>

namespace gannet::ops {

// v[i] = a sigmoid(a) b weight, a = min(gate[i], limit), b = clamp(up[i], -limit, limit), with an exponential to about
// one unit in the last place. An element does not depend on those around it; v may be gate.
void gated_values_avx512(const float* gate, const float* up, float weight, float limit, int64_t n, float* v);

}  // namespace gannet::ops
