#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/cuda.h"
#include "base/cuda_error.h"
#include "model/bench_sequences.h"
#include "model/cuda/forward.h"
#include "model/cuda/geometry.h"
#include "model/cuda/memory_plan.h"
#include "model/model_bench.h"
#include "ops/cuda/check.h"
#include "ops/cuda/read_bandwidth.h"

namespace gannet {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kBlockTokens = 64;
constexpr int64_t kReadBytes = int64_t{4} << 30;
// What the tensor cores of an H200 reach with bf16 in a large matrix product.
constexpr double kBf16Operations = 780e12;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::optional<EngramHash> make_hash(const Config& config) {
  if (config.engram_layer_ids.empty()) return std::nullopt;
  return EngramHash(config, any_token_map(config));
}

int64_t cache_blocks(const ModelBenchOptions& options) {
  return (options.cache_tokens + kBlockTokens - 1) / kBlockTokens;
}

CudaForwardOptions forward_options(const ModelBenchOptions& options) {
  return {.max_rows = options.max_rows, .max_sequences = options.max_sequences, .max_tokens = options.max_tokens};
}

TensorSource source_of(const Config& config, const ModelBenchOptions& options) {
  return TensorSource(config, {.unique_experts = options.unique_experts});
}

class CudaModelBench final : public ModelBench {
 public:
  CudaModelBench(const Config& config, const ModelBenchOptions& options)
      : config_(config),
        begin_(Clock::now()),
        pool_(block_layout(config, kBlockTokens), cache_blocks(options)),
        forward_(source_of(config, options), pool_, forward_options(options), make_hash(config), options.progress),
        startup_(since(begin_)),
        unique_experts_(options.unique_experts),
        sequences_(config_, pool_, options.max_sequences, SequenceState::Place::gpu) {}

  Pass decode(int64_t sequences, int64_t context, int repeats) override {
    prepare(sequences, context);
    std::vector<double> times;
    for (int i = 0; i < repeats + 3; ++i) {
      const Batch batch = sequences_.decode_batch(sequences);
      const auto begin = Clock::now();
      forward_.enqueue(batch);
      GANNET_CUDA_CHECK(cudaStreamSynchronize(forward_.stream()));
      if (i >= 3) times.push_back(since(begin));
      for (int64_t s = 0; s < sequences; ++s) sequences_.state(s).advance(1);
    }
    const auto experts = static_cast<double>(forward_.active_experts());
    const auto layers = static_cast<double>(config_.num_hidden_layers);
    return {.seconds = median(times),
            .best_seconds = *std::min_element(times.begin(), times.end()),
            .bytes = forward_.weights().dense_bytes() + layers * experts * expert_bytes(),
            .active_experts = experts};
  }

  Pass prefill(int64_t tokens, bool replay) override {
    sequences_.give_blocks(1, tokens);
    sequences_.begin_prompt(tokens, replay);
    SequenceState& state = sequences_.state(0);
    const auto begin = Clock::now();
    while (state.length() < tokens) {
      const int64_t rows = std::min(forward_.max_rows(), tokens - state.length());
      const Batch batch = sequences_.prompt_batch(rows, state.length() + rows == tokens);
      forward_.enqueue(batch);
      state.advance(rows);
      // The next pass overwrites what this one reads on the host.
      GANNET_CUDA_CHECK(cudaStreamSynchronize(forward_.stream()));
    }
    return {.seconds = since(begin)};
  }

  std::vector<OpTime> ops(int64_t sequences, int64_t context) override {
    Batch batch;
    if (sequences > 0) {
      decode(sequences, context, 1);
      batch = sequences_.decode_batch(sequences);
    } else {
      prefill(context, true);
      sequences_.begin_prompt(context, true);
      const int64_t rows = std::min(forward_.max_rows(), context);
      batch = sequences_.prompt_batch(rows, rows == context);
    }
    std::vector<OpTime> result;
    for (const CudaForward::OpTime& op : forward_.time_ops(batch)) {
      result.push_back({.name = op.name,
                        .launches = op.launches,
                        .seconds = op.microseconds * 1e-6,
                        .bytes = op.cost.bytes,
                        .operations = op.cost.operations});
    }
    return result;
  }

