#include "base/device.h"

#include <fstream>

namespace gannet {

const char* name_of(Simd simd) {
  switch (simd) {
    case Simd::none:
      return "none";
    case Simd::avx2:
      return "avx2";
    case Simd::avx512:
      return "avx512";
    case Simd::avx512_bf16:
      return "avx512_bf16";
  }
  return "none";
}

Simd detect_simd() {
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx512 && __builtin_cpu_supports("avx512bf16")) return Simd::avx512_bf16;
  if (avx512) return Simd::avx512;
  return avx2 ? Simd::avx2 : Simd::none;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

}  // namespace gannet
