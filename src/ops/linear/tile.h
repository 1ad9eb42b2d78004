#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "base/number_formats.h"
#include "ops/linear/kernels.h"
#include "ops/simd.h"

// The loops of the fast linear, written once for all instruction sets. Each *avx*.cc file supplies `Simd` (a vector
// type and its decoders) with internal linkage, so that nothing compiled for one instruction set can be linked into
// another.
//
// The order of an output's sum is the same in every path: lane l of one accumulator takes columns in rising order, then
// the lanes are added as Simd::sum does. That makes a row's result independent of the rows beside it.

namespace gannet::ops {
namespace {

constexpr int64_t kBlock = 32;      // columns (and FP8 rows) that share a scale
constexpr int64_t kTileCols = 512;  // columns decoded at a time: 16 scales, one vector
constexpr int64_t kTileScales = kTileCols / kBlock;
constexpr int64_t kPanelRows = 64;  // rows that share one decoded panel; their inputs stay in L2

// As round_to_bf16 in base/number_formats.h.
__m128 round_to_bf16(__m128 value) {
  const __m128i bits = _mm_castps_si128(value);
  const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
  const __m128i nearest = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), odd);
  const __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(value, value));
  const __m128i quiet = _mm_or_si128(bits, _mm_set1_epi32(0x400000));
  const __m128i chosen = _mm_blendv_epi8(nearest, quiet, nan);
  return _mm_castsi128_ps(_mm_and_si128(chosen, _mm_set1_epi32(static_cast<int>(0xffff0000U))));
}

template <WeightFormat format>
constexpr int64_t bytes_of(int64_t cols) {
  if constexpr (format == WeightFormat::fp8) return cols;
  if constexpr (format == WeightFormat::mxfp4) return cols / 2;
  if constexpr (format == WeightFormat::bf16) return cols * 2;
  return cols * 4;
}

// Adds the products of some inputs with decoded weights, `stride` apart, over `width` columns.
template <class Simd, int rows, int outputs>
void add_products(const float* const (&x)[rows], const float* weights, int64_t stride, int64_t width,
                  typename Simd::Vector (&sums)[rows][outputs]) {
  using Vector = typename Simd::Vector;
  for (int64_t col = 0; col < width; col += Simd::kLanes) {
    Vector inputs[rows];
    GANNET_UNROLL
    for (int r = 0; r < rows; ++r) inputs[r] = Simd::load(x[r] + col);
    GANNET_UNROLL
    for (int n = 0; n < outputs; ++n) {
      const Vector w = Simd::keep(Simd::load(weights + n * stride + col));
      GANNET_UNROLL
      for (int r = 0; r < rows; ++r) sums[r][n] = Simd::fma(w, inputs[r], sums[r][n]);
    }
  }
}

// Adds up the lanes of all sums, times `factor`; of each row the first `count` outputs are stored.
template <class Simd, int rows, int outputs>
[[gnu::always_inline]] inline void store_sums(const typename Simd::Vector (&sums)[rows][outputs], float factor,
                                              bool round, int64_t count, float* y, int64_t y_stride) {
  alignas(64) float values[rows * outputs];
  Simd::template reduce<rows * outputs>(&sums[0][0], values);
  for (int r = 0; r < rows; ++r, y += y_stride) {
    const float* from = values + r * outputs;
    int64_t n = 0;
    for (; n + 4 <= count; n += 4) {
      const __m128 four = _mm_mul_ps(_mm_loadu_ps(from + n), _mm_set1_ps(factor));
      _mm_storeu_ps(y + n, round ? round_to_bf16(four) : four);
    }
    for (; n < count; ++n) y[n] = round ? gannet::round_to_bf16(from[n] * factor) : from[n] * factor;
  }
}

// Products of decoded rows with each other.
template <class Simd>
class Dots {
 public:
  explicit Dots(const DotsRange& range) : range_(range) {}