  Limits limits() override {
    const double read = read_bandwidth();
    return {.read = read, .operations = kBf16Operations, .text = fmt::format("Reading alone: {:.0f} GB/s", read / 1e9)};
  }

  std::string device_name() const override { return cuda_support().usable; }
  std::string weights_text() const override {
    return fmt::format("Random weights in the released shape; {} different routed experts a layer stand for all {}",
                       unique_experts_, config_.n_routed_experts);
  }
  std::string memory_text() const override { return forward_.memory_text(); }
  bool runs_all_layers() const override { return true; }
  double startup_seconds() const override { return startup_; }

 private:
  double read_bandwidth() {
    const DeviceBuffer sum(4);
    const DeviceBuffer data(kReadBytes);
    std::vector<double> times;
    for (int i = 0; i < 12; ++i) {
      const auto begin = Clock::now();
      for (int j = 0; j < 4; ++j) {
        ops::cuda::read_all(forward_.stream(), data.data(), kReadBytes, reinterpret_cast<uint32_t*>(sum.data()));
      }
      GANNET_CUDA_CHECK(cudaStreamSynchronize(forward_.stream()));
      if (i > 1) times.push_back(since(begin) / 4);
    }
    return static_cast<double>(kReadBytes) / median(times);
  }

  double expert_bytes() const {
    using ops::WeightFormat;
    return static_cast<double>(
        ops::cuda::packed_bytes(WeightFormat::mxfp4, 2 * config_.moe_intermediate_size, config_.hidden_size) +
        ops::cuda::packed_bytes(WeightFormat::mxfp4, config_.hidden_size, config_.moe_intermediate_size));
  }

  // All sequences at that context: their cache holds records that a prompt made, copied to wherever there are none.
  void prepare(int64_t sequences, int64_t context) {
    if (!filled_) fill_cache();
    sequences_.give_blocks(sequences, context + 64);
    for (int64_t s = 0; s < sequences; ++s) sequences_.begin(s, context);
  }

  void fill_cache() {
    const int64_t tokens = std::min<int64_t>(forward_.max_rows(), 4096) / kBlockTokens * kBlockTokens;
    prefill(tokens, false);
    const int64_t bytes = tokens / kBlockTokens * pool_.layout().bytes;
    const int64_t all = forward_.cache().block_count() * pool_.layout().bytes;
    for (int64_t at = bytes; at < all; at += bytes) {
      GANNET_CUDA_CHECK(cudaMemcpy(forward_.cache().blocks() + at, forward_.cache().blocks(),
                                   static_cast<size_t>(std::min(bytes, all - at)), cudaMemcpyDeviceToDevice));
    }
    for (int64_t s = 1; s < sequences_.count(); ++s) {
      GANNET_CUDA_CHECK(cudaMemcpy(forward_.cache().rings() + s * forward_.cache().slot_bytes(),
                                   forward_.cache().rings(), static_cast<size_t>(forward_.cache().slot_bytes()),
                                   cudaMemcpyDeviceToDevice));
    }
    filled_ = true;
  }

  const Config config_;
  Clock::time_point begin_;
  BlockPool pool_;
  CudaForward forward_;
  double startup_;
  int64_t unique_experts_;
  BenchSequences sequences_;
  bool filled_ = false;
};

}  // namespace

Result<std::unique_ptr<ModelBench>> create_cuda_bench(const Config& config, const ModelBenchOptions& options) {
  if (const CudaSupport support = cuda_support(); support.usable.empty()) {
    return failed("--device is 'cuda'; no GPU can be used: {}", support.obstacle);
  }
  GANNET_TRY_STATUS(check_cuda_config(config));
  try {
    const BlockPool pool(block_layout(config, kBlockTokens), cache_blocks(options));
    GANNET_TRY_STATUS(check_fits(plan_cuda_memory(source_of(config, options), pool, forward_options(options))));
    return std::make_unique<CudaModelBench>(config, options);
  } catch (const CudaError& error) {
    return failed("the model could not be put on the GPU: {}", error.what());
  }
}

}  // namespace gannet
