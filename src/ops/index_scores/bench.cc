#include <fmt/format.h>

#include <array>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "base/quantize.h"
#include "ops/bench.h"
#include "ops/index_scores/op.h"
#include "ops/rope/op.h"

namespace gannet::ops {
namespace {

struct Shape {
  int64_t heads, keys;
};

constexpr int64_t kDim = 128;
// The released model with 16 thousand entries, and nano with a thousand.
constexpr Shape kShapes[] = {{32, 16384}, {4, 1024}};

struct Buffers {
  std::vector<float> q, weights, scores, frequencies;
  std::vector<int32_t> positions, visible, block_table;
  std::vector<PagedRecords> keys;
  std::vector<uint8_t> records;  // of one sequence
};

// Keys of values that are normal. The arena's bytes have scales further apart than any model's keys, for which the
// matrix units' way does not do (exact_index_products).
std::vector<uint8_t> normal_keys(int64_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<uint8_t> records(count * q4mx_bytes(kDim));
  std::array<float, kDim> key;
  for (int64_t j = 0; j < count; ++j) {
    for (float& value : key) value = normal(random);
    uint8_t* record = &records[j * q4mx_bytes(kDim)];
    q4mx_pack(key, record, record + kDim / 2);
  }
  return records;
}

// Rows of one sequence, as in a prompt, or each of its own.
Benchmark benchmark(BenchArena& arena, const Shape& shape, int64_t rows, bool one_sequence) {
  const auto b = std::make_shared<Buffers>();
  b->q.assign(rows * shape.heads * kDim, 0.5F);
  b->weights.assign(rows * shape.heads, 0.1F);
  b->scores.resize(rows * shape.keys);
  b->frequencies = rope_frequencies({.theta = 160000, .dim = 64});
  b->positions.assign(rows, 0);
  b->visible.assign(rows, static_cast<int32_t>(shape.keys));
  if (one_sequence) b->records = normal_keys(shape.keys);
  b->block_table.resize(shape.keys);
  std::iota(b->block_table.begin(), b->block_table.end(), 0);
  b->keys.assign(
      rows, {.block_table = b->block_table.data(), .block_stride = q4mx_bytes(kDim), .record_bytes = q4mx_bytes(kDim)});
  return {.kernel = "index_scores",
          .shape = fmt::format("{} heads, {} keys{}", shape.heads, shape.keys, one_sequence ? " of a prompt" : ""),
          .rows = rows,
          .bytes = static_cast<double>((one_sequence ? 1 : rows) * shape.keys * q4mx_bytes(kDim)),
          .operations = 2.0 * static_cast<double>(rows * shape.heads * shape.keys * kDim),
          .run = [=, &arena](const Device& device) {
            for (PagedRecords& keys : b->keys) {
              const uint8_t* records = one_sequence ? b->records.data() : arena.next(shape.keys * q4mx_bytes(kDim));
              keys.base = const_cast<std::byte*>(reinterpret_cast<const std::byte*>(records));
            }
            index_scores(device, {.q = b->q.data(),
                                  .weights = b->weights.data(),
                                  .positions = b->positions.data(),
                                  .rows = rows,
                                  .heads = shape.heads,
                                  .dim = kDim,
                                  .frequencies = &b->frequencies,
                                  .keys = b->keys.data(),
                                  .visible = b->visible.data(),
                                  .scores = b->scores.data(),
                                  .stride = shape.keys});
          }};
}

}  // namespace

void add_index_scores_benchmarks(BenchArena& arena, Benchmarks& benchmarks) {
  for (const Shape& shape : kShapes) {
    for (const int64_t rows : {1, 4}) benchmarks.push_back(benchmark(arena, shape, rows, false));
    for (const int64_t rows : {4, 16, 64}) benchmarks.push_back(benchmark(arena, shape, rows, true));
  }
}

}  // namespace gannet::ops
