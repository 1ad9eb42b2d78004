#include <algorithm>

#include "base/check.h"
#include "ops/cuda/fragment.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/vectors.cuh"
#include "ops/hyper_mix/sm90.h"

// Two kernels, of which the second is launched early and prepares itself while the first ends. The first cuts the 4 *
// hidden columns into splits and multiplies on the tensor cores: streams are bf16, and a weight is the sum of three
// bf16 (8 + 8 + 8 bits), so that three products with fp32 sums lose nothing that fp32 would keep. The second adds the
// splits up in order and makes the coefficients, a thread for each row.
namespace gannet::ops::cuda {
namespace {

constexpr int kStreams = 4;
constexpr int kDots = 24;
constexpr int kDotTiles = kDots / 8;
constexpr int kSums = 32;  // of a row and split: the dots, the sum of squares, padding
constexpr int kSquares = kDots;
constexpr int kChunk = 32;  // columns that a warp takes at once
constexpr int kWarps = 8;
constexpr int kTileRows = 16;  // of a matrix instruction

constexpr int64_t kMostSplits = 160;
constexpr int64_t kTileSplits = 80;  // of one tile: each warp has one chunk of hidden 5120
constexpr int64_t kFewRows = 64;

// How a kernel for `most` rows is cut: tiles of 16 rows for each warp, warps beside each other in rows (the others
// share the columns), splits of the columns.
struct Shape {
  int tiles = 1;
  int row_warps = 1;
  int64_t row_blocks = 1;
  int64_t splits = 1;
};

Shape shape_of(int64_t most) {
  constexpr int64_t kBlocks = 264;  // two for each multiprocessor
  Shape s;
  s.tiles = most <= kTileRows ? 1 : 2;
  while (s.row_warps < kWarps && s.row_warps * s.tiles * kTileRows < most) s.row_warps *= 2;
  const int64_t block_rows = int64_t{s.row_warps} * s.tiles * kTileRows;
  s.row_blocks = (most + block_rows - 1) / block_rows;
  s.splits = std::clamp<int64_t>(kBlocks / s.row_blocks, 1, s.tiles == 1 ? kTileSplits : kMostSplits);
  return s;
}

// Eight columns of fp32 weights as four pairs of each of three bf16 terms.
struct Terms {
  uint32_t high[4], middle[4], low[4];
};

__device__ void split_pair(float a, float b, uint32_t& high, uint32_t& middle, uint32_t& low) {
  high = pack_channels(a, b);
  a -= low_channel(high);
  b -= high_channel(high);
  middle = pack_channels(a, b);
  low = pack_channels(a - low_channel(middle), b - high_channel(middle));
}

__device__ Terms split(const float4& a, const float4& b) {
  Terms t;
  split_pair(a.x, a.y, t.high[0], t.middle[0], t.low[0]);
  split_pair(a.z, a.w, t.high[1], t.middle[1], t.low[1]);
  split_pair(b.x, b.y, t.high[2], t.middle[2], t.low[2]);
  split_pair(b.z, b.w, t.high[3], t.middle[3], t.low[3]);
  return t;
}

__device__ float squares_of(const uint4& v) {
  float sum = 0;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const float low = low_channel(word_of(v, w)), high = high_channel(word_of(v, w));
    sum = fmaf(low, low, sum);
    sum = fmaf(high, high, sum);
  }
  return sum;
}

// Of one chunk, lane 4 g + t holds columns 8 t .. 8 t + 7 of rows g and g + 8 of each tile, and of weights g, g + 8 and
// g + 16. The order of columns inside the two matrix instructions is free as long as both operands have the same.
template <int tiles>
struct Rows16 {
  uint4 v[tiles][2];
};

template <int tiles>
struct Accumulator {
  float dots[tiles][kDotTiles][4] = {};
  float squares[tiles][2] = {};
};

// One chunk of a warp's rows times eight weights.
template <int tiles>
__device__ void multiply_terms(const Rows16<tiles>& rows, const Terms& t, int n, Accumulator<tiles>& sums) {
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    const uint4 &upper = rows.v[m][0], &lower = rows.v[m][1];
    const uint32_t first[4] = {upper.x, lower.x, upper.y, lower.y};
    const uint32_t second[4] = {upper.z, lower.z, upper.w, lower.w};
    float* d = sums.dots[m][n];
    mma_16x8x16(d, first, t.low[0], t.low[1]);
    mma_16x8x16(d, second, t.low[2], t.low[3]);
    mma_16x8x16(d, first, t.middle[0], t.middle[1]);
    mma_16x8x16(d, second, t.middle[2], t.middle[3]);
    mma_16x8x16(d, first, t.high[0], t.high[1]);
    mma_16x8x16(d, second, t.high[2], t.high[3]);
  }
}

