#include <cmath>

#include "ops/cuda/check.h"
#include "ops/cuda/many_rows.cuh"
#include "ops/experts/sm90.h"
#include "ops/linear/sm90_many.cuh"

namespace gannet::ops::cuda {
namespace {

using many_rows::Item;
using many_rows::Output;

constexpr int kLeastTokens = 32;  // most tokens of a tile, of the variant that has the fewest

// Up to so many of an expert's pairs, which go through its weights together.
struct alignas(32) Tile {
  const std::byte* gate_up;
  const std::byte* down;
  float gate_up_factor;
  float down_factor;
  int32_t first;  // in the lists' pairs
  int32_t tokens;
};

struct alignas(32) TileTable {
  int32_t count;
  Tile tiles[1];
};

// One block: cuts each expert's pairs into tiles of equal size.
__global__ void __launch_bounds__(1024)
    make_tiles(ExpertLists lists, const ExpertWeights* routed, int experts, int most_tokens, TileTable* table) {
  __shared__ int warp_sums[32];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int done = 0;  // tiles of the experts before
  for (int base = 0; base < experts; base += 1024) {
    const int expert = base + static_cast<int>(threadIdx.x);
    const int begin = expert < experts ? lists.offsets[expert] : 0;
    const int pairs = expert < experts ? lists.offsets[expert + 1] - begin : 0;
    const int tiles = (pairs + most_tokens - 1) / most_tokens;

    int sum = tiles;
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(~0U, sum, step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) warp_sums[warp] = sum;
    __syncthreads();
    int before = done;
    for (int w = 0; w < 32; ++w) {
      if (w < warp) before += warp_sums[w];
      done += warp_sums[w];
    }
    __syncthreads();

    if (tiles == 0) continue;
    const ExpertWeights weights = routed[expert];
    const int share = ((pairs + tiles - 1) / tiles + 7) / 8 * 8;
    Tile* to = table->tiles + before + sum - tiles;
    for (int i = 0; i < tiles; ++i) {
      to[i] = {.gate_up = weights.gate_up,
               .down = weights.down,
               .gate_up_factor = weights.gate_up_factor,
               .down_factor = weights.down_factor,
               .first = begin + i * share,
               .tokens = min(share, pairs - i * share)};
    }
  }
  if (threadIdx.x == 0) table->count = done;
}

// A tile by 256 rows of its expert's gate-up pair or down projection.
template <bool gate_up>
struct ExpertItems {
  static constexpr bool kTensorMaps = false;

  const TileTable* table = nullptr;
  const int32_t* pairs = nullptr;
  const float* weights = nullptr;
  int top_k = 1;
  int64_t panel_bytes = 0;
  int panels = 0;
  int block_panels = 0;
  int blocks = 0;  // along the weight's rows
  int outputs = 0;

