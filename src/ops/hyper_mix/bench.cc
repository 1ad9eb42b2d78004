#include <fmt/format.h>

#include <memory>
#include <vector>

#include "ops/bench.h"
#include "ops/hyper_mix/op.h"

namespace gannet::ops {
namespace {

constexpr int64_t kStreams = 4;
constexpr int64_t kDots = (2 + kStreams) * kStreams;

struct Buffers {
  std::vector<float> streams, base, scale, pre, post, mix;
};

Benchmark benchmark(BenchArena& arena, int64_t hidden, int64_t rows) {
  const auto b = std::make_shared<Buffers>();
  b->streams.assign(rows * kStreams * hidden, 0.5F);
  b->base.assign(kDots, 0.1F);
  b->scale.assign(3, 0.5F);
  b->pre.resize(rows * kStreams);
  b->post.resize(rows * kStreams);
  b->mix.resize(rows * kStreams * kStreams);
  const int64_t weights = kDots * kStreams * hidden;
  return {.kernel = "hyper_mix",
          .shape = fmt::format("{}x{}", kDots, kStreams * hidden),
          .rows = rows,
          .bytes = static_cast<double>(weights * 4),
          .operations = 2.0 * static_cast<double>(rows * weights),
          .run = [=, &arena](const Device& device) {
            hyper_mix(device, {.streams = b->streams.data(),
                               .rows = rows,
                               .streams_per_row = kStreams,
                               .hidden = hidden,
                               .fn = reinterpret_cast<const float*>(arena.next(weights * 4)),
                               .base = b->base.data(),
                               .scale = b->scale.data(),
                               .sinkhorn_iterations = 20,
                               .norm_eps = 1e-20F,
                               .eps = 1e-6F,
                               .pre = b->pre.data(),
                               .post = b->post.data(),
                               .mix = b->mix.data()});
          }};
}

}  // namespace

void add_hyper_mix_benchmarks(BenchArena& arena, Benchmarks& benchmarks) {
  for (const int64_t hidden : {5120, 384}) {
    for (const int64_t rows : {1, 4, 16, 64}) benchmarks.push_back(benchmark(arena, hidden, rows));
  }
}

}  // namespace gannet::ops
