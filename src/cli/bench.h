#pragma once

#include <string>

#include "cli/command.h"

// The benchmarks of `gannet bench`; one file each.
namespace gannet::cli {

void add_bench_serve(Command& bench);
void add_bench_scheduler(Command& bench);
void add_bench_replay(Command& bench);
void add_bench_latency(Command& bench);
void add_bench_throughput(Command& bench);

// As the machine calls its processor.
std::string processor_name();

}  // namespace gannet::cli
