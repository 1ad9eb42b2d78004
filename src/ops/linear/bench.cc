#include <fmt/format.h>

#include <memory>
#include <vector>

#include "ops/bench.h"
#include "ops/linear/kernels.h"
#include "ops/linear/op.h"

namespace gannet::ops {
namespace {

struct Shape {
  const char* kernel;
  WeightFormat format;
  int64_t outputs;
  int64_t cols;
  bool quantize;
};

// Of the released model, and of nano, whose hidden size is 384.
constexpr Shape kShapes[] = {
    {"linear fp8", WeightFormat::fp8, 1280, 5120, true},     {"linear fp8", WeightFormat::fp8, 32768, 1280, true},
    {"linear fp8", WeightFormat::fp8, 5120, 8192, true},     {"linear fp8", WeightFormat::fp8, 384, 384, true},
    {"linear mxfp4", WeightFormat::mxfp4, 2304, 5120, true}, {"linear mxfp4", WeightFormat::mxfp4, 5120, 2304, true},
    {"linear mxfp4", WeightFormat::mxfp4, 192, 384, true},   {"linear bf16", WeightFormat::bf16, 384, 5120, false},
    {"linear bf16", WeightFormat::bf16, 4096, 5120, false},  {"linear bf16", WeightFormat::bf16, 4096, 384, false},
    {"linear f32", WeightFormat::f32, 24, 20480, false},
};

Benchmark benchmark(BenchArena& arena, const Shape& shape, int64_t rows) {
  const WeightMatrix weight{.format = shape.format, .rows = shape.outputs, .cols = shape.cols};
  const int64_t bytes = weight_bytes(weight, shape.outputs);
  const int64_t scales = shape.outputs * (shape.cols / 32);
  const auto x = std::make_shared<std::vector<float>>(rows * shape.cols);
  for (int64_t i = 0; i < std::ssize(*x); ++i) (*x)[i] = static_cast<float>(i % 15 - 7) * 0.25F;
  const auto y = std::make_shared<std::vector<float>>(rows * shape.outputs);
  return {.kernel = shape.kernel,
          .shape = fmt::format("{}x{}", shape.outputs, shape.cols),
          .rows = rows,
          .bytes = static_cast<double>(bytes),
          .operations = 2.0 * static_cast<double>(rows * shape.outputs * shape.cols),
          .run = [=, &arena](const Device& device) {
            LinearParams params{.x = x->data(),
                                .x_stride = shape.cols,
                                .rows = rows,
                                .weight = weight,
                                .outputs = shape.outputs,
                                .y = y->data(),
                                .y_stride = shape.outputs,
                                .quantize_input = shape.quantize};
            params.weight.data = arena.next(bytes);
            params.weight.scale = arena.next(scales);
            linear(device, params);
          }};
}

}  // namespace

void add_linear_benchmarks(BenchArena& arena, Benchmarks& benchmarks) {
  for (const Shape& shape : kShapes) {
    for (const int64_t rows : {1, 4, 16, 64}) benchmarks.push_back(benchmark(arena, shape, rows));
  }
}

}  // namespace gannet::ops
