#pragma once

#include <cstdint>

namespace gannet::ops {

// The rounds of Sinkhorn of hyper_coefficients for `rows` softmaxed matrices of four streams, [rows, 4, 4], in place
// and bit for bit: divisions of columns, then `iterations` - 1 times those of rows and of columns.
void sinkhorn_avx512(float* mix, int64_t rows, int64_t iterations, float eps);

}  // namespace gannet::ops