template <int tiles>
__device__ void add_squares(const Rows16<tiles>& rows, Accumulator<tiles>& sums) {
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
    sums.squares[m][0] += squares_of(rows.v[m][0]);
    sums.squares[m][1] += squares_of(rows.v[m][1]);
  }
}

// A warp's sums to `to` [rows of the warp][kSums].
template <int tiles>
__device__ void store_sums(Accumulator<tiles>& sums, float* to, int rows) {
  const int g = static_cast<int>(threadIdx.x % 32 / 4), t = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float squares = sums.squares[m][half];
      squares += __shfl_xor_sync(~0U, squares, 1);
      squares += __shfl_xor_sync(~0U, squares, 2);
      const int row = m * kTileRows + half * 8 + g;
      if (row >= rows) continue;
      float* row_sums = to + row * kSums;
#pragma unroll
      for (int n = 0; n < kDotTiles; ++n) {
        const float* d = &sums.dots[m][n][half * 2];
        *reinterpret_cast<float2*>(row_sums + n * 8 + t * 2) = make_float2(d[0], d[1]);
      }
      if (t == 0) row_sums[kSquares] = squares;
    }
  }
}

template <int tiles>
__device__ Rows16<tiles> load_rows(const __nv_bfloat16* at, int64_t stride, const bool (&valid)[tiles][2]) {
  Rows16<tiles> rows;
#pragma unroll
  for (int m = 0; m < tiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      rows.v[m][half] = make_uint4(0, 0, 0, 0);
      if (valid[m][half]) rows.v[m][half] = load_stream(at + (m * kTileRows + half * 8) * stride);
    }
  }
  return rows;
}

template <int tiles>
__device__ void multiply(const Rows16<tiles>& rows, const float* weights, int64_t stride, Accumulator<tiles>& sums) {
  float4 w[kDotTiles][2];
#pragma unroll
  for (int n = 0; n < kDotTiles; ++n) {
    const auto* at = reinterpret_cast<const float4*>(weights + n * 8 * stride);
    w[n][0] = __ldg(at);
    w[n][1] = __ldg(at + 1);
  }
  add_squares(rows, sums);
#pragma unroll
  for (int n = 0; n < kDotTiles; ++n) multiply_terms(rows, split(w[n][0], w[n][1]), n, sums);
}

