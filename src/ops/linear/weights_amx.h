#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "ops/linear/kernels.h"
#include "ops/matrix_units.h"

// How weights of each format become the bf16 that the matrix units take. Only files named *amx_avx512.cc may include
// this; as in ops/simd.h, everything has internal linkage.
//
// A line is 64 bytes of one output's codes, of which the last of a row may be shorter. It makes 1, 2 or 4 steps, rows
// of 32 bf16 values each. Every weight that is not f32 is exactly a bf16 value; decoders remember whether there were
// some that the units may not have (NaN, or subnormal with its scale), which `good` then tells of one output.
//
// The vectors' two ports bound decoding. Shifts, comparisons, largest and saturated values take the first, a look-up of
// 16 bits takes both; products with powers of two shift as well and take either.

namespace gannet::ops {
namespace {

constexpr int64_t kStep = 32;             // columns of an instruction
constexpr int64_t kGroup = kMatrixGroup;  // outputs and rows of one
constexpr int64_t kPairs = kStep / 2;     // of columns, each in 32 bits
constexpr int64_t kLine = 64;             // bytes

constexpr uint16_t kLeastWeight = (127 - 86) << 7;  // bits of the bf16 2^-86

constexpr int64_t line_steps(WeightFormat format) {
  return format == WeightFormat::mxfp4 ? 4 : format == WeightFormat::fp8 ? 2 : 1;
}

// Steps of a row of that many columns (a multiple of kStep), the last line filled up.
constexpr int64_t padded_steps(WeightFormat format, int64_t cols) {
  const int64_t each = line_steps(format);
  return (cols / kStep + each - 1) / each * each;
}

using Step = uint16_t[kGroup][kStep];  // of sixteen outputs

// Fetches what will be needed later to L2.
[[gnu::always_inline]] inline void fetch(const void* place) {
  _mm_prefetch(static_cast<const char*>(place), _MM_HINT_T1);
}

// A vector of equal words. The compiler would build it anew for each use, on a port that decoding waits for.
[[gnu::always_inline]] inline __m512i kept_words(int word) {
  __m512i v = _mm512_set1_epi16(static_cast<short>(word));
  __asm__("" : "+v"(v));
  return v;
}

[[gnu::always_inline]] inline __m512i kept(const void* words) {
  __m512i v = _mm512_load_si512(words);
  __asm__("" : "+v"(v));
  return v;
}

inline __mmask16 first_bytes(int64_t count) {
  return static_cast<__mmask16>((1U << std::clamp<int64_t>(count, 0, 16)) - 1);
}

// Where the codes and the scales of a matrix lie.
template <WeightFormat format>
class WeightLines {
 public:
  static constexpr int64_t kLineSteps = line_steps(format);

  explicit WeightLines(const WeightMatrix& weight)
      : data_(static_cast<const uint8_t*>(weight.data)),
        scale_(weight.scale),
        groups_(weight.cols / kStep),
        row_bytes_(groups_ * kLine / kLineSteps),
        lines_((row_bytes_ + kLine - 1) / kLine),
        last_bytes_(row_bytes_ - (lines_ - 1) * kLine) {}

  int64_t lines() const { return lines_; }
  int64_t row_bytes() const { return row_bytes_; }
  const uint8_t* codes(int64_t output) const { return data_ + output * row_bytes_; }
  const uint8_t* scales(int64_t scale_row) const { return scale_ + scale_row * groups_; }
  bool whole(int64_t line) const { return line + 1 < lines_ || last_bytes_ == kLine; }

 protected:
  // A line of codes, which ends with `fill` where it is shorter.
  __m512i codes_at(int64_t output, int64_t line, char fill) const {
    const uint8_t* from = codes(output) + line * kLine;
    if (whole(line)) return _mm512_loadu_si512(from);
    return _mm512_mask_loadu_epi8(_mm512_set1_epi8(fill), (uint64_t{1} << last_bytes_) - 1, from);
  }
  // Sixteen scales of a row from a line's on, which end with good ones where they are fewer.
  __m128i scales_at(int64_t scale_row, int64_t line) const {
    const int64_t first = line * kLineSteps;
    return _mm_mask_loadu_epi8(_mm_set1_epi8(127), first_bytes(groups_ - first), scale_ + scale_row * groups_ + first);
  }

