#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "model/model.h"
#include "model/op_observer.h"
#include "ops/attention/op.h"
#include "ops/kv_insert/op.h"
#include "ops/linear/op.h"

namespace gannet {

// The rows that the current layer runs on: all rows of the batch up to the seam, the kept ones behind it.
struct RowSet {
  struct Range {
    SequenceState* state = nullptr;
    int64_t first_row = 0;
    int64_t rows = 0;
    int64_t start = 0;  // position of the first row
  };
  std::vector<int32_t> positions;    // [rows]
  std::vector<int32_t> sequence_of;  // [rows]: index into ranges
  std::vector<int32_t> batch_row;    // [rows]: number in the batch
  std::vector<Range> ranges;         // one per sequence of the batch; may be empty ones

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  void clear() {
    positions.clear();
    sequence_of.clear();
    batch_row.clear();
    ranges.clear();
  }
};

// Buffers of one pass, sized for max_rows rows once. Activations are float (base/device.h).
struct Workspace {
  Workspace(const Config& config, int64_t max_rows, int64_t max_tokens);

  std::vector<float> streams;  // [rows, hc_mult, hidden]
  std::vector<float> pre;      // [rows, hc_mult]: weights of the next sublayer's input
  std::vector<float> post;     // [rows, hc_mult]
  std::vector<float> mix;      // [rows, hc_mult, hc_mult]
  std::vector<float> x;        // [rows, hidden]: normed input of the sublayer, for products with Q8 in front
  std::vector<float> operand;  // [rows, hidden]: the same rounded, for products without
  std::vector<float> y;        // [rows, hidden]: its output

  std::vector<float> query_latent;        // [rows, q_lora_rank]
  std::vector<float> q;                   // [rows, heads, head_dim]
  std::vector<float> heads;               // [rows, heads, head_dim]
  std::vector<float> kv;                  // [rows, head_dim]: window kv, then the compressor's a
  std::vector<float> gate;                // [rows, head_dim]: the compressor's gate
  std::vector<std::byte> window_records;  // [rows] records

  std::vector<float> index_q;             // [rows, index heads, index dim]
  std::vector<float> index_weights;       // [rows, index heads]
  std::vector<float> scores;              // [tile rows, most entries]
  std::vector<int32_t> visible;           // [rows]
  std::vector<int32_t> selected;          // [rows, index_topk]
  std::vector<int32_t> selected_counts;   // [rows]
  std::vector<int32_t> candidates;        // [rows, candidate_stride]
  std::vector<int32_t> candidate_counts;  // [rows]
  int64_t score_stride = 0;
  int64_t candidate_stride = 0;

  std::vector<int32_t> experts;       // [rows, num_experts_per_tok]
  std::vector<float> expert_weights;  // [rows, num_experts_per_tok]
  std::vector<int64_t> engram_rows;   // [Engram layers, rows, columns]
};

// One forward pass (spec: model 3, 5). forward() is the whole model on one screen; the other functions are its parts.
class Model::Forward final : public ForwardPass {
 public:
  Forward(const Checkpoint& checkpoint, const Device& device, const ModelOptions& options,
          std::optional<EngramHash> hash);

  void forward(const Batch& batch, float* logits, LayerObserver* observer, RowCandidates* candidates) override;
  bool gives_candidates() const override { return false; }

  const Config& config() const override { return config_; }
  const ModelPlan& plan() const override { return plan_; }
  int64_t max_rows() const override { return max_rows_; }
  std::vector<int32_t> history(std::span<const int32_t> ids) const override;
  void pin(std::span<float>) override {}
  void unpin(std::span<float>) override {}
  void observe_ops(OpObserver* observer) override { op_observer_ = observer; }
  void save_windows(SequenceState& state, std::byte* to) override;
  void restore_windows(SequenceState& state, const std::byte* from) override;

 private:
  void embed(const Batch& batch);
  void layer(int64_t n);
  void head(const Batch& batch, float* logits);

  void add_engram(int64_t n);
  void publish(int64_t n);  // a source's global entries and index keys
  void cut_rows();          // the seam: drops the rows that decoder layers need not run
  const std::vector<float>& frequencies(const LayerPlan& plan) const;
  void attention(int64_t n);                       // x -> y
  void project(int64_t n);                         // x -> queries and window records
  void project_both(const LayerWeights& weights);  // x -> query latents and window vectors, before their norms
  void attend(int64_t n);                          // -> heads; the chunk's records go into the rings
  void select_entries(int64_t n);                  // an index source's choice, for it and the layers that reuse it
  void select_tile(int64_t n, int64_t begin, int64_t end);
  bool select_all(int64_t n, int64_t begin, int64_t end);
  void keep_windows(int64_t n);
  void experts(int64_t n);                           // x -> y
  void mix_streams(const HyperSite& site);           // streams -> next pre, post, mix
  void apply(const float* y, const uint16_t* norm);  // y into the streams; next x
  // An inner product of the layer: its result is not rounded (docs/numerics.md, "Where activations are rounded").
  ops::LinearParams product(const std::vector<float>& x, const ops::WeightMatrix& weight, std::vector<float>& y,
                            bool quantize) const;
  void linear(const char* op, const std::vector<float>& x, const ops::WeightMatrix& weight, std::vector<float>& y,
              bool quantize);
  void hash_ngrams(const Batch& batch);

  // Tells the observer, if there is one, that an op has ended; `cost()` is what it had to do.
  template <class Cost>
  void ended(const char* op, const Cost& cost) {
    if (op_observer_ == nullptr) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - last_end_;
    op_observer_->op(op, seconds.count(), cost());
    last_end_ = std::chrono::steady_clock::now();
  }
  void ended(const char* op) {
    ended(op, [] { return OpCost{}; });
  }
  OpCost product_cost(const ops::WeightMatrix& weight) const;
  OpCost head_cost(int64_t rows) const;
  OpCost mix_cost() const;
  OpCost attention_cost(const LayerPlan& plan) const;
  OpCost selection_cost(const LayerPlan& plan) const;
  OpCost experts_cost(const LayerWeights& weights) const;

  const Config& config_;
  const Device& device_;
  ModelPlan plan_;
  Weights weights_;
  std::optional<EngramHash> hash_;
  Activations activations_;
  bool quantize_;
  int64_t max_rows_;
  float norm_eps_;
  std::vector<float> local_frequencies_;       // table L: layers without global attention
  std::vector<float> compressed_frequencies_;  // table C: all others

  Workspace work_;
  RowSet rows_;
  RowSet kept_;  // of cut_rows
  // Of the op at work; members, so that their memory stays.
  std::vector<ops::AttentionSequence> attention_sequences_;
  std::vector<ops::InsertSequence> insert_sequences_;
  std::vector<ops::PagedRecords> index_keys_;
  std::vector<int32_t> head_rows_;

  OpObserver* op_observer_ = nullptr;
  std::chrono::steady_clock::time_point last_end_;
};

}  // namespace gannet