// Block (row block, split). Warp w takes rows of row group w % row_warps and every (w / row_warps)-th chunk.
template <int tiles>
__global__ __launch_bounds__(kWarps * 32, 2) void dots_kernel(HyperMixParams p, int row_warps) {
  constexpr int kWarpRows = tiles * kTileRows;
  // Few rows are all read: that costs less than waiting for the count.
  const bool few = p.most <= kFewRows;
  __shared__ float shared[kWarps][kWarpRows][kSums];
  if (few) allow_next_launch();
  const int64_t count = few ? p.most : *p.count;
  const int64_t block_row = int64_t{blockIdx.x} * row_warps * kWarpRows;
  if (block_row >= count) return;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int g = lane / 4, t = lane % 4;
  const int column_warps = kWarps / row_warps;
  const int64_t width = kStreams * p.hidden;
  const int64_t first_row = block_row + warp % row_warps * kWarpRows;
  bool valid[tiles][2];
  for (int m = 0; m < tiles; ++m) {
    for (int half = 0; half < 2; ++half) valid[m][half] = first_row + m * kTileRows + half * 8 + g < count;
  }

  const int64_t chunks = width / kChunk;
  const int64_t begin = chunks * blockIdx.y / gridDim.y, end = chunks * (blockIdx.y + 1) / gridDim.y;
  const __nv_bfloat16* rows_at = p.streams + (first_row + g) * width + t * 8;
  const float* weights_at = p.fn + g * width + t * 8;
  Accumulator<tiles> sums;
  int64_t chunk = begin + warp / row_warps;
  Rows16<tiles> rows;
  if (chunk < end) rows = load_rows<tiles>(rows_at + chunk * kChunk, width, valid);
  while (chunk < end) {
    const int64_t next = chunk + column_warps;
    Rows16<tiles> ahead;
    if (next < end) ahead = load_rows<tiles>(rows_at + next * kChunk, width, valid);
    multiply<tiles>(rows, weights_at + chunk * kChunk, width, sums);
    rows = ahead;
    chunk = next;
  }

  if (!few) allow_next_launch();
  float* partial = p.partial + blockIdx.y * p.most * kSums;
  if (column_warps == 1) {
    const int64_t left = count - first_row;
    store_sums<tiles>(sums, partial + first_row * kSums, static_cast<int>(left < kWarpRows ? left : kWarpRows));
    return;
  }
  store_sums<tiles>(sums, &shared[warp][0][0], kWarpRows);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < row_warps * kWarpRows * kSums; i += kWarps * 32) {
    const int row = i / kSums, sum_index = i % kSums;
    if (block_row + row >= count || sum_index > kSquares) continue;
    float sum = 0;
    for (int w = 0; w < column_warps; ++w) sum += shared[w * row_warps + row / kWarpRows][row % kWarpRows][sum_index];
    partial[(block_row + row) * kSums + sum_index] = sum;
  }
}

__device__ float sigmoid(float x) {
  return 1.0F / (1.0F + expf(-x));
}

// To one unit in the last place; x is far from 0 and infinity.
__device__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;\n" : "=f"(y) : "f"(x));
  return y;
}

__device__ float factor_of(float a, float b, float c, float d, float eps) {
  return reciprocal((a + b) + (c + d) + eps);
}

// Softmax of each row plus eps, then rows and columns divided by their sums in turn, columns first and last.
__device__ void sinkhorn(float c[kStreams][kStreams], int iterations, float eps) {
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    const float top = fmaxf(fmaxf(c[j][0], c[j][1]), fmaxf(c[j][2], c[j][3]));
#pragma unroll
    for (int k = 0; k < kStreams; ++k) c[j][k] = expf(c[j][k] - top);
    const float factor = factor_of(c[j][0], c[j][1], c[j][2], c[j][3], 0);
#pragma unroll
    for (int k = 0; k < kStreams; ++k) c[j][k] = c[j][k] * factor + eps;
  }
  for (int i = 0; i < iterations; ++i) {
    if (i > 0) {
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        const float factor = factor_of(c[j][0], c[j][1], c[j][2], c[j][3], eps);
#pragma unroll
        for (int k = 0; k < kStreams; ++k) c[j][k] *= factor;
      }
    }
#pragma unroll
    for (int k = 0; k < kStreams; ++k) {
      const float factor = factor_of(c[0][k], c[1][k], c[2][k], c[3][k], eps);
#pragma unroll
      for (int j = 0; j < kStreams; ++j) c[j][k] *= factor;
    }
  }
}

__device__ void write_mix(const HyperMixParams& p, const float* logits, int64_t row) {
  float c[kStreams][kStreams];
#pragma unroll
  for (int i = 0; i < kStreams * kStreams; ++i) c[i / kStreams][i % kStreams] = logits[i];
  sinkhorn(c, static_cast<int>(p.sinkhorn_iterations), p.eps);
#pragma unroll
  for (int j = 0; j < kStreams; ++j) {
    reinterpret_cast<float4*>(p.mix)[row * kStreams + j] = make_float4(c[j][0], c[j][1], c[j][2], c[j][3]);
  }
}

