#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/number_formats.h"
#include "base/quantize.h"
#include "ops/attention/kernels.h"
#include "ops/matrix_units.h"

// Attention by the matrix units. Every key is exactly a bf16 value, and so is a rotated query where activations are
// bf16; sums are fp32. The units take subnormal numbers for zero, which moves a score or an output by less than 2^-50.
//
// An element of a product depends on its own row and column alone, whatever lies beside it, and adds up blocks of 32 in
// order: a row's bits do not depend on its batch as long as its keys come in the same blocks.

namespace gannet::ops {
namespace {

constexpr int64_t kStep = 32;  // channels or keys of an instruction
constexpr int64_t kTile = 16;  // rows of a tile
constexpr int64_t kPairs = kStep / 2;
constexpr int64_t kTileWords = kTile * kStep;  // 16-bit words of a tile
constexpr int64_t kChunkUnits = 8;             // units whose scales are decoded at a time

// Channels are taken in units of 64: the even ones are a step, the odd ones the next, which is how codes fall out of
// their bytes. A last unit may be half full; the rest is zero.
constexpr int64_t kUnit = kChannelUnit;
static_assert(kUnit == 2 * kStep);

struct Unit {
  __m512i even, odd;
};

// The first in the lower half of all lanes, the second in the upper one.
__m512i lanes_of(uint32_t first, uint32_t second) {
  return _mm512_mask_set1_epi32(_mm512_set1_epi32(static_cast<int>(first)), 0xff00, static_cast<int>(second));
}

// 32 window keys (records of Q8).
class Q8Keys {
 public:
  // Takes units from `first` on of a record, at most kChunkUnits; false if a scale is out of bounds.
  bool begin(int64_t key, const uint8_t* record, int64_t dim, int64_t first) {
    codes_[key] = record + first * kUnit;
    left_ = dim - first * kUnit;
    const int64_t groups = std::min(2 * kChunkUnits, left_ / kMxGroup);
    const auto mask = static_cast<__mmask16>((1U << groups) - 1);
    const __m128i codes = _mm_mask_loadu_epi8(_mm_set1_epi8(127), mask, record + dim + first * kUnit / kMxGroup);
    const __m512i shift = _mm512_slli_epi32(_mm512_sub_epi32(_mm512_cvtepu8_epi32(codes), _mm512_set1_epi32(127)), 7);
    const __m512i low = _mm512_and_si512(shift, _mm512_set1_epi32(0xffff));
    const __m512i twice = _mm512_or_si512(low, _mm512_slli_epi32(shift, 16));
    _mm512_store_si512(biases_[key], _mm512_add_epi16(twice, _mm512_set1_epi16(kE4m3Bias)));
    return !bad_scales(codes);
  }

  // Keeps the largest of all codes without their signs in `most`.
  Unit decode(int64_t key, int64_t unit, __m512i& most) const {
    const uint8_t* from = codes_[key] + unit * kUnit;
    const __mmask64 mask = left_ - unit * kUnit < kUnit ? __mmask64{0xffffffff} : ~__mmask64{0};
    const __m512i bytes = _mm512_maskz_loadu_epi8(mask, from);
    const __m512i bias = lanes_of(biases_[key][2 * unit], biases_[key][2 * unit + 1]);
    most = _mm512_max_epu8(most, _mm512_and_si512(bytes, _mm512_set1_epi8(0x7f)));
    if (_mm512_testn_epi8_mask(bytes, _mm512_set1_epi8(0x78)) != 0) {
      return {e4m3_to_bf16(_mm512_slli_epi16(bytes, 8), bias), e4m3_to_bf16(bytes, bias)};
    }
    // The sign at bit 15, the others from bit 10 on; what else the arithmetic shift leaves is cut away.
    const __m512i bits = _mm512_set1_epi16(static_cast<short>(0x87f0));
    const __m512i even = _mm512_and_si512(_mm512_srai_epi16(_mm512_slli_epi16(bytes, 8), 4), bits);
    const __m512i odd = _mm512_and_si512(_mm512_srai_epi16(bytes, 4), bits);
    return {_mm512_add_epi16(even, bias), _mm512_add_epi16(odd, bias)};
  }

