#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "ops/linear/kernels.h"
#include "ops/linear/weights_amx.h"
#include "ops/matrix_units.h"

// What the matrix units get of the inputs. Only files named *amx_avx512.cc may include this; as in ops/simd.h,
// everything has internal linkage.

namespace gannet::ops {
namespace {

constexpr uint16_t kLeastInput = (127 - 40) << 7;  // bits of the bf16 2^-40
constexpr uint16_t kMostInput = (127 + 60) << 7;

// What some inputs have been like so far.
struct InputCheck {
  __m512i lost = _mm512_setzero_si512();  // bits, of which the lower halves are what bf16 does not hold
  __m512i most = _mm512_setzero_si512();  // of the sizes of bf16 values
  __m512i least = _mm512_set1_epi16(-1);

  void see(__m512i first, __m512i second, __m512i pairs) {
    const __m512i size = _mm512_and_si512(pairs, _mm512_set1_epi16(0x7fff));
    lost = _mm512_or_si512(lost, _mm512_or_si512(first, second));
    most = _mm512_max_epu16(most, size);
    least = _mm512_min_epu16(least, _mm512_sub_epi16(size, _mm512_set1_epi16(1)));  // zero becomes the largest
  }
  bool good() const {
    return _mm512_test_epi32_mask(lost, _mm512_set1_epi32(0xffff)) == 0 &&
           _mm512_cmpgt_epu16_mask(most, _mm512_set1_epi16(kMostInput)) == 0 &&
           _mm512_cmplt_epu16_mask(least, _mm512_set1_epi16(kLeastInput - 1)) == 0;
  }
};

// Reads and writes the inputs of PackedRows: bf16 in the order in which the format's weights fall out of their decoder.
// Prepared columns are taken in blocks of four steps; of rows that are not prepared they exist only as long as a block.
template <WeightFormat format>
class PackedInputs {
 public:
  explicit PackedInputs(const PackedRows& rows)
      : of_(rows), groups_(rows.cols / kStep), steps_(padded_steps(format, rows.cols)) {}

  int64_t rows() const { return of_.rows; }
  int64_t row_groups() const { return (of_.rows + kGroup - 1) / kGroup; }
  int64_t group_rows(int64_t group) const { return std::min(kGroup, of_.rows - group * kGroup); }
  // Several groups are full ones: the last row stands for those that are not there.
  int64_t packed_rows(int64_t group) const { return of_.rows > kGroup ? kGroup : group_rows(group); }
  // The inputs of a group at a step: [pairs][packed rows].
  uint32_t* packed(int64_t group, int64_t step) const {
    return of_.words + (group * kGroup * steps_ + step * packed_rows(group)) * kPairs;
  }

  // A part is some blocks of a group.
  int64_t parts_of_group() const { return (blocks() + kPartBlocks - 1) / kPartBlocks; }
  bool pack_part(int64_t part) const {
    const int64_t group = part / parts_of_group();
    const int64_t first = part % parts_of_group() * kPartBlocks;
    const int64_t end = std::min(first + kPartBlocks, blocks());
    const int64_t count = packed_rows(group);
    if (count == 1) return pack_one(group, first, end);
    if (count <= kGroup / 2) return pack_some<kGroup / 2>(group, first, end);
    return pack_some<kGroup>(group, first, end);
  }

  // Whether the units may have a row.
  bool good_row(int64_t row) const {
    InputCheck check;
    alignas(64) float space[kBlockCols];
    for (int64_t block = 0; block < blocks(); ++block) {
      const float* x = columns_of(row, block, space);
      for (int64_t s = 0; s < block_steps(block); ++s) pairs(x, block, s, check);
    }
    return check.good();
  }

  // Prepared rows [first, first + count), wherever they are now. Pointers are good until the thread asks again.
  const float* const* prepared(int64_t first, int64_t count) const {
    if (of_.prepared != nullptr) return of_.prepared + first;
    const int64_t width = prepared_cols(of_.cols);
    float* space = space_for_prepared(count * width);
    const float** rows = space_for_prepared_rows(count);
    for (int64_t r = 0; r < count; ++r) {
      rows[r] = space + r * width;
      kLinearAvx512.prepare(of_.x + (first + r) * of_.x_stride, of_.cols, of_.quantize, space + r * width);
    }
    return rows;
  }

 private:
  static constexpr int64_t kBlockSteps = 4;
  static constexpr int64_t kBlockCols = kBlockSteps * kStep;
  static constexpr int64_t kPartBlocks = 8;

  int64_t blocks() const { return (steps_ + kBlockSteps - 1) / kBlockSteps; }
  int64_t block_steps(int64_t block) const { return std::min(kBlockSteps, steps_ - block * kBlockSteps); }

  // The prepared columns of a block, in `space` if they are prepared for it.
  const float* columns_of(int64_t row, int64_t block, float* space) const {
    const int64_t col = block * kBlockCols;
    if (of_.prepared != nullptr) return of_.prepared[row] + col;
    kLinearAvx512.prepare(of_.x + row * of_.x_stride + col, std::min(kBlockCols, of_.cols - col), of_.quantize, space);
    return space;
  }

