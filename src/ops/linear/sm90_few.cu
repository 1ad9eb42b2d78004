#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/quantize.cuh"
#include "ops/cuda/weight_stream.cuh"
#include "ops/linear/sm90.h"

namespace gannet::ops::cuda {
namespace {

constexpr int64_t kMostSplits = 8;  // blocks of a cluster

struct Few {
  const __nv_bfloat16* x;
  int64_t x_stride;
  const int32_t* count;
  PackedMatrix weight;
  LinearOutput output;
  void* y;
  int64_t y_stride;
  float factor;
  int64_t panel_bytes, scales_at;
  int group_rows, panel_groups;  // of each of x's groups
  int groups;
  int most_rows;
  int stage_bytes, stage_rows, stages;
  int splits;      // blocks of a cluster, which divide the columns among themselves
  int split_rows;  // most rows whose sums each of them finishes
};

struct Place {
  int first_row, group, first_panel;  // the panel within the group
};
template <class Shape>
__device__ Place place_of(const Few& few, int first_row, int task) {
  return {
      .first_row = first_row, .group = task / few.panel_groups, .first_panel = task % few.panel_groups * Shape::panels};
}

template <class Shape>
__device__ StreamTask stream_task(const Few& few, const Place& place, int split) {
  const int group_panels = (few.group_rows + 15) / 16;
  const int tiles = static_cast<int>((few.weight.cols + kTileCols - 1) / kTileCols), units = (tiles + 3) / 4;
  const int64_t panel = static_cast<int64_t>(place.group) * group_panels + place.first_panel;
  return {.weight = few.weight.data + panel * few.panel_bytes,
          .panel_bytes = few.panel_bytes,
          .scales_at = few.scales_at,
          .panels = min(Shape::panels, group_panels - place.first_panel),
          .cols = static_cast<int>(few.weight.cols),
          .first_tile = units * split / few.splits * 4,
          .end_tile = min(units * (split + 1) / few.splits * 4, tiles)};
}

// A warp holds 32 neighbouring outputs of a row when it writes Q8.
template <class Shape>
__device__ void store(const Few& few, const Place& place, int row, int output, float sum) {
  const int in_group = place.first_panel * 16 + output;
  float value = sum * few.factor;
  if (few.output == LinearOutput::q8) {
    float amax = fabsf(value);
    for (int lanes = 16; lanes > 0; lanes /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffU, amax, lanes));
    value = q8_round(value, q8_scale(amax));
  }
  if (in_group >= few.group_rows) return;
  const int64_t at =
      (place.first_row + row) * few.y_stride + static_cast<int64_t>(place.group) * few.group_rows + in_group;
  if (few.output == LinearOutput::f32) {
    static_cast<float*>(few.y)[at] = value;
  } else {
    static_cast<__nv_bfloat16*>(few.y)[at] = __float2bfloat16(value);
  }
}

struct Shared {
  uint64_t* gathered;  // barrier
  float* partial;
  float* gather;  // [splits][split_rows][outputs]
};

// Calls take(row, output, sum) for every sum of the block's rows; a warp has 32 neighbouring outputs of a row.
template <class Shape, int row_tiles, class Take>
__device__ void multiply_rows(StreamRing& ring, const StreamTask& task, float* partial, int rows, const Take& take) {
  float sums[Shape::warp_panels][row_tiles][4];
  multiply<Shape, row_tiles>(ring, task, sums);
#pragma unroll 1
  for (int n = 0; n < row_tiles && n * 8 < rows; ++n) {
    share_sums<Shape, row_tiles>(partial, sums, n);
    for (int i = static_cast<int>(threadIdx.x); i < 8 * Shape::outputs; i += Shape::product_threads) {
      const int row = i / Shape::outputs, output = i % Shape::outputs;
      if (n * 8 + row < rows) take(n * 8 + row, output, add_splits<Shape>(partial, row, output));
    }
    sync_threads(1, Shape::product_threads);
  }
}

template <class Shape, int most_row_tiles, class Take>
__device__ void multiply_any(StreamRing& ring, const StreamTask& task, float* partial, int rows, const Take& take) {
  if (rows <= most_row_tiles / 2 * 8) {
    multiply_rows<Shape, most_row_tiles / 2>(ring, task, partial, rows, take);
  } else {
    multiply_rows<Shape, most_row_tiles>(ring, task, partial, rows, take);
  }
}

// Sums of a part of the columns go to the block of the cluster that finishes the row, which adds them in the order of
// the parts.
template <class Shape, int most_row_tiles>
__device__ void multiply_in_cluster(StreamRing& ring, const Few& few, const Place& place, const StreamTask& task,
                                    const Shared& shared, int rows) {
  const auto splits = static_cast<uint32_t>(few.splits), rank = cluster_rank();
  wait_for_cluster();
  multiply_any<Shape, most_row_tiles>(ring, task, shared.partial, rows, [&](uint32_t row, int output, float sum) {
    const float* at = shared.gather + (rank * few.split_rows + row / splits) * Shape::outputs + output;
    store_cluster(cluster_address(at, row % splits), sum);
  });
  if (threadIdx.x < splits) arrive_cluster(cluster_address(shared.gathered, threadIdx.x));
  wait_barrier_cluster(shared.gathered, 0);
  for (int i = static_cast<int>(threadIdx.x); i < few.split_rows * Shape::outputs; i += Shape::product_threads) {
    const int row = i / Shape::outputs * few.splits + static_cast<int>(rank), output = i % Shape::outputs;
    if (row >= rows) break;
    float sum = 0;
    for (int split = 0; split < few.splits; ++split) sum += shared.gather[split * few.split_rows * Shape::outputs + i];
    store<Shape>(few, place, row, output, sum);
  }
}

template <class Shape, int most_row_tiles, int resident>
__global__ void __launch_bounds__(Shape::threads, resident) multiply_few_rows(const __grid_constant__ Few few) {
  extern __shared__ __align__(128) std::byte memory[];
  auto* barriers = reinterpret_cast<uint64_t*>(memory);
  const Shared shared{.gathered = barriers + 2 * kMostStages,
                      .partial = reinterpret_cast<float*>(memory + 256),
                      .gather = reinterpret_cast<float*>(memory + 256) + Shape::partial_floats};
  StreamRing ring{.full = barriers,
                  .empty = barriers + kMostStages,
                  .data = reinterpret_cast<std::byte*>(
                      shared.gather + (few.splits > 1 ? few.splits * few.split_rows * Shape::outputs : 0)),
                  .stages = few.stages,
                  .stage_bytes = few.stage_bytes,
                  .rows = few.stage_rows};
  allow_next_launch();
  const int first_row = static_cast<int>(blockIdx.y) * few.most_rows;
  if (gridDim.y > 1) {
    wait_for_previous_launch();
    if (*few.count <= first_row) return;
  }
  if (threadIdx.x == 0) {
    init_barrier(shared.gathered, few.splits);
    init_ring(ring, Shape::product_warps);
  }
  __syncthreads();
  if (few.splits > 1) arrive_at_cluster();

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int tasks = few.groups * few.panel_groups;
  const int split = static_cast<int>(blockIdx.x) % few.splits;
  const int first = static_cast<int>(blockIdx.x) / few.splits, step = static_cast<int>(gridDim.x) / few.splits;
  // Weights may be read while the launch before still writes x and count.
  int rows = 0;
  if (warp != Shape::weight_warp) {
    wait_for_previous_launch();
    rows = min(*few.count - first_row, few.most_rows);
  }
  const uint64_t policy = streaming_policy();
  for (int i = first; i < tasks; i += step) {
    const Place place = place_of<Shape>(few, first_row, i);
    const StreamTask task = stream_task<Shape>(few, place, split);
    if (warp == Shape::weight_warp) {
      stream_weights<Shape>(ring, task, policy);
    } else if (warp > Shape::weight_warp) {
      const __nv_bfloat16* x = few.x + first_row * few.x_stride + place.group * few.weight.cols;
      stream_rows<Shape>(ring, task, rows, [&](int row) { return x + row * few.x_stride; });
    } else if (few.splits > 1) {
      multiply_in_cluster<Shape, most_row_tiles>(ring, few, place, task, shared, rows);
    } else {
      multiply_any<Shape, most_row_tiles>(ring, task, shared.partial, rows, [&](int row, int output, float sum) {
        store<Shape>(few, place, row, output, sum);
      });
    }
  }
  if (few.splits > 1 && warp >= Shape::weight_warp) wait_for_cluster();
}

template <class Shape>
int64_t task_count(const LinearParams& params) {
  return params.groups * ((panels(params.weight.rows / params.groups) + Shape::panels - 1) / Shape::panels);
}

int64_t row_blocks(const LinearParams& params) {
  return (params.most + kFewRows - 1) / kFewRows;
}

// Columns are divided among blocks in units of four tiles.
int64_t column_units(const LinearParams& params) {
  return (tiles(params.weight.cols) + 3) / 4;
}

struct Plan {
  int splits = 1;
  double microseconds = 0;
};

// Roughly the time of a launch, by what was measured: every multiprocessor reads its weights and rows; one with more
// than its share gets more than its share of the bandwidth when the others have ended; one with a single block of two
// that would fit makes two thirds of the speed.
template <class Shape>
Plan plan_launch(const LinearParams& params, int resident) {
  constexpr double kWeightBytes = 34e3, kRowBytes = 30e3;  // a microsecond and multiprocessor
  constexpr double kSplit = 0.2;                           // microseconds for each part
  const int64_t tasks = task_count<Shape>(params) * row_blocks(params), units = column_units(params);
  const double unit_bytes = static_cast<double>(panel_bytes(Shape::format, 4 * kTileCols));
  const double rows =
      static_cast<double>(2 * std::min(params.most, kFewRows) * params.weight.cols * tasks) / kMultiprocessors;
  Plan best;
  for (int splits = 1; splits <= std::min<int64_t>(kMostSplits, units); splits *= 2) {
    const int64_t blocks = tasks * splits;
    // Clusters do not find room for their blocks on every last multiprocessor.
    if (splits > 1 && blocks > resident * kMultiprocessors * 7 / 8) break;
    const int64_t rounds = (blocks + kMultiprocessors - 1) / kMultiprocessors;
    const auto most = static_cast<double>(rounds * Shape::panels * ((units + splits - 1) / splits));
    const double mean = static_cast<double>(tasks * Shape::panels * units) / kMultiprocessors;
    const double speed = kWeightBytes * (resident > 1 && blocks <= kMultiprocessors ? 0.65 : 1);
    const double time =
        (most + mean) / 2 * unit_bytes / speed + rows / kRowBytes + (splits > 1 ? kSplit * splits : 0.0);
    if (splits == 1 || time < best.microseconds) best = {.splits = splits, .microseconds = time};
  }
  return best;
}

template <class Shape, int most_row_tiles, int resident>
void launch(cudaStream_t stream, const LinearParams& params, int splits) {
  const auto kernel = multiply_few_rows<Shape, most_row_tiles, resident>;
  constexpr size_t kShared = shared_of_block(resident);
  static const bool ready = [&] {
    GANNET_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
    return true;
  }();
  static_cast<void>(ready);
  const PackedMatrix& weight = params.weight;
  const int most = static_cast<int>(std::min(params.most, kFewRows));
  const int64_t tasks = task_count<Shape>(params);
  const int split_rows = (most + splits - 1) / splits;
  const int stage_bytes = Shape::stage_bytes(most);
  const size_t fixed = 256 + 4 * Shape::partial_floats + (splits > 1 ? 4UL * splits * split_rows * Shape::outputs : 0);
  const int stages =
      static_cast<int>(std::min<int64_t>(kMostStages, static_cast<int64_t>(kShared - fixed) / stage_bytes));
  const Few few{.x = params.x,
                .x_stride = params.x_stride,
                .count = params.count,
                .weight = weight,
                .output = params.output,
                .y = params.y,
                .y_stride = params.y_stride,
                .factor = std::ldexp(1.0F, weight.exponent),
                .panel_bytes = panel_bytes(weight.format, weight.cols),
                .scales_at = tiles(weight.cols) * tile_bytes(weight.format),
                .group_rows = static_cast<int>(weight.rows / params.groups),
                .panel_groups = static_cast<int>(tasks / params.groups),
                .groups = static_cast<int>(params.groups),
                .most_rows = most,
                .stage_bytes = stage_bytes,
                .stage_rows = Shape::stage_rows(most),
                .stages = stages,
                .splits = splits,
                .split_rows = split_rows};
  const int64_t blocks = splits > 1 ? tasks * splits : std::min<int64_t>(tasks, resident * kMultiprocessors);
  launch_overlapping(stream, kernel,
                     {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(row_blocks(params))),
                      .threads = Shape::threads,
                      .shared_bytes = fixed + static_cast<size_t>(stages) * stage_bytes,
                      .cluster = static_cast<unsigned>(splits)},
                     few);
}

