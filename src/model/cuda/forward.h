#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/cuda/batch.h"
#include "model/cuda/cache.h"
#include "model/cuda/memory.h"
#include "model/cuda/weights.h"
#include "model/cuda/workspace.h"
#include "model/engram_hash.h"
#include "model/forward_pass.h"
#include "model/layer_plan.h"
#include "ops/linear/sm90.h"

namespace gannet {

struct CudaForwardOptions {
  int64_t max_rows = 2048;    // of one pass
  int64_t max_sequences = 1;  // slots
  int64_t max_tokens = 0;     // longest sequence
  bool graphs = true;         // false: every kernel is launched by the host
};

// The forward pass on a Hopper GPU: the launches of the ops in the order of spec model 3 and 5, captured once for each
// number of rows on a ladder. Everything that changes between passes is read from device memory (CudaBatch, CudaCache).
class CudaForward final : public ForwardPass {
 public:
  // Loads the weights, allocates everything and captures the graphs. `pool` decides the cache's size.
  CudaForward(const TensorSource& source, const BlockPool& pool, const CudaForwardOptions& options,
              std::optional<EngramHash> hash, const std::function<void(int64_t, int64_t)>& progress = {});
  ~CudaForward() override;

  void forward(const Batch& batch, float* logits, LayerObserver* observer, RowCandidates* candidates) override;
  bool gives_candidates() const override { return config_.vocab_size % 4 == 0 && config_.vocab_size <= 131072; }
  const Config& config() const override { return config_; }
  const ModelPlan& plan() const override { return plan_; }
  int64_t max_rows() const override { return options_.max_rows; }
  std::vector<int32_t> history(std::span<const int32_t> ids) const override;
  void pin(std::span<float> memory) override;
  void unpin(std::span<float> memory) override;
  void save_windows(SequenceState& state, std::byte* to) override;
  void restore_windows(SequenceState& state, const std::byte* from) override;

  // What an op must at least read and write, and compute.
  struct Cost {
    double bytes = 0;
    double operations = 0;
  };
  // A pass whose ops are timed one by one, launched directly: sums by op, in the order of first use. A pass of the same
  // kind must have run before.
  struct OpTime {
    std::string name;
    double microseconds = 0;
    int64_t launches = 0;
    Cost cost;
  };
  std::vector<OpTime> time_ops(const Batch& batch);
  // Routed experts that the last pass ran in its last layer.
  int64_t active_experts() const;
  // Enqueues what forward() runs, but leaves the logits on the device and does not wait; for benchmarks. The sequences
  // do not advance.
  void enqueue(const Batch& batch);
  cudaStream_t stream() const { return stream_; }
  CudaCache& cache() { return cache_; }
  // What the device and the host hold, in words.
  std::string memory_text() const;
  const CudaWeights& weights() const { return weights_; }

 private:
  enum class Part { encoder, decoder, full };
  // What the current launches run on.
  struct Current {
    ops::cuda::Rows rows;
    const CudaWorkspace::Activations* activations = nullptr;
  };

  void run(const Batch& batch, LayerObserver* observer);
  void launch(Part part, int64_t rows, LayerObserver* observer);
  void capture_ladder();
  cudaGraphExec_t capture(Part part, int64_t most);
  void run_encoder(int64_t most, LayerObserver* observer);
  void run_decoder(int64_t most, bool cut, LayerObserver* observer);
  // The wanted rows' logits; null: they stay on the device.
  void enqueue_head(const Batch& batch, float* logits);
  void enqueue_logits(const Batch& batch, int64_t first, int64_t rows, float* logits);
  void enqueue_candidates(const Batch& batch, int64_t first, int64_t rows);

  void embed();
  void gather_engram();
  void begin_layer(int64_t n);   // Engram, and a source's global entries: on all rows
  void finish_layer(int64_t n);  // the rest: on the rows that the layer's half keeps
  void add_engram(int64_t n);
  void publish(int64_t n);
  void cut_rows();
  void attention(int64_t n);
  void select_entries(int64_t n);
  void experts(int64_t n);
  void mix_streams(const CudaHyperSite& site);  // beside the sublayer when rows are few
  void apply(const __nv_bfloat16* norm, bool attention_output, bool experts_output);
  void keep_windows(int64_t first_layer, int64_t layers);
  void linear(const char* name, const __nv_bfloat16* x, const ops::cuda::PackedMatrix& weight,
              ops::cuda::LinearOutput output, void* y, int64_t groups = 1);
  // Runs the launch; in time_ops() between two events.
  void op(const char* name, const Cost& cost, const std::function<void()>& launch);
  // Rows of the pass in the current half; a graph does not know them.
  double real_rows() const;
  Cost linear_cost(const ops::cuda::PackedMatrix& weight, ops::cuda::LinearOutput output, int64_t groups) const;
  Cost stream_cost(double stream_passes, double other_bytes) const;
  Cost attention_cost(bool global) const;
  Cost index_cost(const LayerPlan& plan) const;
  Cost experts_cost() const;
  void observe(LayerObserver* observer, int64_t n, bool out);

  const Config config_;
  CudaForwardOptions options_;
  ModelPlan plan_;
  std::optional<EngramHash> hash_;
  CudaWeights weights_;
  CudaCache cache_;
  CudaBatch batch_;
  CudaWorkspace work_;
  DeviceArena tables_;
  const float* local_frequencies_ = nullptr;       // [32]
  const float* compressed_frequencies_ = nullptr;  // [32]
  float norm_eps_;

  cudaStream_t stream_ = nullptr;
  cudaStream_t mix_stream_ = nullptr;
  cudaStream_t engram_stream_ = nullptr;
  cudaEvent_t forked_ = nullptr, mixed_ = nullptr;
  PinnedBuffer candidates_;            // [max_rows] RowCandidates: logits of all rows, then ids
  std::vector<cudaEvent_t> gathered_;  // of each Engram layer
  Current current_;
  bool mixing_ = false;  // mix_stream_ has work that apply() must wait for
  std::vector<int64_t> ladder_;
  std::map<std::pair<Part, int64_t>, cudaGraphExec_t> graphs_;

  struct TimedOp {
    const char* name;
    Cost cost;
    cudaEvent_t begin, end;
  };
  // Of all of them together; their events go.
  static double microseconds(std::span<const TimedOp> ops);
  std::optional<std::vector<TimedOp>> timed_;
  int64_t expected_experts_ = 0;  // for the cost of a timed pass
};

}  // namespace gannet
