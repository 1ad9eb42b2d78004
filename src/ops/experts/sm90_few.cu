#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/quantize.cuh"
#include "ops/cuda/weight_stream.cuh"
#include "ops/experts/sm90.h"

// A task is a group of four panels of one expert: 32 channels of gate and up, or 64 outputs of down. The shared expert
// is one more, which has all rows.
namespace gannet::ops::cuda {
namespace {

constexpr int kResident = 2;   // blocks on a multiprocessor
constexpr int kMostRows = 16;  // at a time

enum class Phase { gate_up, down };

// One phase's weights and rows, of the routed or of the shared expert.
struct Side {
  const __nv_bfloat16* x;
  int cols;
  int panels, groups;  // of an expert; groups of panels
  int64_t panel_bytes, scales_at;
  void* y;  // inner: bf16, outer: float
  int64_t y_stride;
};

struct FewExperts {
  Side routed, shared;
  const ExpertWeights* weights;
  const std::byte* shared_weight;
  float shared_factor;
  const int32_t* count;
  ExpertLists lists;
  int experts, top_k;
  bool one_shared_block;  // however many rows are real
  float swiglu_limit;
  int stage_bytes, stage_rows, stages;
};

__device__ StreamTask stream_task(const Side& side, const std::byte* weight, int group) {
  return {.weight = weight + group * 4 * side.panel_bytes,
          .panel_bytes = side.panel_bytes,
          .scales_at = side.scales_at,
          .panels = min(4, side.panels - 4 * group),
          .cols = side.cols,
          .first_tile = 0,
          .end_tile = (side.cols + 63) / 64};
}

// Rows that a task's products are computed for. Lane i knows where the result of row i goes and the weight it gets.
struct TaskRows {
  int count;
  int64_t place;
  float weight;
};

// A warp gives the sums of one row for 32 channels, of which each lane has one.
__device__ float swiglu(float gate, float up, float limit, float weight) {
  const float a = limit < gate ? limit : gate;
  const float b = limit < up ? limit : up < -limit ? -limit : up;
  return a / (1 + expf(-a)) * b * weight;
}

template <Phase phase, class Shape, int row_tiles>
__device__ void multiply_task(StreamRing& ring, const StreamTask& task, const TaskRows& rows, const Side& side,
                              int group, float factor, float limit, float* partial) {
  float sums[Shape::warp_panels][row_tiles][4];
  multiply<Shape, row_tiles>(ring, task, sums);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
  for (int n = 0; n < row_tiles && n * 8 < rows.count; ++n) {
    share_sums<Shape, row_tiles>(partial, sums, n);
    const int row = n * 8 + warp;  // a warp finishes one of the eight
    const int64_t place = __shfl_sync(0xffffffffU, rows.place, row % 32);
    const float weight = __shfl_sync(0xffffffffU, rows.weight, row % 32);
    if (row < rows.count) {
      if constexpr (phase == Phase::gate_up) {
        const int gate = lane / 8 * 16 + lane % 8;
        const float v = swiglu(add_splits<Shape>(partial, warp, gate) * factor,
                               add_splits<Shape>(partial, warp, gate + 8) * factor, limit, weight);
        float amax = fabsf(v);
        for (int lanes = 16; lanes > 0; lanes /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffU, amax, lanes));
        static_cast<__nv_bfloat16*>(side.y)[place * side.y_stride + group * 32 + lane] =
            __float2bfloat16(q8_round(v, q8_scale(amax)));
      } else {
        float* y = static_cast<float*>(side.y) + place * side.y_stride;
        for (int output = lane; output < Shape::outputs; output += 32) {
          const int at = group * Shape::outputs + output;
          if (at < side.y_stride) y[at] = add_splits<Shape>(partial, warp, output) * factor;
        }
      }
    }
    sync_threads(1, Shape::product_threads);
  }
}

template <Phase phase, class Shape, int most_row_tiles, class... Arguments>
__device__ void multiply_task_any(StreamRing& ring, const StreamTask& task, const TaskRows& rows,
                                  const Arguments&... arguments) {
  if constexpr (most_row_tiles > 1) {
    if (rows.count <= most_row_tiles / 2 * 8) {
      return multiply_task_any<phase, Shape, most_row_tiles / 2>(ring, task, rows, arguments...);
    }
  }
  multiply_task<phase, Shape, most_row_tiles>(ring, task, rows, arguments...);
}

struct RoutedTask {
  const std::byte* weight;  // of the expert
  float factor;
  int begin, end;  // of its pairs
  int group;
};

// What there is to know about routed task i, which need not exist: the loads of one task run beside the products of the
// one before.
template <Phase phase>
__device__ RoutedTask routed_task(const FewExperts& few, int i) {
  const int slot = min(i / few.routed.groups, few.experts - 1);
  const int expert = min(max(few.lists.active[slot], 0), few.experts - 1);
  const ExpertWeights& weights = few.weights[expert];
  return {.weight = phase == Phase::gate_up ? weights.gate_up : weights.down,
          .factor = phase == Phase::gate_up ? weights.gate_up_factor : weights.down_factor,
          .begin = few.lists.offsets[expert],
          .end = few.lists.offsets[expert + 1],
          .group = i % few.routed.groups};
}

// By a warp: the block's tasks in their order, as on_shared(group, first row, rows) and on_routed(task, first pair,
// rows).
template <Phase phase, class OnShared, class OnRouted>
__device__ __forceinline__ void for_each_task(const FewExperts& few, bool weight_warp, const OnShared& on_shared,
                                              const OnRouted& on_routed) {
  // The shared expert's weights may be read while the launch before still writes rows and lists.
  const bool early = weight_warp && few.one_shared_block;
  if (!early) wait_for_previous_launch();
  const int count = early ? 0 : *few.count, blocks = static_cast<int>(gridDim.x);
  const int shared_blocks = few.one_shared_block ? 1 : (count + kMostRows - 1) / kMostRows;
  const int shared_tasks = few.shared.groups * shared_blocks;
  int i = static_cast<int>(blockIdx.x);
  for (; i < shared_tasks; i += blocks) {
    const int first_row = i % shared_blocks * kMostRows;
    on_shared(i / shared_blocks, first_row, min(count - first_row, kMostRows));
  }
  if (early) wait_for_previous_launch();
  i -= shared_tasks;
  RoutedTask next = routed_task<phase>(few, i);
  const int tasks = *few.lists.active_count * few.routed.groups;
  for (; i < tasks; i += blocks) {
    const RoutedTask task = next;
    next = routed_task<phase>(few, i + blocks);
    for (int first = task.begin; first < task.end; first += kMostRows) {
      on_routed(task, first, min(task.end - first, kMostRows));
    }
  }
}

template <Phase phase, class Routed, class Shared, int most_row_tiles>
__global__ void __launch_bounds__(Routed::threads, kResident) multiply_experts(const __grid_constant__ FewExperts few) {
  extern __shared__ __align__(128) std::byte memory[];
  auto* barriers = reinterpret_cast<uint64_t*>(memory);
  auto* partial = reinterpret_cast<float*>(memory + 256);
  StreamRing ring{.full = barriers,
                  .empty = barriers + kMostStages,
                  .data = memory + 256 + 4 * std::max(Routed::partial_floats, Shared::partial_floats),
                  .stages = few.stages,
                  .stage_bytes = few.stage_bytes,
                  .rows = few.stage_rows};
  allow_next_launch();
  if (threadIdx.x == 0) init_ring(ring, Routed::product_warps);
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  if (warp == Routed::weight_warp) {
    const uint64_t policy = streaming_policy();
    for_each_task<phase>(
        few, true,
        [&](int group, int, int) {
          stream_weights<Shared>(ring, stream_task(few.shared, few.shared_weight, group), policy);
        },
        [&](const RoutedTask& task, int, int) {
          stream_weights<Routed>(ring, stream_task(few.routed, task.weight, task.group), policy);
        });
  } else if (warp > Routed::weight_warp) {
    for_each_task<phase>(
        few, false,
        [&](int group, int first_row, int rows) {
          const __nv_bfloat16* x = few.shared.x + static_cast<int64_t>(first_row) * few.shared.cols;
          stream_rows<Shared>(ring, stream_task(few.shared, nullptr, group), rows,
                              [&](int row) { return x + row * few.shared.cols; });
        },
        [&](const RoutedTask& task, int first, int rows) {
          const int pair = lane < rows ? few.lists.pairs[first + lane] : 0;
          const int x_row = phase == Phase::gate_up ? pair / few.top_k : pair;
          stream_rows<Routed>(ring, stream_task(few.routed, nullptr, task.group), rows, [&](int row) {
            return few.routed.x + static_cast<int64_t>(__shfl_sync(0xffffffffU, x_row, row)) * few.routed.cols;
          });
        });
  } else {
    for_each_task<phase>(
        few, false,
        [&](int group, int first_row, int count) {
          const TaskRows rows{.count = count, .place = first_row + lane, .weight = 1};
          multiply_task_any<phase, Shared, most_row_tiles>(ring, stream_task(few.shared, nullptr, group), rows,
                                                           few.shared, group, few.shared_factor, few.swiglu_limit,
                                                           partial);
        },
        [&](const RoutedTask& task, int first, int count) {
          const int pair = lane < count ? few.lists.pairs[first + lane] : few.lists.pairs[first];
          const TaskRows rows{
              .count = count, .place = pair, .weight = phase == Phase::gate_up ? few.lists.weights[pair] : 1};
          multiply_task_any<phase, Routed, most_row_tiles>(ring, stream_task(few.routed, nullptr, task.group), rows,
                                                           few.routed, task.group, task.factor, few.swiglu_limit,
                                                           partial);
        });
  }
}

template <WeightFormat format>
Side side_of(int64_t rows, int64_t cols, const __nv_bfloat16* x, void* y, int64_t y_stride) {
  return {.x = x,
          .cols = static_cast<int>(cols),
          .panels = static_cast<int>(panels(rows)),
          .groups = static_cast<int>((panels(rows) + 3) / 4),
          .panel_bytes = panel_bytes(format, cols),
          .scales_at = tiles(cols) * tile_bytes(format),
          .y = y,
          .y_stride = y_stride};
}

template <Phase phase, class Routed, class Shared, int most_row_tiles>
void launch_phase(cudaStream_t stream, const ExpertsParams& params, FewExperts few) {
  const auto kernel = multiply_experts<phase, Routed, Shared, most_row_tiles>;
  constexpr size_t kShared = shared_of_block(kResident);
  static const bool ready = [&] {
    GANNET_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
    return true;
  }();
  static_cast<void>(ready);
  few.stage_rows = Routed::stage_rows(static_cast<int>(std::min<int64_t>(params.most, kMostRows)));
  few.stage_bytes = std::max(Routed::stage_bytes(few.stage_rows), Shared::stage_bytes(few.stage_rows));
  const size_t fixed = 256 + 4 * std::max(Routed::partial_floats, Shared::partial_floats);
  few.stages = static_cast<int>(std::min<size_t>(kMostStages, (kShared - fixed) / few.stage_bytes));
  launch_overlapping(stream, kernel,
                     {.grid = dim3(kResident * kMultiprocessors),
                      .threads = Routed::threads,
                      .shared_bytes = fixed + static_cast<size_t>(few.stages) * few.stage_bytes},
                     few);
}

template <Phase phase>
void launch_phase(cudaStream_t stream, const ExpertsParams& params, const FewExperts& few) {
  using enum WeightFormat;
  using Routed = StreamShape<mxfp4, 4, 2, 8, 8>;
  using Shared = StreamShape<fp8, 4, 2, 4, 8>;
  if (params.most <= 8) return launch_phase<phase, Routed, Shared, 1>(stream, params, few);
  launch_phase<phase, Routed, Shared, kMostRows / 8>(stream, params, few);
}

}  // namespace

