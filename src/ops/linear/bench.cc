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

// Every matrix of the released model, then of nano. Products of wo_a are those of one group of heads.
constexpr Shape kShapes[] = {
    {"linear fp8", WeightFormat::fp8, 1280, 5120, true},       // wq_a
    {"linear fp8", WeightFormat::fp8, 32768, 1280, true},      // wq_b
    {"linear fp8", WeightFormat::fp8, 512, 5120, true},        // wkv
    {"linear fp8", WeightFormat::fp8, 1024, 4096, false},      // wo_a
    {"linear fp8", WeightFormat::fp8, 5120, 8192, true},       // wo_b
    {"linear fp8", WeightFormat::fp8, 4096, 1280, true},       // index query
    {"linear fp8", WeightFormat::fp8, 2304, 5120, true},       // shared w1, w3
    {"linear fp8", WeightFormat::fp8, 5120, 2304, true},       // shared w2
    {"linear fp8", WeightFormat::fp8, 25600, 6144, true},      // Engram
    {"linear mxfp4", WeightFormat::mxfp4, 2304, 5120, true},   // w1, w3
    {"linear mxfp4", WeightFormat::mxfp4, 5120, 2304, true},   // w2
    {"linear bf16", WeightFormat::bf16, 384, 5120, false},     // gate
    {"linear bf16", WeightFormat::bf16, 512, 5120, false},     // compressor
    {"linear bf16", WeightFormat::bf16, 32, 5120, false},      // index weights
    {"linear bf16", WeightFormat::bf16, 129280, 5120, false},  // head
    {"linear f32", WeightFormat::f32, 24, 20480, false},       // hyper-connections
    {"linear fp8", WeightFormat::fp8, 192, 384, true},         // wq_a; shared w1, w3
    {"linear fp8", WeightFormat::fp8, 2048, 192, true},        // wq_b
    {"linear fp8", WeightFormat::fp8, 512, 384, true},         // wkv
    {"linear fp8", WeightFormat::fp8, 128, 1024, false},       // wo_a
    {"linear fp8", WeightFormat::fp8, 384, 256, true},         // wo_b
    {"linear fp8", WeightFormat::fp8, 512, 192, true},         // index query
    {"linear fp8", WeightFormat::fp8, 384, 192, true},         // shared w2
    {"linear mxfp4", WeightFormat::mxfp4, 192, 384, true},     // w1, w3
    {"linear mxfp4", WeightFormat::mxfp4, 384, 192, true},     // w2
    {"linear bf16", WeightFormat::bf16, 12, 384, false},       // gate
    {"linear bf16", WeightFormat::bf16, 4096, 384, false},     // head
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
    for (const int64_t rows : {1, 4, 16, 64, 256}) benchmarks.push_back(benchmark(arena, shape, rows));
  }
}

}  // namespace gannet::ops
