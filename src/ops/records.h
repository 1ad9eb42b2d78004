#pragma once

#include <cstddef>
#include <cstdint>

namespace gannet::ops {

// Packed cache records of one kind and sequence, spread over blocks of a pool: record i is number i % block_records of
// block block_table[i / block_records].
struct PagedRecords {
  std::byte* base = nullptr;  // of this kind's first record in block 0 of the pool
  const int32_t* block_table = nullptr;
  int64_t block_stride = 0;   // bytes from one block of the pool to the next
  int64_t block_records = 1;  // records of this kind in a block
  int64_t record_bytes = 0;

  std::byte* at(int64_t i) const {
    return base + block_table[i / block_records] * block_stride + i % block_records * record_bytes;
  }
};

}  // namespace gannet::ops