void experts_few_rows(cudaStream_t stream, const ExpertsParams& params) {
  using enum WeightFormat;
  const int64_t shared_width = params.shared_down.cols;
  GANNET_CHECK(params.width % 32 == 0 && shared_width % 32 == 0 && params.hidden % 32 == 0);
  GANNET_CHECK(params.shared_gate_up.format == fp8 && params.shared_down.format == fp8);
  GANNET_CHECK(params.shared_gate_up.rows == 2 * shared_width && params.shared_down.rows == params.hidden);
  GANNET_CHECK(params.experts > 0 && params.top_k > 0);
  if (params.most == 0) return;
  FewExperts few = {};
  few.weights = params.routed;
  few.count = params.count;
  few.lists = params.lists;
  few.experts = static_cast<int>(params.experts);
  few.top_k = static_cast<int>(params.top_k);
  few.one_shared_block = params.most <= kMostRows;
  few.swiglu_limit = params.swiglu_limit;
  few.routed = side_of<mxfp4>(2 * params.width, params.hidden, params.x, params.inner, params.width);
  few.shared = side_of<fp8>(2 * shared_width, params.hidden, params.x, params.shared_inner, shared_width);
  few.shared_weight = params.shared_gate_up.data;
  few.shared_factor = std::ldexp(1.0F, params.shared_gate_up.exponent);
  launch_phase<Phase::gate_up>(stream, params, few);

  few.routed = side_of<mxfp4>(params.hidden, params.width, params.inner, params.outer, params.hidden);
  few.shared = side_of<fp8>(params.hidden, shared_width, params.shared_inner, params.shared, params.hidden);
  few.shared_weight = params.shared_down.data;
  few.shared_factor = std::ldexp(1.0F, params.shared_down.exponent);
  launch_phase<Phase::down>(stream, params, few);
}

}  // namespace gannet::ops::cuda
