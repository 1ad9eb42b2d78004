#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <utility>

#include "base/memory_limits.h"
#include "base/thread_pool.h"
#include "checkpoint/manifest.h"
#include "checkpoint/synthetic_checkpoint.h"
#include "model/bench_sequences.h"
#include "model/model.h"
#include "model/model_bench.h"
#include "model/op_observer.h"
#include "ops/bench.h"
#include "ops/peak.h"

namespace gannet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBlockTokens = 64;
constexpr int64_t kFilledTokens = 512;  // that a prompt writes to the cache before they are copied all over it
constexpr int64_t kArenaBytes = int64_t{1} << 30;
constexpr double kGiB = 1 << 30;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// What the ops of several equal passes took.
class OpRecorder final : public OpObserver {
 public:
  struct Entry {
    std::string name;
    std::vector<double> seconds;  // of each pass
    int64_t launches = 0;         // of all passes, as what follows
    OpCost cost;
  };

  void begin_pass() {
    ++passes_;
    for (Entry& entry : entries_) entry.seconds.push_back(0);
  }

  void op(const char* name, double seconds, const OpCost& cost) override {
    auto entry = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
    if (entry == entries_.end()) {
      entry = entries_.insert(entries_.end(), {.name = name, .seconds = std::vector<double>(passes_), .cost = {}});
    }
    entry->seconds.back() += seconds;
    ++entry->launches;
    entry->cost.bytes += cost.bytes;
    entry->cost.operations += cost.operations;
    entry->cost.vector_operations += cost.vector_operations;
    entry->cost.experts += cost.experts;
  }

  // Of one pass: the median of its times, the mean of its costs.
  std::vector<ModelBench::OpTime> times() const {
    std::vector<ModelBench::OpTime> result;
    const auto passes = static_cast<double>(passes_);
    for (const Entry& entry : entries_) {
      result.push_back({.name = entry.name,
                        .launches = entry.launches / passes_,
                        .seconds = median(entry.seconds),
                        .best_seconds = *std::min_element(entry.seconds.begin(), entry.seconds.end()),
                        .bytes = entry.cost.bytes / passes,
                        .operations = entry.cost.operations / passes,
                        .vector_operations = entry.cost.vector_operations / passes});
    }
    return result;
  }

  // Of a layer, on average.
  double active_experts() const {
    double experts = 0;
    int64_t layers = 0;
    for (const Entry& entry : entries_) {
      if (entry.cost.experts == 0) continue;
      experts += entry.cost.experts;
      layers += entry.launches;
    }
    return layers > 0 ? experts / static_cast<double>(layers) : 0;
  }

 private:
  std::vector<Entry> entries_;
  int64_t passes_ = 0;
};

// Layers that have an op of Model::Forward; 1 for those outside of layers.
int64_t layers_with(const std::string& op, const ModelPlan& plan) {
  if (op == "embed" || op == "head") return 1;
  return std::count_if(plan.layers.begin(), plan.layers.end(), [&](const LayerPlan& layer) {
    const bool full = layer.role == LayerRole::full;
    if (op == "compressor" || op == "kv entries") return full;
    if (op == "attention") return layer.ratio > 0;
    if (op == "attention, window only") return layer.ratio == 0;
    const bool selects = full || layer.role == LayerRole::reindex;
    if (op == "index select") return selects && !layer.restricted;
    if (op == "index select, candidates") return selects && layer.restricted;
    if (op.starts_with("index ")) return selects;
    return op != "engram" || layer.engram >= 0;
  });
}

class CpuModelBench final : public ModelBench {
 public:
  // `whole` is the config of which the checkpoint's layers are some.
  CpuModelBench(std::unique_ptr<ThreadPool> threads, Checkpoint checkpoint, const Config& whole,
                const ModelBenchOptions& options, std::string weights_text, Clock::time_point begin)
      : threads_(std::move(threads)),
        device_{.pool = threads_.get(), .simd = detect_simd()},
        checkpoint_(std::move(checkpoint)),
        plan_(plan_layers(config())),
        whole_plan_(plan_layers(whole)),
        max_rows_(options.max_rows),
        max_tokens_(options.max_tokens),
        weights_text_(std::move(weights_text)),
        pool_(block_layout(config(), kBlockTokens), (options.cache_tokens + kBlockTokens - 1) / kBlockTokens),
        sequences_(config(), pool_, options.max_sequences, SequenceState::Place::host),
        begin_(begin) {}