// `row_warps` warps add up the splits of a row; lane i has sum i, and logit i after that. A thread for each row makes
// its matrix.
template <int row_warps>
__global__ __launch_bounds__(kWarps * 32) void coefficients_kernel(HyperMixParams p, int splits) {
  constexpr int kBlockRows = kWarps / row_warps;
  __shared__ float sums[kWarps][kSums];
  __shared__ float logits[kBlockRows][kSums];
  const int64_t count = *p.count;
  const int64_t block_row = int64_t{blockIdx.x} * kBlockRows;
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int local = warp / row_warps, part = warp % row_warps;
  const int64_t row = block_row + local;
  const float base = lane < kDots ? p.base[lane] : 0;
  const float scale = p.scale[lane < kStreams ? 0 : lane < 2 * kStreams ? 1 : 2];

  wait_for_previous_launch();
  if (block_row >= count) return;
  float sum = 0;
  if (row < count && lane <= kSquares) {
#pragma unroll 10
    for (int s = part; s < splits; s += row_warps) sum += __ldcg(p.partial + (s * p.most + row) * kSums + lane);
  }
  if constexpr (row_warps > 1) {
    sums[warp][lane] = sum;
    __syncthreads();
    if (part != 0) return;
    sum = 0;
#pragma unroll
    for (int w = 0; w < row_warps; ++w) sum += sums[warp + w][lane];
  }
  if (row < count) {
    const float squares = __shfl_sync(~0U, sum, kSquares);
    const float factor = 1.0F / sqrtf(squares / static_cast<float>(kStreams * p.hidden) + p.norm_eps);
    const float logit = sum * factor * scale + base;
    logits[local][lane] = logit;
    if (lane < kStreams) {
      p.pre[row * kStreams + lane] = sigmoid(logit) + p.eps;
    } else if (lane < 2 * kStreams) {
      p.post[row * kStreams + lane - kStreams] = 2 * sigmoid(logit);
    }
  }
  if constexpr (row_warps > 1) {
    __syncwarp();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < kBlockRows && block_row + threadIdx.x < count) {
    write_mix(p, &logits[threadIdx.x][2 * kStreams], block_row + threadIdx.x);
  }
}

void launch_dots(cudaStream_t stream, const HyperMixParams& p, const Shape& s, int64_t splits) {
  const dim3 grid(static_cast<unsigned>(s.row_blocks), static_cast<unsigned>(splits));
  if (s.tiles == 1) {
    dots_kernel<1><<<grid, kWarps * 32, 0, stream>>>(p, s.row_warps);
  } else {
    dots_kernel<2><<<grid, kWarps * 32, 0, stream>>>(p, s.row_warps);
  }
  GANNET_CUDA_LAUNCHED();
}

template <int row_warps>
void launch_coefficients(cudaStream_t stream, const HyperMixParams& p, int64_t splits) {
  constexpr int64_t kBlockRows = kWarps / row_warps;
  launch_overlapping(stream, coefficients_kernel<row_warps>,
                     {.grid = static_cast<unsigned>((p.most + kBlockRows - 1) / kBlockRows), .threads = kWarps * 32}, p,
                     static_cast<int>(splits));
}

}  // namespace

int64_t hyper_mix_scratch(int64_t most) {
  // A row more may take a block more, which leaves fewer splits.
  int64_t sums = 0;
  for (int64_t rows = 1; rows <= most; ++rows) sums = std::max(sums, shape_of(rows).splits * rows);
  return sums * kSums;
}

void hyper_mix(cudaStream_t stream, const HyperMixParams& p) {
  if (p.most == 0) return;
  GANNET_CHECK(p.hidden % kVectorChannels == 0);
  const Shape s = shape_of(p.most);
  const int64_t splits = std::min(s.splits, kStreams * p.hidden / kChunk);
  launch_dots(stream, p, s, splits);
  constexpr int64_t kMostBlocks = 256;  // a block for each row
  if (p.most <= kMostBlocks) {
    launch_coefficients<kWarps>(stream, p, splits);
  } else {
    launch_coefficients<1>(stream, p, splits);
  }
}

}  // namespace gannet::ops::cuda
