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
#include "model/engram_hash.h"
#include "model/forward_pass.h"
#include "model/layer_plan.h"
#include "ops/linear/sm90.h"
#include "ops/router/sm90.h"

namespace gannet {

struct CudaForwardOptions {
  int64_t max_rows = 2048;    // of one pass
  int64_t max_sequences = 1;  // slots
  int64_t max_tokens = 0;     // longest sequence
  bool graphs = true;         // false: every kernel is launched by the host
};

// What the CUDA variants of the ops cannot run, by name; empty otherwise.
Status check_cuda_config(const Config& config);

// What CudaForward will take, in bytes.
struct CudaMemoryPlan {
  int64_t weights = 0;
  int64_t cache = 0;
  int64_t buffers = 0;
  int64_t host_tables = 0;  // pinned host memory

  int64_t gpu() const { return weights + cache + buffers; }
  std::string text() const;
};
CudaMemoryPlan plan_cuda_memory(const TensorSource& source, const BlockPool& pool, const CudaForwardOptions& options);
// Refuses a plan that the free memory of the current GPU cannot hold, in words that say what could be smaller.
Status check_fits(const CudaMemoryPlan& plan);

// Buffers of one pass, device memory, for max_rows rows. Activations are bf16; what a quantiser or a norm takes is
// float.
struct CudaWorkspace {
  CudaWorkspace(const Config& config, int64_t max_rows, bool measure = false);

  // The residual streams and what hyper_apply makes of them; once for all rows, once for the kept ones.
  struct Activations {
    __nv_bfloat16* streams = nullptr;  // [rows, 4, hidden]
    float* pre = nullptr;              // [rows, 4]
    __nv_bfloat16* x = nullptr;        // [rows, hidden]: values of Q8
    __nv_bfloat16* operand = nullptr;  // [rows, hidden]
  };
  DeviceArena arena;
  Activations all, kept;
  float* post = nullptr;     // [rows, 4]
  float* mix = nullptr;      // [rows, 4, 4]
  float* partial = nullptr;  // hyper_mix's

  float* projected = nullptr;             // [rows, q_lora_rank + 512], or the compressor's [rows, 1024]
  __nv_bfloat16* latent = nullptr;        // [rows, q_lora_rank]
  __nv_bfloat16* q = nullptr;             // [rows, heads, 512]
  __nv_bfloat16* heads = nullptr;         // [rows, heads, 512]
  __nv_bfloat16* grouped = nullptr;       // [rows, o_groups * o_lora_rank]
  __nv_bfloat16* y = nullptr;             // [rows, hidden]
  std::byte* records = nullptr;           // [layers, rows] window records
  __nv_bfloat16* entry_latent = nullptr;  // [rows, 512]
  float* key_projected = nullptr;         // [rows, 128]

  float* index_q = nullptr;             // [rows, index heads, 128]
  float* index_weights = nullptr;       // [rows, index heads]
  std::byte* index = nullptr;           // scratch
  int32_t* selected = nullptr;          // [rows, index_topk]
  int32_t* selected_counts = nullptr;   // [rows]
  int32_t* candidates = nullptr;        // [rows, candidate entries]
  int32_t* candidate_counts = nullptr;  // [rows]

  float* router_logits = nullptr;  // [rows, experts]
  ops::cuda::ExpertLists lists;
  int32_t* tiles = nullptr;               // scratch
  __nv_bfloat16* inner = nullptr;         // [rows * top_k, width]
  __nv_bfloat16* shared_inner = nullptr;  // [rows, shared width]
  float* outer = nullptr;                 // [rows * top_k, hidden]
  float* shared = nullptr;                // [rows, hidden]

  std::vector<__nv_bfloat16*> engram_rows;  // of each Engram layer: [rows, columns * dim]
  float* engram_kv = nullptr;               // [rows, 5 * hidden]

  __nv_bfloat16* head_x = nullptr;    // [kHeadRows, hidden]
  float* logits = nullptr;            // [kHeadRows, vocab_size]
  float* candidate_logits = nullptr;  // [kHeadRows, 64]
  int32_t* candidate_ids = nullptr;   // [kHeadRows, 64]
  float* candidate_sums = nullptr;    // [2, kHeadRows]
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
