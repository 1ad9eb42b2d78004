#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/linear/op.h"

namespace gannet::ops::cuda {

// A weight in the order in which the tensor cores take it, so that a warp streams it with 16-byte loads and never
// shuffles: once through for few rows (mma.sync) as for many (wgmma with the weight in registers).
//
// Rows are cut into panels of 16, padded with zero weights. A panel is a sequence of tiles of 16 rows x 64 columns
// (columns padded likewise), followed by the panel's scales, padded to 16 bytes. Lane l = 4 g + t of a warp owns rows g
// and g + 8 of the panel. Step s = 0..3 of a tile covers columns 16 s .. 16 s + 15; with c = 16 s + 2 t the four
// registers of the matrix instruction are, low half first,
//   a0 = row g: (c, c + 1)   a1 = row g + 8: (c, c + 1)   a2 = row g: (c + 8, c + 9)   a3 = row g + 8: (c + 8, c + 9)
//
// bf16   tile 2048 bytes: [step][lane][a0 a1 a2 a3]. No scales.
// fp8    tile 1024 bytes: [step / 2][lane][step % 2][row g, row g + 8] words of 4 codes in the order
//        c, c + 8, c + 1, c + 9 (so that even and odd bytes of a word are one register each).
//        Scales: for 32 columns two bytes, rows 0-7 and rows 8-15.
// mxfp4  tile 512 bytes: [lane][step] words of 8 codes: register r = 0..3 (a0..a3) has its low element in the word's
//        low half and its high element in the high half, each half being laid out by decode_mxfp4 (fragment.cuh).
//        Scales: for 256 columns 128 bytes [g][tile 0..3][row g cols 0-31, row g cols 32-63, row g + 8 cols 0-31, row
//        g + 8 cols 32-63].
//
// A scale byte b stands for the bf16 whose exponent field is b: the power of two that takes the raw bits of a decoded
// code to its value divided by 2^exponent (fp8: b = E8M0 + 120 - exponent, mxfp4: b = E8M0 + 126 - exponent). The
// exponent is that of the whole matrix, 0 unless some scale would not fit into a byte; results are multiplied by
// 2^exponent.
//
// A gate-up pair (SwiGLU) is one matrix of 2 x width rows: panel p holds rows 8 p .. 8 p + 7 of w1 as its rows 0-7 and
// the same rows of w3 as its rows 8-15, so that one thread holds a and b of a channel.
struct PackedMatrix {
  WeightFormat format = WeightFormat::bf16;  // not f32
  int64_t rows = 0;
  int64_t cols = 0;                 // a multiple of 32
  const std::byte* data = nullptr;  // device memory, aligned to 256 bytes
  int32_t exponent = 0;
};

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kTileCols = 64;

constexpr int64_t panels(int64_t rows) {
  return (rows + kPanelRows - 1) / kPanelRows;
}
constexpr int64_t tiles(int64_t cols) {
  return (cols + kTileCols - 1) / kTileCols;
}
// Bytes of a tile's codes.
constexpr int64_t tile_bytes(WeightFormat format) {
  return format == WeightFormat::mxfp4 ? 512 : format == WeightFormat::fp8 ? 1024 : 2048;
}
// Bytes of a panel's scales, which follow its tiles.
constexpr int64_t panel_scale_bytes(WeightFormat format, int64_t cols) {
  if (format == WeightFormat::mxfp4) return (tiles(cols) + 3) / 4 * 128;
  if (format == WeightFormat::fp8) return (tiles(cols) + 3) / 4 * 16;
  return 0;
}
constexpr int64_t panel_bytes(WeightFormat format, int64_t cols) {
  return tiles(cols) * tile_bytes(format) + panel_scale_bytes(format, cols);
}
constexpr int64_t packed_bytes(WeightFormat format, int64_t rows, int64_t cols) {
  return panels(rows) * panel_bytes(format, cols);
}

}  // namespace gannet::ops::cuda
