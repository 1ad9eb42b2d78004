#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/config.h"

namespace gannet {

struct ModelBenchOptions {
  int64_t unique_experts = 128;  // routed experts of a layer with weights of their own; the others share them
  int64_t max_rows = 8192;       // of one pass
  int64_t max_sequences = 256;   // that decode at once
  int64_t max_tokens = 0;        // longest context
  int64_t cache_tokens = 0;      // room in the cache, all sequences together
  std::function<void(int64_t, int64_t)> progress = {};  // layers loaded, and their number
};

// A model of random weights whose passes can be timed: shapes whose checkpoint does not fit or is not there.
class ModelBench {
 public:
  virtual ~ModelBench() = default;

  struct Step {
    double seconds = 0;         // median of a step, as the engine sees it: batch in, logits on the device
    double active_experts = 0;  // routed experts that it ran on, of the last layer
  };
  // One row for each of `sequences` sequences, all of that context.
  virtual Step decode(int64_t sequences, int64_t context, int repeats) = 0;
  // A prompt in passes of at most max_rows; decoder layers on its last window only, with `replay`. Seconds.
  virtual double prefill(int64_t tokens, bool replay) = 0;

  struct OpTime {
    std::string name;
    int64_t launches = 0;
    double seconds = 0;
    double bytes = 0;  // that must at least be read or written
    double operations = 0;
  };
  // Ops of a decode step, or of a pass over the first max_rows tokens of a prompt (sequences = 0, context = its
  // length).
  virtual std::vector<OpTime> ops(int64_t sequences, int64_t context) = 0;

  virtual double read_bandwidth() = 0;  // bytes a second that the device reads when it does nothing else
  virtual std::string device_name() const = 0;
  virtual std::string memory_text() const = 0;
  virtual double weight_bytes() const = 0;     // of everything but routed experts, that a step reads
  virtual double expert_bytes() const = 0;     // of one routed expert
  virtual double startup_seconds() const = 0;  // weights, buffers and graphs
};

// On the first GPU. Fails by name without one, or when the memory does not suffice.
Result<std::unique_ptr<ModelBench>> create_cuda_bench(const Config& config, const ModelBenchOptions& options);

}  // namespace gannet
