#include "ops/cuda/pinned_memory.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "ops/cuda/check.h"

namespace gannet::ops::cuda {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kSmallPage = 4096;
constexpr int kCollapse = 25;  // MADV_COLLAPSE, Linux 6.1

// Writing to each page is what gives it memory. Several threads, since zeroing a terabyte with one takes minutes.
void touch(std::span<std::byte> bytes) {
  constexpr size_t kMostThreads = 16;
  const size_t pages = bytes.size() / kHugePage + 1;
  const size_t count = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, std::min(kMostThreads, pages));
  const size_t share = (pages + count - 1) / count * kHugePage;
  std::vector<std::thread> threads;
  for (size_t start = 0; start < bytes.size(); start += share) {
    const auto part = bytes.subspan(start, std::min(share, bytes.size() - start));
    threads.emplace_back([part] {
      for (size_t i = 0; i < part.size(); i += kSmallPage) *static_cast<volatile std::byte*>(&part[i]) = std::byte{0};
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// AnonHugePages of the mappings inside [begin, end), which /proc/self/smaps gives in kB.
size_t huge_bytes_of(std::span<const std::byte> range) {
  const auto begin = reinterpret_cast<uintptr_t>(range.data()), end = begin + range.size();
  std::ifstream maps("/proc/self/smaps");
  std::string line;
  bool inside = false;
  size_t huge = 0;
  while (std::getline(maps, line)) {
    unsigned long long first = 0, last = 0, kilobytes = 0;
    if (std::sscanf(line.c_str(), "%llx-%llx ", &first, &last) == 2) {
      inside = first >= begin && last <= end;
    } else if (inside && std::sscanf(line.c_str(), "AnonHugePages: %llu kB", &kilobytes) == 1) {
      huge += kilobytes << 10;
    }
  }
  return huge;
}

void warn_once(size_t huge, size_t bytes) {
  static std::atomic<bool> warned = false;
  if (huge >= bytes || warned.exchange(true)) return;
  spdlog::warn(
      "pinned memory: {:.1f} of {:.1f} GiB in 2 MiB pages; random reads over PCIe are slower from small ones "
      "(see /sys/kernel/mm/transparent_hugepage/enabled)",
      static_cast<double>(huge) / 0x1p30, static_cast<double>(bytes) / 0x1p30);
}

size_t round_up(size_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

}  // namespace

PinnedMemory::PinnedMemory(size_t bytes, PageSize pages) {
  if (bytes == 0) return;
  const size_t padded = round_up(bytes);
  void* address =
      ::mmap(nullptr, padded + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) throw std::bad_alloc();
  mapped_ = {static_cast<std::byte*>(address), padded + kHugePage};
  const size_t shift = round_up(reinterpret_cast<uintptr_t>(address)) - reinterpret_cast<uintptr_t>(address);
  const auto whole = mapped_.subspan(shift, padded);
  ::madvise(whole.data(), padded, pages == PageSize::huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
  touch(whole);
  if (pages == PageSize::huge) {
    huge_bytes_ = huge_bytes_of(whole);
    if (huge_bytes_ < padded && ::madvise(whole.data(), padded, kCollapse) == 0) huge_bytes_ = huge_bytes_of(whole);
    warn_once(huge_bytes_, padded);
  }
  huge_bytes_ = std::min(huge_bytes_, bytes);
  bytes_ = whole.first(bytes);
  if (const cudaError_t error = cudaHostRegister(whole.data(), padded, cudaHostRegisterMapped); error != cudaSuccess) {
    ::munmap(mapped_.data(), mapped_.size());
    mapped_ = {};
    fail_cuda(error, "cudaHostRegister", __FILE__, __LINE__);
  }
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})),
      mapped_(std::exchange(other.mapped_, {})),
      huge_bytes_(std::exchange(other.huge_bytes_, 0)) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  std::swap(huge_bytes_, other.huge_bytes_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  if (mapped_.empty()) return;
  cudaHostUnregister(bytes_.data());
  ::munmap(mapped_.data(), mapped_.size());
}

}  // namespace gannet::ops::cuda