  const uint8_t* data_;
  const uint8_t* scale_;
  int64_t groups_;  // of 32 columns
  int64_t row_bytes_;
  int64_t lines_;
  int64_t last_bytes_;
};

template <WeightFormat format>
class LineDecoder;

// MXFP4: 128 codes at a time. One look-up takes the lowest code of each sixteen bits, products bring the others there.
// The table's sizes are 2^63 too large, and each group's scale is what is taken away again: nothing from zero.
template <>
class LineDecoder<WeightFormat::mxfp4> : public WeightLines<WeightFormat::mxfp4> {
 public:
  using WeightLines::WeightLines;

  // What a loop holds in registers: where the lines lie, tables and what was seen. The compiler would load members of
  // the decoder again after each of its stores.
  struct Registers {
    WeightLines lines;
    __m512i values = kept(kValues);
    __m512i spread = kept(kSpread);
    __m512i down_4 = kept_words(1 << 12);
    __m512i down_8 = kept_words(1 << 8);
    __m512i down_12 = kept_words(1 << 4);
    __m256i most_less = _mm256_setzero_si256();
  };
  Registers load_registers() const { return {.lines = *this}; }
  void learn(const Registers& registers) { own_.most_less = _mm256_max_epu16(own_.most_less, registers.most_less); }

  // Makes ready for some lines from `line` on of `count` outputs, at most two groups.
  template <int64_t lines>
  void load_scales(int64_t /*first_output*/, int64_t /*count*/, int64_t /*line*/) {}

