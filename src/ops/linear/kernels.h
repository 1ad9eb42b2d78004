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
  // Or null: outputs of another weight of the same format and columns for the same inputs, whose `x` and `rows` are
  // ignored. What the units need of the inputs is then done once.
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
inline int64_t packed_words(int64_t rows, int64_t cols) {
  constexpr int64_t kMostCols = 128;  // whose weights share a line of 64 bytes
  const int64_t most = std::min(rows, matrix_rows(cols));
  const int64_t packed = rows <= kMatrixGroup ? rows : (most + kMatrixGroup - 1) / kMatrixGroup * kMatrixGroup;
  return packed * ((cols + kMostCols - 1) / kMostCols * kMostCols) / 2;
}

// Inputs of some rows as the matrix units take them: packed once, in parts by any threads, and read by all threads that
// multiply them.
struct PackedRows {
  WeightFormat format = WeightFormat::bf16;  // of the weights, which decides the order of columns; not f32
  int64_t cols = 0;                          // a multiple of 32
  int64_t rows = 0;                          // at most matrix_rows(cols)
  const float* const* prepared = nullptr;    // [rows] pointers to prepared rows, or null: then rows as they are,
  const float* x = nullptr;                  // row r at x + r * x_stride,
  int64_t x_stride = 0;
  bool quantize = false;                 // which go through Q8 first
  uint32_t* words = nullptr;             // packed_words(rows, cols), aligned to 64 bytes
  uint64_t good[kMatrixRows / 64] = {};  // bit r % 64 of r / 64: the units may have row r

  bool is_good(int64_t row) const { return (good[row / 64] >> row % 64 & 1) != 0; }
};

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

// Whether ops may use matrix units, which belong to level avx512_bf16, on this machine.
bool has_matrix_units(Simd simd);

// Memory of the calling thread for rows that are prepared because the units may not have them.
float* space_for_prepared(int64_t floats);
const float** space_for_prepared_rows(int64_t rows);

// ---- of cpu_amx_avx512.cc ----

// Packing has a number of parts, of which each returns whether the units may have all of its values; what they returned
// decides which rows are good.
int64_t packing_parts(const PackedRows& rows);
bool pack_part(const PackedRows& rows, int64_t part);
void find_good_rows(PackedRows& rows, const uint8_t* good_parts);
// Of the range, `x`, `rows` and `also` are ignored. Values that the units may not have go through vectors.
void multiply_packed(const LinearRange& range, const PackedRows& rows);
// Whether this process may use matrix units.
bool matrix_units_granted();

// Bytes of weights and scales that `outputs` outputs read.
int64_t weight_bytes(const WeightMatrix& weight, int64_t outputs);

// Prepares `rows` rows at x + r * x_stride into `prepared` (prepared_cols(cols) floats apart), on all threads if there
// is enough work.
void prepare_rows(const Device& device, const LinearKernels& kernels, const float* x, int64_t x_stride, int64_t rows,
                  int64_t cols, bool quantize, float* prepared);

}  // namespace gannet::ops