  Status load(const ModelBenchOptions& options) {
    auto map = config().engram_layer_ids.empty() ? std::vector<int32_t>() : any_token_map(config());
    GANNET_TRY(model_, Model::create(checkpoint_, device_, pool_,
                                     {.max_rows = options.max_rows,
                                      .max_tokens = options.max_tokens,
                                      .max_sequences = options.max_sequences},
                                     std::move(map)));
    const auto rows = std::max<int64_t>(options.max_sequences, 1);
    logits_.resize(rows * config().vocab_size);
    fill_cache();
    startup_ = std::chrono::duration<double>(Clock::now() - begin_).count();
    return {};
  }

  Pass decode(int64_t sequences, int64_t context, int /*repeats*/) override {
    OpRecorder recorder;
    const ops::BenchTime time = time_decode(sequences, context, recorder);
    return pass(time.median, time.best, recorder);
  }

  Pass prefill(int64_t tokens, bool replay) override {
    OpRecorder recorder;
    sequences_.give_blocks(1, tokens);
    sequences_.begin_prompt(tokens, replay);
    recorder.begin_pass();
    const auto begin = Clock::now();
    while (sequences_.state(0).length() < tokens) {
      const int64_t length = sequences_.state(0).length();
      const int64_t rows = std::min(max_rows_, tokens - length);
      run(sequences_.prompt_batch(rows, length + rows == tokens), recorder);
    }
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    Pass result = pass(seconds.count(), seconds.count(), recorder);
    result.bytes = result.all_bytes = 0;  // arithmetic bounds it
    return result;
  }

  std::vector<OpTime> ops(int64_t sequences, int64_t context) override {
    OpRecorder recorder;
    if (sequences > 0) {
      time_decode(sequences, context, recorder);
    } else {
      time_first_pass(context, recorder);
    }
    std::vector<OpTime> times = recorder.times();
    for (OpTime& time : times) extrapolate(time);
    return times;
  }

  Limits limits() override {
    ops::BenchArena arena(kArenaBytes);
    const double read = ops::read_bandwidth(device_, arena);
    const ops::PeakOperations peak = ops::peak_operations(device_);
    const double products = peak.matrix_units > 0 ? peak.matrix_units : peak.vectors;
    return {.read = read,
            .operations = products,
            .vector_operations = peak.vectors,
            .text = fmt::format(
                "Measured with the same {} threads: reading alone {:.1f} GB/s; operands in registers {:.0f} "
                "GFLOP/s of fp32, {:.0f} of bf16 in {}",
                threads_->size(), read / 1e9, peak.vectors / 1e9, products / 1e9,
                peak.matrix_units > 0 ? "matrix units" : "the same vectors")};
  }

  std::string device_name() const override {
    return fmt::format("{}, {} threads, {}", processor_name(), threads_->size(), name_of(device_.simd));
  }
  std::string weights_text() const override { return weights_text_; }
  std::string memory_text() const override {
    std::set<const std::byte*> seen;  // random experts share memory
    int64_t weights = 0;
    for (const auto& [name, tensor] : checkpoint_.tensors()) {
      if (seen.insert(tensor.bytes.data()).second) weights += static_cast<int64_t>(tensor.bytes.size());
    }
    return fmt::format("Weights {:.2f} GiB, cache {:.2f} GiB", static_cast<double>(weights) / kGiB,
                       static_cast<double>(pool_.bytes()) / kGiB);
  }
  bool runs_all_layers() const override { return plan_.layers.size() == whole_plan_.layers.size(); }
  double startup_seconds() const override { return startup_; }

 private:
  const Config& config() const { return checkpoint_.config(); }

  void run(const Batch& batch, OpRecorder& recorder) {
    model_->observe_ops(&recorder);
    model_->forward(batch, logits_.data());
    model_->observe_ops(nullptr);
  }

  ops::BenchTime time_decode(int64_t sequences, int64_t context, OpRecorder& recorder) {
    sequences_.give_blocks(sequences, context + 1);
    const ops::Benchmark step{.run = [&](const Device&) {
      for (int64_t s = 0; s < sequences; ++s) sequences_.begin(s, context);
      recorder.begin_pass();
      run(sequences_.decode_batch(sequences), recorder);
    }};
    return ops::time_benchmark(step, device_);
  }

  void time_first_pass(int64_t context, OpRecorder& recorder) {
    sequences_.give_blocks(1, context);
    const int64_t rows = std::min(max_rows_, context);
    const ops::Benchmark first{.run = [&](const Device&) {
      sequences_.begin_prompt(context,
                              runs_all_layers());  // the seam is in front of the layers from the last KV source
      recorder.begin_pass();
      run(sequences_.prompt_batch(rows, rows == context), recorder);
    }};
    ops::time_benchmark(first, device_);
  }

