#pragma once

#include <cstddef>
#include <cstdint>

namespace gannet::ops::cuda {

// All pointers of the CUDA variants are device memory unless said otherwise, and everything that changes from step to
// step is read from there: a captured graph runs with other rows, lengths and tables than those it was captured with.

// One sequence's consecutive rows in the row set of the current half of the model.
struct Sequence {
  int32_t slot = 0;         // of its rings, pending pairs and block table
  int32_t first_row = 0;    // its first row in the set
  int32_t rows = 0;         // may be 0
  int32_t start = 0;        // position of its first row
  int32_t window_from = 0;  // first position whose window KV may be seen (bounded replay truncates there)
  int32_t cached = 0;       // global entries of tokens before this position exist and are not written
};

// The rows that a layer runs on. `count` rows are real; kernels are launched for `most` rows and leave out the rest.
struct Rows {
  const int32_t* count = nullptr;           // [1]
  int64_t most = 0;                         // the graph's number of rows; at least *count
  const int32_t* positions = nullptr;       // [most]
  const int32_t* sequence_of = nullptr;     // [most]: index into sequences
  const Sequence* sequences = nullptr;      // [most_sequences]
  const int32_t* sequence_count = nullptr;  // [1]
  int64_t most_sequences = 0;
};

// Packed cache records of one kind, spread over the blocks of the pool: record i of the sequence in slot s is number
// i % block_records of block block_tables[s * table_stride + i / block_records].
struct Records {
  std::byte* base = nullptr;  // of this kind's first record in block 0
  const int32_t* block_tables = nullptr;
  int64_t table_stride = 0;
  int64_t block_stride = 0;  // bytes
  int64_t block_records = 1;
  int64_t record_bytes = 0;
};

}  // namespace gannet::ops::cuda