 private:
  const uint8_t* codes_[kKeyBlock];
  int64_t left_ = 0;                                         // channels from the chunk's first one on
  alignas(64) uint32_t biases_[kKeyBlock][2 * kChunkUnits];  // of a group: the scale's exponent and kE4m3Bias, twice
};

// 32 global entries (records of Q4nv).
class Q4nvKeys {
 public:
  bool begin(int64_t key, const uint8_t* record, int64_t dim, int64_t first) {
    codes_[key] = record + first * kUnit / 2;
    left_ = dim - first * kUnit;
    const int64_t groups = std::min(kChunkUnits * kUnit, left_) / kNvGroup;
    const auto mask = static_cast<__mmask32>((uint64_t{1} << groups) - 1);
    const __m256i codes = _mm256_maskz_loadu_epi8(mask, record + dim / 2 + first * kUnit / kNvGroup);
    _mm512_store_ps(scales_[key], e4m3(_mm256_castsi256_si128(codes)));
    _mm512_store_ps(scales_[key] + 16, e4m3(_mm256_extracti128_si256(codes, 1)));
    const __m256i size = _mm256_and_si256(codes, _mm256_set1_epi8(0x7f));
    return _mm256_cmpeq_epi8_mask(size, _mm256_set1_epi8(0x7f)) == 0;  // NaN
  }

  Unit decode(int64_t key, int64_t unit, __m512i&) const {
    const uint8_t* from = codes_[key] + unit * kUnit / 2;
    const __mmask32 mask = left_ - unit * kUnit < kUnit ? __mmask32{0xffff} : ~__mmask32{0};
    const __m512i bytes = _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8(mask, from));
    // Twice a code, plus which of a table's two scales it has: every other eight bytes have the second.
    const __m512i which = _mm512_maskz_set1_epi64(0xcc, 0x0001000100010001);
    const __m512i codes = _mm512_set1_epi16(0x1e);
    const __m512i even = _mm512_ternarylogic_epi32(_mm512_slli_epi16(bytes, 1), codes, which, 0xea);  // (a & b) | c
    const __m512i odd = _mm512_ternarylogic_epi32(_mm512_srli_epi16(bytes, 3), codes, which, 0xea);
    const float* scales = scales_[key] + 4 * unit;
    const __m512i low = table(scales[0], scales[1]);
    const __m512i high = table(scales[2], scales[3]);
    constexpr __mmask32 kHigh = 0xffff0000;
    return {_mm512_mask_permutexvar_epi16(_mm512_permutexvar_epi16(even, low), kHigh, even, high),
            _mm512_mask_permutexvar_epi16(_mm512_permutexvar_epi16(odd, low), kHigh, odd, high)};
  }

 private:
  // All values with the first scale in even words, with the second in odd ones.
  static __m512i table(float first, float second) {
    const __m512 values = _mm512_loadu_ps(kE2m1Values);
    const __m512i a = _mm512_castps_si512(_mm512_mul_ps(values, _mm512_set1_ps(first)));
    const __m512i b = _mm512_castps_si512(_mm512_mul_ps(values, _mm512_set1_ps(second)));
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
    return _mm512_ternarylogic_epi32(_mm512_srli_epi32(a, 16), b, high, 0xf8);  // a | (b & c)
  }

  // Sixteen E4M3 codes, see record_decode/cpu_avx512.cc.
  static __m512 e4m3(__m128i codes) {
    const __m256i high = _mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8);
    const __m256i t = _mm256_srai_epi16(high, 1);
    const __m256i next = _mm256_add_epi16(t, _mm256_set1_epi16(0x80));
    const __m512 value = _mm512_cvtph_ps(_mm256_ternarylogic_epi32(t, next, _mm256_set1_epi16(0x4000), 0x78));
    return _mm512_mul_ps(value, _mm512_set1_ps(256.0F));
  }

