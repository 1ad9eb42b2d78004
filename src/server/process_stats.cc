#include "server/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>

namespace gannet::server {
namespace {

std::string content(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

int64_t count_open_files() {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  int64_t count = -1;  // the one that reads the directory
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) ++count;
  return count < 0 ? 0 : count;
}

// Fields of proc(5)'s stat, behind the program's name, which may hold anything.
std::array<double, 24> stat_fields() {
  std::array<double, 24> fields{};
  const std::string stat = content("/proc/self/stat");
  const auto name_end = stat.rfind(')');
  if (name_end == std::string::npos) return fields;
  std::istringstream rest(stat.substr(name_end + 1));
  std::string state;
  rest >> state;
  for (auto& field : fields) rest >> field;
  return fields;
}

// Seconds since the machine was started.
double uptime() {
  double seconds = 0;
  std::istringstream(content("/proc/uptime")) >> seconds;
  return seconds;
}

}  // namespace

ProcessStats read_process_stats() {
  // Positions behind the state; stat(5) counts them from 1 with two fields and the state before.
  constexpr size_t kUserTime = 14 - 4;
  constexpr size_t kSystemTime = 15 - 4;
  constexpr size_t kThreads = 20 - 4;
  constexpr size_t kStart = 22 - 4;
  constexpr size_t kVirtual = 23 - 4;
  constexpr size_t kResident = 24 - 4;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  const auto fields = stat_fields();
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();

  ProcessStats stats;
  stats.cpu_seconds = (fields[kUserTime] + fields[kSystemTime]) / ticks;
  stats.threads = static_cast<int64_t>(fields[kThreads]);
  stats.start_time = now.count() - uptime() + fields[kStart] / ticks;
  stats.virtual_bytes = static_cast<int64_t>(fields[kVirtual]);
  stats.resident_bytes = static_cast<int64_t>(fields[kResident]) * sysconf(_SC_PAGESIZE);
  stats.open_files = count_open_files();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_files = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

}  // namespace gannet::server
