#include "cli/bench_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli/bench.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "model/model_bench.h"

// Speed of whole passes and of their ops: of a checkpoint, or of random weights in the released model's shape, whose
// checkpoint does not fit.
namespace gannet::cli {
namespace {

using nlohmann::ordered_json;

constexpr int kDecodeSteps = 20;
constexpr int kPrefillRuns = 3;
constexpr int64_t kUniqueExperts = 128;
constexpr int64_t kCpuRows = 512;  // of a pass on the CPU

struct Measured {
  std::string what;
  int64_t rows = 0;
  int64_t context = 0;
  double tokens = 0;
  ModelBench::Pass pass;
};

// What passes will need.
struct Room {
  int64_t sequences = 1;
  int64_t context = 0;  // the longest
  int64_t cache_tokens = 0;
  int64_t max_rows = 0;
};

bool on_cuda(const PassOptions& options) {
  return options.device == "cuda";
}

// Options of random weights stand for nothing beside a checkpoint's.
Status check(const PassOptions& options) {
  if (!options.model.empty() && options.unique_experts) {
    return invalid_input("--unique-experts is {}; it must be left out with MODEL", *options.unique_experts);
  }
  if ((on_cuda(options) || !options.model.empty()) && options.layers) {
    return invalid_input("--layers is {}; it must be left out with {}", *options.layers,
                         on_cuda(options) ? "--device cuda, which runs all" : "MODEL");
  }
  if (on_cuda(options) && !options.model.empty()) {
    return invalid_input("MODEL is '{}'; it must be left out with --device cuda, which measures random weights",
                         options.model);
  }
  if (on_cuda(options) || options.model.empty() != options.synthetic.empty()) return {};
  if (options.model.empty()) {
    return invalid_input("MODEL is missing; it must be a checkpoint directory or a name under models/, or --synthetic");
  }
  return invalid_input("MODEL is '{}'; it must be left out with --synthetic", options.model);
}

Result<std::unique_ptr<ModelBench>> open(const PassOptions& options, const Room& room) {
  GANNET_TRY_STATUS(check(options));
  const auto progress = std::make_shared<ProgressLine>(on_cuda(options) ? "layers" : "MiB of weights",
                                                       on_cuda(options) ? 1.0 : 1024.0 * 1024.0);
  const ModelBenchOptions bench{.unique_experts = options.unique_experts.value_or(kUniqueExperts),
                                .layers = options.layers.value_or(1),
                                .threads = options.threads,
                                .max_rows = room.max_rows,
                                .max_sequences = room.sequences,
                                .max_tokens = room.context,
                                .cache_tokens = room.cache_tokens,
                                .progress = [progress](int64_t n, int64_t of) { (*progress)(n, of); }};
  if (on_cuda(options)) return create_cuda_bench(released_config(), bench);
  if (!options.synthetic.empty()) return create_cpu_bench(released_config(), bench);
  GANNET_TRY(const auto directory, find_model(options.model));
  GANNET_TRY(auto checkpoint, Checkpoint::open(directory));
  if (const int64_t longest = checkpoint.config().max_position_embeddings; room.context > longest) {
    return invalid_input("a context of {} tokens was asked for; the model's longest is {}", room.context, longest);
  }
  return create_cpu_bench(std::move(checkpoint), bench);
}

Measured measure_decode(ModelBench& model, int64_t rows, int64_t context) {
  return {.what = "decode step",
          .rows = rows,
          .context = context,
          .tokens = static_cast<double>(rows),
          .pass = model.decode(rows, context, kDecodeSteps)};
}

Measured measure_prefill(ModelBench& model, int64_t tokens, bool replay) {
  std::vector<ModelBench::Pass> passes;
  for (int i = 0; i < kPrefillRuns; ++i) passes.push_back(model.prefill(tokens, replay));
  std::sort(passes.begin(), passes.end(), [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  Measured result{.what = replay ? "prefill, replay on" : "prefill, replay off",
                  .rows = tokens,
                  .context = tokens,
                  .tokens = static_cast<double>(tokens),
                  .pass = passes[passes.size() / 2]};
  result.pass.best_seconds = passes.front().seconds;
  return result;
}

std::string header(const ModelBench& model, const ModelBench::Limits& limits) {
  return fmt::format("{}. {}.\n{}.\nStart (weights, buffers, graphs): {:.1f} s. {}.\n\n", model.device_name(),
                     model.weights_text(), model.memory_text(), model.startup_seconds(), limits.text);
}

void append_times(std::string& text, double seconds, double bound, double tokens) {
  fmt::format_to(std::back_inserter(text), " {:>10.2f} ", seconds * 1e3);
  if (bound > 0) {
    fmt::format_to(std::back_inserter(text), "{:>10.2f} {:>6.2f} ", bound * 1e3, seconds / bound);
  } else {
    fmt::format_to(std::back_inserter(text), "{:>10} {:>6} ", "", "");
  }
  fmt::format_to(std::back_inserter(text), "{:>11.{}f}", tokens / seconds, tokens / seconds < 100 ? 2 : 0);
}

std::string as_table(const std::vector<Measured>& results, double read, bool all_layers) {
  constexpr const char* kTimes = " {:>10} {:>10} {:>6} {:>11}";
  std::string text = "bound: what must be read, over the speed of reading alone.\n\n";
  if (!all_layers) fmt::format_to(std::back_inserter(text), "{:<90} {:>41}\n", "", "all layers, extrapolated");
  fmt::format_to(std::back_inserter(text), "{:<22} {:>7} {:>8} {:>10}", "", "rows", "context", "best ms");
  fmt::format_to(std::back_inserter(text), kTimes, "ms", "bound ms", "ratio", "tokens/s");
  if (!all_layers) fmt::format_to(std::back_inserter(text), kTimes, "ms", "bound ms", "ratio", "tokens/s");
  text += "  experts\n";
  for (const Measured& m : results) {
    fmt::format_to(std::back_inserter(text), "{:<22} {:>7} {:>8} {:>10.2f}", m.what, m.rows, m.context,
                   m.pass.best_seconds * 1e3);
    append_times(text, m.pass.seconds, m.pass.bytes / read, m.tokens);
    if (!all_layers) append_times(text, m.pass.all_seconds, m.pass.all_bytes / read, m.tokens);
    if (m.pass.active_experts > 0) fmt::format_to(std::back_inserter(text), " {:>8.0f}", m.pass.active_experts);
    text += '\n';
  }
  return text;
}

ordered_json as_json(const ModelBench& model, const PassOptions& options, const ModelBench::Limits& limits) {
  ordered_json json = {{"device", model.device_name()},
                       {"weights", model.weights_text()},
                       {"memory", model.memory_text()},
                       {"startup_s", model.startup_seconds()},
                       {"read_gb_per_s", limits.read / 1e9},
                       {"peak_gflop_per_s", limits.operations / 1e9},
                       {"peak_fp32_gflop_per_s", limits.vector_operations / 1e9},
                       {"extrapolated", !model.runs_all_layers()}};
  if (options.model.empty()) json["unique_experts"] = options.unique_experts.value_or(kUniqueExperts);
  return json;
}

ordered_json as_json(const std::vector<Measured>& results, double read, bool all_layers) {
  ordered_json list = ordered_json::array();
  for (const Measured& m : results) {
    list.push_back({{"what", m.what},
                    {"rows", m.rows},
                    {"context", m.context},
                    {"seconds", m.pass.seconds},
                    {"best_seconds", m.pass.best_seconds},
                    {"bound_seconds", m.pass.bytes / read},
                    {"tokens_per_s", m.tokens / m.pass.seconds},
                    {"active_experts", m.pass.active_experts}});
    if (all_layers) continue;
    list.back()["all_layers_seconds"] = m.pass.all_seconds;
    list.back()["all_layers_bound_seconds"] = m.pass.all_bytes / read;
    list.back()["all_layers_tokens_per_s"] = m.tokens / m.pass.all_seconds;
  }
  return list;
}

Status write(ModelBench& model, const PassOptions& options, const std::vector<Measured>& results) {
  const ModelBench::Limits limits = model.limits();
  const bool all_layers = model.runs_all_layers();
  if (!options.json) return write_output(header(model, limits) + as_table(results, limits.read, all_layers));
  ordered_json json = as_json(model, options, limits);
  json["results"] = as_json(results, limits.read, all_layers);
  return write_output(json.dump(2) + "\n");
}

struct LatencyOptions {
  PassOptions model;
  std::optional<int64_t> long_context;
};

// One user: decoding at a short and at a long context, and prompts.
Status latency(const LatencyOptions& options) {
  const bool cuda = on_cuda(options.model);
  const int64_t short_context = cuda ? 8192 : 1024;
  const int64_t long_context = options.long_context.value_or(cuda ? 524'288 : 32'768);
  const auto prompts = cuda ? std::vector<int64_t>{1024, 8192, 32'768} : std::vector<int64_t>{256, 1024};
  const int64_t longest = std::max(long_context, prompts.back()) + 64;
  GANNET_TRY(const auto model,
             open(options.model,
                  {.context = longest, .cache_tokens = longest + 64, .max_rows = cuda ? short_context : kCpuRows}));
  std::vector<Measured> results;
  for (const int64_t context : {short_context, long_context}) results.push_back(measure_decode(*model, 1, context));
  for (const int64_t tokens : prompts) {
    // Where only some layers run, what replay leaves out is not among them.
    if (model->runs_all_layers()) results.push_back(measure_prefill(*model, tokens, true));
    results.push_back(measure_prefill(*model, tokens, false));
  }
  return write(*model, options.model, results);
}

struct ThroughputOptions {
  PassOptions model;
  std::optional<int64_t> context;
  std::optional<int64_t> sequences;
};

// Many users: decoding of growing batches.
Status throughput(const ThroughputOptions& options) {
  const bool cuda = on_cuda(options.model);
  const int64_t context = options.context.value_or(cuda ? 8192 : 1024);
  const int64_t sequences = options.sequences.value_or(cuda ? 256 : 64);
  const int64_t tokens = context + 64;
  GANNET_TRY(const auto model, open(options.model, {.sequences = sequences,
                                                    .context = tokens,
                                                    .cache_tokens = sequences * (tokens + 64),
                                                    .max_rows = cuda ? 4096 : std::max(kCpuRows, sequences)}));
  std::vector<Measured> results;
  for (int64_t rows = 1; rows < sequences; rows *= 2) results.push_back(measure_decode(*model, rows, context));
  results.push_back(measure_decode(*model, sequences, context));
  return write(*model, options.model, results);
}

double limit_seconds(const ModelBench::OpTime& op, const ModelBench::Limits& limits) {
  double arithmetic = limits.operations > 0 ? op.operations / limits.operations : 0;
  if (limits.vector_operations > 0) arithmetic += op.vector_operations / limits.vector_operations;
  return std::max(op.bytes / limits.read, arithmetic);
}

double total_seconds(const std::vector<ModelBench::OpTime>& ops) {
  double all = 0;
  for (const auto& op : ops) all += op.seconds;
  return all;
}

ordered_json ops_json(const std::vector<ModelBench::OpTime>& ops, const ModelBench::Limits& limits) {
  ordered_json list = ordered_json::array();
  const double all = total_seconds(ops);
  for (const auto& op : ops) {
    list.push_back({{"op", op.name},
                    {"launches", op.launches},
                    {"seconds", op.seconds},
                    {"best_seconds", op.best_seconds},
                    {"bytes", op.bytes},
                    {"operations", op.operations + op.vector_operations},
                    {"limit_seconds", limit_seconds(op, limits)},
                    {"share", op.seconds / all}});
  }
  return list;
}

// Of the CPU also the fastest pass: other programs disturb it as they do not disturb a GPU.
std::string ops_table(const std::vector<ModelBench::OpTime>& ops, const ModelBench::Limits& limits, bool cuda) {
  const double all = total_seconds(ops);
  const double unit = cuda ? 1e12 : 1e9;
  std::string text =
      fmt::format("{:<26} {:>8} {:>10} {:>8} {:>9} {:>9} {:>6} {:>6}{}\n", "op", "launches", "us each", "GB/s",
                  cuda ? "TFLOP/s" : "GFLOP/s", "limit us", "ratio", "share", cuda ? "" : "    best us  ratio");
  for (const auto& op : ops) {
    const auto n = static_cast<double>(std::max<int64_t>(op.launches, 1));
    const double limit = limit_seconds(op, limits);
    const auto ratio = [limit](double seconds) { return limit > 0 ? seconds / limit : 0.0; };
    fmt::format_to(std::back_inserter(text), "{:<26} {:>8} {:>10.2f} {:>8.{}f} {:>9.1f} {:>9.2f} {:>6.2f} {:>5.1f}%",
                   op.name, op.launches, op.seconds * 1e6 / n, op.bytes / op.seconds / 1e9, cuda ? 0 : 1,
                   (op.operations + op.vector_operations) / op.seconds / unit, limit * 1e6 / n, ratio(op.seconds),
                   100 * op.seconds / all);
    if (!cuda) {
      fmt::format_to(std::back_inserter(text), " {:>10.2f} {:>6.2f}", op.best_seconds * 1e6 / n,
                     ratio(op.best_seconds));
    }
    text += '\n';
  }
  return text;
}

}  // namespace

void add_pass_options(Command& command, PassOptions& options) {
  command.optional_positional("MODEL", options.model,
                              "cpu: checkpoint directory, or the name of one under models/, instead of --synthetic");
  command.choice("--device", options.device, {"cpu", "cuda"}, "Where to run");
  command.choice("--synthetic", options.synthetic, {"released"}, "Random weights in this shape; cuda has no others");
  command.option("--layers", options.layers, 1, 20,
                 "cpu: layers of the random model that are run, the rest is extrapolated; left out: 1");
  command.option("--unique-experts", options.unique_experts, 1, 384,
                 "Routed experts of a random layer that are stored, the others share their weights; left out: 128");
  command.option("--threads", options.threads, 0, 1024, "cpu: threads; 0: one for each core that this process may use");
  command.flag("--json", options.json, "Machine-readable");
}

Status bench_model_ops(const PassOptions& options, int64_t rows, int64_t context) {
  const bool cuda = on_cuda(options);
  const int64_t prompt_rows = cuda ? 8192 : kCpuRows;
  const int64_t max_rows = rows > 0 ? std::max<int64_t>(rows, cuda ? 4096 : kCpuRows) : prompt_rows;
  const int64_t sequences = std::max<int64_t>(rows, 1);
  const int64_t tokens = context + 256;
  GANNET_TRY(const auto model, open(options, {.sequences = sequences,
                                              .context = tokens,
                                              .cache_tokens = sequences * (tokens + 64),
                                              .max_rows = max_rows}));
  const ModelBench::Limits limits = model->limits();
  const auto ops = model->ops(rows, context);
  if (options.json) {
    ordered_json json = as_json(*model, options, limits);
    json["rows"] = rows;
    json["context"] = context;
    json["ops"] = ops_json(ops, limits);
    return write_output(json.dump(2) + "\n");
  }
  std::string text = header(*model, limits);
  const double ms = total_seconds(ops) * 1e3;
  text += rows > 0 ? fmt::format("A decode step of {} rows at a context of {}; {:.2f} ms of ops in all.\n", rows,
                                 context, ms)
                   : fmt::format("The first {} rows of a prompt of {} tokens, replay {}; {:.2f} ms of ops in all.\n",
                                 std::min(max_rows, context), context, model->runs_all_layers() ? "on" : "off", ms);
  return write_output(text + ops_table(ops, limits, cuda));
}

void add_bench_latency(Command& bench) {
  const auto options = std::make_shared<LatencyOptions>();
  Command command = bench.subcommand("latency", "One request alone: decode steps and prompts");
  add_pass_options(command, options->model);
  command.option("--long-context", options->long_context, 1, 1'000'000,
                 "The longer of the two decode contexts; left out: 524288, on cpu 32768");
  command.example("gannet bench latency --device cuda --synthetic released --unique-experts 128");
  command.example("gannet bench latency nano --device cpu");
  command.action([options] { return latency(*options); });
}

void add_bench_throughput(Command& bench) {
  const auto options = std::make_shared<ThroughputOptions>();
  Command command = bench.subcommand("throughput", "Decode steps of growing batches");
  add_pass_options(command, options->model);
  command.option("--context", options->context, 128, 1'000'000,
                 "Tokens of every sequence; left out: 8192, on cpu 1024");
  command.option("--sequences", options->sequences, 1, 4096, "Batches double up to this one; left out: 256, on cpu 64");
  command.example("gannet bench throughput --device cuda --synthetic released --unique-experts 128");
  command.example("gannet bench throughput --device cpu --synthetic released --layers 1");
  command.action([options] { return throughput(*options); });
}

}  // namespace gannet::cli