  // Writes whole lines of an output, of those for which the decoder is ready the o-th, to a row of each step, and
  // fetches what lies `later` bytes behind each.
  template <int64_t lines>
  [[gnu::always_inline]] void decode(Registers& registers, int64_t output, int64_t, int64_t line, int64_t later,
                                     Step* to, int64_t row) const {
    static_assert(lines >= 2 && lines <= 4);
    const uint8_t* from = registers.lines.codes(output) + line * kLine;
    const uint8_t* scales = registers.lines.scales(output) + line * kLineSteps;
    alignas(32) uint64_t less[lines == 2 ? 2 : 4];
    if constexpr (lines == 2) {
      take_scales(registers, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)), less);
    } else if constexpr (lines == 3) {
      take_scales(registers, _mm_mask_loadu_epi8(_mm_set1_epi8(127), 0x0fff, scales), less);
    } else {
      take_scales(registers, _mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)), less);
    }
    GANNET_UNROLL
    for (int64_t l = 0; l < lines; ++l) {
      fetch(from + l * kLine + later);
      decode_line(registers, _mm512_loadu_si512(from + l * kLine), less[l], to + l * kLineSteps, row);
    }
  }
  // The same of any number of lines, the last of which may be short.
  void decode_some(int64_t output, int64_t, int64_t line, int64_t count, int64_t later, Step* to, int64_t row) {
    alignas(32) uint64_t less[4];
    take_scales(own_, scales_at(output, line), less);
    for (int64_t l = 0; l < count; ++l) {
      fetch(codes(output) + (line + l) * kLine + later);
      decode_line(own_, codes_at(output, line + l, 0), less[l], to + l * kLineSteps, row);
    }
  }

  bool any_bad() const {
    return _mm256_cmpgt_epu16_mask(own_.most_less, _mm256_set1_epi16(kMostScale - kLeastScale)) != 0;
  }
  bool good(int64_t output) const {
    for (int64_t line = 0; line < lines_; line += 4) {
      if (bad_scales(scales_at(output, line))) return false;
    }
    return true;
  }

 private:
  // Of each scale what it takes away, for the four groups of a line each.
  [[gnu::always_inline]] static void take_scales(Registers& registers, __m128i scales, uint64_t (&less)[4]) {
    const __m256i words = _mm256_sub_epi16(_mm256_set1_epi16(kMostScale), _mm256_cvtepu8_epi16(scales));
    registers.most_less = _mm256_max_epu16(registers.most_less, words);
    _mm256_store_si256(reinterpret_cast<__m256i*>(less), _mm256_slli_epi16(words, 7));
    __asm__("" : "+m"(less));  // or the compiler would spread them by shuffles, whose port is needed
  }
  [[gnu::always_inline]] static void take_scales(Registers& registers, __m128i scales, uint64_t (&less)[2]) {
    const __m128i words = _mm_sub_epi16(_mm_set1_epi16(kMostScale), _mm_cvtepu8_epi16(scales));
    registers.most_less = _mm256_max_epu16(registers.most_less, _mm256_zextsi128_si256(words));
    _mm_store_si128(reinterpret_cast<__m128i*>(less), _mm_slli_epi16(words, 7));
    __asm__("" : "+m"(less));
  }

  [[gnu::always_inline]] static void decode_line(const Registers& registers, __m512i words, const uint64_t& scales,
                                                 Step* to, int64_t row) {
    const __m512i less = _mm512_shuffle_epi8(_mm512_set1_epi64(static_cast<int64_t>(scales)), registers.spread);
    _mm512_store_si512(to[0][row], value(registers, words, less));
    _mm512_store_si512(to[1][row], value(registers, _mm512_mulhi_epu16(words, registers.down_4), less));
    _mm512_store_si512(to[2][row], value(registers, _mm512_mulhi_epu16(words, registers.down_8), less));
    _mm512_store_si512(to[3][row], value(registers, _mm512_mulhi_epu16(words, registers.down_12), less));
  }
  [[gnu::always_inline]] static __m512i value(const Registers& registers, __m512i index, __m512i less) {
    return _mm512_subs_epu16(_mm512_permutexvar_epi16(index, registers.values), less);
  }

  // Twice, since the look-up takes five bits.
  alignas(64) static constexpr uint16_t kValues[32] = {0x0000, 0x5e80, 0x5f00, 0x5f40, 0x5f80, 0x5fc0, 0x6000, 0x6040,
                                                       0x0000, 0xde80, 0xdf00, 0xdf40, 0xdf80, 0xdfc0, 0xe000, 0xe040,
                                                       0x0000, 0x5e80, 0x5f00, 0x5f40, 0x5f80, 0x5fc0, 0x6000, 0x6040,
                                                       0x0000, 0xde80, 0xdf00, 0xdf40, 0xdf80, 0xdfc0, 0xe000, 0xe040};
  // In each 128 bits the bytes of one group's two, out of four groups'.
  alignas(64) static constexpr uint16_t kSpread[32] = {0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100,
                                                       0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302,
                                                       0x0504, 0x0504, 0x0504, 0x0504, 0x0504, 0x0504, 0x0504, 0x0504,
                                                       0x0706, 0x0706, 0x0706, 0x0706, 0x0706, 0x0706, 0x0706, 0x0706};

  Registers own_ = load_registers();  // of what is not usual
};

// FP8: 64 codes at a time, the even ones and the odd ones. A product with 16 or nothing brings the exponent and
// mantissa (see kE4m3Bias) and the sign to their places. Rows with codes that
// are zero, subnormal or NaN take a longer way.
template <>
class LineDecoder<WeightFormat::fp8> : public WeightLines<WeightFormat::fp8> {
 public:
  using WeightLines::WeightLines;

  struct Registers {
    WeightLines lines;
    __m512i even = kept_words(0x0010);
    __m512i odd = kept_words(0x1000);
    __m512i bits = kept_words(0x87f0);
    __m512i sixteens = kept_words(0x1010);
    __m512i largest = kept_words(0x0101 * kLargest);
  };
  Registers load_registers() const { return {.lines = *this}; }
  void learn(const Registers& /*registers*/) {}

