#pragma once

#include <cuda_bf16.h>

#include <cstdint>

// Registers of the tensor cores: how packed weights become bf16 operands (packed_matrix.h), and the instructions.
namespace gannet::ops::cuda {

// Multiplies two bf16 by two powers of two; exact.
__device__ inline uint32_t scale_pair(uint32_t pair, uint32_t factors) {
  __nv_bfloat162 a, b;
  *reinterpret_cast<uint32_t*>(&a) = pair;
  *reinterpret_cast<uint32_t*>(&b) = factors;
  a = __hmul2(a, b);
  return *reinterpret_cast<uint32_t*>(&a);
}

// The bf16 with exponent field `b`, twice.
__device__ inline uint32_t scale_factors(uint32_t b) {
  return b * 0x00800080U;
}

// E4M3 codes in bytes 0 and 2 (first) and 1 and 3 (second) of a word, as two registers of a pair each. Sign to bit 15,
// the other seven bits to 10..4: a bf16 whose exponent is off by 120, subnormals included.
__device__ inline void decode_fp8(uint32_t word, uint32_t factors, uint32_t& first, uint32_t& second) {
  first = scale_pair(((word << 8) & 0x80008000U) | ((word << 4) & 0x07f007f0U), factors);
  second = scale_pair((word & 0x80008000U) | ((word >> 4) & 0x07f007f0U), factors);
}

// E2M1 codes of registers a0..a3. In each half of the word element r lies, as bits (sign; exponent, mantissa), at
//   r = 0: 15; 8 7 6    r = 1: 12; 5 4 3    r = 2: 9; 2 1 0    r = 3: 14; 13, 11 10
// so that one shift and one mask (three for the last) put it into a bf16 whose exponent is off by 126.
__device__ inline void decode_mxfp4(uint32_t word, uint32_t low_rows, uint32_t high_rows, uint32_t a[4]) {
  a[0] = scale_pair(word & 0x81c081c0U, low_rows);
  a[1] = scale_pair((word << 3) & 0x81c081c0U, high_rows);
  a[2] = scale_pair((word << 6) & 0x81c081c0U, low_rows);
  a[3] = scale_pair(((word << 1) & 0x80008000U) | ((word >> 5) & 0x01000100U) | ((word >> 4) & 0x00c000c0U), high_rows);
}

// Where the 4 bits (sign, exponent high, exponent low, mantissa) of element r go in a half; for packing.
__host__ __device__ inline uint32_t place_mxfp4(uint32_t code, int r) {
  const uint32_t sign = code >> 3, rest = code & 7;
  if (r == 3) return sign << 14 | (rest >> 2) << 13 | (rest & 3) << 10;
  return sign << (15 - 3 * r) | rest << (6 - 3 * r);
}

// d += a b: 16 rows of weights x 16 columns, 8 tokens. Thread 4 g + t holds d0, d1 = row g, tokens 2 t, 2 t + 1 and d2,
// d3 = row g + 8; b0 = token g, columns 2 t, 2 t + 1 and b1 = token g, columns 2 t + 8, 2 t + 9.
__device__ inline void mma_16x8x16(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8x8 bf16 matrices from shared memory; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t r[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}
__device__ inline void load_matrices_transposed(uint32_t r[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

// 16 bytes from global to shared memory, asynchronously, past the first-level cache; zeros when `valid` is false.
__device__ inline void copy_async_16(void* shared, const void* global, bool valid = true) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(address), "l"(global), "r"(bytes));
}
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;\n");
}
template <int pending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(pending));
}

// 16 bytes of a stream that is read once.
__device__ inline uint4 load_stream(const void* global) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];\n"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global));
  return v;
}

}  // namespace gannet::ops::cuda