  // A few inputs stay in L1 while all weights pass by.
  void run() const {
    constexpr int64_t kInputs = 8;
    constexpr int kOutputs = Simd::kDotsOutputs;
    for (int64_t row = 0; row < range_.rows; row += kInputs) {
      const int64_t end = std::min(row + kInputs, range_.rows);
      int64_t n = 0;
      for (; n + kOutputs <= range_.count; n += kOutputs) blocks<kOutputs>(row, end, n);
      for (; n < range_.count; ++n) blocks<1>(row, end, n);
    }
  }

 private:
  template <int outputs>
  void blocks(int64_t row, int64_t end, int64_t n) const {
    constexpr int kRows = Simd::kDotsRows;
    for (; row + kRows <= end; row += kRows) block<kRows, outputs>(row, n);
    for (; row < end; ++row) block<1, outputs>(row, n);
  }

  template <int rows, int outputs>
  void block(int64_t row, int64_t n) const {
    const float* x[rows];
    for (int r = 0; r < rows; ++r) x[r] = range_.x + (row + r) * range_.x_stride;
    typename Simd::Vector sums[rows][outputs];
    GANNET_UNROLL
    for (int i = 0; i < rows * outputs; ++i) sums[i / outputs][i % outputs] = Simd::zero();
    add_products<Simd>(x, range_.w + n * range_.w_stride, range_.w_stride, range_.cols, sums);
    store_sums<Simd>(sums, 1.0F, false, outputs, range_.y + row * range_.y_stride + n, range_.y_stride);
  }

  const DotsRange& range_;
};

template <class Simd, WeightFormat format>
class Multiplier {
 public:
  explicit Multiplier(const LinearRange& range) : range_(range), cols_(range.weight.cols) {}

  void run() {
    if (range_.rows <= Simd::kFusedRows) {
      fused_rows<1>();
    } else {
      for (int64_t row = 0; row < range_.rows; row += kPanelRows) panels(row, std::min(kPanelRows, range_.rows - row));
    }
  }

 private:
  using Vector = typename Simd::Vector;
  static constexpr int64_t kLanes = Simd::kLanes;
  static constexpr int64_t kChunk = Simd::kChunk;        // columns decoded by one call
  static constexpr int kVectors = int{kChunk / kLanes};  // vectors they fill
  static constexpr bool kScaled = format == WeightFormat::fp8 || format == WeightFormat::mxfp4;

  // One output's weights: where its codes are and, for the current tile of columns, its decoded scales.
  struct Row {
    const uint8_t* codes;
    const uint8_t* scale_codes;
    const float* scales;
  };

  Row row_at(int64_t output) const {
    const WeightMatrix& w = range_.weight;
    const auto* data = static_cast<const uint8_t*>(w.data);
    const int64_t scale_row = format == WeightFormat::fp8 ? output / kBlock : output;
    return {data + output * bytes_of<format>(cols_),
            kScaled ? w.scale + scale_row * ((cols_ + kBlock - 1) / kBlock) : nullptr, nullptr};
  }

  // Decodes the scales of columns [begin, end) for each of the rows; rows of one FP8 block share them.
  template <int count>
  void decode_scales(Row (&rows)[count], int64_t begin, int64_t end, float (&scales)[count][kTileScales]) const {
    if constexpr (!kScaled) return;
    for (int n = 0; n < count; ++n) {
      if (n > 0 && rows[n].scale_codes == rows[n - 1].scale_codes) {
        rows[n].scales = rows[n - 1].scales;
        continue;
      }
      Simd::decode_scales(rows[n].scale_codes + begin / kBlock, (end - begin + kBlock - 1) / kBlock, scales[n]);
      rows[n].scales = scales[n];
    }
  }

  // Columns [col, cols_) of a row that end within a chunk, followed by zeros.
  struct LastChunk {
    alignas(64) uint8_t codes[bytes_of<format>(kChunk)] = {};

    LastChunk(const Row& row, int64_t col, int64_t cols) {
      std::memcpy(codes, row.codes + bytes_of<format>(col), bytes_of<format>(cols - col));
    }
  };

  static const float* scales_at(const Row& row, int64_t tile, int64_t col) {
    return kScaled ? row.scales + (col - tile) / kBlock : nullptr;
  }

