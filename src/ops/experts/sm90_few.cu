#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/check.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/quantize.cuh"
#include "ops/cuda/weight_stream.cuh"
#include "ops/experts/sm90.h"

// A task is a group of four panels of one expert: 32 channels of gate and up, or 64 outputs of down. The shared expert
// is one more, which has all rows.
namespace gannet::ops::cuda {
namespace {

constexpr int kMultiprocessors = 132;
constexpr size_t kSharedOfMultiprocessor = 228 * 1024, kReservedOfBlock = 1024;
constexpr int kMostStages = 8;
constexpr int kRoutedRows = 32, kSharedRows = 16;  // at most so many at a time

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
  int top_k;
  bool one_shared_block;  // however many rows are real
  float swiglu_limit;
  int stage_bytes, routed_stage_rows, shared_stage_rows, stages;
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
    // A warp finishes one of the eight.
    const int in_tile = warp % 8, row = n * 8 + in_tile;
    const int64_t place = __shfl_sync(0xffffffffU, rows.place, row % 32);
    const float weight = __shfl_sync(0xffffffffU, rows.weight, row % 32);
    if (warp < 8 && row < rows.count) {
      if constexpr (phase == Phase::gate_up) {
        const int gate = lane / 8 * 16 + lane % 8;
        const float v = swiglu(add_splits<Shape>(partial, in_tile, gate) * factor,
                               add_splits<Shape>(partial, in_tile, gate + 8) * factor, limit, weight);
        float amax = fabsf(v);
        for (int lanes = 16; lanes > 0; lanes /= 2) amax = fmaxf(amax, __shfl_xor_sync(0xffffffffU, amax, lanes));
        static_cast<__nv_bfloat16*>(side.y)[place * side.y_stride + group * 32 + lane] =
            __float2bfloat16(q8_round(v, q8_scale(amax)));
      } else {
        float* y = static_cast<float*>(side.y) + place * side.y_stride;
        for (int output = lane; output < Shape::outputs; output += 32) {
          const int at = group * Shape::outputs + output;
          if (at < side.y_stride) y[at] = add_splits<Shape>(partial, in_tile, output) * factor;
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

template <Phase phase, class Routed, class Shared, int most_row_tiles, int resident>
__global__ void __launch_bounds__(Routed::threads, resident) multiply_experts(const __grid_constant__ FewExperts few) {
  extern __shared__ __align__(128) std::byte memory[];
  auto* barriers = reinterpret_cast<uint64_t*>(memory);
  auto* partial = reinterpret_cast<float*>(memory + 256);
  StreamRing ring{.full = barriers,
                  .empty = barriers + kMostStages,
                  .data = memory + 256 + 4 * std::max(Routed::partial_floats, Shared::partial_floats),
                  .stages = few.stages,
                  .stage_bytes = few.stage_bytes};
  allow_next_launch();
  if (threadIdx.x == 0) init_ring(ring, Routed::product_warps);
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int blocks = static_cast<int>(gridDim.x);
  // The shared expert's weights may be read while the launch before still writes rows and lists.
  const bool early = warp == Routed::weight_warp && few.one_shared_block;
  if (!early) wait_for_previous_launch();
  const uint64_t policy = streaming_policy();

  const int count = early ? 0 : *few.count;
  const int shared_blocks = few.one_shared_block ? 1 : (count + kSharedRows - 1) / kSharedRows;
  const int shared_tasks = few.shared.groups * shared_blocks;
  int i = static_cast<int>(blockIdx.x);
  ring.rows = few.shared_stage_rows;
  for (; i < shared_tasks; i += blocks) {
    const int group = i / shared_blocks, first_row = i % shared_blocks * kSharedRows;
    const StreamTask task = stream_task(few.shared, few.shared_weight, group);
    const TaskRows rows{.count = min(count - first_row, kSharedRows), .place = first_row + lane, .weight = 1};
    if (warp == Routed::weight_warp) {
      stream_weights<Shared>(ring, task, policy);
    } else if (warp > Routed::weight_warp) {
      const __nv_bfloat16* x = few.shared.x + static_cast<int64_t>(first_row) * few.shared.cols;
      stream_rows<Shared>(ring, task, rows.count, [&](int row) { return x + row * few.shared.cols; });
    } else {
      multiply_task_any<phase, Shared, std::min(most_row_tiles, kSharedRows / 8)>(
          ring, task, rows, few.shared, group, few.shared_factor, few.swiglu_limit, partial);
    }
  }
  if (early) wait_for_previous_launch();

  const int tasks = shared_tasks + *few.lists.active_count * few.routed.groups;
  ring.rows = few.routed_stage_rows;
  for (; i < tasks; i += blocks) {
    const int expert = few.lists.active[(i - shared_tasks) / few.routed.groups];
    const int group = (i - shared_tasks) % few.routed.groups;
    const int begin = few.lists.offsets[expert], end = few.lists.offsets[expert + 1];
    const ExpertWeights& weights = few.weights[expert];
    const StreamTask task = stream_task(few.routed, phase == Phase::gate_up ? weights.gate_up : weights.down, group);
    for (int first = begin; first < end; first += kRoutedRows) {
      TaskRows rows{.count = min(end - first, kRoutedRows), .place = 0, .weight = 0};
      if (warp == Routed::weight_warp) {
        stream_weights<Routed>(ring, task, policy);
        continue;
      }
      const int pair = lane < rows.count ? few.lists.pairs[first + lane] : 0;
      if (warp > Routed::weight_warp) {
        const int x_row = phase == Phase::gate_up ? pair / few.top_k : pair;
        stream_rows<Routed>(ring, task, rows.count, [&](int row) {
          return few.routed.x + static_cast<int64_t>(__shfl_sync(0xffffffffU, x_row, row)) * few.routed.cols;
        });
      } else {
        rows.place = pair;
        rows.weight = phase == Phase::gate_up ? few.lists.weights[pair] : 1;
        multiply_task_any<phase, Routed, most_row_tiles>(
            ring, task, rows, few.routed, group, phase == Phase::gate_up ? weights.gate_up_factor : weights.down_factor,
            few.swiglu_limit, partial);
      }
    }
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

template <Phase phase, class Routed, class Shared, int most_row_tiles, int resident, int blocks_at_once>
void launch_phase(cudaStream_t stream, const ExpertsParams& params, FewExperts few) {
  const auto kernel = multiply_experts<phase, Routed, Shared, most_row_tiles, resident>;
  constexpr size_t kShared = (kSharedOfMultiprocessor / resident - kReservedOfBlock) / 16 * 16;
  static const bool ready = [&] {
    GANNET_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
    return true;
  }();
  static_cast<void>(ready);
  const int most = static_cast<int>(params.most);
  few.routed_stage_rows = Routed::stage_rows(std::min(most, kRoutedRows));
  few.shared_stage_rows = Shared::stage_rows(std::min(most, kSharedRows));
  few.stage_bytes = std::max(Routed::stage_bytes(few.routed_stage_rows), Shared::stage_bytes(few.shared_stage_rows));
  const size_t fixed = 256 + 4 * std::max(Routed::partial_floats, Shared::partial_floats);
  few.stages = static_cast<int>(std::min<size_t>(kMostStages, (kShared - fixed) / few.stage_bytes));
  launch_overlapping(stream, kernel,
                     {.grid = dim3(blocks_at_once * kMultiprocessors),
                      .threads = Routed::threads,
                      .shared_bytes = fixed + static_cast<size_t>(few.stages) * few.stage_bytes},
                     few);
}

template <Phase phase>
void launch_phase(cudaStream_t stream, const ExpertsParams& params, const FewExperts& few) {
  using enum WeightFormat;
  if (params.most <= 8) {
    return launch_phase<phase, StreamShape<mxfp4, 4, 1, 8, 8>, StreamShape<fp8, 4, 1, 4, 8>, 1, 2, 2>(stream, params,
                                                                                                      few);
  }
  launch_phase<phase, StreamShape<mxfp4, 4, 1, 4, 8>, StreamShape<fp8, 4, 1, 4, 8>, kRoutedRows / 8, 2, 2>(stream,
                                                                                                           params, few);
}

}  // namespace

void experts_few_rows(cudaStream_t stream, const ExpertsParams& params) {
  using enum WeightFormat;
  const int64_t shared_width = params.shared_down.cols;
  GANNET_CHECK(params.width % 32 == 0 && shared_width % 32 == 0 && params.hidden % 32 == 0);
  GANNET_CHECK(params.shared_gate_up.format == fp8 && params.shared_down.format == fp8);
  GANNET_CHECK(params.shared_gate_up.rows == 2 * shared_width && params.shared_down.rows == params.hidden);
  if (params.most == 0) return;
  FewExperts few = {};
  few.weights = params.routed;
  few.count = params.count;
  few.lists = params.lists;
  few.top_k = static_cast<int>(params.top_k);
  few.one_shared_block = params.most <= kSharedRows;
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
