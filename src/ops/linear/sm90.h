#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/cuda/packed_matrix.h"

namespace gannet::ops::cuda {

// Puts a weight as the checkpoint stores it (device memory: `codes`, and `scales` for fp8 and mxfp4) into `packed`
// [packed_bytes] (packed_matrix.h). `exponent` is the packed matrix's. f32 is refused.
void pack_matrix(cudaStream_t stream, const WeightMatrix& weight, int32_t exponent, std::byte* packed);
// The same for a gate-up pair: both [width, cols], of one format; width a multiple of 8.
void pack_gate_up(cudaStream_t stream, const WeightMatrix& w1, const WeightMatrix& w3, int32_t exponent,
                  std::byte* packed);
// Random codes and scales 2^(scale_exponent - 1) .. 2^(scale_exponent + 1): the synthetic weights of benchmarks. bf16
// gets values of that size. The same seed gives the same bytes.
void fill_packed(cudaStream_t stream, WeightFormat format, int64_t rows, int64_t cols, uint64_t seed,
                 int scale_exponent, std::byte* packed);

enum class LinearOutput {
  f32,   // float [rows, outputs]
  bf16,  // rounded
  q8,    // the values of Q8, groups of 32 outputs, which are exact in bf16: what a product with Q8 in front takes
};

// y = x W^T with fp32 accumulation (ops/linear/op.h); x holds bf16 values, among them those of Q8. With groups the
// weight's rows are cut into `groups` equal parts and x into as many runs of weight.cols columns: part g takes run g
// (wo_a). A row's result depends neither on the other rows nor on their number, as long as `most` stays the same. The
// weight may be read while the launch in front still runs (ops/cuda/launch.cuh).
struct LinearParams {
  const __nv_bfloat16* x = nullptr;  // [most, groups * weight.cols], row r at x + r * x_stride, aligned to 16 bytes
  int64_t x_stride = 0;              // in elements
  const int32_t* count = nullptr;    // [1]: rows that are real
  int64_t most = 0;                  // together with the weight chooses the kernel
  PackedMatrix weight;
  int64_t groups = 1;  // divides weight.rows into parts that are a multiple of 16 (of 32 for q8)
  LinearOutput output = LinearOutput::f32;
  void* y = nullptr;  // [most, weight.rows], row r at y + r * y_stride
  int64_t y_stride = 0;
};
void linear(cudaStream_t stream, const LinearParams& params);
// The two kernels behind it; which is faster depends on the weight's rows too. Few takes kFewRows rows at a time and
// streams the whole weight for each such block.
inline constexpr int64_t kFewRows = 64;
void linear_few_rows(cudaStream_t stream, const LinearParams& params);
void linear_many_rows(cudaStream_t stream, const LinearParams& params);

}  // namespace gannet::ops::cuda