  __device__ int items() const { return table->count * blocks; }
  __device__ Item item(int index) const {
    const Tile tile = table->tiles[index / blocks];
    const int panel = index % blocks * block_panels;
    return {.panels = (gate_up ? tile.gate_up : tile.down) + panel * panel_bytes,
            .panel_count = panels - panel,
            .factor = gate_up ? tile.gate_up_factor : tile.down_factor,
            .first = tile.first,
            .tokens = tile.tokens,
            .first_output = panel * static_cast<int>(gate_up ? kPanelRows / 2 : kPanelRows),
            .end_output = outputs};
  }
  __device__ int64_t input_row(int position) const { return gate_up ? pairs[position] / top_k : pairs[position]; }
  __device__ int64_t output_row(int position) const { return pairs[position]; }
  __device__ float row_weight(int position) const { return weights[pairs[position]]; }
};

template <bool gate_up, int kGroups, int kHeight, int kTokens, int kStages, int kNarrowest>
void multiply(cudaStream_t stream, const ExpertsParams& p) {
  constexpr auto kFormat = WeightFormat::mxfp4;
  constexpr auto kOutput = gate_up ? Output::swiglu : Output::f32;
  using Form = many_rows::Form<kFormat, kOutput, kGroups, kHeight, kTokens, kStages, kNarrowest>;
  const int64_t cols = gate_up ? p.hidden : p.width;
  const int64_t rows = gate_up ? 2 * p.width : p.hidden;
  const ExpertItems<gate_up> items{.table = reinterpret_cast<const TileTable*>(p.tiles),
                                   .pairs = p.lists.pairs,
                                   .weights = p.lists.weights,
                                   .top_k = static_cast<int>(p.top_k),
                                   .panel_bytes = panel_bytes(kFormat, cols),
                                   .panels = static_cast<int>(panels(rows)),
                                   .block_panels = Form::kPanels,
                                   .blocks = static_cast<int>((panels(rows) + Form::kPanels - 1) / Form::kPanels),
                                   .outputs = static_cast<int>(gate_up ? p.width : p.hidden)};
  const many_rows::Shape shape{.x = gate_up ? p.x : p.inner,
                               .x_stride = cols,
                               .cols = static_cast<int>(cols),
                               .k_tiles = static_cast<int>(tiles(cols)),
                               .panel_bytes = items.panel_bytes,
                               .limit = p.swiglu_limit,
                               .y = gate_up ? static_cast<void*>(p.inner) : p.outer,
                               .y_stride = gate_up ? p.width : p.hidden,
                               .wide_stores = true};
  many_rows::launch<Form>(stream, items, shape, p.most * p.top_k * items.blocks);
}

template <int kGroups, int kHeight, int kTokens, int kStages, int kNarrowest>
void multiply_routed(cudaStream_t stream, const ExpertsParams& p) {
  static_assert(kTokens >= kLeastTokens);
  make_tiles<<<1, 1024, 0, stream>>>(p.lists, p.routed, static_cast<int>(p.experts), kTokens,
                                     reinterpret_cast<TileTable*>(p.tiles));
  GANNET_CUDA_LAUNCHED();
  multiply<true, kGroups, kHeight, kTokens, kStages, kNarrowest>(stream, p);
  multiply<false, kGroups, kHeight, kTokens, kStages, kNarrowest>(stream, p);
}

void multiply_shared(cudaStream_t stream, const ExpertsParams& p) {
  using many_rows::Dense;
  const Dense gate_up{.params = {.x = p.x,
                                 .x_stride = p.hidden,
                                 .count = p.count,
                                 .most = p.most,
                                 .weight = p.shared_gate_up,
                                 .y = p.shared_inner,
                                 .y_stride = p.shared_down.cols},
                      .output = Output::swiglu,
                      .limit = p.swiglu_limit};
  const Dense down{.params = {.x = p.shared_inner,
                              .x_stride = p.shared_down.cols,
                              .count = p.count,
                              .most = p.most,
                              .weight = p.shared_down,
                              .y = p.shared,
                              .y_stride = p.hidden},
                   .output = Output::f32};
  many_rows::multiply_fp8(stream, gate_up, choose_tokens(gate_up));
  many_rows::multiply_fp8(stream, down, choose_tokens(down));
}

}  // namespace

int64_t expert_tile_words(int64_t most, int64_t top_k, int64_t experts) {
  const int64_t tiles = most * top_k / kLeastTokens + experts;
  return static_cast<int64_t>((sizeof(TileTable) + tiles * sizeof(Tile)) / sizeof(int32_t));
}

void experts_many_rows(cudaStream_t stream, const ExpertsParams& params) {
  if (params.most == 0) return;
  if (params.top_k > 0 && params.experts > 0) {
    // As measured: where experts have few pairs, a stage's weights count, so that higher and narrower blocks are
    // faster.
    const int64_t average = params.most * params.top_k / params.experts;
    if (average > 48) {
      multiply_routed<2, 2, 128, 6, 64>(stream, params);
    } else if (average > 20) {
      multiply_routed<2, 2, 64, 9, 16>(stream, params);
    } else {
      multiply_routed<3, 2, 32, 7, 16>(stream, params);
    }
  }
  multiply_shared(stream, params);
}

}  // namespace gannet::ops::cuda
