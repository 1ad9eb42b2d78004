#pragma once

#include <cstdint>

// The warpgroup's matrix instruction: 64 keys (registers) x N query heads (shared memory), 16 channels at a time.
namespace gannet::ops::cuda {

__device__ inline void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
// Until no more than `pending` groups are under way.
template <int pending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(pending) : "memory");
}
// Keeps the compiler from moving uses of accumulators across the wait.
template <int n>
__device__ inline void pin(float (&d)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Of a matrix of 128-byte rows in shared memory, groups of 8 rows being 1024 bytes apart, in the 128-byte swizzle: the
// 16-byte chunk c of row r lies at chunk c ^ (r % 8).
__device__ inline uint64_t matrix_descriptor(uint32_t shared_address) {
  return (shared_address >> 4 & 0x3fffU) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

#define GANNET_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define GANNET_D16(i) GANNET_D4(i), GANNET_D4(i + 4), GANNET_D4(i + 8), GANNET_D4(i + 12)
#define GANNET_INPUTS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor), "r"(static_cast<int>(accumulate))

// d = a b (+ d). Thread 32 w + 4 g + t holds d[4 j + 0, 1]: key 16 w + g, columns 8 j + 2 t and the next, and d[4 j +
// 2, 3]: key 16 w + g + 8; a[0], a[2]: key 16 w + g, channels 2 t, 2 t + 1 and 2 t + 8, 2 t + 9; a[1], a[3]: key + 8.
__device__ inline void wgmma_64(float (&d)[4], const uint32_t* a, uint64_t descriptor, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %9, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, {%4,%5,%6,%7}, %8, p, 1, 1, 0;\n}\n"
      : GANNET_D4(0)
      : GANNET_INPUTS);
}
__device__ inline void wgmma_64(float (&d)[16], const uint32_t* a, uint64_t descriptor, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}\n"
      : GANNET_D16(0)
      : GANNET_INPUTS);
}
__device__ inline void wgmma_64(float (&d)[32], const uint32_t* a, uint64_t descriptor, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, {%32,%33,%34,%35}, %36, p, 1, 1, 0;\n}\n"
      : GANNET_D16(0), GANNET_D16(16)
      : GANNET_INPUTS);
}
__device__ inline void wgmma_64(float (&d)[64], const uint32_t* a, uint64_t descriptor, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}\n"
      : GANNET_D16(0), GANNET_D16(16), GANNET_D16(32), GANNET_D16(48)
      : GANNET_INPUTS);
}
#undef GANNET_D4
#undef GANNET_D16
#undef GANNET_INPUTS

}  // namespace gannet::ops::cuda
