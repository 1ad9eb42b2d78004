#pragma once

#include "ops/cuda/rows.h"

namespace gannet::ops::cuda {

// Record i of the sequence in this slot.
__device__ inline std::byte* record_address(const Records& records, int slot, uint32_t i) {
  const uint32_t block = i / static_cast<uint32_t>(records.block_records);
  return records.base + records.block_tables[slot * records.table_stride + block] * records.block_stride +
         (i - block * records.block_records) * records.record_bytes;
}

}  // namespace gannet::ops::cuda
