#pragma once

#include <cstdint>

// Matrix products of a warpgroup whose operands lie in shared memory: bf16 with 128-byte swizzle. An operand is made of
// blocks of 64 columns (128 bytes) in which rows follow each other and 16-byte chunk c of row r lies at c ^ (r % 8);
// blocks are aligned to 1024 bytes. Warp w of the group holds rows 16 w .. 16 w + 15 of the result: lane 4 g + t has of
// columns 8 j + 2 t, 8 j + 2 t + 1 in d[4 j], d[4 j + 1] those of row g, in d[4 j + 2], d[4 j + 3] those of row g + 8.
namespace gannet::ops::cuda {

__device__ inline uint64_t operand(uint32_t shared_address, uint32_t leading_bytes) {
  constexpr uint64_t kSwizzle128 = 1, kEightRows = 1024;
  return kSwizzle128 << 62 | (kEightRows >> 4) << 32 | uint64_t{leading_bytes >> 4} << 16 |
         ((shared_address & 0x3ffff) >> 4);
}
// A step of 16 along the columns of a block: rows are those of the result.
__device__ inline uint64_t operand_along_columns(uint32_t shared_address) {
  return operand(shared_address, 16);
}
// A step of 16 rows: columns, in blocks `block_bytes` apart, are those of the result (`b_transposed`).
__device__ inline uint64_t operand_along_rows(uint32_t shared_address, uint32_t block_bytes) {
  return operand(shared_address, block_bytes);
}

__device__ inline void begin_wgmma() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}
__device__ inline void commit_wgmma() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}
template <int pending>
__device__ inline void wait_wgmma() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(pending) : "memory");
}

// Keeps the compiler from moving uses of the result over what begins and ends a product.
template <int n>
__device__ inline void pin_registers(float (&d)[n]) {
#pragma unroll
  for (int i = 0; i < n; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// d (+)= a b for 64 rows and 32 columns; without `add` the old d does not count.
template <bool b_transposed>
__device__ inline void wgmma_64x32(float (&d)[16], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, p, 1, 1, 0, %19;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(b_transposed ? 1 : 0));
}

// d (+)= a b for 64 rows and 128 columns; without `add` the old d does not count.
template <bool b_transposed>
__device__ inline void wgmma_64x128(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, 0, %67;\n"
      "}\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]),
        "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]),
        "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]),
        "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]),
        "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]),
        "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]),
        "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
        "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
      : "l"(a), "l"(b), "r"(static_cast<int>(add)), "n"(b_transposed ? 1 : 0));
}

// Before other units read shared memory that this thread has written.
__device__ inline void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

// Barriers in shared memory that count arrivals; `parity` is that of the number of phases completed before.
__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ inline void init_barrier(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(arrivals));
}
__device__ inline void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}
__device__ inline void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Among `threads` of the block; 0 is the whole block's.
template <int number, int threads>
__device__ inline void sync_threads() {
  asm volatile("bar.sync %0, %1;\n" ::"n"(number), "n"(threads) : "memory");
}

template <int registers>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(registers));
}
template <int registers>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(registers));
}

}  // namespace gannet::ops::cuda