  template <int64_t lines>
  void load_scales(int64_t first_output, int64_t count, int64_t line) {
    static_assert(lines <= kMostLines);
    const int64_t block = first_output / kStep;
    next_block_ = (block + 1) * kStep - first_output;
    load_block<lines>(block, line, bias_[0]);
    if (count > next_block_) load_block<lines>(block + 1, line, bias_[1]);
  }

  template <int64_t lines>
  [[gnu::always_inline]] void decode(const Registers& registers, int64_t output, int64_t o, int64_t line, int64_t later,
                                     Step* to, int64_t row) {
    decode_whole(registers, output, o, line, lines, later, to, row);
  }
  [[gnu::noinline]] void decode_some(int64_t output, int64_t o, int64_t line, int64_t count, int64_t later, Step* to,
                                     int64_t row) {
    const int64_t wholes = whole(line + count - 1) ? count : count - 1;
    decode_whole(own_, output, o, line, wholes, later, to, row);
    if (wholes < count) decode_unusual(output, o, line, wholes, count, to, row);
  }

  bool any_bad() const { return any_bad_; }
  bool good(int64_t output) const {
    for (int64_t line = 0; line < lines_; ++line) {
      if (has_nan(codes_at(output, line, kOne)) || bad_scales(scales_at(output / kStep, line))) return false;
    }
    return true;
  }

 private:
  static constexpr char kOne = 0x38;
  static constexpr uint8_t kLargest = 0x7e * 2 - 16;  // of normal codes; NaN is larger, small ones wrap around
  static constexpr int64_t kMostLines = 8;

  // For each line, what makes its codes' exponents bf16's with their scales.
  template <int64_t lines>
  void load_block(int64_t block, int64_t line, __m512i (&bias)[kMostLines]) {
    const __m128i scales = scales_at(block, line);
    any_bad_ |= bad_scales(scales);
    alignas(32) uint16_t words[2 * kMostLines];
    const __m256i exponents = _mm256_sub_epi16(_mm256_cvtepu8_epi16(scales), _mm256_set1_epi16(127));
    _mm256_store_si256(reinterpret_cast<__m256i*>(words),
                       _mm256_add_epi16(_mm256_slli_epi16(exponents, 7), _mm256_set1_epi16(kE4m3Bias)));
    for (int64_t l = 0; l < lines; ++l) {
      bias[l] = _mm512_mask_set1_epi16(_mm512_set1_epi16(static_cast<short>(words[2 * l])), 0xffff0000,
                                       static_cast<short>(words[2 * l + 1]));
    }
  }
  const __m512i* bias_of(int64_t o) const { return bias_[o >= next_block_ ? 1 : 0]; }

  // Of a code's bits from 4 on and copies of its sign.
  [[gnu::always_inline]] static __m512i value(const Registers& registers, __m512i bits, __m512i bias) {
    return _mm512_add_epi16(_mm512_and_si512(bits, registers.bits), bias);
  }

  [[gnu::always_inline]] void decode_whole(const Registers& registers, int64_t output, int64_t o, int64_t line,
                                           int64_t count, int64_t later, Step* to, int64_t row) {
    const uint8_t* from = registers.lines.codes(output) + line * kLine;
    const __m512i* bias = bias_of(o);
    __m512i most = _mm512_setzero_si512();
    GANNET_UNROLL
    for (int64_t l = 0; l < count; ++l) {
      fetch(from + l * kLine + later);
      const __m512i bytes = _mm512_loadu_si512(from + l * kLine);
      most = _mm512_max_epu8(most, _mm512_sub_epi8(_mm512_add_epi8(bytes, bytes), registers.sixteens));
      _mm512_store_si512(to[2 * l][row], value(registers, _mm512_maddubs_epi16(registers.even, bytes), bias[l]));
      _mm512_store_si512(to[2 * l + 1][row], value(registers, _mm512_maddubs_epi16(registers.odd, bytes), bias[l]));
    }
    if (_mm512_cmpgt_epu8_mask(most, registers.largest) == 0) [[likely]]
      return;
    decode_unusual(output, o, line, 0, count, to, row);
  }

