#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/device.h"

// Benchmarks of the ops for `gannet bench ops`. Each op folder adds its own.
namespace gannet::ops {

// Random bytes far larger than the caches, good as codes and as scales of every weight format: no NaN, no infinity, no
// subnormal, which would have speeds of their own.
class BenchArena {
 public:
  explicit BenchArena(int64_t bytes);

  // The next part, so that no call finds its weights in a cache; starts anew at the end.
  const uint8_t* next(int64_t bytes);
  int64_t size() const { return std::ssize(words_) * 8; }  // bytes

 private:
  std::vector<uint64_t> words_;
  int64_t position_ = 0;
};

// One op on one shape.
struct Benchmark {
  std::string kernel{};
  std::string shape{};
  int64_t rows = 0;
  double bytes = 0;                          // weights (or cache records) that a call reads, on average
  double operations = 0;                     // floating-point operations of a call: two for a multiply-add
  std::function<void(const Device&)> run{};  // one call
};

using Benchmarks = std::vector<Benchmark>;

void add_linear_benchmarks(BenchArena& arena, Benchmarks& benchmarks);
void add_experts_benchmarks(BenchArena& arena, Benchmarks& benchmarks);
void add_attention_benchmarks(BenchArena& arena, Benchmarks& benchmarks);
void add_index_scores_benchmarks(BenchArena& arena, Benchmarks& benchmarks);
void add_hyper_mix_benchmarks(BenchArena& arena, Benchmarks& benchmarks);

// All of them. The arena must outlive them.
Benchmarks op_benchmarks(BenchArena& arena);

// How often and how fast a benchmark ran on a device, after a first call that does not count. The times are those of
// the quiet calls, during which no other program got one of this one's processors, unless there were too few of them.
struct BenchTime {
  int64_t calls = 0;
  int64_t quiet_calls = 0;
  double median = 0;  // seconds
  double best = 0;
};
BenchTime time_benchmark(const Benchmark& benchmark, const Device& device);
// Of several that take turns, so that whatever slows the machine down slows all of them.
std::vector<BenchTime> time_benchmarks(const std::vector<const Benchmark*>& benchmarks, const Device& device);

// All threads together read from the arena and only add up what they read, 8 MiB a thread and call.
Benchmark reading_alone(const Device& device, BenchArena& arena);
// Bytes a second of that.
double read_bandwidth(const Device& device, BenchArena& arena);

}  // namespace gannet::ops
