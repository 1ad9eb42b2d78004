#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "base/cuda.h"
#include "base/cuda_error.h"
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

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

std::optional<EngramHash> make_hash(const Config& config) {
  if (config.engram_layer_ids.empty()) return std::nullopt;
  // Any map onto all compressed ids will do: rows are looked up at random either way.
  std::vector<int32_t> map(config.vocab_size);
  for (size_t i = 0; i < map.size(); ++i) {
    map[i] = static_cast<int32_t>(static_cast<int64_t>(i) % config.engram_compressed_vocab_size);
  }
  return EngramHash(config, std::move(map));
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
        startup_(since(begin_)) {
    for (int64_t slot = 0; slot < options.max_sequences; ++slot) {
      states_.emplace_back(config_, pool_, slot, SequenceState::Place::gpu);
    }
  }

  Step decode(int64_t sequences, int64_t context, int repeats) override {
    prepare(sequences, context);
    std::vector<double> times;
    for (int i = 0; i < repeats + 3; ++i) {
      const Batch batch = decode_batch(sequences);
      const auto begin = Clock::now();
      forward_.enqueue(batch);
      GANNET_CUDA_CHECK(cudaStreamSynchronize(forward_.stream()));
      if (i >= 3) times.push_back(since(begin));
      for (int64_t s = 0; s < sequences; ++s) states_[s].advance(1);
    }
    return {.seconds = median(times), .active_experts = static_cast<double>(forward_.active_experts())};
  }

  double prefill(int64_t tokens, bool replay) override {
    give_blocks(1, tokens);
    begin_sequence(0, 0);
    if (replay) states_[0].set_decoder_from(std::max<int64_t>(0, tokens - config_.sliding_window));
    const auto begin = Clock::now();
    while (states_[0].length() < tokens) {
      const int64_t rows = std::min(forward_.max_rows(), tokens - states_[0].length());
      const Batch batch = prompt_batch(rows, states_[0].length() + rows == tokens);
      forward_.enqueue(batch);
      states_[0].advance(rows);
      // The next pass overwrites what this one reads on the host.
      GANNET_CUDA_CHECK(cudaStreamSynchronize(forward_.stream()));
    }
    return since(begin);
  }

  std::vector<OpTime> ops(int64_t sequences, int64_t context) override {
    Batch batch;
    if (sequences > 0) {
      decode(sequences, context, 1);
      batch = decode_batch(sequences);
    } else {
      prefill(context, true);
      begin_sequence(0, 0);
      states_[0].set_decoder_from(std::max<int64_t>(0, context - config_.sliding_window));
      const int64_t rows = std::min(forward_.max_rows(), context);
      batch = prompt_batch(rows, rows == context);
    }
    std::vector<OpTime> result;
    for (const CudaForward::OpTime& op : forward_.time_ops(batch)) {
      result.push_back({op.name, op.launches, op.microseconds * 1e-6, op.cost.bytes, op.cost.operations});
    }
    return result;
  }

  double read_bandwidth() override {
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

  std::string device_name() const override { return cuda_support().usable; }
  std::string memory_text() const override { return forward_.memory_text(); }
  double startup_seconds() const override { return startup_; }
  double expert_bytes() const override {
    using ops::WeightFormat;
    return static_cast<double>(
        ops::cuda::packed_bytes(WeightFormat::mxfp4, 2 * config_.moe_intermediate_size, config_.hidden_size) +
        ops::cuda::packed_bytes(WeightFormat::mxfp4, config_.hidden_size, config_.moe_intermediate_size));
  }
  double weight_bytes() const override { return forward_.weights().dense_bytes(); }

 private:
  // All sequences at that context: their cache holds records that a prompt made, copied to wherever there are none.
  void prepare(int64_t sequences, int64_t context) {
    if (!filled_) fill_cache();
    give_blocks(sequences, context + 64);
    for (int64_t s = 0; s < sequences; ++s) begin_sequence(s, context);
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
    for (size_t s = 1; s < states_.size(); ++s) {
      GANNET_CUDA_CHECK(cudaMemcpy(forward_.cache().rings() + static_cast<int64_t>(s) * forward_.cache().slot_bytes(),
                                   forward_.cache().rings(), static_cast<size_t>(forward_.cache().slot_bytes()),
                                   cudaMemcpyDeviceToDevice));
    }
    filled_ = true;
  }

  void give_blocks(int64_t sequences, int64_t tokens) {
    tables_.clear();
    for (int64_t s = 0; s < sequences; ++s) {
      tables_.push_back(pool_.table());
      if (!tables_.back().grow(tokens)) throw CudaError("the benchmark's cache is too small for its contexts");
    }
  }

  void begin_sequence(int64_t s, int64_t length) {
    states_[s].begin({.blocks = tables_[s].ids().data(), .first = length, .cached = length});
  }

  Batch decode_batch(int64_t sequences) {
    Batch batch;
    for (int64_t s = 0; s < sequences; ++s) {
      batch.ids.push_back(random_id());
      batch.sequences.push_back({.state = &states_[s], .first_row = s, .rows = 1});
      batch.logit_rows.push_back(static_cast<int32_t>(s));
    }
    return batch;
  }

  Batch prompt_batch(int64_t rows, bool last) {
    Batch batch;
    for (int64_t r = 0; r < rows; ++r) batch.ids.push_back(random_id());
    batch.sequences.push_back({.state = &states_[0], .first_row = 0, .rows = rows});
    if (last) batch.logit_rows.push_back(static_cast<int32_t>(rows - 1));
    return batch;
  }

  int32_t random_id() { return static_cast<int32_t>(random_() % static_cast<uint64_t>(config_.vocab_size)); }

  const Config config_;
  Clock::time_point begin_;
  BlockPool pool_;
  CudaForward forward_;
  double startup_;
  std::vector<SequenceState> states_;
  std::vector<BlockTable> tables_;
  std::mt19937_64 random_{1};
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
