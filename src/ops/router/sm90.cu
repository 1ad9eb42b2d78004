#include <algorithm>

#include "base/check.h"
#include "ops/cuda/bulk_copy.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/ordered.cuh"
#include "ops/linear/sm90.h"
#include "ops/router/sm90.h"

namespace gannet::ops::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kMostExperts = kThreads;  // a thread for each
constexpr int kMostTopK = 8;
constexpr int kChunk = 128;  // rows whose pairs one block sorts
constexpr int kChunkWords = kChunk / 32;

struct Route {
  const float* bias;
  const int32_t* count;
  float* logits;
  ExpertLists lists;
  int most, experts, top_k;
  float scaling_factor;
};

// log(1 + e^x) without overflow; the identity above 20.
__device__ float softplus(float x) {
  return x > 20.0F ? x : log1pf(expf(x));
}

constexpr int kPerLane = kMostExperts / 32;

// Expert 32 i + lane in element i.
__device__ void load_lane(const float* values, int experts, float (&result)[kPerLane]) {
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int expert = 32 * i + static_cast<int>(threadIdx.x) % 32;
    result[i] = expert < experts ? values[expert] : 0;
  }
}

// By the block: scores [rows][experts] of the rows from `first_row` on.
__device__ void score(const Route& route, int first_row, int rows, float* scores) {
  const float* logits = route.logits + static_cast<int64_t>(first_row) * route.experts;
  for (int i = static_cast<int>(threadIdx.x); i < rows * route.experts; i += static_cast<int>(blockDim.x)) {
    scores[i] = sqrtf(softplus(logits[i]));
  }
}

// By a warp: the row's experts and weights in the order of rising expert; they also go to `chosen` if there is one.
__device__ void choose(const Route& route, int row, const float* row_scores, const float (&bias)[kPerLane],
                       uint16_t* chosen) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float scores[kPerLane];
  uint32_t keys[kPerLane];
  load_lane(row_scores, route.experts, scores);
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const float rank = scores[i] + bias[i];
    keys[i] = 32 * i + lane < route.experts ? ordered(isnan(rank) ? -INFINITY : rank) : 0;
  }
  int my_expert = 0;  // of slot `lane`, best first
  float my_score = 0, sum = 0;
  for (int slot = 0; slot < route.top_k; ++slot) {
    uint32_t best = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) best = max(best, keys[i]);
    best = __reduce_max_sync(0xffffffffU, best);
    uint32_t lowest = kMostExperts;
    float score = 0;
#pragma unroll
    for (int i = kPerLane - 1; i >= 0; --i) {
      if (keys[i] == best) {
        lowest = 32 * i + lane;
        score = scores[i];
      }
    }
    const uint32_t expert = __reduce_min_sync(0xffffffffU, lowest);
    score = __shfl_sync(0xffffffffU, score, static_cast<int>(expert % 32));
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      if (32 * i + lane == expert) keys[i] = 0;
    }
    sum += score;
    if (lane == slot) {
      my_expert = static_cast<int>(expert);
      my_score = score;
    }
  }
  int place = 0;
  for (int slot = 0; slot < route.top_k; ++slot) {
    place += __shfl_sync(0xffffffffU, my_expert, slot) < my_expert ? 1 : 0;
  }
  if (lane < route.top_k) {
    const int64_t at = static_cast<int64_t>(row) * route.top_k + place;
    route.lists.experts[at] = my_expert;
    route.lists.weights[at] = my_score / (sum + 1e-20F) * route.scaling_factor;
    if (chosen != nullptr) chosen[place] = static_cast<uint16_t>(my_expert);
  }
}

// Bit r of an expert's words: row r of the chunk goes there. A pair's place among its expert's is then a count of bits.
struct ChunkRows {
  uint32_t words[kMostExperts][kChunkWords];
};

// By the block: the experts of the chunk's pairs, from global memory.
__device__ void load_chosen(const Route& route, int first_row, int rows, uint16_t* chosen) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * route.top_k; i += kThreads) {
    chosen[i] = static_cast<uint16_t>(route.lists.experts[static_cast<int64_t>(first_row) * route.top_k + i]);
  }
}

