#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"
#include "model/layer_plan.h"

namespace gannet {

class LayerObserver;
class OpObserver;

// The forward pass on one device; Model is its public face.
class ForwardPass {
 public:
  virtual ~ForwardPass() = default;

  // See Model.
  virtual void forward(const Batch& batch, float* logits, LayerObserver* observer, RowCandidates* candidates) = 0;
  virtual bool gives_candidates() const = 0;
  virtual const Config& config() const = 0;
  virtual const ModelPlan& plan() const = 0;
  virtual int64_t max_rows() const = 0;
  virtual std::vector<int32_t> history(std::span<const int32_t> ids) const = 0;
  // Makes memory that logits will be written to quick to reach from the device, until unpin().
  virtual void pin(std::span<float> memory) = 0;
  virtual void unpin(std::span<float> memory) = 0;
  // Every op of later passes is told to `observer`, until it is null; only the CPU's pass does that.
  virtual void observe_ops(OpObserver*) {}
  virtual void save_windows(SequenceState& state, std::byte* to) = 0;
  virtual void restore_windows(SequenceState& state, const std::byte* from) = 0;
};

}  // namespace gannet
