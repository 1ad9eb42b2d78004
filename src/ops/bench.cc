#include "ops/bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "base/error.h"

namespace gannet::ops {
namespace {

constexpr int64_t kPage = 4096;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// How often the system has taken a processor from this process for another one.
int64_t preemptions() {
  struct rusage usage{};
  GANNET_CHECK(::getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_nivcsw;
}

uint64_t sum_words(const uint64_t* words, int64_t count) {
  constexpr int64_t kAhead = 8192 / 8;  // what the processor foresees alone is a fifth slower
  uint64_t sums[8] = {};
  for (int64_t i = 0; i + 8 <= count; i += 8) {
    __builtin_prefetch(words + i + kAhead);
    for (int lane = 0; lane < 8; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

}  // namespace

BenchArena::BenchArena(int64_t bytes) : words_(static_cast<size_t>(bytes / kPage * kPage / 8)) {
  // Even bytes are 0x40 .. 0x7e, odd ones 0x3c, 0x3d and their negatives: as bf16 and f32 about 0.01 .. 0.06, as E4M3
  // finite and normal, as E8M0 between 2^-67 and 2^62.
  std::mt19937_64 random(1);
  for (uint64_t& word : words_) word = (random() & 0x813e813e813e813eULL) | 0x3c403c403c403c40ULL;
}

const uint8_t* BenchArena::next(int64_t bytes) {
  const int64_t size = std::ssize(words_) * 8;
  GANNET_CHECK(bytes <= size);
  if (position_ + bytes > size) position_ = 0;
  const uint8_t* part = reinterpret_cast<const uint8_t*>(words_.data()) + position_;
  position_ += (bytes + kPage - 1) / kPage * kPage;
  return part;
}

double read_bandwidth(const Device& device, BenchArena& arena) {
  constexpr int64_t kBytesOfAThread = int64_t{8} << 20;  // long beside waking the threads
  const int64_t bytes = std::min(device.pool->size() * kBytesOfAThread, arena.size() / 4);
  std::atomic<uint64_t> total{0};
  const Benchmark reading{.run = [&](const Device& all) {
    const auto* words = reinterpret_cast<const uint64_t*>(arena.next(bytes));
    all.pool->parallel_for(bytes / 8, kPage / 8, [&](int64_t begin, int64_t end) {
      total.fetch_add(sum_words(words + begin, end - begin), std::memory_order_relaxed);
    });
  }};
  const double seconds = time_benchmark(reading, device).median;
  GANNET_CHECK(total.load() != 0);
  return static_cast<double>(bytes) / seconds;
}

Benchmarks op_benchmarks(BenchArena& arena) {
  Benchmarks benchmarks;
  add_linear_benchmarks(arena, benchmarks);
  add_experts_benchmarks(arena, benchmarks);
  add_attention_benchmarks(arena, benchmarks);
  add_index_scores_benchmarks(arena, benchmarks);
  add_hyper_mix_benchmarks(arena, benchmarks);
  return benchmarks;
}

BenchTime time_benchmark(const Benchmark& benchmark, const Device& device) {
  constexpr int64_t kEnough = 1000;
  constexpr double kSeconds = 0.25;   // enough where nothing disturbs
  constexpr double kMostSeconds = 1;  // for a quiet moment on a busy machine
  constexpr size_t kFewest = 5;
  benchmark.run(device);
  BenchTime time;
  std::vector<double> quiet, all;
  const auto start = std::chrono::steady_clock::now();
  while (all.size() < kFewest || (std::ssize(all) < kEnough && seconds_since(start) < kSeconds) ||
         (quiet.size() < kFewest && seconds_since(start) < kMostSeconds)) {
    const int64_t before = preemptions();
    const auto call = std::chrono::steady_clock::now();
    benchmark.run(device);
    all.push_back(seconds_since(call));
    if (preemptions() == before) {
      quiet.push_back(all.back());
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));  // comes back with a whole time slice
    }
  }
  time.calls = std::ssize(all);
  time.quiet_calls = std::ssize(quiet);
  std::vector<double>& counted = quiet.size() >= kFewest ? quiet : all;
  std::sort(counted.begin(), counted.end());
  time.median = counted[counted.size() / 2];
  time.best = counted.front();
  return time;
}

}  // namespace gannet::ops