  const uint8_t* codes_[kKeyBlock];
  int64_t left_ = 0;
  alignas(64) float scales_[kKeyBlock][4 * kChunkUnits];
};

// ---- queries ----

// Every second word of two vectors.
__m512i even_words(__m512i a, __m512i b) {
  alignas(64) static constexpr uint16_t kEven[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30,
                                                     32, 34, 36, 38, 40, 42, 44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
  return _mm512_permutex2var_epi16(a, _mm512_load_si512(kEven), b);
}
__m512i odd_words(__m512i a, __m512i b) {
  return even_words(_mm512_srli_epi32(a, 16), _mm512_srli_epi32(b, 16));
}

// 32 channels as bf16, which they are.
__m512i bf16_words(const float* q) {
  return odd_words(_mm512_loadu_si512(q), _mm512_loadu_si512(q + 16));
}

// A group's queries of a step: [pairs of channels][columns][2].
void pack_queries(const float* q, int64_t columns, int64_t dim, uint16_t* packed) {
  for (int64_t first = 0; first < columns; first += kColumnGroup) {
    const int64_t count = std::min(kColumnGroup, columns - first);
    for (int64_t c = 0; c < dim; c += kUnit, packed += 2 * kTileWords) {
      __m512i even[kColumnGroup];
      __m512i odd[kColumnGroup];
      for (int64_t i = 0; i < kColumnGroup; ++i) {
        const float* from = q + (first + std::min(i, count - 1)) * dim + c;
        const __m512i low = bf16_words(from);
        const __m512i high = c + kStep < dim ? bf16_words(from + kStep) : _mm512_setzero_si512();
        even[i] = even_words(low, high);
        odd[i] = odd_words(low, high);
      }
      transpose(even);
      transpose(odd);
      for (int64_t k = 0; k < kPairs; ++k) {
        _mm512_store_si512(packed + k * kStep, even[k]);
        _mm512_store_si512(packed + kTileWords + k * kStep, odd[k]);
      }
    }
  }
}

// ---- keys ----

// A part of the records that are needed next: one behind the other, so that the processor goes on by itself.
void prefetch(const NextRecords& next, int64_t part, int64_t parts) {
  constexpr int64_t kLine = 64;
  if (next.records == nullptr) return;
  for (int64_t i = part * kKeyBlock / parts; i < (part + 1) * kKeyBlock / parts; ++i) {
    const auto* record = reinterpret_cast<const char*>(next.records[i]);
    if (record == nullptr) continue;
    for (int64_t byte = 0; byte < next.bytes; byte += kLine) _mm_prefetch(record + byte, _MM_HINT_T1);
  }
}

// Decodes a block of keys a unit of channels at a time: to `values` and to tiles of keys for the products with the
// queries. One group of columns meets those at once; more of them go through all tiles afterwards. Either way each sum
// takes the channels in order. Sums in tiles 0 to 3, keys in 4 and 5, queries in 6 and 7.
template <class Keys>
class BlockOfKeys {
 public:
  explicit BlockOfKeys(const KeyBlockParams& params) : p_(params), units_(units_of(params.dim)) {}

  GANNET_AMX uint32_t run() {
    find_keys();
    const bool at_once = p_.groups == 1;
    __m512i most = _mm512_setzero_si512();
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t unit = 0; unit < units_; ++unit) {
      if (unit % kChunkUnits == 0) begin_chunk(unit);
      decode(unit, tiles(at_once ? unit % kAtOnceUnits : unit), most);
      if (at_once && unit > 0) add_unit(unit - 1, tiles((unit - 1) % kAtOnceUnits));
    }
    if (at_once) {
      add_unit(units_ - 1, tiles((units_ - 1) % kAtOnceUnits));
      store(0);
    } else {
      multiply_groups();
    }
    if (_mm512_cmpeq_epi8_mask(most, _mm512_set1_epi8(0x7f)) != 0) find_nan();
    const uint32_t wrong = bad_ & present_;
    if ((wrong | ~present_) != 0) clear(wrong | ~present_);
    return wrong;
  }

 private:
  // The units read keys from memory only when their stores are through: they are a unit of channels behind.
  static constexpr int64_t kAtOnceUnits = 2;

  // A unit's four tiles: both halves of the keys, even channels, then odd ones.
  uint16_t* tiles(int64_t unit) const { return p_.workspace + unit * 4 * kTileWords; }
  bool pair_present(int64_t pair) const { return (present_ >> 2 * pair & 3) != 0; }

  // A missing key beside one that is there is decoded like that one, and cleared at last.
  void find_keys() {
    for (int64_t i = 0; i < kKeyBlock; ++i) {
      records_[i] = p_.records[i] != nullptr ? p_.records[i] : p_.records[i ^ 1];
      present_ |= p_.records[i] != nullptr ? 1U << i : 0U;
    }
  }

  void begin_chunk(int64_t unit) {
    for (int64_t i = 0; i < kKeyBlock; ++i) {
      if (records_[i] == nullptr) continue;
      bad_ |= keys_.begin(i, records_[i], p_.dim, unit) ? 0U : 1U << i;
    }
  }

  // A unit to [keys][channels] of four tiles, and to [pairs of keys][channels][2 keys] of four tiles of values, whose
  // channels are as they fall out of the unpacking (see store_restored).
  void decode(int64_t unit, uint16_t* tiles, __m512i& most) const {
    uint16_t* values = p_.values + unit * 4 * kTileWords;
    prefetch(p_.next, unit, units_);
    for (int64_t i = 0; i < kKeyBlock; i += 2, values += kStep) {
      if (!pair_present(i / 2)) continue;
      const Unit a = keys_.decode(i, unit % kChunkUnits, most);
      const Unit b = keys_.decode(i + 1, unit % kChunkUnits, most);
      uint16_t* to = tiles + i * kStep;
      _mm512_store_si512(to, a.even);
      _mm512_store_si512(to + kStep, b.even);
      _mm512_store_si512(to + 2 * kTileWords, a.odd);
      _mm512_store_si512(to + 2 * kTileWords + kStep, b.odd);
      _mm512_store_si512(values, _mm512_unpacklo_epi16(a.even, b.even));
      _mm512_store_si512(values + kTileWords, _mm512_unpackhi_epi16(a.even, b.even));
      _mm512_store_si512(values + 2 * kTileWords, _mm512_unpacklo_epi16(a.odd, b.odd));
      _mm512_store_si512(values + 3 * kTileWords, _mm512_unpackhi_epi16(a.odd, b.odd));
    }
  }

  // Only Q8 codes show in `most`.
  void find_nan() {
    for (int64_t i = 0; i < kKeyBlock; ++i) {
      if (records_[i] == nullptr) continue;
      for (int64_t c = 0; c < p_.dim; ++c) bad_ |= (records_[i][c] & 0x7f) == 0x7f ? 1U << i : 0U;
    }
  }

  void clear(uint32_t keys) const {
    for (int64_t pair = 0; pair < kPairs; ++pair) {
      const uint32_t bits = keys >> 2 * pair & 3;
      if (bits == 0) continue;
      const uint32_t kept = ((bits & 1) != 0 ? 0 : 0xffffU) | ((bits & 2) != 0 ? 0 : 0xffff0000U);
      for (int64_t tile = 0; tile < 4 * units_; ++tile) {
        uint16_t* at = p_.values + tile * kTileWords + pair * kStep;
        const __m512i old = kept != 0 ? _mm512_load_si512(at) : _mm512_setzero_si512();
        _mm512_store_si512(at, _mm512_and_si512(old, _mm512_set1_epi32(static_cast<int>(kept))));
      }
    }
  }

  const uint16_t* queries(int64_t group, int64_t unit) const {
    return p_.queries + group * packed_query_words(p_.dim) + unit * 2 * kTileWords;
  }

  GANNET_AMX void add_unit(int64_t unit, const uint16_t* tiles) const {
    _tile_loadd(6, queries(0, unit), 64);
    _tile_loadd(4, tiles, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(5, tiles + kTileWords, 64);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(7, queries(0, unit) + kTileWords, 64);
    _tile_loadd(4, tiles + 2 * kTileWords, 64);
    _tile_dpbf16ps(0, 4, 7);
    _tile_loadd(5, tiles + 3 * kTileWords, 64);
    _tile_dpbf16ps(1, 5, 7);
  }

  GANNET_AMX void multiply_groups() const {
    for (int64_t group = 0; group < p_.groups; group += 2) {
      const int64_t second = std::min(group + 1, p_.groups - 1);
      if (!wanted(group) && !wanted(second)) continue;
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t step = 0; step < 2 * units_; ++step) {
        const uint16_t* keys = tiles(0) + step * 2 * kTileWords;
        _tile_loadd(4, keys, 64);
        _tile_loadd(6, queries(group, 0) + step * kTileWords, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, keys + kTileWords, 64);
        _tile_dpbf16ps(1, 5, 6);
        _tile_loadd(7, queries(second, 0) + step * kTileWords, 64);
        _tile_dpbf16ps(2, 4, 7);
        _tile_dpbf16ps(3, 5, 7);
      }
      store(group);
      if (second != group) store_second(second);
    }
  }

  bool wanted(int64_t group) const {
    float* const* scores = p_.scores + group * kColumnGroup;
    return std::any_of(scores, scores + kColumnGroup, [](const float* to) { return to != nullptr; });
  }

  GANNET_AMX void store(int64_t group) const {
    alignas(64) float sums[2][kTile][kColumnGroup];
    _tile_stored(0, sums[0], 64);
    _tile_stored(1, sums[1], 64);
    store_sums(group, sums);
  }

  GANNET_AMX void store_second(int64_t group) const {
    alignas(64) float sums[2][kTile][kColumnGroup];
    _tile_stored(2, sums[0], 64);
    _tile_stored(3, sums[1], 64);
    store_sums(group, sums);
  }

  void store_sums(int64_t group, const float (&sums)[2][kTile][kColumnGroup]) const {
    float* const* scores = p_.scores + group * kColumnGroup;
    for (int64_t half = 0; half < 2; ++half) {
      __m512i columns[kTile];
      GANNET_UNROLL
      for (int64_t i = 0; i < kTile; ++i) columns[i] = _mm512_load_si512(sums[half][i]);
      transpose(columns);
      for (int64_t c = 0; c < kColumnGroup; ++c) {
        if (scores[c] != nullptr) _mm512_storeu_si512(scores[c] + half * kTile, columns[c]);
      }
    }
  }

  const KeyBlockParams& p_;
  const int64_t units_;
  Keys keys_;
  const uint8_t* records_[kKeyBlock];
  uint32_t present_ = 0;
  uint32_t bad_ = 0;
};