// Big groups of panels take the rows' columns less often through the caches, small ones fill the multiprocessors.
template <WeightFormat format>
void launch_format(cudaStream_t stream, const LinearParams& params) {
  using Four = StreamShape<format, 4, 2, 4, 8>;
  if (params.most > 16) {
    using Eight = StreamShape<format, 8, 2, 4, 8>;
    if (task_count<Eight>(params) * row_blocks(params) >= 2 * kMultiprocessors * 9 / 10) {
      return launch<Eight, 8, 1>(stream, params, 1);
    }
    return launch<Four, 8, 1>(stream, params, plan_launch<Four>(params, 1).splits);
  }
  using Two = StreamShape<format, 2, 2, 8, 8>;
  using One = StreamShape<format, 1, 1, format == WeightFormat::bf16 ? 8 : 16, 8>;
  const Plan four = plan_launch<Four>(params, 2), two = plan_launch<Two>(params, 2);
  const Plan one = plan_launch<One>(params, 2);
  const bool q8 = params.output == LinearOutput::q8;  // of 32 outputs
  if (!q8 && one.microseconds < std::min(two.microseconds, four.microseconds)) {
    return launch<One, 2, 2>(stream, params, one.splits);
  }
  if (two.microseconds < four.microseconds) return launch<Two, 2, 2>(stream, params, two.splits);
  launch<Four, 2, 2>(stream, params, four.splits);
}

}  // namespace

void linear_few_rows(cudaStream_t stream, const LinearParams& params) {
  const PackedMatrix& weight = params.weight;
  GANNET_CHECK(params.groups > 0 && weight.rows % params.groups == 0 && weight.cols % 32 == 0 && weight.cols > 0);
  GANNET_CHECK(params.groups == 1 || weight.rows / params.groups % kPanelRows == 0);
  GANNET_CHECK(params.output != LinearOutput::q8 || weight.rows / params.groups % 32 == 0);
  GANNET_CHECK(params.x_stride % 8 == 0 && reinterpret_cast<uintptr_t>(params.x) % 16 == 0);
  if (params.most == 0 || weight.rows == 0) return;
  switch (weight.format) {
    case WeightFormat::fp8:
      return launch_format<WeightFormat::fp8>(stream, params);
    case WeightFormat::mxfp4:
      return launch_format<WeightFormat::mxfp4>(stream, params);
    case WeightFormat::bf16:
      return launch_format<WeightFormat::bf16>(stream, params);
    case WeightFormat::f32:
      break;
  }
  GANNET_CHECK(weight.format != WeightFormat::f32);
}

}  // namespace gannet::ops::cuda
