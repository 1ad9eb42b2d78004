#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "cli/command.h"

namespace gannet::cli {

// Which model the benchmarks of whole passes run, and where.
struct PassOptions {
  std::string model = {};
  std::string device = "cpu";
  std::string synthetic = {};
  std::optional<int64_t> layers = {};
  std::optional<int64_t> unique_experts = {};
  int64_t threads = 0;
  bool json = false;
};
void add_pass_options(Command& command, PassOptions& options);

// The ops of one pass: a decode step of `rows` sequences, or with rows 0 a prompt's first pass.
Status bench_model_ops(const PassOptions& options, int64_t rows, int64_t context);

}  // namespace gannet::cli