// By the block; begins and ends with a barrier.
__device__ void collect(const Route& route, const uint16_t* chosen, int rows, ChunkRows& chunk) {
  for (int i = static_cast<int>(threadIdx.x); i < kMostExperts * kChunkWords; i += kThreads) {
    chunk.words[i / kChunkWords][i % kChunkWords] = 0;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * route.top_k; i += kThreads) {
    const int row = i / route.top_k;
    atomicOr(&chunk.words[chosen[i]][row / 32], 1U << row % 32);
  }
  __syncthreads();
}

__device__ int rows_of(const ChunkRows& chunk, int expert) {
  int rows = 0;
#pragma unroll
  for (int w = 0; w < kChunkWords; ++w) rows += __popc(chunk.words[expert][w]);
  return rows;
}

// By the block: thread e gives the rows of expert e and gets those of all experts before it; `first` writes offsets and
// active experts.
__device__ int scan_experts(const Route& route, int rows, bool first) {
  __shared__ uint32_t warp_totals[kWarps];
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  constexpr int kActiveShift = 20;  // at most 2^16 pairs below it
  const uint32_t mine = static_cast<uint32_t>(rows) | (rows > 0 ? 1U << kActiveShift : 0);
  uint32_t through = mine;
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t left = __shfl_up_sync(0xffffffffU, through, step);
    if (lane >= step) through += left;
  }
  if (lane == 31) warp_totals[warp] = through;
  __syncthreads();
  for (int w = 0; w < warp; ++w) through += warp_totals[w];
  const uint32_t before = through - mine;
  const int offset = static_cast<int>(before & ((1U << kActiveShift) - 1));
  if (first) {
    if (thread <= route.experts) route.lists.offsets[thread] = offset;
    if (rows > 0) route.lists.active[before >> kActiveShift] = thread;
    if (thread == kThreads - 1) {
      route.lists.active_count[0] = static_cast<int>(through >> kActiveShift);
      if (route.experts == kThreads) route.lists.offsets[kThreads] = offset + rows;
    }
  }
  return offset;
}

// By the block: expert e's pairs of this chunk begin at starts[e].
__device__ void list_pairs(const Route& route, const uint16_t* chosen, int first_row, int rows, const ChunkRows& chunk,
                           const int* starts) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * route.top_k; i += kThreads) {
    const int row = i / route.top_k, expert = chosen[i];
    int before = __popc(chunk.words[expert][row / 32] & ((1U << row % 32) - 1));
    for (int w = 0; w < row / 32; ++w) before += __popc(chunk.words[expert][w]);
    route.lists.pairs[starts[expert] + before] = first_row * route.top_k + i;
  }
}

// Up to a chunk of rows, by one cluster: its first block makes the lists. A block takes neighbouring rows.
__global__ void __launch_bounds__(kThreads) route_few_rows(const Route route) {
  __shared__ ChunkRows chunk;
  __shared__ int starts[kMostExperts];
  __shared__ uint16_t chosen[kChunk * kMostTopK];
  __shared__ float scores[kWarps * kMostExperts];
  allow_next_launch();
  float bias[kPerLane];
  load_lane(route.bias, route.experts, bias);  // a weight
  wait_for_previous_launch();
  const int count = *route.count, blocks = static_cast<int>(gridDim.x);
  const int block_rows = (route.most + blocks - 1) / blocks, first_row = static_cast<int>(blockIdx.x) * block_rows;
  const int rows = max(min(count - first_row, block_rows), 0), warp = static_cast<int>(threadIdx.x) / 32;
  score(route, first_row, rows, scores);
  __syncthreads();
  if (warp < rows) {
    choose(route, first_row + warp, scores + warp * route.experts, bias,
           blocks == 1 ? chosen + warp * route.top_k : nullptr);
  }
  if (blocks > 1) {
    arrive_at_cluster();
    wait_for_cluster();
    if (blockIdx.x > 0) return;
    load_chosen(route, 0, count, chosen);
  }
  collect(route, chosen, count, chunk);
  starts[threadIdx.x] = scan_experts(route, rows_of(chunk, static_cast<int>(threadIdx.x)), true);
  __syncthreads();
  list_pairs(route, chosen, 0, count, chunk, starts);
}

