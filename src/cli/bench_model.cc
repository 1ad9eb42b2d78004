#include "cli/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "cli/bench.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "model/model_bench.h"

// Speed of whole passes of a model whose checkpoint does not fit: random weights at full width and depth.
namespace gannet::cli {
namespace {

using nlohmann::ordered_json;

// What the tensor cores of an H200 reach with bf16 in a large matrix product; the limit that arithmetic is held
// against.
constexpr double kBf16Operations = 780e12;
constexpr int kDecodeSteps = 20;
constexpr int kPrefillRuns = 3;

struct Measured {
  std::string what;
  int64_t rows = 0;
  int64_t context = 0;
  double seconds = 0;
  double bound = 0;  // seconds; 0: none given
  double tokens = 0;
  double active_experts = 0;
};

Result<std::unique_ptr<ModelBench>> open(const SyntheticOptions& options, int64_t sequences, int64_t context,
                                         int64_t cache_tokens, int64_t max_rows) {
  if (options.device != "cuda") {
    return invalid_input("--device is '{}'; whole passes with synthetic weights are measured on cuda only",
                         options.device);
  }
  const auto progress = std::make_shared<ProgressLine>("layers");
  return create_cuda_bench(released_config(), {.unique_experts = options.unique_experts,
                                               .max_rows = max_rows,
                                               .max_sequences = sequences,
                                               .max_tokens = context,
                                               .cache_tokens = cache_tokens,
                                               .progress = [progress](int64_t n, int64_t of) { (*progress)(n, of); }});
}

Measured measure_decode(ModelBench& model, double read, int64_t rows, int64_t context) {
  const ModelBench::Step step = model.decode(rows, context, kDecodeSteps);
  const auto layers = static_cast<double>(released_config().num_hidden_layers);
  const double bytes = model.weight_bytes() + layers * step.active_experts * model.expert_bytes();
  return {.what = "decode step",
          .rows = rows,
          .context = context,
          .seconds = step.seconds,
          .bound = bytes / read,
          .tokens = static_cast<double>(rows),
          .active_experts = step.active_experts};
}

Measured measure_prefill(ModelBench& model, int64_t tokens, bool replay) {
  std::vector<double> times;
  for (int i = 0; i < kPrefillRuns; ++i) times.push_back(model.prefill(tokens, replay));
  std::sort(times.begin(), times.end());
  return {.what = replay ? "prefill, replay on" : "prefill, replay off",
          .rows = tokens,
          .context = tokens,
          .seconds = times[times.size() / 2],
          .tokens = static_cast<double>(tokens)};
}

std::string header(const ModelBench& model, const SyntheticOptions& options, double read) {
  return fmt::format(
      "{}. Random weights in the released shape; {} different routed experts a layer stand for all {}.\n"
      "{}.\nStart (weights, buffers, graphs): {:.1f} s. Reading alone: {:.0f} GB/s.\n\n",
      model.device_name(), options.unique_experts, released_config().n_routed_experts, model.memory_text(),
      model.startup_seconds(), read / 1e9);
}

std::string as_table(const std::vector<Measured>& results) {
  std::string text = fmt::format("{:<22} {:>7} {:>8} {:>10} {:>10} {:>6} {:>11} {:>8}\n", "", "rows", "context", "ms",
                                 "bound ms", "ratio", "tokens/s", "experts");
  for (const Measured& m : results) {
    fmt::format_to(std::back_inserter(text), "{:<22} {:>7} {:>8} {:>10.2f} ", m.what, m.rows, m.context,
                   m.seconds * 1e3);
    if (m.bound > 0) {
      fmt::format_to(std::back_inserter(text), "{:>10.2f} {:>6.2f} ", m.bound * 1e3, m.seconds / m.bound);
    } else {
      fmt::format_to(std::back_inserter(text), "{:>10} {:>6} ", "", "");
    }
    fmt::format_to(std::back_inserter(text), "{:>11.0f}", m.tokens / m.seconds);
    if (m.active_experts > 0) fmt::format_to(std::back_inserter(text), " {:>8.0f}", m.active_experts);
    text += '\n';
  }
  return text;
}

ordered_json as_json(const ModelBench& model, const SyntheticOptions& options, double read,
                     const std::vector<Measured>& results) {
  ordered_json list = ordered_json::array();
  for (const Measured& m : results) {
    list.push_back({{"what", m.what},
                    {"rows", m.rows},
                    {"context", m.context},
                    {"seconds", m.seconds},
                    {"bound_seconds", m.bound},
                    {"tokens_per_s", m.tokens / m.seconds},
                    {"active_experts", m.active_experts}});
  }
  return {{"device", model.device_name()}, {"unique_experts", options.unique_experts},
          {"memory", model.memory_text()}, {"startup_s", model.startup_seconds()},
          {"read_gb_per_s", read / 1e9},   {"results", list}};
}

Status write(const ModelBench& model, const SyntheticOptions& options, double read,
             const std::vector<Measured>& results) {
  if (options.json) return write_output(as_json(model, options, read, results).dump(2) + "\n");
  return write_output(header(model, options, read) + as_table(results));
}

struct LatencyOptions {
  SyntheticOptions model;
  int64_t long_context = 524'288;
};

// One user: decoding at a short and at a long context, and prompts.
Status latency(const LatencyOptions& options) {
  constexpr int64_t kShort = 8192;
  const int64_t longest = std::max<int64_t>(options.long_context, 32'768) + 64;
  GANNET_TRY(const auto model, open(options.model, 1, longest, longest + 64, kShort));
  const double read = model->read_bandwidth();
  std::vector<Measured> results;
  for (const int64_t context : {kShort, options.long_context}) {
    results.push_back(measure_decode(*model, read, 1, context));
  }
  for (const int64_t tokens : {1024, 8192, 32'768}) {
    for (const bool replay : {true, false}) results.push_back(measure_prefill(*model, tokens, replay));
  }
  return write(*model, options.model, read, results);
}

struct ThroughputOptions {
  SyntheticOptions model;
  int64_t context = 8192;
  int64_t sequences = 256;
};

// Many users: decoding of growing batches.
Status throughput(const ThroughputOptions& options) {
  const int64_t tokens = options.context + 64;
  constexpr int64_t kRows = 4096;
  GANNET_TRY(const auto model,
             open(options.model, options.sequences, tokens, options.sequences * (tokens + 64), kRows));
  const double read = model->read_bandwidth();
  std::vector<Measured> results;
  for (int64_t rows = 1; rows <= options.sequences; rows *= 2) {
    results.push_back(measure_decode(*model, read, rows, options.context));
  }
  return write(*model, options.model, read, results);
}

}  // namespace

void add_synthetic_options(Command& command, SyntheticOptions& options) {
  command.choice("--device", options.device, {"cpu", "cuda"}, "Where to run");
  command.choice("--synthetic", options.synthetic, {"released"}, "The shape of the random model");
  command.option("--unique-experts", options.unique_experts, 1, 384,
                 "Routed experts of a layer that are stored; the others share their weights");
  command.flag("--json", options.json, "Machine-readable");
}

Status bench_model_ops(const SyntheticOptions& options, int64_t rows, int64_t context) {
  const int64_t max_rows = rows > 0 ? std::max<int64_t>(rows, 4096) : 8192;
  const int64_t sequences = std::max<int64_t>(rows, 1);
  const int64_t tokens = context + 256;
  GANNET_TRY(const auto model, open(options, sequences, tokens, sequences * (tokens + 64), max_rows));
  const double read = model->read_bandwidth();
  const auto ops = model->ops(rows, context);
  double all = 0;
  for (const auto& op : ops) all += op.seconds;
  if (options.json) {
    ordered_json list = ordered_json::array();
    for (const auto& op : ops) {
      list.push_back({{"op", op.name},
                      {"launches", op.launches},
                      {"seconds", op.seconds},
                      {"bytes", op.bytes},
                      {"operations", op.operations},
                      {"share", op.seconds / all}});
    }
    return write_output(ordered_json{{"device", model->device_name()},
                                     {"rows", rows},
                                     {"context", context},
                                     {"read_gb_per_s", read / 1e9},
                                     {"ops", list}}
                            .dump(2) +
                        "\n");
  }
  std::string text = header(*model, options, read);
  text += rows > 0
              ? fmt::format("A decode step of {} rows at a context of {}; each op launched alone, {:.2f} ms in all.\n",
                            rows, context, all * 1e3)
              : fmt::format("The first {} rows of a prompt of {} tokens, replay on; {:.2f} ms in all.\n",
                            std::min(max_rows, context), context, all * 1e3);
  text += fmt::format("{:<26} {:>8} {:>10} {:>8} {:>9} {:>9} {:>6} {:>6}\n", "op", "launches", "us each", "GB/s",
                      "TFLOP/s", "limit us", "ratio", "share");
  for (const auto& op : ops) {
    const auto n = static_cast<double>(op.launches);
    const double limit = std::max(op.bytes / read, op.operations / kBf16Operations);
    fmt::format_to(std::back_inserter(text), "{:<26} {:>8} {:>10.2f} {:>8.0f} {:>9.1f} {:>9.2f} {:>6.2f} {:>5.1f}%\n",
                   op.name, op.launches, op.seconds * 1e6 / n, op.bytes / op.seconds / 1e9,
                   op.operations / op.seconds / 1e12, limit * 1e6 / n, limit > 0 ? op.seconds / limit : 0.0,
                   100 * op.seconds / all);
  }
  return write_output(text);
}

void add_bench_latency(Command& bench) {
  const auto options = std::make_shared<LatencyOptions>();
  Command command = bench.subcommand("latency", "One request alone: decode steps and prompts of the released shape");
  add_synthetic_options(command, options->model);
  command.option("--long-context", options->long_context, 8192, 1'000'000, "The longer of the two decode contexts");
  command.example("gannet bench latency --device cuda --synthetic released --unique-experts 128");
  command.action([options] { return latency(*options); });
}

void add_bench_throughput(Command& bench) {
  const auto options = std::make_shared<ThroughputOptions>();
  Command command = bench.subcommand("throughput", "Decode steps of growing batches of the released shape");
  add_synthetic_options(command, options->model);
  command.option("--context", options->context, 128, 1'000'000, "Tokens of every sequence");
  command.option("--sequences", options->sequences, 1, 4096, "Batches double up to this one");
  command.example("gannet bench throughput --device cuda --synthetic released --unique-experts 128");
  command.action([options] { return throughput(*options); });
}

}  // namespace gannet::cli