uint32_t key_block(const KeyBlockParams& p) {
  return p.format == KeyFormat::q8 ? BlockOfKeys<Q8Keys>(p).run() : BlockOfKeys<Q4nvKeys>(p).run();
}

// ---- weighted sum ----

// From four tiles' channels (see BlockOfKeys::decode) to 64 in their usual order, or to the first 32.
void store_restored(__m512 even_low, __m512 even_high, __m512 odd_low, __m512 odd_high, bool whole, float* to) {
  const __m512i halves[2] = {_mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0), _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4)};
  const __m512i first = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (int64_t half = 0; half < (whole ? 2 : 1); ++half, to += kStep) {
    const __m512 even =
        _mm512_castpd_ps(_mm512_permutex2var_pd(_mm512_castps_pd(even_low), halves[half], _mm512_castps_pd(even_high)));
    const __m512 odd =
        _mm512_castpd_ps(_mm512_permutex2var_pd(_mm512_castps_pd(odd_low), halves[half], _mm512_castps_pd(odd_high)));
    _mm512_storeu_ps(to, _mm512_permutex2var_ps(even, first, odd));
    _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(even, second, odd));
  }
}

class WeightedSum {
 public:
  explicit WeightedSum(const WeightedSumParams& params) : p_(params), keys_(params.count * kKeyBlock) {}

