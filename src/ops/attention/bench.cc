#include <fmt/format.h>

#include <memory>
#include <numeric>
#include <vector>

#include "base/quantize.h"
#include "ops/attention/op.h"
#include "ops/bench.h"
#include "ops/rope/op.h"

namespace gannet::ops {
namespace {

struct Shape {
  int64_t heads, selected;
};

constexpr int64_t kDim = 512;
constexpr int64_t kWindow = 128;
// A layer of the released model and one of nano, with all that a row can see.
constexpr Shape kShapes[] = {{64, 512}, {4, 64}};

// The inputs of a call; every row is a sequence of its own, whose records are found anew for every call.
struct Inputs {
  std::vector<float> q, out, sink;
  std::vector<int32_t> positions, sequence_of, selected, counts, block_table;
  std::vector<AttentionSequence> sequences;
  std::vector<float> frequencies = rope_frequencies({.theta = 160000, .dim = 64});

  Inputs(const Shape& shape, int64_t rows)
      : q(rows * shape.heads * kDim, 0.5F),
        out(q.size()),
        sink(shape.heads),
        positions(rows, 4095),
        sequence_of(rows),
        selected(rows * shape.selected),
        counts(rows, static_cast<int32_t>(shape.selected)),
        block_table(shape.selected),
        sequences(rows) {
    std::iota(sequence_of.begin(), sequence_of.end(), 0);
    std::iota(block_table.begin(), block_table.end(), 0);
    for (int64_t i = 0; i < std::ssize(selected); ++i) selected[i] = static_cast<int32_t>(i % shape.selected);
  }

  void find_records(BenchArena& arena, const Shape& shape) {
    for (AttentionSequence& sequence : sequences) {
      sequence.ring = reinterpret_cast<const std::byte*>(arena.next(kWindow * q8_bytes(kDim)));
      sequence.chunk_start = 4096;
      const auto* entries = reinterpret_cast<const std::byte*>(arena.next(shape.selected * q4nv_bytes(kDim)));
      sequence.entries = {.base = const_cast<std::byte*>(entries),
                          .block_table = block_table.data(),
                          .block_stride = q4nv_bytes(kDim),
                          .record_bytes = q4nv_bytes(kDim)};
    }
  }
};

Benchmark benchmark(BenchArena& arena, const Shape& shape, int64_t rows) {
  const auto inputs = std::make_shared<Inputs>(shape, rows);
  const int64_t keys = kWindow + shape.selected;
  return {.kernel = "attention",
          .shape = fmt::format("{} heads, {} keys", shape.heads, keys),
          .rows = rows,
          .bytes = static_cast<double>(rows * (kWindow * q8_bytes(kDim) + shape.selected * q4nv_bytes(kDim))),
          .operations = 4.0 * static_cast<double>(rows * shape.heads * keys * kDim),
          .run = [=, &arena](const Device& device) {
            inputs->find_records(arena, shape);
            attention(device, {.q = inputs->q.data(),
                               .positions = inputs->positions.data(),
                               .sequence_of = inputs->sequence_of.data(),
                               .rows = rows,
                               .heads = shape.heads,
                               .head_dim = kDim,
                               .window = kWindow,
                               .sequences = inputs->sequences.data(),
                               .selected = inputs->selected.data(),
                               .selected_counts = inputs->counts.data(),
                               .selected_stride = shape.selected,
                               .sink = inputs->sink.data(),
                               .frequencies = &inputs->frequencies,
                               .out = inputs->out.data()});
          }};
}

}  // namespace

void add_attention_benchmarks(BenchArena& arena, Benchmarks& benchmarks) {
  for (const Shape& shape : kShapes) {
    for (const int64_t rows : {1, 4, 16}) benchmarks.push_back(benchmark(arena, shape, rows));
  }
}

}  // namespace gannet::ops
