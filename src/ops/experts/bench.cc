#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/error.h"
#include "ops/bench.h"
#include "ops/experts/op.h"
#include "ops/linear/kernels.h"

namespace gannet::ops {
namespace {

struct Shape {
  int64_t hidden, width, routed, top_k;
};

// A layer of the released model, with the 48 of its 384 experts that a gibibyte holds, and one of nano.
constexpr Shape kShapes[] = {{5120, 2304, 48, 6}, {384, 192, 12, 4}};

WeightMatrix matrix(BenchArena& arena, WeightFormat format, int64_t rows, int64_t cols) {
  WeightMatrix weight{.format = format, .rows = rows, .cols = cols};
  weight.data = arena.next(weight_bytes(weight, rows));
  weight.scale = arena.next(rows * (cols / 32));
  return weight;
}

ExpertWeights expert(BenchArena& arena, WeightFormat format, const Shape& shape) {
  return {matrix(arena, format, shape.width, shape.hidden), matrix(arena, format, shape.hidden, shape.width),
          matrix(arena, format, shape.width, shape.hidden)};
}

double bytes(const ExpertWeights& e) {
  return static_cast<double>(weight_bytes(e.w1, e.w1.rows) + weight_bytes(e.w2, e.w2.rows) +
                             weight_bytes(e.w3, e.w3.rows));
}

// Uniform routing of `rows` rows, one list for each call in turn.
struct Routing {
  static constexpr int64_t kLists = 16;
  int64_t slots;
  std::vector<int32_t> experts;
  double unique = 0;  // experts that a list names, on average
  int64_t call = 0;

  Routing(const Shape& shape, int64_t rows) : slots(rows * shape.top_k) {
    std::mt19937 random(2);
    std::vector<int32_t> ids(shape.routed);
    std::iota(ids.begin(), ids.end(), 0);
    for (int64_t list = 0; list < kLists; ++list) {
      std::vector<bool> used(shape.routed);
      for (int64_t row = 0; row < rows; ++row) {
        std::shuffle(ids.begin(), ids.end(), random);
        for (int64_t i = 0; i < shape.top_k; ++i) {
          experts.push_back(ids[i]);
          used[ids[i]] = true;
        }
      }
      unique += static_cast<double>(std::count(used.begin(), used.end(), true)) / kLists;
    }
  }
  const int32_t* next() { return experts.data() + call++ % kLists * slots; }
};

Benchmark benchmark(BenchArena& arena, const Shape& shape, int64_t rows) {
  const auto routing = std::make_shared<Routing>(shape, rows);
  const auto routed = std::make_shared<std::vector<ExpertWeights>>(shape.routed);
  const auto x = std::make_shared<std::vector<float>>(rows * shape.hidden);
  for (int64_t i = 0; i < std::ssize(*x); ++i) (*x)[i] = static_cast<float>(i % 15 - 7) * 0.25F;
  const auto y = std::make_shared<std::vector<float>>(rows * shape.hidden);
  const auto weights = std::make_shared<std::vector<float>>(rows * shape.top_k, 0.25F);
  const double shared_bytes = bytes(expert(arena, WeightFormat::fp8, shape));
  const double routed_bytes = bytes(expert(arena, WeightFormat::mxfp4, shape));
  return {.kernel = "experts",
          .shape = fmt::format("{}x{} top {} of {}", shape.hidden, shape.width, shape.top_k, shape.routed),
          .rows = rows,
          .bytes = shared_bytes + routed_bytes * routing->unique,
          .operations = 6.0 * static_cast<double>(rows * (1 + shape.top_k) * shape.hidden * shape.width),
          .run = [=, &arena](const Device& device) {
            for (ExpertWeights& e : *routed) e = expert(arena, WeightFormat::mxfp4, shape);
            experts(device, {.x = x->data(),
                             .x_stride = shape.hidden,
                             .rows = rows,
                             .experts = routing->next(),
                             .weights = weights->data(),
                             .top_k = shape.top_k,
                             .routed = routed->data(),
                             .routed_count = shape.routed,
                             .shared = expert(arena, WeightFormat::fp8, shape),
                             .swiglu_limit = 10,
                             .quantize_input = true,
                             .y = y->data(),
                             .y_stride = shape.hidden});
          }};
}

}  // namespace

void add_experts_benchmarks(BenchArena& arena, Benchmarks& benchmarks) {
  for (const Shape& shape : kShapes) {
    for (const int64_t rows : {1, 4, 16, 64}) benchmarks.push_back(benchmark(arena, shape, rows));
  }
}

}  // namespace gannet::ops
