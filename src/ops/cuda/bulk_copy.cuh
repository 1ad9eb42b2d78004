#pragma once

#include <cstdint>

// Barriers in shared memory, and the bulk copies that complete on them.
namespace gannet::ops::cuda {

__device__ inline uint32_t shared_address(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// A barrier in shared memory (8 bytes): a phase ends after `arrivals` arrivals and all bytes that they announced.
__device__ inline void init_barrier(uint64_t* barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// Makes initialised barriers visible to bulk copies and to the cluster; then the block synchronises.
__device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}
__device__ inline void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Arrives when the thread's copy_async_16 so far have ended.
__device__ inline void arrive_after_copies(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void wait_barrier(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra out;\n"
      "bra again;\n"
      "out:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Within a cluster: the address of this block's `shared` in block `rank`, a store there, an arrival at a barrier there,
// and the wait that sees what was stored before the arrivals.
__device__ inline uint32_t cluster_address(const void* shared, uint32_t rank) {
  uint32_t address = 0;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(address) : "r"(shared_address(shared)), "r"(rank));
  return address;
}
__device__ inline void store_cluster(uint32_t address, float value) {
  asm volatile("st.shared::cluster.f32 [%0], %1;\n" ::"r"(address), "f"(value) : "memory");
}
__device__ inline void arrive_cluster(uint32_t barrier_address) {
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];\n" ::"r"(barrier_address) : "memory");
}
__device__ inline void wait_barrier_cluster(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra out;\n"
      "bra again;\n"
      "out:\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}
__device__ inline uint32_t cluster_rank() {
  uint32_t rank = 0;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
  return rank;
}
// Together: all threads of the cluster's blocks have come here.
__device__ inline void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

// For data that is read once: it leaves the second-level cache first.
__device__ inline uint64_t streaming_policy() {
  uint64_t policy = 0;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(policy));
  return policy;
}
// Multiples of 16 bytes, aligned to 16.
__device__ inline void copy_bulk(void* shared, const void* global, uint32_t bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ inline void copy_bulk(void* shared, const void* global, uint32_t bytes, uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
      "%4;\n" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

// Barrier `number` (not 0) of the first `threads` threads that come to it.
__device__ inline void sync_threads(int number, int threads) {
  asm volatile("bar.sync %0, %1;\n" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace gannet::ops::cuda
