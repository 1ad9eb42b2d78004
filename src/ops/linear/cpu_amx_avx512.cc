#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <cstring>

#include "ops/linear/kernels.h"
#include "ops/matrix_units.h"

// The matrix units (AMX): sixteen outputs by sixteen rows by 32 columns an instruction, bf16 in, fp32 sums. Every
// weight that is not f32 is exactly a bf16 value, and so are inputs behind Q8 or rounded to bf16, so nothing is lost.
//
// The units take subnormal numbers for zero. A row with a value that is no bf16, or is far from one in size, and an
// output with a weight like that (or NaN) therefore go through the vectors' loops. Both are properties of the row or
// the output alone, and the units add the columns of each product in the same order whatever is beside it: a row's
// result does not depend on its batch.

#define GANNET_UNROLL_TWICE _Pragma("GCC unroll 2")

namespace gannet::ops {
namespace {

constexpr int64_t kStep = 32;             // columns of an instruction
constexpr int64_t kGroup = kMatrixGroup;  // outputs and rows of one
constexpr int64_t kPairs = kStep / 2;     // of columns, each in 32 bits
constexpr int64_t kMostGroups = 8;        // of rows that share a decoded weight
static_assert(kMostGroups * kGroup == kMatrixRows);

// Scales and sizes between which no product of a weight and an input is subnormal and no decoded weight overflows.
constexpr uint8_t kLeastScale = 50;
constexpr uint8_t kMostScale = 190;
constexpr uint16_t kLeastInput = (127 - 40) << 7;  // bits of the bf16 2^-40
constexpr uint16_t kMostInput = (127 + 60) << 7;
constexpr uint16_t kLeastWeight = (127 - 86) << 7;  // bits of the bf16 2^-86

// Sums in tiles 0 to 3, weights in 4 and 5, inputs in 6 and 7. Tiles of sums and of inputs have a column for each row;
// of several groups all are full.
TileShapes tile_shapes(int64_t rows) {
  TileShapes shapes;
  for (int i = 0; i < 8; ++i) {
    shapes.rows[i] = kGroup;
    shapes.row_bytes[i] = i == 4 || i == 5 ? 64 : static_cast<uint16_t>(4 * rows);
  }
  return shapes;
}

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

// One row's inputs of a step as pairs of bf16: the columns of a group in their order.
__m512i input_pairs(const float* x, int64_t step, InputCheck& check) {
  const __m512i even = _mm512_load_si512(x + step * kStep);
  const __m512i odd = _mm512_load_si512(x + step * kStep + kPairs);
  const __m512i pairs = _mm512_mask_mov_epi16(_mm512_srli_epi32(even, 16), 0xaaaaaaaa, odd);
  check.see(even, odd, pairs);
  return pairs;
}

// The same for two groups of columns whose even ones are a step and whose odd ones are the next.
__m512i split_input_pairs(const float* x, int64_t step, InputCheck& check) {
  alignas(64) static constexpr uint16_t kUpper[32] = {1,  3,  5,  7,  9,  11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31,
                                                      33, 35, 37, 39, 41, 43, 45, 47, 49, 51, 53, 55, 57, 59, 61, 63};
  const float* from = x + step / 2 * 2 * kStep + step % 2 * kPairs;
  const __m512i first = _mm512_load_si512(from);
  const __m512i second = _mm512_load_si512(from + kStep);
  const __m512i pairs = _mm512_permutex2var_epi16(first, _mm512_load_si512(kUpper), second);
  check.see(first, second, pairs);
  return pairs;
}

// The same for blocks of four groups, of which step j has the columns j, j + 4, j + 8 and so on.
__m512i quad_input_pairs(const float* x, int64_t step, InputCheck& check) {
  alignas(64) static constexpr uint16_t kUpper[2][32] = {
      {1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61},
      {3, 7, 11, 15, 19, 23, 27, 31, 35, 39, 43, 47, 51, 55, 59, 63}};
  const float* from = x + step / 4 * 4 * kStep + step % 2 * kPairs;
  const __m512i index = _mm512_load_si512(kUpper[step % 4 / 2]);
  __m512i v[4];
  for (int g = 0; g < 4; ++g) v[g] = _mm512_load_si512(from + g * kStep);
  const __m512i low = _mm512_permutex2var_epi16(v[0], index, v[1]);
  const __m512i high = _mm512_permutex2var_epi16(v[2], index, v[3]);
  const __m512i pairs = _mm512_inserti64x4(low, _mm512_castsi512_si256(high), 1);
  check.see(_mm512_or_si512(v[0], v[1]), _mm512_or_si512(v[2], v[3]), pairs);
  return pairs;
}

// Eight rows of sixteen to sixteen columns, two in each vector: c and c + 4 of the first eight in v[c], those of the
// other eight in v[4 + c].
[[gnu::always_inline]] inline void transpose_eight(__m512i (&v)[8]) {
  __m512i t[8];
  GANNET_UNROLL
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
  }
  GANNET_UNROLL
  for (int i = 0; i < 8; i += 4) {
    v[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    v[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    v[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    v[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // v[4 q + c] holds column c of every four: rows 4 q to 4 q + 3.
  const __m512i lower = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
  const __m512i upper = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
  GANNET_UNROLL
  for (int c = 0; c < 4; ++c) {
    const __m512i first = v[c];
    v[c] = _mm512_permutex2var_epi64(first, lower, v[4 + c]);
    v[4 + c] = _mm512_permutex2var_epi64(first, upper, v[4 + c]);
  }
}

template <WeightFormat format>
class MatrixMultiplier {
 public:
  explicit MatrixMultiplier(const LinearRange& range)
      : inputs_(range),
        cols_(range.weight.cols),
        split_(format == WeightFormat::fp8 && cols_ % (2 * kStep) == 0),
        quads_(format == WeightFormat::mxfp4 && cols_ % (4 * kStep) == 0) {}

  void run() {
    for (int64_t row = 0; row < inputs_.rows; row += kMatrixRows) {
      first_row_ = row;
      rows_ = std::min(kMatrixRows, inputs_.rows - row);
      pack();
      for (const LinearRange* next = &inputs_; next != nullptr; next = next->also) {
        range_ = *next;
        range_.x = inputs_.x;
        multiply_packed();
      }
    }
  }

 private:
  static constexpr int64_t kStepBytes = format == WeightFormat::bf16  ? 2 * kStep
                                        : format == WeightFormat::fp8 ? kStep
                                                                      : kStep / 2;

  static constexpr int64_t kChunk = 16;       // steps decoded at a time
  static constexpr int64_t kDoubleChunk = 8;  // of two groups of outputs
  static constexpr short kFp8Bias = 120 << 7;
  using Chunk = uint16_t[kChunk][kGroup][kStep];
  using DoubleChunk = uint16_t[2][kDoubleChunk][kGroup][kStep];
  using Steps = uint16_t (*)[kGroup][kStep];  // as many as wanted

  // ---- inputs ----

  // The inputs of group g at a step: [pairs][rows of the group].
  uint32_t* packed(int64_t group, int64_t step) const {
    return inputs_.workspace + group * kGroup * cols_ / 2 + step * kPairs * packed_rows(group);
  }
  int64_t group_rows(int64_t group) const { return std::min(kGroup, rows_ - group * kGroup); }
  // Several groups are full ones: the last row stands for those that are not there.
  int64_t packed_rows(int64_t group) const { return rows_ > kGroup ? kGroup : group_rows(group); }

  void pack() {
    good_mask_.reset();
    for (int64_t group = 0; group * kGroup < rows_; ++group) {
      const int64_t rows = packed_rows(group);
      bool good = false;
      if (rows == 1) {
        good = pack_one(group);
      } else if (rows <= kGroup / 2) {
        good = pack_some<kGroup / 2>(group);
      } else {
        good = pack_some<kGroup>(group);
      }
      for (int64_t r = 0; r < group_rows(group); ++r) {
        if (good || good_row(group * kGroup + r)) good_mask_.set(group * kGroup + r);
      }
    }
  }

  const float* input(int64_t row) const { return inputs_.x[first_row_ + row]; }

  __m512i pairs_of(const float* x, int64_t step, InputCheck& check) const {
    if (quads_) return quad_input_pairs(x, step, check);
    return split_ ? split_input_pairs(x, step, check) : input_pairs(x, step, check);
  }

  bool good_row(int64_t row) const {
    InputCheck check;
    for (int64_t step = 0; step * kStep < cols_; ++step) pairs_of(input(row), step, check);
    return check.good();
  }

  // These return whether all rows are good.
  bool pack_one(int64_t group) const {
    const float* x = input(group * kGroup);
    InputCheck check;
    for (int64_t step = 0; step * kStep < cols_; ++step) {
      _mm512_storeu_si512(packed(group, step), pairs_of(x, step, check));
    }
    return check.good();
  }

  template <int most>
  bool pack_some(int64_t group) const {
    const int64_t rows = packed_rows(group);
    const float* x[most];
    for (int64_t r = 0; r < most; ++r) x[r] = input(group * kGroup + std::min(r, group_rows(group) - 1));
    InputCheck check;
    for (int64_t step = 0; step * kStep < cols_; ++step) {
      __m512i pairs[most];
      GANNET_UNROLL
      for (int r = 0; r < most; ++r) pairs[r] = pairs_of(x[r], step, check);
      store_columns(pairs, rows, packed(group, step));
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

  // ---- weights ----

  // Some outputs' weights of some steps. The units work on one while the next is decoded, a part for a row: they and
  // the vectors wait for each other as little as possible, and weights are read in the order in which they lie.
  struct Item {
    int64_t output;
    int64_t step;
    int64_t steps;        // 0: no item
    int64_t later;        // bytes from an output's weights to those that are fetched meanwhile: the item that follows,
    int64_t later_bytes;  // or the first one of a later panel
  };

  Item item_at(int64_t output, int64_t step, int64_t chunk) const {
    const int64_t all = cols_ / kStep;
    const int64_t steps = std::min(chunk, all - step);
    const int64_t next = step + steps;
    const bool more = next < all;
    return {.output = output,
            .step = step,
            .steps = steps,
            .later = (more ? steps : panel_ahead_ - step) * kStepBytes,
            .later_bytes = std::min(chunk, more ? all - next : all) * kStepBytes};
  }

  const uint8_t* codes_of(int64_t output) const {
    return static_cast<const uint8_t*>(range_.weight.data) + (range_.first + output) * (cols_ / kStep) * kStepBytes;
  }
  const uint8_t* scales_of(int64_t output) const {
    const int64_t row = range_.first + output;
    return range_.weight.scale + (format == WeightFormat::fp8 ? row / kStep : row) * (cols_ / kStep);
  }

  // Of one output and a chunk of steps: what the scales do to the exponents of bf16 values, twice in 32 bits each.
  // False if one of them is out of bounds.
  bool load_scales(int64_t output, int64_t step, int64_t steps, uint32_t (&exponents)[kChunk]) const {
    const auto mask = static_cast<__mmask16>((1U << steps) - 1);
    const __m128i codes = _mm_maskz_loadu_epi8(mask, scales_of(output) + step);
    const __m512i shift = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_cvtepu8_epi32(codes), _mm512_set1_epi32(127)), 7);
    const __m512i low = _mm512_and_si512(shift, _mm512_set1_epi32(0xffff));
    _mm512_store_si512(exponents, _mm512_or_si512(low, _mm512_slli_epi32(shift, 16)));
    const __m128i above = _mm_sub_epi8(codes, _mm_set1_epi8(kLeastScale));
    return _mm_mask_cmpgt_epu8_mask(mask, above, _mm_set1_epi8(static_cast<char>(kMostScale - kLeastScale))) == 0;
  }

  // Decodes an output's weights of an item into row o of each step; false if the units may not have them.
  [[gnu::always_inline]] bool decode_row(int64_t output, const Item& item, Steps to, int64_t o) {
    const int64_t step = item.step;
    const int64_t steps = item.steps;
    const uint8_t* codes = codes_of(output) + step * kStepBytes;
    for (int64_t i = 0; i < item.later_bytes; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(codes + item.later + i), _MM_HINT_T1);
    }
    if constexpr (format == WeightFormat::bf16) return copy_bf16(codes, steps, to, o);
    if constexpr (format == WeightFormat::fp8) {
      load_fp8_scales(output, step, steps);
      return (split_ ? decode_split_fp8(codes, steps, to, o) : decode_fp8(codes, steps, to, o)) && scales_good_;
    }
    if (quads_) return decode_quads(codes, scales_of(output) + step, steps, to, o);
    alignas(64) uint32_t exponents[kChunk];
    const bool good = load_scales(output, step, steps, exponents);
    decode_mxfp4(codes, exponents, steps, to, o);
    return good;
  }

  // E4M3's subnormal numbers in bf16: 0 and 1 to 7 times 2^-9.
  alignas(64) static constexpr uint16_t kSubnormal[32] = {0,        118 << 7,        119 << 7,        (119 << 7) + 64,
                                                          120 << 7, (120 << 7) + 32, (120 << 7) + 64, (120 << 7) + 96};

  // Outputs of one block share their scales.
  void load_fp8_scales(int64_t output, int64_t step, int64_t steps) {
    const uint8_t* scales = scales_of(output) + step;
    if (scales == loaded_scales_) return;
    loaded_scales_ = scales;
    alignas(64) uint32_t exponents[kChunk];
    scales_good_ = load_scales(output, step, steps, exponents);
    for (int64_t s = 0; s < steps && split_; s += 2) {
      const __m512i scale = _mm512_mask_set1_epi32(_mm512_set1_epi32(static_cast<int>(exponents[s])), 0xff00,
                                                   static_cast<int>(exponents[s + 1]));
      bias_[s / 2] = _mm512_add_epi16(scale, _mm512_set1_epi16(kFp8Bias));
    }
    for (int64_t s = 0; s < steps && !split_; ++s) {
      const __m512i scale = _mm512_set1_epi32(static_cast<int>(exponents[s]));
      bias_[s] = _mm512_add_epi16(scale, _mm512_set1_epi16(kFp8Bias));
      subnormal_[s] = _mm512_maskz_add_epi16(0xfe, _mm512_load_si512(kSubnormal), scale);
    }
  }

  // Seven bits of E4M3 are the exponent and mantissa of a bf16 that is 2^120 too small; subnormal ones are looked up.
  bool decode_fp8(const uint8_t* codes, int64_t steps, Steps to, int64_t o) const {
    const __m512i sign = _mm512_set1_epi16(static_cast<short>(0x8000));
    __m512i most = _mm512_setzero_si512();
    GANNET_UNROLL_TWICE
    for (int64_t s = 0; s < steps; ++s) {
      const auto* from = reinterpret_cast<const __m256i*>(codes + s * kStep);
      const __m512i bytes = _mm512_cvtepu8_epi16(_mm256_loadu_si256(from));
      const __m512i size = _mm512_and_si512(bytes, _mm512_set1_epi16(0x7f));
      const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(size, 4), bias_[s]);
      const __mmask32 small = _mm512_cmplt_epu16_mask(size, _mm512_set1_epi16(8));
      const __m512i value = _mm512_mask_permutexvar_epi16(normal, small, size, subnormal_[s]);
      most = _mm512_max_epu16(most, size);
      // value | (bytes << 8 & sign)
      _mm512_store_si512(to[s][o], _mm512_ternarylogic_epi32(value, _mm512_slli_epi16(bytes, 8), sign, 0xf8));
    }
    return _mm512_cmpeq_epi16_mask(most, _mm512_set1_epi16(0x7f)) == 0;  // NaN
  }

  // 64 codes at a time, the even and the odd ones each as they lie in 16 bits: the sign goes to bit 15, the others from
  // bit 10 on, and what else the arithmetic shift leaves is cut away.
  bool decode_split_fp8(const uint8_t* codes, int64_t steps, Steps to, int64_t o) const {
    const __m512i bits = _mm512_set1_epi16(static_cast<short>(0x87f0));
    __m512i most = _mm512_setzero_si512();
    for (int64_t s = 0; s < steps; s += 2) {
      const __m512i bytes = _mm512_loadu_si512(codes + s * kStep);
      const __m512i bias = bias_[s / 2];
      most = _mm512_max_epu8(most, _mm512_and_si512(bytes, _mm512_set1_epi8(0x7f)));
      if (_mm512_testn_epi8_mask(bytes, _mm512_set1_epi8(0x78)) != 0) {
        _mm512_store_si512(to[s][o], with_subnormal(_mm512_slli_epi16(bytes, 8), bias));
        _mm512_store_si512(to[s + 1][o], with_subnormal(bytes, bias));
        continue;
      }
      const __m512i even = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 4), bits);
      const __m512i odd = _mm512_and_si512(_mm512_srai_epi16(bytes, 4), bits);
      _mm512_store_si512(to[s][o], _mm512_add_epi16(even, bias));
      _mm512_store_si512(to[s + 1][o], _mm512_add_epi16(odd, bias));
    }
    return _mm512_cmpeq_epi8_mask(most, _mm512_set1_epi8(0x7f)) == 0;  // NaN
  }

  // Of the codes in the upper bytes, some of which are subnormal or zero.
  static __m512i with_subnormal(__m512i words, __m512i bias) {
    const __m512i size = _mm512_and_si512(_mm512_srli_epi16(words, 8), _mm512_set1_epi16(0x7f));
    const __m512i normal = _mm512_add_epi16(_mm512_slli_epi16(size, 4), bias);
    const __m512i table = _mm512_sub_epi16(_mm512_load_si512(kSubnormal), _mm512_set1_epi16(kFp8Bias));
    const __m512i subnormal = _mm512_add_epi16(_mm512_permutexvar_epi16(size, table), bias);
    const __mmask32 small = _mm512_cmplt_epu16_mask(size, _mm512_set1_epi16(8));
    const __m512i value = _mm512_mask_mov_epi16(normal, small, subnormal);
    const __m512i sign = _mm512_and_si512(words, _mm512_set1_epi16(static_cast<short>(0x8000)));
    return _mm512_or_si512(sign, _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(size, size), value));
  }

