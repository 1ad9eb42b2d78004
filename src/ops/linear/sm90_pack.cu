#include <algorithm>

#include "base/check.h"
#include "ops/cuda/check.h"
#include "ops/cuda/fragment.cuh"
#include "ops/linear/sm90.h"

// Packing (ops/cuda/packed_matrix.h): a thread for each word of codes, then one for each scale byte. A source answers
//   pair(row, col)    codes of columns col and col + 1 (col is even) in the low halves of the result's two halves
//   scale(row, col)   E8M0 code, unbiased
// for rows and columns of the packed matrix that exist.
namespace gannet::ops::cuda {
namespace {

constexpr int kThreads = 256;

struct Shape {
  WeightFormat format;
  int64_t rows, cols, panels;
  int64_t panel_bytes, code_bytes;  // of a panel: all, and without scales
};

__device__ uint32_t join(uint32_t low, uint32_t high) {
  return low | high << 16;
}

// A matrix as the checkpoint stores it, row-major.
struct Stored {
  WeightFormat format;
  int64_t cols;
  const uint8_t* codes;
  const uint8_t* scales;

  __device__ uint32_t pair(int64_t row, int64_t col) const {
    const int64_t i = row * cols + col;
    if (format == WeightFormat::mxfp4) {
      const uint32_t byte = codes[i / 2];
      return join(byte & 15, byte >> 4);
    }
    if (format == WeightFormat::fp8) return join(codes[i], codes[i + 1]);
    const uint8_t* at = codes + 2 * i;
    return join(at[0] | at[1] << 8, at[2] | at[3] << 8);
  }
  __device__ int scale(int64_t row, int64_t col) const {
    const int64_t scale_row = format == WeightFormat::fp8 ? row / 32 : row;
    return scales[scale_row * ((cols + 31) / 32) + col / 32] - 127;
  }
};

struct PlainSource {
  Stored matrix;

  __device__ uint32_t pair(int64_t row, int64_t col) const { return matrix.pair(row, col); }
  __device__ int scale(int64_t row, int64_t col) const { return matrix.scale(row, col); }
};

struct GateUpSource {
  Stored gate, up;

  __device__ Stored matrix(int64_t row) const {
    const bool first = row % 16 < 8;
    return {gate.format, gate.cols, first ? gate.codes : up.codes, first ? gate.scales : up.scales};
  }
  __device__ static int64_t source_row(int64_t row) { return row / 16 * 8 + row % 8; }
  __device__ uint32_t pair(int64_t row, int64_t col) const { return matrix(row).pair(source_row(row), col); }
  __device__ int scale(int64_t row, int64_t col) const { return matrix(row).scale(source_row(row), col); }
};

struct RandomSource {
  WeightFormat format;
  uint64_t seed;
  int scale_exponent;