  // From a weight to the one in the same column that many outputs later, or several times as many if rows are short.
  // Weight rows are too short for the processor to foresee the next ones.
  int64_t prefetch_distance(int64_t outputs) const {
    const int64_t pass = std::max<int64_t>(1, outputs * bytes_of<format>(cols_));
    return pass * ((kPrefetch + pass - 1) / pass);
  }

  // Finishes the first `count` outputs of some rows.
  template <int rows, int outputs>
  void store(int64_t row, int64_t output, const Vector (&sums)[rows][outputs], int64_t count = outputs) const {
    store_sums<Simd>(sums, format == WeightFormat::fp8 ? Simd::kFp8Factor : 1.0F, range_.round, count,
                     range_.y + row * range_.y_stride + output, range_.y_stride);
  }

  // ---- few rows: each weight is decoded in registers and used at once ----

  template <int rows>
  void fused_rows() {
    if constexpr (rows <= Simd::kFusedRows) {
      if (range_.rows != rows) return fused_rows<rows + 1>();
      constexpr int kOutputs = Simd::kFusedOutputs;
      int64_t i = 0;
      for (; i + kOutputs <= range_.count; i += kOutputs) fused<rows, kOutputs>(i);
      for (; i < range_.count; ++i) fused<rows, 1>(i);
    }
  }

  template <int rows, int outputs>
  void fused(int64_t first) {
    Row w[outputs];
    for (int n = 0; n < outputs; ++n) w[n] = row_at(range_.first + first + n);
    const float* x[rows];
    std::copy_n(range_.x, rows, x);
    Vector sums[rows][outputs];
    GANNET_UNROLL
    for (int i = 0; i < rows * outputs; ++i) sums[i / outputs][i % outputs] = Simd::zero();
    alignas(64) float scales[outputs][kTileScales];
    const int64_t ahead = prefetch_distance(outputs);
    for (int64_t tile = 0; tile < cols_; tile += kTileCols) {
      const int64_t end = std::min(cols_, tile + kTileCols);
      decode_scales<outputs>(w, tile, end, scales);
      int64_t col = tile;
      for (; col + kChunk <= end; col += kChunk) {
        GANNET_UNROLL
        for (int n = 0; n < outputs; ++n) {
          const uint8_t* codes = w[n].codes + bytes_of<format>(col);
          Simd::prefetch(codes + ahead);
          accumulate<rows, outputs>(codes, scales_at(w[n], tile, col), x, col, sums, n);
        }
      }
      if (col == end) continue;
      GANNET_UNROLL
      for (int n = 0; n < outputs; ++n) {
        const LastChunk last(w[n], col, cols_);
        accumulate<rows, outputs>(last.codes, scales_at(w[n], tile, col), x, col, sums, n);
      }
    }
    store(0, first, sums);
  }

