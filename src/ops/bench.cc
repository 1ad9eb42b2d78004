#include "ops/bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
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
  rusage usage = {};
  GANNET_CHECK(::getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_nivcsw;
}

// In eight streams, which the memory serves a fifth faster than one.
uint64_t sum_words(const uint64_t* words, int64_t count) {
  constexpr int64_t kStreams = 8;
  constexpr int64_t kLineWords = 8;
  constexpr int64_t kAhead = 16 * kLineWords;  // what the processor foresees alone is a fifth slower
  const int64_t each = count / kStreams / kLineWords * kLineWords;
  uint64_t sums[kLineWords] = {};
  for (int64_t i = 0; i < each; i += kLineWords) {
    for (int64_t stream = 0; stream < kStreams; ++stream) {
      const uint64_t* line = words + stream * each + i;
      __builtin_prefetch(line + kAhead, 0, 2);
      for (int64_t lane = 0; lane < kLineWords; ++lane) sums[lane] += line[lane];
    }
  }
  uint64_t total = 0;
  for (const uint64_t sum : sums) total += sum;
  return total;
}

// Seconds that each call took, and those of the calls that were not preempted.
struct Calls {
  std::vector<double> quiet, all;
};

// One call. Or, where benchmarks take turns, calls for half a millisecond; the first of several does not count, since
// it finds another one's data in the caches.
void take_turn(const Benchmark& benchmark, const Device& device, bool in_turn, Calls& calls) {
  constexpr double kTurn = 5e-4;
  double taken = 0;
  bool counts = !in_turn;
  do {
    const int64_t before = preemptions();
    const auto call = std::chrono::steady_clock::now();
    benchmark.run(device);
    const double seconds = seconds_since(call);
    const bool quiet = preemptions() == before;
    taken += seconds;
    if (counts || taken >= kTurn) {
      calls.all.push_back(seconds);
      if (quiet) calls.quiet.push_back(seconds);
    }
    counts = true;
    if (!quiet) std::this_thread::sleep_for(std::chrono::milliseconds(2));  // comes back with a whole time slice
  } while (in_turn && taken < kTurn);
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

Benchmark reading_alone(const Device& device, BenchArena& arena) {
  constexpr int64_t kBytesOfAThread = int64_t{8} << 20;  // long beside waking the threads
  const int64_t bytes = std::min(device.pool->size() * kBytesOfAThread, arena.size() / 4);
  return {.bytes = static_cast<double>(bytes), .run = [bytes, &arena](const Device& all) {
            std::atomic<uint64_t> total{0};
            const auto* words = reinterpret_cast<const uint64_t*>(arena.next(bytes));
            all.pool->parallel_for(bytes / 8, kPage / 8, [&](int64_t begin, int64_t end) {
              total.fetch_add(sum_words(words + begin, end - begin), std::memory_order_relaxed);
            });
            GANNET_CHECK(total.load() != 0);
          }};
}

double read_bandwidth(const Device& device, BenchArena& arena) {
  const Benchmark reading = reading_alone(device, arena);
  return reading.bytes / time_benchmark(reading, device).median;
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
  return time_benchmarks({&benchmark}, device).front();
}

std::vector<BenchTime> time_benchmarks(const std::vector<const Benchmark*>& benchmarks, const Device& device) {
  constexpr int64_t kEnough = 1000;
  constexpr double kSeconds = 0.25;   // enough where nothing disturbs
  constexpr double kMostSeconds = 1;  // for a quiet moment on a busy machine
  constexpr size_t kFewest = 5;
  std::vector<Calls> calls(benchmarks.size());
  for (const Benchmark* benchmark : benchmarks) benchmark->run(device);
  using Times = const std::vector<double> Calls::*;
  const auto least = [&](Times of) {
    size_t count = SIZE_MAX;
    for (const Calls& each : calls) count = std::min(count, (each.*of).size());
    return count;
  };
  const auto start = std::chrono::steady_clock::now();
  while (least(&Calls::all) < kFewest || (least(&Calls::all) < kEnough && seconds_since(start) < kSeconds) ||
         (least(&Calls::quiet) < kFewest && seconds_since(start) < kMostSeconds)) {
    for (size_t i = 0; i < benchmarks.size(); ++i) take_turn(*benchmarks[i], device, benchmarks.size() > 1, calls[i]);
  }
  std::vector<BenchTime> times;
  for (Calls& of : calls) {
    std::vector<double>& counted = of.quiet.size() >= kFewest ? of.quiet : of.all;
    std::sort(counted.begin(), counted.end());
    times.push_back({.calls = std::ssize(of.all),
                     .quiet_calls = std::ssize(of.quiet),
                     .median = counted[counted.size() / 2],
                     .best = counted.front()});
  }
  return times;
}

}  // namespace gannet::ops
