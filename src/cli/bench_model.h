#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "cli/command.h"

namespace gannet::cli {

// Which model the benchmarks of whole passes run: random weights in the shape of the released one.
struct SyntheticOptions {
  std::string device = "cuda";
  std::string synthetic = "released";
  int64_t unique_experts = 128;
  bool json = false;
};
void add_synthetic_options(Command& command, SyntheticOptions& options);

// The ops of one pass: a decode step of `rows` sequences, or with rows 0 a prompt's first pass.
Status bench_model_ops(const SyntheticOptions& options, int64_t rows, int64_t context);

}  // namespace gannet::cli
