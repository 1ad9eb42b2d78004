#pragma once

#include <cstddef>
#include <span>

namespace gannet::ops::cuda {

enum class PageSize { small, huge };

// Host memory that the device reads over PCIe where it lies, at the same address: Engram's tables. With 2 MiB pages, as
// far as the system gives them, the device's translations reach further, so random rows come faster. Every page is
// touched before it is pinned, since pinning fixes whatever page is there. Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  // All bytes are zero. Throws std::bad_alloc or CudaError. PageSize::small is for comparisons.
  explicit PinnedMemory(size_t bytes, PageSize pages = PageSize::huge);
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();

  std::byte* data() const { return bytes_.data(); }
  size_t bytes() const { return bytes_.size(); }
  // How much of it lay in huge pages when it was pinned, by the kernel's own account.
  size_t huge_bytes() const { return huge_bytes_; }

 private:
  std::span<std::byte> bytes_;
  std::span<std::byte> mapped_;  // bytes_ and what aligning them left over
  size_t huge_bytes_ = 0;
};

}  // namespace gannet::ops::cuda
