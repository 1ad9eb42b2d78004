#include <cpuid.h>

#include <algorithm>

#include "base/error.h"
#include "ops/linear/kernels.h"
#include "ops/linear/op.h"
#include "ops/math.h"

namespace gannet::ops {
namespace {

constexpr int64_t kBlock = 32;

void check(const LinearParams& params) {
  const WeightMatrix& w = params.weight;
  const bool scaled = w.format == WeightFormat::fp8 || w.format == WeightFormat::mxfp4;
  GANNET_CHECK(params.rows >= 0 && params.outputs >= 0 && w.cols >= 0);
  GANNET_CHECK(params.first_output >= 0 && params.first_output + params.outputs <= w.rows);
  GANNET_CHECK(params.x_stride >= w.cols || params.rows <= 1);
  GANNET_CHECK(params.y_stride >= params.outputs || params.rows <= 1);
  GANNET_CHECK(w.format != WeightFormat::mxfp4 || w.cols % kBlock == 0);
  GANNET_CHECK(!params.quantize_input || w.cols % kBlock == 0);
  GANNET_CHECK(!scaled || w.scale != nullptr);
}

bool find_matrix_units() {
  constexpr uint32_t kLeaf = 7;
  constexpr uint32_t kBf16AndTiles = 1U << 22 | 1U << 24;
  uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(kLeaf, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kBf16AndTiles) == kBf16AndTiles && matrix_units_granted();
}

const LinearKernels& best_avx512() {
  static const LinearKernels kernels{
      .prepare = kLinearAvx512.prepare, .multiply = multiply_by_matrix_units, .dots = kLinearAvx512.dots};
  return has_matrix_units(Simd::avx512_bf16) ? kernels : kLinearAvx512;
}

int64_t ceil_div(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}

// Rows that each thread is worth giving, where it takes all outputs for them; 0: threads share the outputs. Every
// thread packs the rows that it takes for the matrix units and decodes the weights that it takes once for matrix_rows
// of them.
int64_t rows_a_thread(const WeightMatrix& weight, int64_t outputs, int64_t rows, int64_t threads) {
  constexpr int64_t kPacking = 10;  // of a value, in halves of what decoding a weight takes
  constexpr int64_t kDecoding = 2;
  const int64_t most = matrix_rows(weight.cols);
  const int64_t share = ceil_div(ceil_div(rows, threads), kMatrixGroup) * kMatrixGroup;
  if (weight.format == WeightFormat::f32 || share >= rows) return 0;
  const int64_t by_outputs = kPacking * rows + kDecoding * ceil_div(outputs, threads) * ceil_div(rows, most);
  const int64_t by_rows = kPacking * share + kDecoding * outputs * ceil_div(share, most);
  return by_rows < by_outputs ? share : 0;
}

}  // namespace

bool has_matrix_units(Simd simd) {
  static const bool found = find_matrix_units();
  return simd == Simd::avx512_bf16 && found;
}

void multiply(const LinearKernels& kernels, LinearRange range) {
  range.workspace = scratch<struct LinearWorkspaceTag, uint32_t>(workspace_words(range.rows, range.weight.cols));
  kernels.multiply(range);
}

const LinearKernels* linear_kernels(Simd simd) {
  switch (simd) {
    case Simd::none:
      return nullptr;
    case Simd::avx2:
      return &kLinearAvx2;
    case Simd::avx512:
      return &kLinearAvx512;
    case Simd::avx512_bf16:
      return &best_avx512();
  }
  return nullptr;
}

int64_t weight_bytes(const WeightMatrix& weight, int64_t outputs) {
  const int64_t elements = outputs * weight.cols;
  switch (weight.format) {
    case WeightFormat::fp8:
      return elements + elements / (kBlock * kBlock);
    case WeightFormat::mxfp4:
      return elements / 2 + elements / kBlock;
    case WeightFormat::bf16:
      return elements * 2;
    case WeightFormat::f32:
      return elements * 4;
  }
  return 0;
}

// Waking a thread costs some microseconds, in which one reads some tens of kilobytes or multiplies twice as often.
int64_t threads_worth_waking(const WeightMatrix& weight, int64_t outputs, int64_t rows, int64_t threads) {
  constexpr int64_t kWorthAThread = 64 * 1024;
  const int64_t work = outputs * weight.cols * (rows + 1) / 2;
  return std::clamp<int64_t>(work / kWorthAThread, 1, threads);
}

void prepare_rows(const Device& device, const LinearKernels& kernels, const float* x, int64_t x_stride, int64_t rows,
                  int64_t cols, bool quantize, float* prepared) {
  const int64_t width = prepared_cols(cols);
  constexpr int64_t kWorthAThread = 8192;  // floats: two microseconds, as long as waking a thread takes
  const int64_t rows_per_thread = std::max<int64_t>(1, kWorthAThread / std::max<int64_t>(width, 1));
  device.pool->parallel_for(rows, rows_per_thread, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) kernels.prepare(x + r * x_stride, cols, quantize, prepared + r * width);
  });
}

void linear(const Device& device, const LinearParams& params) {
  check(params);
  if (params.rows == 0 || params.outputs == 0) return;
  const LinearKernels* kernels = linear_kernels(device.simd);
  if (kernels == nullptr) return linear_reference(params);

  const WeightMatrix& w = params.weight;
  const int64_t width = prepared_cols(w.cols);
  float* prepared = scratch<struct LinearInputTag>(params.rows * width);
  prepare_rows(device, *kernels, params.x, params.x_stride, params.rows, w.cols, params.quantize_input, prepared);
  const float** x = scratch<struct LinearRowsTag, const float*>(params.rows);
  for (int64_t r = 0; r < params.rows; ++r) x[r] = prepared + r * width;

  const LinearRange all{.weight = w,
                        .first = params.first_output,
                        .count = params.outputs,
                        .x = x,
                        .rows = params.rows,
                        .y = params.y,
                        .y_stride = params.y_stride,
                        .round = params.activations == Activations::bf16};
  const int64_t threads = threads_worth_waking(w, params.outputs, params.rows, device.pool->size());
  const int64_t share = has_matrix_units(device.simd) ? rows_a_thread(w, params.outputs, params.rows, threads) : 0;
  if (share > 0) {
    device.pool->parallel_for(params.rows, share, [&](int64_t begin, int64_t end) {
      LinearRange part = all;
      part.x += begin;
      part.rows = end - begin;
      part.y += begin * params.y_stride;
      multiply(*kernels, part);
    });
    return;
  }
  const int64_t grain = std::max<int64_t>(8, ceil_div(ceil_div(params.outputs, threads), 8) * 8);
  device.pool->parallel_for(params.outputs, grain, [&](int64_t begin, int64_t end) {
    LinearRange part = all;
    part.first += begin;
    part.count = end - begin;
    part.y += begin;
    multiply(*kernels, part);
  });
}

}  // namespace gannet::ops
