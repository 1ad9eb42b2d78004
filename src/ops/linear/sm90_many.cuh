#pragma once

#include <cuda.h>

#include <algorithm>
#include <cmath>

#include "ops/cuda/check.h"
#include "ops/cuda/many_rows.cuh"
#include "ops/linear/sm90.h"

// linear_many_rows, and what the shared expert needs beyond it.
namespace gannet::ops::cuda::many_rows {

// A product of all rows with one weight. With swiglu the weight is a gate-up pair and y has half its rows as columns.
struct Dense {
  LinearParams params;
  Output output = Output::f32;
  float limit = 0;
};

// Tokens of a block's share, by 128 rows of the weight: 64, 128 or 256.
int choose_tokens(const Dense& dense);

// One for each format, in files of their own.
void multiply_fp8(cudaStream_t stream, const Dense& dense, int tokens);
void multiply_mxfp4(cudaStream_t stream, const Dense& dense, int tokens);
void multiply_bf16(cudaStream_t stream, const Dense& dense, int tokens);

// x as (column of the group, group, row) in boxes of 64 columns of `tokens` rows.
CUtensorMap map_input(const LinearParams& params, int tokens);
// The packed weight as (8 bytes of a panel, panel) in boxes of `bytes` of so many panels.
CUtensorMap map_weight(const PackedMatrix& weight, int64_t bytes, int panels);

struct DenseItems {
  static constexpr bool kTensorMaps = true;

  CUtensorMap input, codes, scales;
  const int32_t* count = nullptr;
  float factor = 1;
  int block_panels = 0;
  int tokens = 0;
  int panel_outputs = 0;
  int group_panels = 0, group_blocks = 0, group_outputs = 0;  // of one of the weight's groups
  int blocks = 0;                                             // along the weight's rows
  int band = 0;

  __device__ int items() const { return (*count + tokens - 1) / tokens * blocks; }
  // Bands of the weight's rows one after the other, in each all rows of x, so that what runs at one time shares both.
  __device__ Item item(int index) const {
    const int token_tiles = (*count + tokens - 1) / tokens;
    const int band_first = index / (band * token_tiles) * band;
    const int band_blocks = min(band, blocks - band_first);
    const int in_band = index - band_first * token_tiles;
    const int block = band_first + in_band % band_blocks;
    const int first = in_band / band_blocks * tokens;
    const int group = block / group_blocks, in_group = block % group_blocks * block_panels;
    return {.panel = group * group_panels + in_group,
            .factor = factor,
            .group = group,
            .first = first,
            .tokens = min(tokens, *count - first),
            .first_output = group * group_outputs + in_group * panel_outputs,
            .end_output = (group + 1) * group_outputs};
  }
  __device__ int64_t input_row(int position) const { return position; }
  __device__ int64_t output_row(int position) const { return position; }
  __device__ float row_weight(int) const { return 1; }
};

template <class F>
void multiply_dense(cudaStream_t stream, const Dense& dense) {
  constexpr int kBandBlocks = 10;
  const LinearParams& p = dense.params;
  const int halves = F::output == Output::swiglu ? 2 : 1;
  DenseItems items{.input = map_input(p, F::kTokens),
                   .codes = map_weight(p.weight, F::kTileBytes, F::kPanels),
                   .scales = map_weight(p.weight, std::max(F::kScaleBytes, 16), F::kPanels),
                   .count = p.count};
  items.factor = std::ldexp(1.0F, p.weight.exponent);
  items.block_panels = F::kPanels;
  items.tokens = F::kTokens;
  items.panel_outputs = static_cast<int>(kPanelRows) / halves;
  items.group_panels = static_cast<int>(panels(p.weight.rows / p.groups));
  items.group_blocks = (items.group_panels + items.block_panels - 1) / items.block_panels;
  items.group_outputs = static_cast<int>(p.weight.rows / p.groups) / halves;
  items.blocks = static_cast<int>(p.groups) * items.group_blocks;
  const int bands = (items.blocks + kBandBlocks - 1) / kBandBlocks;
  items.band = (items.blocks + bands - 1) / bands;

  const int64_t wide = F::output == Output::f32 ? 4 : 8;
  const Shape shape{.x = p.x,
                    .x_stride = p.x_stride,
                    .cols = static_cast<int>(p.weight.cols),
                    .k_tiles = static_cast<int>(tiles(p.weight.cols)),
                    .limit = dense.limit,
                    .y = p.y,
                    .y_stride = p.y_stride,
                    .wide_stores = p.y_stride % wide == 0 && reinterpret_cast<uintptr_t>(p.y) % 16 == 0};
  const int64_t most_items = (p.most + F::kTokens - 1) / F::kTokens * items.blocks;
  launch<F>(stream, items, shape, most_items);
}

template <WeightFormat format, Output output>
void multiply_blocks(cudaStream_t stream, const Dense& dense, int tokens) {
  constexpr int kWide = format == WeightFormat::bf16 ? 1 : 0;
  if (tokens == 256) return multiply_dense<Form<format, output, 2, 1, 256, 4 - kWide>>(stream, dense);
  if (tokens == 128) return multiply_dense<Form<format, output, 2, 1, 128, 7 - 2 * kWide>>(stream, dense);
  return multiply_dense<Form<format, output, 2, 1, 64, 10 - 3 * kWide>>(stream, dense);
}

// Only the shared expert, in fp8, is a gate-up pair here.
template <WeightFormat format>
void multiply_format(cudaStream_t stream, const Dense& dense, int tokens) {
  switch (dense.output) {
    case Output::f32:
      return multiply_blocks<format, Output::f32>(stream, dense, tokens);
    case Output::bf16:
      return multiply_blocks<format, Output::bf16>(stream, dense, tokens);
    case Output::q8:
      return multiply_blocks<format, Output::q8>(stream, dense, tokens);
    case Output::swiglu:
      if constexpr (format == WeightFormat::fp8) multiply_blocks<format, Output::swiglu>(stream, dense, tokens);
  }
}

}  // namespace gannet::ops::cuda::many_rows
