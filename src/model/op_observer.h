#pragma once

namespace gannet {

// What an op must at least do.
struct OpCost {
  double bytes = 0;              // of weights and cache records that it reads, each once
  double operations = 0;         // of products of bf16 values, two for a multiply-add
  double vector_operations = 0;  // of products that need fp32
  double experts = 0;            // routed ones that it ran on

  OpCost& operator+=(const OpCost& more) {
    bytes += more.bytes;
    operations += more.operations;
    vector_operations += more.vector_operations;
    experts += more.experts;
    return *this;
  }
};

// Hears of every op of a pass on the CPU; for benchmarks. `seconds` is the time since the op before, so that nothing
// between two ops is lost.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void op(const char* name, double seconds, const OpCost& cost) = 0;
};

}  // namespace gannet