  static void decode_mxfp4(const uint8_t* codes, const uint32_t* exponents, int64_t steps, Steps to, int64_t o) {
    // 0, .5, 1, 1.5, 2, 3, 4, 6 and their negatives, twice: the look-up takes five bits.
    alignas(64) static constexpr uint16_t kValues[32] = {
        0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040, 0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80,
        0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0, 0x0000, 0x3f00, 0x3f80, 0x3fc0, 0x4000, 0x4040,
        0x4080, 0x40c0, 0x8000, 0xbf00, 0xbf80, 0xbfc0, 0xc000, 0xc040, 0xc080, 0xc0c0};
    const __m512i values = _mm512_load_si512(kValues);
    GANNET_UNROLL_TWICE
    for (int64_t s = 0; s < steps; ++s) {
      const __m512i scale = _mm512_set1_epi32(static_cast<int>(exponents[s]));
      const __m512i table = _mm512_mask_add_epi16(values, 0xfefefefe, values, scale);
      const auto* from = reinterpret_cast<const __m128i*>(codes + s * kPairs);
      const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(from));
      const __m512i pairs = _mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12));
      _mm512_store_si512(to[s][o], _mm512_permutexvar_epi16(pairs, table));
    }
  }

  // 64 codes of two bytes at a time: one look-up takes the lowest code of each sixteen bits, shifts bring the others
  // there. The table's sizes are 2^63 too large, and each group's scale is what is taken away again: nothing from zero.
  [[gnu::always_inline]] static bool decode_quads(const uint8_t* codes, const uint8_t* scales, int64_t steps, Steps to,
                                                  int64_t o) {
    alignas(64) static constexpr uint16_t kValues[32] = {
        0x0000, 0x5e80, 0x5f00, 0x5f40, 0x5f80, 0x5fc0, 0x6000, 0x6040, 0x0000, 0xde80, 0xdf00,
        0xdf40, 0xdf80, 0xdfc0, 0xe000, 0xe040, 0x0000, 0x5e80, 0x5f00, 0x5f40, 0x5f80, 0x5fc0,
        0x6000, 0x6040, 0x0000, 0xde80, 0xdf00, 0xdf40, 0xdf80, 0xdfc0, 0xe000, 0xe040};
    alignas(64) static constexpr uint16_t kGroups[32] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                                         2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
    const __m512i values = _mm512_load_si512(kValues);
    const auto mask = static_cast<__mmask16>((1U << steps) - 1);
    const __m128i scale = _mm_maskz_loadu_epi8(mask, scales);
    const __m256i less =
        _mm256_slli_epi16(_mm256_sub_epi16(_mm256_set1_epi16(kMostScale), _mm256_cvtepu8_epi16(scale)), 7);
    __m512i groups = _mm512_load_si512(kGroups);
    GANNET_UNROLL_TWICE
    for (int64_t s = 0; s < steps; s += 4) {
      const __m512i words = _mm512_loadu_si512(codes + s * kPairs);
      const __m512i taken = _mm512_permutexvar_epi16(groups, _mm512_castsi256_si512(less));
      groups = _mm512_add_epi16(groups, _mm512_set1_epi16(4));
      const auto value = [&](__m512i index) {
        return _mm512_subs_epu16(_mm512_permutexvar_epi16(index, values), taken);
      };
      _mm512_store_si512(to[s][o], value(words));
      _mm512_store_si512(to[s + 1][o], value(_mm512_srli_epi16(words, 4)));
      _mm512_store_si512(to[s + 2][o], value(_mm512_srli_epi16(words, 8)));
      _mm512_store_si512(to[s + 3][o], value(_mm512_srli_epi16(words, 12)));
    }
    const __m128i above = _mm_sub_epi8(scale, _mm_set1_epi8(kLeastScale));
    return _mm_mask_cmpgt_epu8_mask(mask, above, _mm_set1_epi8(static_cast<char>(kMostScale - kLeastScale))) == 0;
  }

  static bool copy_bf16(const uint8_t* codes, int64_t steps, Steps to, int64_t o) {
    __m512i least = _mm512_set1_epi16(-1);
    for (int64_t s = 0; s < steps; ++s) {
      const __m512i value = _mm512_loadu_si512(codes + s * kStepBytes);
      const __m512i size = _mm512_and_si512(value, _mm512_set1_epi16(0x7fff));
      least = _mm512_min_epu16(least, _mm512_sub_epi16(size, _mm512_set1_epi16(1)));  // zero becomes the largest
      _mm512_store_si512(to[s][o], value);
    }
    return _mm512_cmplt_epu16_mask(least, _mm512_set1_epi16(kLeastWeight - 1)) == 0;
  }

  // ---- products ----

  void multiply_packed() {
    if (good_mask_.none()) return by_vectors(first_row_, rows_, 0, range_.count);
    multiply_groups();
    if (static_cast<int64_t>(good_mask_.count()) == rows_) return;
    for (int64_t r = 0; r < rows_; ++r) {
      if (!good_mask_.test(r)) by_vectors(first_row_ + r, 1, 0, range_.count);
    }
  }

  void multiply_groups() {
    const bool few = rows_ <= kGroup / 2;
    const int64_t panel = (few ? 1 : 2) * kGroup * (cols_ / kStep);
    panel_ahead_ = panel * ((kPrefetch / kStepBytes + panel - 1) / panel);
    load_shapes(tile_shapes(packed_rows(0)));
    if (few) {
      panels();
    } else {
      double_panels();
    }
    release();
    if (!any_bad_) return;
    any_bad_ = false;
    for (int64_t i = 0; i < range_.count; ++i) {
      if (!good_output(i)) by_vectors(first_row_, rows_, i, 1);
    }
  }

  GANNET_AMX static void load_shapes(const TileShapes& shapes) {
    __asm__ volatile("" : : "m"(shapes));  // g++ 12 does not see that the next instruction reads them
    _tile_loadconfig(&shapes);
  }
  GANNET_AMX static void release() { _tile_release(); }

  [[gnu::always_inline]] void decode_or_clear(int64_t output, const Item& item, Steps to, int64_t o) {
    if (output < range_.count) {
      any_bad_ |= !decode_row(output, item, to, o);
    } else {
      for (int64_t s = 0; s < item.steps; ++s) _mm512_store_si512(to[s][o], _mm512_setzero_si512());
    }
  }
  bool ends(const Item& item) const { return item.steps > 0 && item.step + item.steps == cols_ / kStep; }

  // Few rows: sixteen outputs at a time.
  GANNET_AMX void panels() {
    alignas(64) Chunk chunks[2];
    const int64_t all_steps = cols_ / kStep;
    Item last{};
    int current = 0;
    for (int64_t i = 0; i < range_.count; i += kGroup) {
      for (int64_t step = 0; step < all_steps; step += kChunk) {
        const Item item = item_at(i, step, kChunk);
        for (int64_t o = 0; o < kGroup; ++o) {
          decode_or_clear(i + o, item, chunks[current], o);
          if (o < last.steps) add_step(chunks[current ^ 1][o], last.step + o);
        }
        if (ends(last)) store_group(last.output);
        last = item;
        current ^= 1;
      }
    }
    for (int64_t s = 0; s < last.steps; ++s) add_step(chunks[current ^ 1][s], last.step + s);
    if (ends(last)) store_group(last.output);
  }

  GANNET_AMX void add_step(const uint16_t (&weights)[kGroup][kStep], int64_t step) const {
    if (step == 0) _tile_zero(0);
    _tile_loadd(4, weights, 64);
    _tile_loadd(6, packed(0, step), 4 * packed_rows(0));
    _tile_dpbf16ps(0, 4, 6);
  }

  GANNET_AMX void store_group(int64_t first) const {
    alignas(64) float sums[kGroup][kGroup];  // [outputs][rows]
    _tile_stored(0, sums, 64);
    store_rows(0, first, std::min(kGroup, range_.count - first), sums);
  }

  // More rows: two groups of outputs and two of rows at a time, so that the units get four products out of four tiles
  // and need not wait for the last one, which takes three times as long as they need to begin another. Weights stay in
  // L1 for all rows; the sums of more than two groups wait in memory while others take their turn.
  using Sums = float[kMostGroups][2][kGroup][kGroup];  // [groups of rows][groups of outputs][outputs][rows]

  GANNET_AMX void double_panels() {
    alignas(64) DoubleChunk chunks[2];
    alignas(64) Sums sums;
    const int64_t all_steps = cols_ / kStep;
    const int64_t turns = (row_groups() + 1) / 2 * kDoubleChunk;
    Item last{};
    int current = 0;
    for (int64_t i = 0; i < range_.count; i += 2 * kGroup) {
      for (int64_t step = 0; step < all_steps; step += kDoubleChunk) {
        const Item item = item_at(i, step, kDoubleChunk);
        int64_t turn = 0;
        for (int64_t o = 0; o < 2 * kGroup; ++o) {
          decode_or_clear(i + o, item, chunks[current][o / kGroup], o % kGroup);
          for (; turn < (o + 1) * turns / (2 * kGroup); ++turn) add_turn(last, turn, chunks[current ^ 1], sums);
        }
        if (ends(last)) store_groups(last.output, sums);
        last = item;
        current ^= 1;
      }
    }
    for (int64_t turn = 0; turn < turns; ++turn) add_turn(last, turn, chunks[current ^ 1], sums);
    if (ends(last)) store_groups(last.output, sums);
  }

  int64_t row_groups() const { return (rows_ + kGroup - 1) / kGroup; }

  // A turn is a step of a chunk for two groups of rows; all steps of two groups come before those of the next two.
  GANNET_AMX void add_turn(const Item& item, int64_t turn, const DoubleChunk& weights, Sums& sums) const {
    const int64_t s = turn % kDoubleChunk;
    if (s >= item.steps) return;
    const int64_t group = turn / kDoubleChunk * 2;
    const bool alone = row_groups() <= 2;  // then sums stay in the tiles
    const bool begins = s == 0 && (!alone || item.step == 0);
    const bool stops = s + 1 == item.steps && (!alone || ends(item));
    if (group + 1 < row_groups()) {
      if (begins) load_sums<2>(item.step == 0, sums + group);
      add_products<2>(weights[0][s], weights[1][s], group, item.step + s);
      if (stops) store_sums<2>(sums + group);
    } else {
      if (begins) load_sums<1>(item.step == 0, sums + group);
      add_products<1>(weights[0][s], weights[1][s], group, item.step + s);
      if (stops) store_sums<1>(sums + group);
    }
  }

  template <int groups>
  GANNET_AMX void add_products(const void* first, const void* second, int64_t group, int64_t step) const {
    _tile_loadd(4, first, 64);
    _tile_loadd(6, packed(group, step), 4 * packed_rows(group));
    _tile_loadd(5, second, 64);
    if constexpr (groups > 1) _tile_loadd(7, packed(group + 1, step), 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 5, 6);
    if constexpr (groups > 1) {
      _tile_dpbf16ps(2, 4, 7);
      _tile_dpbf16ps(3, 5, 7);
    }
  }

  template <int groups>
  GANNET_AMX static void load_sums(bool zero, const float (*sums)[2][kGroup][kGroup]) {
    if (zero) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      return;
    }
    _tile_loadd(0, sums[0][0], 64);
    _tile_loadd(1, sums[0][1], 64);
    if constexpr (groups > 1) {
      _tile_loadd(2, sums[1][0], 64);
      _tile_loadd(3, sums[1][1], 64);
    }
  }

  template <int groups>
  GANNET_AMX static void store_sums(float (*sums)[2][kGroup][kGroup]) {
    _tile_stored(0, sums[0][0], 64);
    _tile_stored(1, sums[0][1], 64);
    if constexpr (groups > 1) {
      _tile_stored(2, sums[1][0], 64);
      _tile_stored(3, sums[1][1], 64);
    }
  }

  void store_groups(int64_t first, const Sums& sums) const {
    for (int64_t part = 0; part < 2 && first < range_.count; ++part, first += kGroup) {
      const int64_t count = std::min(kGroup, range_.count - first);
      for (int64_t g = 0; g < row_groups(); ++g) store_rows(g, first, count, sums[g][part]);
    }
  }

  void store_rows(int64_t group, int64_t first, int64_t count, const float (&sums)[kGroup][kGroup]) const {
    const auto mask = static_cast<__mmask16>((1U << count) - 1);
    float* y = range_.y + (first_row_ + group * kGroup) * range_.y_stride + first;
    if (group_rows(group) == 1) {
      const __m512i index = _mm512_set_epi32(240, 224, 208, 192, 176, 160, 144, 128, 112, 96, 80, 64, 48, 32, 16, 0);
      return store_row(y, mask, _mm512_i32gather_ps(index, sums, 4));
    }
    if (group_rows(group) <= kGroup / 2) return store_some(group, y, mask, sums);
    __m512i rows[kGroup];
    GANNET_UNROLL
    for (int64_t o = 0; o < kGroup; ++o) rows[o] = _mm512_load_si512(sums[o]);
    transpose(rows);
    for (int64_t r = 0; r < group_rows(group); ++r) {
      store_row(y + r * range_.y_stride, mask, _mm512_castsi512_ps(rows[r]));
    }
  }

  // Of at most eight rows: two outputs lie in a vector.
  void store_some(int64_t group, float* y, __mmask16 mask, const float (&sums)[kGroup][kGroup]) const {
    constexpr int kHalf = kGroup / 2;
    __m512i two[kHalf];
    GANNET_UNROLL
    for (int o = 0; o < kHalf; ++o) {
      const __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums[o]));
      const __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(sums[kHalf + o]));
      two[o] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
    }
    transpose_eight(two);
    __m512i rows[kHalf];
    GANNET_UNROLL
    for (int c = 0; c < 4; ++c) {
      rows[c] = _mm512_shuffle_i64x2(two[c], two[4 + c], 0x44);
      rows[4 + c] = _mm512_shuffle_i64x2(two[c], two[4 + c], 0xee);
    }
    for (int64_t r = 0; r < group_rows(group); ++r) {
      store_row(y + r * range_.y_stride, mask, _mm512_castsi512_ps(rows[r]));
    }
  }

  void store_row(float* y, __mmask16 mask, __m512 value) const {
    _mm512_mask_storeu_ps(y, mask, range_.round ? Lanes::round_to_bf16(value) : value);
  }

  // ---- what the units cannot do ----

  bool good_output(int64_t output) {
    alignas(64) Chunk ignored;
    bool good = true;
    for (int64_t step = 0; step < cols_ / kStep; step += kChunk) {
      good = decode_row(output, item_at(output, step, kChunk), ignored, 0) && good;
    }
    return good;
  }

  void by_vectors(int64_t row, int64_t rows, int64_t output, int64_t count) const {
    LinearRange part = range_;
    part.first += output;
    part.count = count;
    part.x += row;
    part.rows = rows;
    part.y += row * range_.y_stride + output;
    part.also = nullptr;
    kLinearAvx512.multiply(part);
  }

  static constexpr int64_t kPrefetch = 8192;  // bytes ahead, at least

  const LinearRange& inputs_;
  LinearRange range_;  // at work: this one or another for the same inputs
  const int64_t cols_;
  const bool split_;         // columns are in the order of split_input_pairs
  const bool quads_;         // or of quad_input_pairs
  int64_t panel_ahead_ = 0;  // steps from an output to the one in the same place one panel later, or several
  int64_t first_row_ = 0;
  int64_t rows_ = 0;
  std::bitset<kMatrixRows> good_mask_;  // of the rows at work
  bool any_bad_ = false;                // outputs

  // Of a block of FP8 outputs and a chunk of steps.
  const uint8_t* loaded_scales_ = nullptr;
  bool scales_good_ = false;
  __m512i bias_[kChunk];       // what makes a code's exponent a bf16's
  __m512i subnormal_[kChunk];  // the look-up table of subnormal codes
};

}  // namespace

void multiply_by_matrix_units(const LinearRange& range) {
  if (range.weight.cols % kStep != 0 || range.weight.format == WeightFormat::f32) return kLinearAvx512.multiply(range);
  if (range.weight.format == WeightFormat::fp8) return MatrixMultiplier<WeightFormat::fp8>(range).run();
  if (range.weight.format == WeightFormat::mxfp4) return MatrixMultiplier<WeightFormat::mxfp4>(range).run();
  MatrixMultiplier<WeightFormat::bf16>(range).run();
}

// Linux lets a process use the tiles only after it asked.
bool matrix_units_granted() {
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace gannet::ops
