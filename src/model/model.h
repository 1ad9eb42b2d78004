#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/device.h"
#include "checkpoint/checkpoint.h"
#include "model/batch.h"
#include "model/engram_hash.h"
#include "model/forward_pass.h"
#include "model/layer_plan.h"
#include "model/weights.h"

namespace gannet {

// On the CPU every op takes the best variant that its Device allows; a GPU has a forward pass of its own (model/cuda).
enum class DeviceKind { cpu, cuda };

struct ModelOptions {
  DeviceKind device = DeviceKind::cpu;
  Activations activations = Activations::bf16;
  bool quantize_activations = true;  // Q8 in front of FP8 and FP4 linears
  int64_t max_rows = 512;            // of one forward pass
  int64_t max_tokens = 0;            // longest sequence; 0: the config's max_position_embeddings
  int64_t max_sequences = 1;         // sequence states, numbered from 0 by their slots
  bool graphs = true;                // on a GPU: kernels are launched as captured graphs
};

// Sees what goes into and comes out of every layer; for traces. `streams` [rows, hc_mult, hidden] are taken before
// Engram adds to them, `pre` [rows, hc_mult]. At the seam fewer rows may come out than went in.
class LayerObserver {
 public:
  virtual ~LayerObserver() = default;
  virtual void layer_in(int64_t layer, std::span<const int32_t> positions, const float* streams, const float* pre) = 0;
  virtual void layer_out(int64_t layer, std::span<const int32_t> positions, const float* streams, const float* pre) = 0;
};

// The model on one device: weights, plan and the buffers of a forward pass, all allocated here.
class Model {
 public:
  // `checkpoint` and `device` must outlive the model; on a GPU `pool` gives the cache its size. `token_map`
  // [vocab_size] holds Engram's compressed ids; it may be empty when the config has no Engram layer, and is checked
  // otherwise.
  static Result<std::unique_ptr<Model>> create(const Checkpoint& checkpoint, const Device& device,
                                               const BlockPool& pool, const ModelOptions& options,
                                               std::vector<int32_t> token_map);
  ~Model();

  const Config& config() const;
  const ModelPlan& plan() const;
  int64_t max_rows() const;

  // SequenceState::Start::history of a sequence that begins behind these ids; only the last few matter.
  std::vector<int32_t> history(std::span<const int32_t> ids) const;

  // Runs the batch's rows (at most max_rows) and advances their sequences. Writes logits [logit_rows, vocab_size], or,
  // for rows of which only candidates are wanted, candidates [logit_rows].
  void forward(const Batch& batch, float* logits, LayerObserver* observer = nullptr,
               RowCandidates* candidates = nullptr);
  // Whether a batch may ask for candidates: where logits would have to cross a bus.
  bool gives_candidates() const { return forward_->gives_candidates(); }

  // Tells where logits will be written to again and again, and when that is over.
  void pin(std::span<float> memory) { forward_->pin(memory); }
  void unpin(std::span<float> memory) { forward_->unpin(memory); }

  // See ForwardPass.
  void observe_ops(OpObserver* observer) { forward_->observe_ops(observer); }

  // Copies a sequence's window rings, window_state_bytes(), out of or into the model's memory.
  void save_windows(SequenceState& state, std::byte* to) { forward_->save_windows(state, to); }
  void restore_windows(SequenceState& state, const std::byte* from) { forward_->restore_windows(state, from); }

 private:
  class Forward;
  explicit Model(std::unique_ptr<ForwardPass> forward);
  std::unique_ptr<ForwardPass> forward_;
};

}  // namespace gannet
