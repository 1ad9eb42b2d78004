#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bitset>
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

// Up to kMatrixRows rows of inputs as bf16 in the order in which the format's weights fall out of their decoder, packed
// as the units take them.
template <WeightFormat format>
class PackedInputs {
 public:
  explicit PackedInputs(const LinearRange& range)
      : range_(range), groups_(range.weight.cols / kStep), steps_(padded_steps(format, range.weight.cols)) {}

  void pack(int64_t first_row, int64_t rows) {
    first_row_ = first_row;
    rows_ = rows;
    good_.reset();
    for (int64_t group = 0; group < row_groups(); ++group) {
      const int64_t count = packed_rows(group);
      bool good = false;
      if (count == 1) {
        good = pack_one(group);
      } else if (count <= kGroup / 2) {
        good = pack_some<kGroup / 2>(group);
      } else {
        good = pack_some<kGroup>(group);
      }
      for (int64_t r = 0; r < group_rows(group); ++r) {
        if (good || good_row(group * kGroup + r)) good_.set(group * kGroup + r);
      }
    }
  }

  int64_t first_row() const { return first_row_; }
  int64_t rows() const { return rows_; }
  int64_t row_groups() const { return (rows_ + kGroup - 1) / kGroup; }
  int64_t group_rows(int64_t group) const { return std::min(kGroup, rows_ - group * kGroup); }
  // Several groups are full ones: the last row stands for those that are not there.
  int64_t packed_rows(int64_t group) const { return rows_ > kGroup ? kGroup : group_rows(group); }
  // The inputs of a group at a step: [pairs][packed rows].
  uint32_t* packed(int64_t group, int64_t step) const {
    return range_.workspace + (group * kGroup * steps_ + step * packed_rows(group)) * kPairs;
  }
  // Whether the units may have a row.
  bool good(int64_t row) const { return good_.test(row); }
  int64_t good_rows() const { return static_cast<int64_t>(good_.count()); }

 private:
  const float* input(int64_t row) const { return range_.x[first_row_ + row]; }

  // Sixteen prepared columns of a group: its even ones, or its odd ones. Groups beyond the last are zeros.
  __m512i columns(const float* x, int64_t group, int64_t odd) const {
    return group < groups_ ? _mm512_load_si512(x + group * kStep + odd * kPairs) : _mm512_setzero_si512();
  }

  // One row's inputs of a step as pairs of bf16.
  __m512i pairs(const float* x, int64_t step, InputCheck& check) const {
    if constexpr (format == WeightFormat::mxfp4) return quad_pairs(x, step, check);
    if constexpr (format == WeightFormat::fp8) return split_pairs(x, step, check);
    const __m512i even = columns(x, step, 0);
    const __m512i odd = columns(x, step, 1);
    const __m512i both = _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaa, odd);
    check.see(even, odd, both);
    return both;
  }

  // Of two groups of columns the even ones are a step and the odd ones the next.
  __m512i split_pairs(const float* x, int64_t step, InputCheck& check) const {
    alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                        33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
    const __m512i first = columns(x, step / 2 * 2, step % 2);
    const __m512i second = columns(x, step / 2 * 2 + 1, step % 2);
    const __m512i both = _mm512_permutex2var_epi16(first, _mm512_load_si512(kUpper), second);
    check.see(first, second, both);
    return both;
  }

  // Of four groups of columns step j has the columns j, j + 4, j + 8 and so on.
  __m512i quad_pairs(const float* x, int64_t step, InputCheck& check) const {
    alignas(64) static constexpr uint16_t kUpper[2][32] = {
        {1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61},
        {3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63}};
    const __m512i index = _mm512_load_si512(kUpper[step % 4 / 2]);
    __m512i v[4];
    for (int g = 0; g < 4; ++g) v[g] = columns(x, step / 4 * 4 + g, step % 2);
    const __m512i low = _mm512_permutex2var_epi16(v[0], index, v[1]);
    const __m512i high = _mm512_permutex2var_epi16(v[2], index, v[3]);
    const __m512i both = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
    check.see(_mm512_or_si512(v[0], v[1]), _mm512_or_si512(v[2], v[3]), both);
    return both;
  }

  bool good_row(int64_t row) const {
    InputCheck check;
    for (int64_t step = 0; step < steps_; ++step) pairs(input(row), step, check);
    return check.good();
  }

  // These return whether all rows are good.
  bool pack_one(int64_t group) const {
    const float* x = input(group * kGroup);
    InputCheck check;
    for (int64_t step = 0; step < steps_; ++step) _mm512_storeu_si512(packed(group, step), pairs(x, step, check));
    return check.good();
  }

  template <int most>
  bool pack_some(int64_t group) const {
    const int64_t rows = packed_rows(group);
    const float* x[most];
    for (int64_t r = 0; r < most; ++r) x[r] = input(group * kGroup + std::min(r, group_rows(group) - 1));
    InputCheck check;
    for (int64_t step = 0; step < steps_; ++step) {
      __m512i rows_pairs[most];
      GANNET_UNROLL
      for (int r = 0; r < most; ++r) rows_pairs[r] = pairs(x[r], step, check);
      store_columns(rows_pairs, rows, packed(group, step));
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

  const LinearRange& range_;
  const int64_t groups_;  // of 32 columns
  const int64_t steps_;
  int64_t first_row_ = 0;
  int64_t rows_ = 0;
  std::bitset<kMatrixRows> good_;
};

}  // namespace
}  // namespace gannet::ops
