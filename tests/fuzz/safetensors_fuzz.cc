#include <sys/mman.h>
#include <unistd.h>

#include "checkpoint/config.h"
#include "checkpoint/safetensors.h"
#include "fuzz.h"

// A safetensors file: its tensors must lie inside of it. The same bytes as a config.json must be read or refused.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gannet;
  static const int file = memfd_create("fuzz", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  fuzz::require(ftruncate(file, 0) == 0 && pwrite(file, data, size, 0) == static_cast<ssize_t>(size), "no memory file");
  if (const auto opened = SafetensorsFile::open(path)) {
    uint64_t sum = 0;
    for (const auto& [name, tensor] : opened->tensors()) {
      for (const std::byte byte : tensor.bytes) sum += static_cast<uint64_t>(byte);
    }
    fuzz::require(sum <= 255 * static_cast<uint64_t>(size) * (1 + opened->tensors().size()), "tensors beyond the file");
  }
  (void)load_config(path);
  return 0;
}
