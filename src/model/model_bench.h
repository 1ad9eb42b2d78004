#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/config.h"

namespace gannet {

struct ModelBenchOptions {
  int64_t unique_experts = 128;  // of random weights: routed experts of a layer that differ; the others share theirs
  int64_t layers = 0;            // of random weights on the CPU: how many are run; 0: all
  int64_t threads = 0;           // on the CPU; 0: one for each core that this process may use
  int64_t max_rows = 8192;       // of one pass
  int64_t max_sequences = 256;   // that decode at once
  int64_t max_tokens = 0;        // longest context
  int64_t cache_tokens = 0;      // room in the cache, all sequences together
  std::function<void(int64_t, int64_t)> progress = {};  // of loading: how much of how much is done
};

// A model whose passes can be timed: a checkpoint's, or random weights for shapes whose checkpoint does not fit or is
// not there.
class ModelBench {
 public:
  virtual ~ModelBench() = default;

  struct Pass {
    double seconds = 0;         // median, as the engine sees it: batch in, logits on the device
    double best_seconds = 0;    // of the fastest
    double bytes = 0;           // that it must at least read; 0: not known
    double active_experts = 0;  // routed experts that it ran on, of a layer
    // Of all layers, where only some are run: each op's time by the number of layers that have it. 0: all are run.
    double all_seconds = 0;
    double all_bytes = 0;
  };
  // One row for each of `sequences` sequences, all of that context; `repeats` steps on a GPU, as many as it takes on
  // the CPU.
  virtual Pass decode(int64_t sequences, int64_t context, int repeats) = 0;
  // A prompt in passes of at most max_rows; decoder layers on its last window only, with `replay`.
  virtual Pass prefill(int64_t tokens, bool replay) = 0;

  struct OpTime {
    std::string name;
    int64_t launches = 0;
    double seconds = 0;       // median
    double best_seconds = 0;  // of the fastest; 0: not known
    double bytes = 0;         // that must at least be read or written
    double operations = 0;
    double vector_operations = 0;  // those that need fp32
  };
  // Ops of a decode step, or of a pass over the first max_rows tokens of a prompt (sequences = 0, context = its
  // length). Where only some layers are run, times and launches are extrapolated to all.
  virtual std::vector<OpTime> ops(int64_t sequences, int64_t context) = 0;

  // What the device reaches when it does nothing else: measured, but for a GPU's arithmetic, which is what it is known
  // for.
  struct Limits {
    double read = 0;               // bytes a second
    double operations = 0;         // a second, of bf16 products
    double vector_operations = 0;  // a second, of fp32 products; 0: they have no limit of their own
    std::string text;              // what they are, for people
  };
  virtual Limits limits() = 0;
  virtual std::string device_name() const = 0;
  virtual std::string weights_text() const = 0;  // what the weights are
  virtual std::string memory_text() const = 0;
  virtual bool runs_all_layers() const = 0;
  virtual double startup_seconds() const = 0;  // weights, buffers and graphs
};

// Random weights on the first GPU. Fails by name without one, or when the memory does not suffice.
Result<std::unique_ptr<ModelBench>> create_cuda_bench(const Config& config, const ModelBenchOptions& options);

// On the CPU: a checkpoint's weights, and random ones.
Result<std::unique_ptr<ModelBench>> create_cpu_bench(Checkpoint checkpoint, const ModelBenchOptions& options);
Result<std::unique_ptr<ModelBench>> create_cpu_bench(const Config& config, const ModelBenchOptions& options);

}  // namespace gannet
