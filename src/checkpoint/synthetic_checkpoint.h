#pragma once

#include <cstdint>
#include <functional>

#include "base/thread_pool.h"
#include "checkpoint/checkpoint.h"

namespace gannet {

// The config of `layers` consecutive layers, from the last KV source on: every kind of work that the model's layers do
// but Engram's, which is left out, as are draft blocks and vision. That layer must have at least so many behind it,
// itself included. All layers with layers = num_hidden_layers only leaves out these parts.
Config some_layers(const Config& config, int64_t layers);

// Bytes of memory that the weights of such a checkpoint take.
int64_t synthetic_bytes(const Config& config, int64_t unique_experts);

// Random weights of that config in memory, for benchmarks of shapes whose checkpoint does not fit or is not there.
// Routed experts of a layer differ in their first `unique_experts`; the others are views of the same memory.
// `progress(bytes, of all)` may be empty.
Checkpoint synthetic_checkpoint(const Config& config, int64_t unique_experts, ThreadPool& threads,
                                const std::function<void(int64_t, int64_t)>& progress);

}  // namespace gannet
