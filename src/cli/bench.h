#pragma once

#include "cli/command.h"

// The benchmarks of `gannet bench`; one file each.
namespace gannet::cli {

void add_bench_serve(Command& bench);
void add_bench_scheduler(Command& bench);
void add_bench_replay(Command& bench);
void add_bench_latency(Command& bench);
void add_bench_throughput(Command& bench);

}  // namespace gannet::cli
