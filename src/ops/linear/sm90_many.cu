#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "ops/linear/sm90_many.cuh"

namespace gannet::ops::cuda {
namespace many_rows {

int multiprocessors() {
  static const int count = [] {
    int device = 0, value = 0;
    GANNET_CUDA_CHECK(cudaGetDevice(&device));
    GANNET_CUDA_CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
    return value;
  }();
  return count;
}

namespace {

CUtensorMap encode(CUtensorMapDataType type, int dimensions, const void* base, const cuuint64_t* sizes,
                   const cuuint64_t* strides, const cuuint32_t* box, CUtensorMapSwizzle swizzle) {
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    GANNET_CUDA_CHECK(
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
    GANNET_CHECK(result == cudaDriverEntryPointSuccess);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  const cuuint32_t steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result = function(&map, type, dimensions, const_cast<void*>(base), sizes, strides, box, steps,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  GANNET_CHECK(result == CUDA_SUCCESS);
  return map;
}

}  // namespace

CUtensorMap map_input(const LinearParams& params, int tokens) {
  const auto cols = static_cast<cuuint64_t>(params.weight.cols);
  const cuuint64_t sizes[] = {cols, static_cast<cuuint64_t>(params.groups), static_cast<cuuint64_t>(params.most)};
  const cuuint64_t strides[] = {2 * cols, 2 * static_cast<cuuint64_t>(params.x_stride)};  // bytes
  const cuuint32_t box[] = {static_cast<cuuint32_t>(kTileCols), 1, static_cast<cuuint32_t>(tokens)};
  return encode(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, params.x, sizes, strides, box, CU_TENSOR_MAP_SWIZZLE_128B);
}

CUtensorMap map_weight(const PackedMatrix& weight, int64_t bytes, int block_panels) {
  const auto stride = static_cast<cuuint64_t>(panel_bytes(weight.format, weight.cols));
  const cuuint64_t sizes[] = {stride / 8, static_cast<cuuint64_t>(panels(weight.rows))};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(bytes / 8), static_cast<cuuint32_t>(block_panels)};
  return encode(CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 2, weight.data, sizes, &stride, box, CU_TENSOR_MAP_SWIZZLE_NONE);
}

// With which the slowest multiprocessor ends first. Times are measured, in units of 10 ns: for 64 columns of an item,
// and for what each item needs beside.
int choose_tokens(const Dense& dense) {
  struct Cost {
    int tokens;
    int64_t step, beside;
  };
  constexpr Cost kCosts[] = {{256, 72, 400}, {128, 48, 250}, {64, 38, 200}};
  constexpr int64_t kBlockRows = 128;
  const LinearParams& p = dense.params;
  const auto time = [&](const Cost& cost) {
    const int64_t blocks = p.groups * ((p.weight.rows / p.groups + kBlockRows - 1) / kBlockRows);
    const int64_t items = (p.most + cost.tokens - 1) / cost.tokens * blocks;
    const int64_t rounds = (items + multiprocessors() - 1) / multiprocessors();
    return rounds * (cost.step * tiles(p.weight.cols) + cost.beside);
  };
  return std::min_element(std::begin(kCosts), std::end(kCosts),
                          [&](const Cost& a, const Cost& b) { return time(a) < time(b); })
      ->tokens;
}

}  // namespace many_rows

void linear_many_rows(cudaStream_t stream, const LinearParams& params) {
  using many_rows::Output;
  GANNET_CHECK(params.groups > 0 && params.weight.rows % params.groups == 0);
  GANNET_CHECK(params.groups == 1 || params.weight.rows / params.groups % kPanelRows == 0);
  if (params.most == 0 || params.weight.rows == 0) return;
  const Output output = params.output == LinearOutput::f32    ? Output::f32
                        : params.output == LinearOutput::bf16 ? Output::bf16
                                                              : Output::q8;
  const many_rows::Dense dense{.params = params, .output = output};
  const int tokens = choose_tokens(dense);
  switch (params.weight.format) {
    case WeightFormat::fp8:
      return multiply_fp8(stream, dense, tokens);
    case WeightFormat::mxfp4:
      return multiply_mxfp4(stream, dense, tokens);
    case WeightFormat::bf16:
      return multiply_bf16(stream, dense, tokens);
    case WeightFormat::f32:
      break;
  }
  GANNET_CHECK(!"packed weights are not f32");
}

}  // namespace gannet::ops::cuda
