#pragma once

#include <cstdint>

namespace gannet::server {

// What the kernel says of this process. 0 where it does not say.
struct ProcessStats {
  double cpu_seconds = 0;
  double start_time = 0;  // Unix time
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  int64_t open_files = 0;
  int64_t max_files = 0;
  int64_t threads = 0;
};

ProcessStats read_process_stats();

}  // namespace gannet::server
