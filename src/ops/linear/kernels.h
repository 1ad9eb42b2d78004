#pragma once

#include <algorithm>
#include <cstdint>

#include "base/device.h"
#include "ops/linear/op.h"

// The two halves of a fast linear, shared with `experts`: inputs are prepared once for all weights that they meet, then
// multiplied by ranges of outputs, which threads share out as they like.
namespace gannet::ops {

// Columns of a prepared row: `cols` rounded up to whole chunks; the rest is zero.
inline constexpr int64_t kPreparedChunk = 64;
inline int64_t prepared_cols(int64_t cols) {
  return (cols + kPreparedChunk - 1) / kPreparedChunk * kPreparedChunk;
}

// Outputs [first, first + count) of `weight` for `rows` prepared inputs; y[r * y_stride + i] is output first + i of row
// r, rounded to bf16 if `round` says so.
struct LinearRange {
  WeightMatrix weight;
  int64_t first = 0;
  int64_t count = 0;
  const float* const* x = nullptr;  // [rows] pointers to prepared rows, 64-byte aligned
  int64_t rows = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
  bool round = false;
  uint32_t* workspace = nullptr;  // workspace_words(rows, cols) of them, aligned to 64 bytes
  // Or null: outputs of another weight of the same format and columns for the same inputs, whose `x`, `rows` and
  // `workspace` are ignored. What the units need of the inputs is then done once.
  const LinearRange* also = nullptr;
};

// Rows whose inputs the matrix units take at a time, in groups of which all are full where there are several: at most
// kMatrixRows, and from 64 on no more than leave half of L2 (2 MiB where there are matrix units) to other things.
inline constexpr int64_t kMatrixRows = 128;
inline constexpr int64_t kMatrixGroup = 16;
inline int64_t matrix_rows(int64_t cols) {
  constexpr int64_t kInputBytes = int64_t{1} << 20;  // of bf16
  const int64_t groups = kInputBytes / (2 * kMatrixGroup * (cols > 0 ? cols : 1));
  return kMatrixGroup * std::clamp<int64_t>(groups, 4, kMatrixRows / kMatrixGroup);
}
inline int64_t workspace_words(int64_t rows, int64_t cols) {
  constexpr int64_t kMostCols = 128;  // whose weights share a line of 64 bytes
  const int64_t most = std::min(rows, matrix_rows(cols));
  const int64_t packed = rows <= kMatrixGroup ? rows : (most + kMatrixGroup - 1) / kMatrixGroup * kMatrixGroup;
  return packed * ((cols + kMostCols - 1) / kMostCols * kMostCols) / 2;
}

// Products of decoded rows with each other: y[r * y_stride + n] = x row r . w row n, over `cols` columns (a multiple of
// 32) in the kernels' order. Rows begin at multiples of 64 bytes.
struct DotsRange {
  const float* x = nullptr;
  int64_t x_stride = 0;
  int64_t rows = 0;
  const float* w = nullptr;
  int64_t w_stride = 0;
  int64_t count = 0;
  int64_t cols = 0;
  float* y = nullptr;
  int64_t y_stride = 0;
};

struct LinearKernels {
  // Writes one row in the kernels' order (in every group of 32 columns the even ones, then the odd ones), through Q8 if
  // asked. `prepared` has prepared_cols(cols) floats.
  void (*prepare)(const float* x, int64_t cols, bool quantize, float* prepared);
  void (*multiply)(const LinearRange& range);
  // An element's bits do not depend on the rows around it.
  void (*dots)(const DotsRange& range);
};

extern const LinearKernels kLinearAvx2;
extern const LinearKernels kLinearAvx512;

// The best variant up to `simd`, or null: then only the reference runs. The dot product of AVX512-BF16 is not used: on
// Sapphire Rapids 32 pairs take longer than two FMAs of 16. Processors that have it may have matrix units (AMX); those
// are.
const LinearKernels* linear_kernels(Simd simd);

// Runs kernels.multiply with a workspace of the calling thread.
void multiply(const LinearKernels& kernels, LinearRange range);

// Whether ops may use matrix units, which belong to level avx512_bf16, on this machine.
bool has_matrix_units(Simd simd);

// Of cpu_amx_avx512.cc: kernels.multiply of processors with matrix units, and whether this process may use them.
void multiply_by_matrix_units(const LinearRange& range);
bool matrix_units_granted();

// Bytes of weights and scales that `outputs` outputs read.
int64_t weight_bytes(const WeightMatrix& weight, int64_t outputs);

// Prepares `rows` rows at x + r * x_stride into `prepared` (prepared_cols(cols) floats apart), on all threads if there
// is enough work.
void prepare_rows(const Device& device, const LinearKernels& kernels, const float* x, int64_t x_stride, int64_t rows,
                  int64_t cols, bool quantize, float* prepared);

}  // namespace gannet::ops