  void extrapolate(OpTime& time) const {
    if (runs_all_layers()) return;
    const int64_t run = layers_with(time.name, plan_);
    const double times = static_cast<double>(layers_with(time.name, whole_plan_)) / static_cast<double>(run);
    time.launches = time.launches * layers_with(time.name, whole_plan_) / run;
    time.seconds *= times;
    time.best_seconds *= times;
    time.bytes *= times;
    time.operations *= times;
    time.vector_operations *= times;
  }

  Pass pass(double seconds, double best, const OpRecorder& recorder) const {
    Pass result{.seconds = seconds, .best_seconds = best, .active_experts = recorder.active_experts()};
    double measured = 0;
    for (OpTime time : recorder.times()) {
      measured += time.seconds;
      result.bytes += time.bytes;
      extrapolate(time);
      result.all_seconds += time.seconds;
      result.all_bytes += time.bytes;
    }
    result.all_seconds = runs_all_layers() ? 0 : result.all_seconds * seconds / measured;
    return result;
  }

  // All of the cache holds records that a prompt made: max_tokens must be a block at least.
  void fill_cache() {
    const int64_t tokens = std::min({kFilledTokens, max_tokens_, pool_.blocks() * kBlockTokens});
    prefill(tokens / kBlockTokens * kBlockTokens, false);
    const int64_t bytes = tokens / kBlockTokens * pool_.layout().bytes;
    for (int64_t at = bytes; at < pool_.blocks() * pool_.layout().bytes; at += bytes) {
      const int64_t rest = pool_.blocks() * pool_.layout().bytes - at;
      std::copy_n(pool_.data(), std::min(bytes, rest), pool_.data() + at);
    }
    for (int64_t s = 1; s < sequences_.count(); ++s) {
      std::copy_n(sequences_.state(0).windows(), sequences_.state(0).window_bytes(), sequences_.state(s).windows());
    }
  }

  std::unique_ptr<ThreadPool> threads_;
  const Device device_;
  const Checkpoint checkpoint_;
  const ModelPlan plan_;
  const ModelPlan whole_plan_;
  const int64_t max_rows_;
  const int64_t max_tokens_;
  const std::string weights_text_;
  BlockPool pool_;
  BenchSequences sequences_;
  const Clock::time_point begin_;
  std::unique_ptr<Model> model_;
  std::vector<float> logits_;
  double startup_ = 0;
};

std::unique_ptr<ThreadPool> make_threads(const ModelBenchOptions& options) {
  const int64_t threads = options.threads > 0 ? options.threads : usable_processors();
  return std::make_unique<ThreadPool>(static_cast<int>(threads));
}

Status check_memory(const Config& config, const ModelBenchOptions& options) {
  const int64_t bytes = synthetic_bytes(config, options.unique_experts);
  const auto available = available_memory();
  if (!available || bytes < *available) return {};
  return failed("the weights take {:.1f} GiB of memory; {:.1f} GiB are available (fewer --unique-experts or --layers)",
                static_cast<double>(bytes) / kGiB, static_cast<double>(*available) / kGiB);
}

std::string describe_weights(const Config& config, const Config& part, const ModelBenchOptions& options) {
  std::string text =
      fmt::format("Random weights in the released shape; {} different routed experts a layer stand for all {}",
                  std::min(options.unique_experts, config.n_routed_experts), config.n_routed_experts);
  if (part.num_hidden_layers == config.num_hidden_layers) return text;
  return text + fmt::format(
                    ".\n{} of {} layers run, from layer {} on. Figures of all {} are an extrapolation: what each op "
                    "took, by the number of layers that have it; Engram is left out",
                    part.num_hidden_layers, config.num_hidden_layers, config.kv_source_layer_ids.back(),
                    config.num_hidden_layers);
}

}  // namespace

Result<std::unique_ptr<ModelBench>> create_cpu_bench(Checkpoint checkpoint, const ModelBenchOptions& options) {
  const auto begin = Clock::now();
  const Config config = checkpoint.config();
  auto bench = std::make_unique<CpuModelBench>(make_threads(options), std::move(checkpoint), config, options,
                                               "The checkpoint's weights", begin);
  GANNET_TRY_STATUS(bench->load(options));
  return bench;
}

Result<std::unique_ptr<ModelBench>> create_cpu_bench(const Config& config, const ModelBenchOptions& options) {
  const auto begin = Clock::now();
  const Config part = some_layers(config, options.layers > 0 ? options.layers : config.num_hidden_layers);
  GANNET_TRY_STATUS(check_memory(part, options));
  auto threads = make_threads(options);
  Checkpoint checkpoint = synthetic_checkpoint(part, options.unique_experts, *threads, options.progress);
  auto bench = std::make_unique<CpuModelBench>(std::move(threads), std::move(checkpoint), config, options,
                                               describe_weights(config, part, options), begin);
  GANNET_TRY_STATUS(bench->load(options));
  return bench;
}

}  // namespace gannet