  GANNET_AMX void run() const {
    for (int64_t h = 0; h < p_.heads; ++h) split(p_.weights + h * p_.weight_stride, parts(h));
    for (int64_t c = 0; c < p_.dim; c += kUnit) unit(c);
  }

 private:
  uint16_t* parts(int64_t head) const { return p_.workspace + 3 * head * keys_; }

  // Upper, middle and lower eight bits of each weight, as three rows of bf16.
  void split(const float* weights, uint16_t* to) const {
    const auto cut = [](__m512 v) {
      return _mm512_castsi512_ps(
          _mm512_and_si512(_mm512_castps_si512(v), _mm512_set1_epi32(static_cast<int>(0xffff0000U))));
    };
    for (int64_t j = 0; j < keys_; j += kStep) {
      __m512 first = _mm512_load_ps(weights + j);
      __m512 second = _mm512_load_ps(weights + j + 16);
      GANNET_UNROLL
      for (int64_t part = 0; part < 3; ++part) {
        _mm512_store_si512(to + part * keys_ + j, odd_words(_mm512_castps_si512(first), _mm512_castps_si512(second)));
        first = _mm512_sub_ps(first, cut(first));
        second = _mm512_sub_ps(second, cut(second));
      }
    }
  }

  // The unit of channels from c on, of all heads. Sums in tiles 0 to 3, weights in 4, keys in 5 and 6.
  GANNET_AMX void unit(int64_t c) const {
    prefetch(p_.next, c / kUnit, units_of(p_.dim));
    const int64_t weight_bytes = keys_ * int64_t{sizeof(uint16_t)};
    for (int64_t h = 0; h < p_.heads; h += kSumHeads) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
      for (int64_t b = 0; b < p_.count; ++b) {
        const uint16_t* values = p_.blocks[b] + c * kKeyBlock;
        _tile_loadd(4, parts(h) + b * kKeyBlock, weight_bytes);
        _tile_loadd(5, values, 64);
        _tile_dpbf16ps(0, 4, 5);
        _tile_loadd(6, values + kTileWords, 64);
        _tile_dpbf16ps(1, 4, 6);
        _tile_loadd(5, values + 2 * kTileWords, 64);
        _tile_dpbf16ps(2, 4, 5);
        _tile_loadd(6, values + 3 * kTileWords, 64);
        _tile_dpbf16ps(3, 4, 6);
      }
      alignas(64) float sums[4][kTile][kTile];
      _tile_stored(0, sums[0], 64);
      _tile_stored(1, sums[1], 64);
      _tile_stored(2, sums[2], 64);
      _tile_stored(3, sums[3], 64);
      for (int64_t i = 0; i < std::min(kSumHeads, p_.heads - h); ++i) {
        const __m512 total = _mm512_set1_ps(p_.totals[h + i]);
        const auto mean = [&](int tile) {
          const float* part = sums[tile][3 * i];
          const __m512 small = _mm512_add_ps(_mm512_load_ps(part + 2 * kTile), _mm512_load_ps(part + kTile));
          return _mm512_div_ps(_mm512_add_ps(small, _mm512_load_ps(part)), total);
        };
        store_restored(mean(0), mean(1), mean(2), mean(3), c + kUnit <= p_.dim, p_.out + (h + i) * p_.dim + c);
      }
    }
  }

  const WeightedSumParams& p_;
  const int64_t keys_;
};

void weighted_sum(const WeightedSumParams& p) {
  WeightedSum(p).run();
}

GANNET_AMX void begin() {
  _tile_loadconfig(&kFullTiles);
}

GANNET_AMX void end() {
  _tile_release();
}

}  // namespace

const MatrixAttentionKernels kMatrixAttention = {
    .begin = begin, .end = end, .pack_queries = pack_queries, .key_block = key_block, .weighted_sum = weighted_sum};

}  // namespace gannet::ops