  // Adds one chunk of output n to the sums of all rows.
  template <int rows, int outputs>
  static void accumulate(const uint8_t* codes, const float* scales, const float* const (&x)[rows], int64_t col,
                         Vector (&sums)[rows][outputs], int n) {
    Vector weights[kVectors];
    Simd::template decode<format>(codes, scales, weights);
    GANNET_UNROLL
    for (int r = 0; r < rows; ++r) {
      GANNET_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][n] = Simd::fma(weights[v], Simd::load(x[r] + col + v * kLanes), sums[r][n]);
      }
    }
  }

  // ---- many rows: a panel of a few outputs and one tile of columns is decoded to L1 and meets all rows ----

  struct Panel {
    static constexpr int kOutputs = Simd::kPanelOutputs;
    alignas(64) float weights[kOutputs][kTileCols];
    alignas(64) float sums[kPanelRows][kOutputs][kLanes];
  };

  void panels(int64_t first_row, int64_t rows) {
    Panel panel;
    for (int64_t i = 0; i < range_.count; i += Panel::kOutputs) {
      const auto outputs = std::min<int64_t>(Panel::kOutputs, range_.count - i);
      for (int64_t tile = 0; tile < cols_; tile += kTileCols) {
        const int64_t end = std::min(cols_, tile + kTileCols);
        fill(panel, i, outputs, tile, end);
        // Blocks of three rows and, at the end, of two: single ones would waste the load ports.
        int64_t row = 0;
        for (; rows - row == 3 || rows - row > 4; row += 3) block<3>(panel, first_row, row, i, outputs, tile, end);
        for (; rows - row >= 2; row += 2) block<2>(panel, first_row, row, i, outputs, tile, end);
        if (row < rows) block<1>(panel, first_row, row, i, outputs, tile, end);
      }
    }
  }

  // Outputs beyond the range are zeros: their sums are computed and dropped.
  void fill(Panel& panel, int64_t first, int64_t outputs, int64_t tile, int64_t end) const {
    for (int64_t n = outputs; n < Panel::kOutputs; ++n) std::memset(panel.weights[n], 0, sizeof panel.weights[n]);
    alignas(64) float scales[1][kTileScales];
    const int64_t ahead = prefetch_distance(Panel::kOutputs);
    for (int64_t n = 0; n < outputs; ++n) {
      Row w[1] = {row_at(range_.first + first + n)};
      decode_scales<1>(w, tile, end, scales);
      int64_t col = tile;
      for (; col + kChunk <= end; col += kChunk) {
        const uint8_t* codes = w[0].codes + bytes_of<format>(col);
        Simd::prefetch(codes + ahead);
        decode_to(&panel.weights[n][col - tile], codes, scales_at(w[0], tile, col));
      }
      if (col == end) continue;
      const LastChunk last(w[0], col, cols_);
      decode_to(&panel.weights[n][col - tile], last.codes, scales_at(w[0], tile, col));
    }
  }

  static void decode_to(float* to, const uint8_t* codes, const float* scales) {
    Vector weights[kVectors];
    Simd::template decode<format>(codes, scales, weights);
    GANNET_UNROLL
    for (int v = 0; v < kVectors; ++v) Simd::store(to + v * kLanes, weights[v]);
  }

  template <int rows>
  void block(Panel& panel, int64_t first_row, int64_t row, int64_t first, int64_t outputs, int64_t tile, int64_t end) {
    constexpr int kOutputs = Panel::kOutputs;
    Vector sums[rows][kOutputs];
    GANNET_UNROLL
    for (int r = 0; r < rows; ++r) {
      GANNET_UNROLL
      for (int n = 0; n < kOutputs; ++n) sums[r][n] = tile == 0 ? Simd::zero() : Simd::load(panel.sums[row + r][n]);
    }
    const float* x[rows];
    GANNET_UNROLL
    for (int r = 0; r < rows; ++r) x[r] = range_.x[first_row + row + r] + tile;
    add_products<Simd>(x, panel.weights[0], kTileCols, (end - tile + kChunk - 1) / kChunk * kChunk, sums);
    if (end == cols_) return store(first_row + row, first, sums, outputs);
    GANNET_UNROLL
    for (int r = 0; r < rows; ++r) {
      GANNET_UNROLL
      for (int n = 0; n < kOutputs; ++n) Simd::store(panel.sums[row + r][n], sums[r][n]);
    }
  }

  static constexpr int64_t kPrefetch = 8192;  // bytes ahead, at least

  const LinearRange& range_;
  const int64_t cols_;
};

template <class Simd>
void multiply_dots(const DotsRange& range) {
  Dots<Simd>(range).run();
}

template <class Simd>
void multiply_one(const LinearRange& range) {
  switch (range.weight.format) {
    case WeightFormat::fp8:
      return Multiplier<Simd, WeightFormat::fp8>(range).run();
    case WeightFormat::mxfp4:
      return Multiplier<Simd, WeightFormat::mxfp4>(range).run();
    case WeightFormat::bf16:
      return Multiplier<Simd, WeightFormat::bf16>(range).run();
    case WeightFormat::f32:
      return Multiplier<Simd, WeightFormat::f32>(range).run();
  }
}

template <class Simd>
void multiply_range(const LinearRange& range) {
  multiply_one<Simd>(range);
  for (const LinearRange* next = range.also; next != nullptr; next = next->also) {
    LinearRange other = *next;
    other.x = range.x;
    other.rows = range.rows;
    multiply_one<Simd>(other);
  }
}

}  // namespace
}  // namespace gannet::ops
