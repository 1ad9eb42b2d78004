#pragma once

#include <cstddef>
#include <cstdint>

namespace gannet::ops {

// Packed cache records of one sequence, in blocks of a pool: record i lies in block block_table[i / block_records].
struct PagedRecords {
  std::byte* pool = nullptr;
  const int32_t* block_table = nullptr;
  int64_t block_records = 1;
  int64_t record_bytes = 0;

  std::byte* at(int64_t i) const {
    return pool + (block_table[i / block_records] * block_records + i % block_records) * record_bytes;
  }
};

}  // namespace gannet::ops