  // Lines [first, end) from `line` on, whatever they hold.
  [[gnu::noinline]] void decode_unusual(int64_t output, int64_t o, int64_t line, int64_t first, int64_t end, Step* to,
                                        int64_t row) {
    const __m512i* bias = bias_of(o);
    for (int64_t l = first; l < end; ++l) {
      const __m512i bytes = codes_at(output, line + l, kOne);
      any_bad_ |= has_nan(bytes);
      _mm512_store_si512(to[2 * l][row], e4m3_to_bf16(_mm512_slli_epi16(bytes, 8), bias[l]));
      _mm512_store_si512(to[2 * l + 1][row], e4m3_to_bf16(bytes, bias[l]));
    }
  }

  static bool has_nan(__m512i bytes) {
    const __m512i size = _mm512_and_si512(bytes, _mm512_set1_epi8(0x7f));
    return _mm512_cmpeq_epi8_mask(size, _mm512_set1_epi8(0x7f)) != 0;
  }

  const Registers own_ = load_registers();
  int64_t next_block_ = 0;  // the first output whose scales are the second block's
  bool any_bad_ = false;
  __m512i bias_[2][kMostLines];
};

// BF16: 32 weights at a time, as they are.
template <>
class LineDecoder<WeightFormat::bf16> : public WeightLines<WeightFormat::bf16> {
 public:
  using WeightLines::WeightLines;

  struct Registers {
    WeightLines lines;
    __m512i least = _mm512_set1_epi16(-1);
  };
  Registers load_registers() const { return {.lines = *this}; }
  void learn(const Registers& registers) { own_.least = _mm512_min_epu16(own_.least, registers.least); }

  template <int64_t lines>
  void load_scales(int64_t /*first_output*/, int64_t /*count*/, int64_t /*line*/) {}

  template <int64_t lines>
  [[gnu::always_inline]] void decode(Registers& registers, int64_t output, int64_t, int64_t line, int64_t later,
                                     Step* to, int64_t row) const {
    decode_lines(registers, output, line, lines, later, to, row);
  }
  void decode_some(int64_t output, int64_t, int64_t line, int64_t count, int64_t later, Step* to, int64_t row) {
    decode_lines(own_, output, line, count, later, to, row);  // none is short
  }

  bool any_bad() const { return too_small(own_.least); }
  bool good(int64_t output) const {
    __m512i least = _mm512_set1_epi16(-1);
    for (int64_t line = 0; line < lines_; ++line) {
      least = _mm512_min_epu16(least, size_less_one(codes_at(output, line, 0)));
    }
    return !too_small(least);
  }

 private:
  [[gnu::always_inline]] void decode_lines(Registers& registers, int64_t output, int64_t line, int64_t count,
                                           int64_t later, Step* to, int64_t row) const {
    const uint8_t* from = registers.lines.codes(output) + line * kLine;
    GANNET_UNROLL
    for (int64_t l = 0; l < count; ++l) {
      fetch(from + l * kLine + later);
      const __m512i values = _mm512_loadu_si512(from + l * kLine);
      registers.least = _mm512_min_epu16(registers.least, size_less_one(values));
      _mm512_store_si512(to[l][row], values);
    }
  }

  // Zero becomes the largest.
  static __m512i size_less_one(__m512i values) {
    return _mm512_sub_epi16(_mm512_and_si512(values, _mm512_set1_epi16(0x7fff)), _mm512_set1_epi16(1));
  }
  static bool too_small(__m512i least) {
    return _mm512_cmplt_epu16_mask(least, _mm512_set1_epi16(kLeastWeight - 1)) != 0;
  }

  Registers own_ = load_registers();
};

}  // namespace
}  // namespace gannet::ops