  __device__ uint32_t random(int64_t row, int64_t col, uint64_t salt) const {  // splitmix64
    uint64_t z = seed + salt + (static_cast<uint64_t>(row) << 32 | static_cast<uint64_t>(col)) * 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return static_cast<uint32_t>((z ^ z >> 31) >> 16);
  }
  // Any sign and mantissa at one of the three sizes.
  __device__ uint32_t bf16_code(uint32_t bits) const {
    const uint32_t exponent = 126 + scale_exponent + (bits >> 8 & 0xff) % 3;
    return (bits & 0x80) << 8 | exponent << 7 | (bits & 0x7f);
  }
  static __device__ uint32_t fp8_code(uint32_t bits) {  // 0x7f and 0xff are NaN
    return (bits & 0x7f) == 0x7f ? bits & 0x80 : bits & 0xff;
  }
  __device__ uint32_t pair(int64_t row, int64_t col) const {
    const uint32_t bits = random(row, col, 0);
    if (format == WeightFormat::mxfp4) return join(bits & 15, bits >> 4 & 15);
    if (format == WeightFormat::fp8) return join(fp8_code(bits), fp8_code(bits >> 8));
    return join(bf16_code(bits), bf16_code(bits >> 16));
  }
  __device__ int scale(int64_t row, int64_t col) const {
    const int64_t scale_row = format == WeightFormat::fp8 ? row / 32 : row;
    return scale_exponent - 1 + static_cast<int>(random(scale_row, col / 32, 0x5ca1eU) % 3);
  }
};

template <class Source>
__device__ uint32_t pair_or_zero(const Shape& shape, const Source& source, int64_t row, int64_t col) {
  return row < shape.rows && col < shape.cols ? source.pair(row, col) : 0;
}

// Word `word` of a panel's codes.
template <class Source>
__device__ uint32_t packed_word(const Shape& shape, const Source& source, int64_t panel, int64_t word) {
  const int64_t row = panel * kPanelRows;
  switch (shape.format) {
    case WeightFormat::mxfp4: {  // [tile][lane][step]
      const int lane = static_cast<int>(word >> 2 & 31), step = static_cast<int>(word & 3);
      const int64_t col = (word >> 7) * kTileCols + 16 * step + 2 * (lane & 3);
      uint32_t result = 0;
      for (int r = 0; r < 4; ++r) {
        const uint32_t codes =
            pair_or_zero(shape, source, row + (lane >> 2) + 8 * (r & 1), col + 8 * static_cast<int64_t>(r >> 1));
        result |= join(place_mxfp4(codes & 15, r), place_mxfp4(codes >> 16, r));
      }
      return result;
    }
    case WeightFormat::fp8: {  // [tile][step / 2][lane][step % 2][rows g, g + 8]
      const int half = static_cast<int>(word & 1), lane = static_cast<int>(word >> 2 & 31);
      const int step = static_cast<int>((word >> 7 & 1) << 1 | (word >> 1 & 1));
      const int64_t at = row + (lane >> 2) + 8 * half;
      const int64_t col = (word >> 8) * kTileCols + 16 * step + 2 * (lane & 3);
      return pair_or_zero(shape, source, at, col) | pair_or_zero(shape, source, at, col + 8) << 8;
    }
    default: {  // [tile][step][lane][register]
      const int r = static_cast<int>(word & 3), lane = static_cast<int>(word >> 2 & 31);
      const int step = static_cast<int>(word >> 7 & 3);
      const int64_t col = (word >> 9) * kTileCols + 16 * step + 2 * (lane & 3) + 8 * (r >> 1);
      return pair_or_zero(shape, source, row + (lane >> 2) + 8 * (r & 1), col);
    }
  }
}

// Byte `i` of a panel's scales. Those of padding are 1 in front of zero codes.
template <class Source>
__device__ uint8_t packed_scale(const Shape& shape, const Source& source, int64_t panel, int64_t i, int exponent) {
  int64_t row = panel * kPanelRows, col = 0;
  if (shape.format == WeightFormat::fp8) {  // [32 columns][rows 0-7, rows 8-15]
    row += 8 * (i & 1);
    col = (i >> 1) * 32;
  } else {  // [256 columns][g][tile][rows g, g + 8][32 columns]
    row += (i >> 4 & 7) + 8 * (i >> 1 & 1);
    col = (i >> 7) * 256 + (i >> 2 & 3) * 64 + (i & 1) * 32;
  }
  const int bias = shape.format == WeightFormat::fp8 ? 247 : 253;
  const int scale = row < shape.rows && col < shape.cols ? source.scale(row, col) - exponent : -bias + 127;
  return static_cast<uint8_t>(min(max(scale + bias, 0), 255));
}

template <class Source>
__global__ void __launch_bounds__(kThreads) pack(Shape shape, Source source, int exponent, std::byte* packed) {
  const int64_t panel = blockIdx.y + static_cast<int64_t>(blockIdx.z) * gridDim.y;
  if (panel >= shape.panels) return;
  std::byte* out = packed + panel * shape.panel_bytes;
  const int64_t words = shape.code_bytes / 4, units = words + shape.panel_bytes - shape.code_bytes;
  for (int64_t i = blockIdx.x * kThreads + threadIdx.x; i < units; i += static_cast<int64_t>(gridDim.x) * kThreads) {
    if (i < words) {
      reinterpret_cast<uint32_t*>(out)[i] = packed_word(shape, source, panel, i);
    } else {
      out[shape.code_bytes + i - words] =
          static_cast<std::byte>(packed_scale(shape, source, panel, i - words, exponent));
    }
  }
}

template <class Source>
void launch(cudaStream_t stream, WeightFormat format, int64_t rows, int64_t cols, const Source& source,
            int32_t exponent, std::byte* packed) {
  GANNET_CHECK(format != WeightFormat::f32 && cols % 32 == 0);
  if (rows == 0 || cols == 0) return;
  const Shape shape{.format = format,
                    .rows = rows,
                    .cols = cols,
                    .panels = panels(rows),
                    .panel_bytes = panel_bytes(format, cols),
                    .code_bytes = tiles(cols) * tile_bytes(format)};
  const int64_t y = std::min<int64_t>(shape.panels, 32768);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>((shape.code_bytes / 4 + kThreads - 1) / kThreads, 16)),
                  static_cast<unsigned>(y), static_cast<unsigned>((shape.panels + y - 1) / y));
  pack<<<grid, kThreads, 0, stream>>>(shape, source, exponent, packed);
  GANNET_CUDA_LAUNCHED();
}

Stored stored(const WeightMatrix& weight) {
  return {.format = weight.format,
          .cols = weight.cols,
          .codes = static_cast<const uint8_t*>(weight.data),
          .scales = weight.scale};
}

}  // namespace

void pack_matrix(cudaStream_t stream, const WeightMatrix& weight, int32_t exponent, std::byte* packed) {
  launch(stream, weight.format, weight.rows, weight.cols, PlainSource{stored(weight)}, exponent, packed);
}

void pack_gate_up(cudaStream_t stream, const WeightMatrix& w1, const WeightMatrix& w3, int32_t exponent,
                  std::byte* packed) {
  GANNET_CHECK(w1.format == w3.format && w1.rows == w3.rows && w1.cols == w3.cols && w1.rows % 8 == 0);
  launch(stream, w1.format, 2 * w1.rows, w1.cols, GateUpSource{stored(w1), stored(w3)}, exponent, packed);
}

void fill_packed(cudaStream_t stream, WeightFormat format, int64_t rows, int64_t cols, uint64_t seed,
                 int scale_exponent, std::byte* packed) {
  launch(stream, format, rows, cols, RandomSource{.format = format, .seed = seed, .scale_exponent = scale_exponent}, 0,
         packed);
}

}  // namespace gannet::ops::cuda
