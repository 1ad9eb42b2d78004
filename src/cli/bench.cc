#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/device.h"
#include "cli/bench.h"
#include "cli/bench_model.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "ops/bench.h"

namespace gannet::cli {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kArenaBytes = int64_t{3} << 29;  // the largest matrix fits
// Work for which the reference is timed, too; it would take minutes for the rest.
constexpr double kReferenceOperations = 9e7;
// And for which variants are timed that are not the best here.
constexpr double kVariantOperations = 2e10;

struct Options {
  PassOptions model;
  int64_t rows = 1;
  int64_t context = 8192;
  std::string variants = "all";
  std::string filter;
};

struct Measured {
  ops::Benchmark benchmark;
  Simd simd;
  ops::BenchTime time{};
  double read = 0;  // bytes a second of reading alone, in turn with the op
};

const char* variant(Simd simd) {
  return simd == Simd::none ? "reference" : name_of(simd);
}

std::vector<Simd> variants(const ops::Benchmark& benchmark, bool all) {
  if (!all || benchmark.operations > kVariantOperations) return {detect_simd()};
  std::vector<Simd> result;
  if (benchmark.operations <= kReferenceOperations) result.push_back(Simd::none);
  for (const Simd simd : {Simd::avx2, Simd::avx512, Simd::avx512_bf16}) {
    if (simd <= detect_simd()) result.push_back(simd);
  }
  return result;
}

// What the filter leaves, not yet measured.
std::vector<Measured> chosen(const std::string& filter, bool all_variants, ops::BenchArena& arena) {
  std::vector<Measured> result;
  for (const ops::Benchmark& benchmark : ops::op_benchmarks(arena)) {
    for (const Simd simd : variants(benchmark, all_variants)) {
      const auto name =
          fmt::format("{} {} {} rows {}", benchmark.kernel, variant(simd), benchmark.shape, benchmark.rows);
      if (name.find(filter) != std::string::npos) result.push_back({.benchmark = benchmark, .simd = simd});
    }
  }
  return result;
}

double giga_bytes(const Measured& m, double seconds) {
  return m.benchmark.bytes / seconds / 1e9;
}

double giga_operations(const Measured& m) {
  return m.benchmark.operations / m.time.median / 1e9;
}

// The median of what was measured beside each op.
double median_read(const std::vector<Measured>& results) {
  std::vector<double> reads;
  for (const Measured& m : results) reads.push_back(m.read);
  std::nth_element(reads.begin(), reads.begin() + std::ssize(reads) / 2, reads.end());
  return reads[reads.size() / 2];
}

std::string as_table(const std::vector<Measured>& results, int64_t threads) {
  std::string text = fmt::format(
      "{}, {} threads. Reading alone: {:.1f} GB/s, the median of calls of 8 MiB a thread.\n"
      "Every call takes other weights out of {:.1f} GiB; GB/s counts them once. us, GB/s, read (part of reading "
      "alone,\n"
      "which takes turns with the op) and GFLOP/s are of the median call, best of the fastest; calls that were "
      "preempted\n"
      "do not count unless quiet is < 5.\n\n"
      "{:<13} {:<11} {:<23} {:>5} {:>9} {:>7} {:>6} {:>9} {:>10} {:>6}\n",
      processor_name(), threads, median_read(results) / 1e9, static_cast<double>(kArenaBytes) / (int64_t{1} << 30),
      "kernel", "variant", "shape", "rows", "us", "GB/s", "read", "GFLOP/s", "best GB/s", "quiet");
  for (const Measured& m : results) {
    const double speed = giga_bytes(m, m.time.median);
    fmt::format_to(std::back_inserter(text),
                   "{:<13} {:<11} {:<23} {:>5} {:>9.0f} {:>7.2f} {:>5.0f}% {:>9.1f} {:>10.2f} {:>6}\n",
                   m.benchmark.kernel, variant(m.simd), m.benchmark.shape, m.benchmark.rows, m.time.median * 1e6, speed,
                   100 * speed * 1e9 / m.read, giga_operations(m), giga_bytes(m, m.time.best), m.time.quiet_calls);
  }
  return text;
}

std::string as_json(const std::vector<Measured>& results, int64_t threads) {
  ordered_json list = ordered_json::array();
  for (const Measured& m : results) {
    list.push_back({{"kernel", m.benchmark.kernel},
                    {"variant", variant(m.simd)},
                    {"shape", m.benchmark.shape},
                    {"rows", m.benchmark.rows},
                    {"calls", m.time.calls},
                    {"quiet_calls", m.time.quiet_calls},
                    {"median_s", m.time.median},
                    {"best_s", m.time.best},
                    {"bytes", m.benchmark.bytes},
                    {"gb_per_s", giga_bytes(m, m.time.median)},
                    {"read_gb_per_s", m.read / 1e9},
                    {"of_read", giga_bytes(m, m.time.median) * 1e9 / m.read},
                    {"gflop_per_s", giga_operations(m)}});
  }
  const ordered_json result = {{"processor", processor_name()},
                               {"threads", threads},
                               {"read_gb_per_s", median_read(results) / 1e9},
                               {"results", list}};
  return result.dump(2) + "\n";
}

Status bench_ops(const Options& options) {
  const bool kernels = options.model.device == "cpu" && options.model.model.empty() && options.model.synthetic.empty();
  if (!kernels && !options.filter.empty()) {
    return invalid_input("--filter is '{}'; it is for kernels and must be left out with a model", options.filter);
  }
  if (kernels && (options.model.layers || options.model.unique_experts)) {
    return invalid_input("--layers and --unique-experts are for --synthetic; they must be left out without it");
  }
  if (!kernels) return bench_model_ops(options.model, options.rows, options.context);
  const int64_t threads = options.model.threads > 0 ? options.model.threads : usable_processors();
  ThreadPool pool(static_cast<int>(threads));
  ops::BenchArena arena(kArenaBytes);
  auto results = chosen(options.filter, options.variants == "all", arena);
  if (results.empty()) return invalid_input("--filter {}: no benchmark has that in its name", options.filter);
  const ops::Benchmark reading = ops::reading_alone({.pool = &pool}, arena);
  ProgressLine progress("benchmarks");
  for (size_t i = 0; i < results.size(); ++i) {
    progress(static_cast<int64_t>(i), std::ssize(results));
    const Device device{.pool = &pool, .simd = results[i].simd};
    const auto times = ops::time_benchmarks({&results[i].benchmark, &reading}, device);
    results[i].time = times[0];
    results[i].read = reading.bytes / times[1].median;
  }
  return write_output(options.model.json ? as_json(results, threads) : as_table(results, threads));
}

}  // namespace

void add_bench(Command& root) {
  auto bench = root.subcommand("bench", "Measure speed");
  const auto options = std::make_shared<Options>();
  auto command = bench.subcommand(
      "ops",
      "Every op of a model's pass beside what bounds it; with neither MODEL nor --synthetic, kernels one by one");
  add_pass_options(command, options->model);
  command.option("--rows", options->rows, 0, 4096, "Sequences of the decode step; 0: a prompt's first pass");
  command.option("--context", options->context, 1, 1'000'000, "Tokens of every sequence, or of the prompt");
  command.choice("--variants", options->variants, {"all", "best"},
                 "Kernels: for every instruction set, or the best one");
  command.option("--filter", options->filter, "Kernels: only those with this in \"kernel variant shape rows N\"");
  command.example("gannet bench ops --filter 'linear fp8'");
  command.example("gannet bench ops nano");
  command.example("gannet bench ops --synthetic released --layers 1 --rows 16");
  command.example("gannet bench ops --device cuda --synthetic released --rows 64");
  command.action([options] { return bench_ops(*options); });
  add_bench_serve(bench);
  add_bench_scheduler(bench);
  add_bench_replay(bench);
  add_bench_latency(bench);
  add_bench_throughput(bench);
}

}  // namespace gannet::cli