  // Sixteen prepared columns of a block's group: its even ones, or its odd ones. Groups beyond the last are zeros.
  __m512i columns(const float* x, int64_t block, int64_t group, int64_t odd) const {
    if (block * kBlockSteps + group >= groups_) return _mm512_setzero_si512();
    return _mm512_load_si512(x + group * kStep + odd * kPairs);
  }

  // One row's inputs of a block's step as pairs of bf16.
  __m512i pairs(const float* x, int64_t block, int64_t step, InputCheck& check) const {
    if constexpr (format == WeightFormat::mxfp4) return quad_pairs(x, block, step, check);
    if constexpr (format == WeightFormat::fp8) return split_pairs(x, block, step, check);
    const __m512i even = columns(x, block, step, 0);
    const __m512i odd = columns(x, block, step, 1);
    const __m512i both = _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaa, odd);
    check.see(even, odd, both);
    return both;
  }

  // Of two groups of columns the even ones are a step and the odd ones the next.
  __m512i split_pairs(const float* x, int64_t block, int64_t step, InputCheck& check) const {
    alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i first = columns(x, block, step / 2 * 2, step % 2);
    const __m512i second = columns(x, block, step / 2 * 2 + 1, step % 2);
    const __m512i both = _mm512_permutex2var_epi16(first, _mm512_load_si512(kUpper), second);
    check.see(first, second, both);
    return both;
  }

  // Of a block's four groups of columns step j has the columns j, j + 4, j + 8 and so on.
  __m512i quad_pairs(const float* x, int64_t block, int64_t step, InputCheck& check) const {
    alignas(64) static constexpr uint16_t kUpper[2][32] = {
        {1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61},
        {3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63}};
    const __m512i index = _mm512_load_si512(kUpper[step / 2]);
    __m512i v[4];
    for (int g = 0; g < 4; ++g) v[g] = columns(x, block, g, step % 2);
    const __m512i low = _mm512_permutex2var_epi16(v[0], index, v[1]);
    const __m512i high = _mm512_permutex2var_epi16(v[2], index, v[3]);
    const __m512i both = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
    check.see(_mm512_or_si512(v[0], v[1]), _mm512_or_si512(v[2], v[3]), both);
    return both;
  }

  // These pack blocks [first, end) and return whether all of their values are good.
  bool pack_one(int64_t group, int64_t first, int64_t end) const {
    alignas(64) float space[kBlockCols];
    InputCheck check;
    for (int64_t block = first; block < end; ++block) {
      const float* x = columns_of(group * kGroup, block, space);
      for (int64_t s = 0; s < block_steps(block); ++s) {
        _mm512_storeu_si512(packed(group, block * kBlockSteps + s), pairs(x, block, s, check));
      }
    }
    return check.good();
  }

  template <int most>
  bool pack_some(int64_t group, int64_t first, int64_t end) const {
    const int64_t rows = packed_rows(group);
    const int64_t there = group_rows(group);
    alignas(64) float space[most][kBlockCols];
    const float* x[most];
    InputCheck check;
    for (int64_t block = first; block < end; ++block) {
      const float* last = nullptr;
      for (int64_t r = 0; r < most; ++r) {
        if (r < there) last = columns_of(group * kGroup + r, block, space[r]);
        x[r] = last;
      }
      for (int64_t s = 0; s < block_steps(block); ++s) {
        __m512i rows_pairs[most];
        GANNET_UNROLL
        for (int r = 0; r < most; ++r) rows_pairs[r] = pairs(x[r], block, s, check);
        store_columns(rows_pairs, rows, packed(group, block * kBlockSteps + s));
      }
    }
    return check.good();
  }

  static void store_columns(__m512i (&pairs)[kGroup], int64_t rows, uint32_t* to) {
    const auto mask = static_cast<__mmask16>((1U << rows) - 1);
    transpose(pairs);
    GANNET_UNROLL
    for (int64_t k = 0; k < kPairs; ++k) _mm512_mask_storeu_epi32(to + k * rows, mask, pairs[k]);
  }

  static void store_columns(__m512i (&pairs)[kGroup / 2], int64_t rows, uint32_t* to) {
    const auto mask = static_cast<__mmask8>((1U << rows) - 1);
    transpose_eight(pairs);
    GANNET_UNROLL
    for (int64_t k = 0; k < kPairs; ++k) {
      const __m512i both = pairs[k % 4 + k / 8 * 4];
      const __m256i column = k % 8 < 4 ? _mm512_castsi512_si256(both) : _mm512_extracti64x4_epi64(both, 1);
      _mm256_mask_storeu_epi32(to + k * rows, mask, column);
    }
  }

  const PackedRows& of_;
  const int64_t groups_;  // of 32 columns
  const int64_t steps_;
};

}  // namespace
}  // namespace gannet::ops