// More rows, in three launches. Here kChooseRows of them for each block.
constexpr int kChooseRows = 8;
__global__ void __launch_bounds__(32 * kChooseRows) choose_rows(const Route route) {
  __shared__ float scores[kChooseRows * kMostExperts];
  allow_next_launch();
  float bias[kPerLane];
  load_lane(route.bias, route.experts, bias);
  wait_for_previous_launch();
  const int first_row = static_cast<int>(blockIdx.x) * kChooseRows, rows = min(*route.count - first_row, kChooseRows);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (rows <= 0) return;
  score(route, first_row, rows, scores);
  __syncthreads();
  if (warp < rows) choose(route, first_row + warp, scores + warp * route.experts, bias, nullptr);
}

// A block for each chunk. How many rows of the chunk each expert got goes over the chunk's logits, which nobody needs
// any more.
__global__ void __launch_bounds__(kThreads) count_chunk(const Route route) {
  __shared__ ChunkRows chunk;
  __shared__ uint16_t chosen[kChunk * kMostTopK];
  allow_next_launch();
  wait_for_previous_launch();
  const int first_row = static_cast<int>(blockIdx.x) * kChunk, rows = min(*route.count - first_row, kChunk);
  if (rows <= 0) return;
  load_chosen(route, first_row, rows, chosen);
  collect(route, chosen, rows, chunk);
  const int expert = static_cast<int>(threadIdx.x);
  if (expert < route.experts) {
    reinterpret_cast<int32_t*>(route.logits)[static_cast<int64_t>(first_row) * route.experts + expert] =
        rows_of(chunk, expert);
  }
}

__global__ void __launch_bounds__(kThreads) list_chunk(const Route route) {
  __shared__ ChunkRows chunk;
  __shared__ int starts[kMostExperts];
  __shared__ uint16_t chosen[kChunk * kMostTopK];
  allow_next_launch();
  wait_for_previous_launch();
  const int count = *route.count, chunks = (count + kChunk - 1) / kChunk, mine = static_cast<int>(blockIdx.x);
  if (mine > 0 && mine >= chunks) return;
  const int expert = static_cast<int>(threadIdx.x);
  int total = 0, before = 0;
  if (expert < route.experts) {
    const auto* counts = reinterpret_cast<const int32_t*>(route.logits) + expert;
#pragma unroll 8
    for (int c = 0; c < chunks; ++c) {
      const int rows = counts[static_cast<int64_t>(c) * kChunk * route.experts];
      total += rows;
      before += c < mine ? rows : 0;
    }
  }
  starts[expert] = scan_experts(route, total, mine == 0) + before;
  const int first_row = mine * kChunk, rows = min(count - first_row, kChunk);
  load_chosen(route, first_row, rows, chosen);
  collect(route, chosen, rows, chunk);
  list_pairs(route, chosen, first_row, rows, chunk, starts);
}

}  // namespace

void router(cudaStream_t stream, const RouterParams& params) {
  const int64_t experts = params.gate.rows;
  GANNET_CHECK(experts <= kMostExperts && params.top_k <= std::min<int64_t>(experts, kMostTopK));
  if (params.most == 0) return;
  linear(stream, {.x = params.x,
                  .x_stride = params.gate.cols,
                  .count = params.count,
                  .most = params.most,
                  .weight = params.gate,
                  .output = LinearOutput::f32,
                  .y = params.logits,
                  .y_stride = experts});
  const Route route{.bias = params.bias,
                    .count = params.count,
                    .logits = params.logits,
                    .lists = params.lists,
                    .most = static_cast<int>(params.most),
                    .experts = static_cast<int>(experts),
                    .top_k = static_cast<int>(params.top_k),
                    .scaling_factor = params.scaling_factor};
  if (params.most <= kChunk) {
    const auto blocks = static_cast<unsigned>(std::min<int64_t>((params.most + kChooseRows - 1) / kChooseRows, 8));
    launch_overlapping(stream, route_few_rows, {.grid = dim3(blocks), .threads = kThreads, .cluster = blocks}, route);
    return;
  }
  const dim3 blocks(static_cast<unsigned>((params.most + kChooseRows - 1) / kChooseRows));
  const dim3 chunks(static_cast<unsigned>((params.most + kChunk - 1) / kChunk));
  launch_overlapping(stream, choose_rows, {.grid = blocks, .threads = 32 * kChooseRows}, route);
  launch_overlapping(stream, count_chunk, {.grid = chunks, .threads = kThreads}, route);
  launch_overlapping(stream, list_chunk, {.grid = chunks, .threads = kThreads}, route);
}

}  // namespace gannet::ops::cuda
