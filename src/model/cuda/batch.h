#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "model/batch.h"
#include "model/cuda/memory.h"
#include "model/engram_hash.h"
#include "model/layer_plan.h"
#include "ops/cuda/rows.h"

namespace gannet {

// What a pass reads of its batch on the device: row sets of both halves, ids, Engram's table rows, wanted rows. One
// buffer, filled on the host and copied at once in front of the pass.
class CudaBatch {
 public:
  CudaBatch(const Config& config, int64_t max_rows, int64_t max_sequences, const std::optional<EngramHash>& hash,
            std::vector<int64_t> table_rows);

  // Describes the batch, advances the n-gram histories, and enqueues the copy.
  void fill(cudaStream_t stream, const Batch& batch);

  // Of the last batch filled.
  int64_t rows() const { return rows_; }            // of the encoder half
  int64_t kept_rows() const { return kept_rows_; }  // of the decoder half
  int64_t sequences() const { return *host<int32_t>(encoder_.sequence_count); }
  const std::vector<int32_t>& positions() const { return positions_; }
  const std::vector<int32_t>& kept_positions() const { return kept_positions_; }

  // Device memory; `most` is the number of rows that kernels are launched for.
  ops::cuda::Rows encoder_rows(int64_t most) const;
  ops::cuda::Rows decoder_rows(int64_t most) const;
  const int32_t* ids() const { return device<int32_t>(ids_); }
  // Encoder row of each decoder row.
  const int32_t* kept() const { return device<int32_t>(kept_); }
  const int64_t* table_rows(int64_t engram) const { return device<int64_t>(engram_rows_) + engram * engram_stride_; }
  // Decoder row of each wanted row, and how many there are in the chunk that begins at the i-th (a multiple of
  // kHeadRows).
  static constexpr int64_t kHeadRows = 256;
  const int32_t* logit_rows(int64_t first) const { return device<int32_t>(logit_rows_) + first; }
  const int32_t* logit_count(int64_t first) const { return device<int32_t>(logit_counts_) + first / kHeadRows; }

 private:
  // Places in the buffer, in bytes.
  struct RowSet {
    int64_t count = 0;
    int64_t sequence_count = 0;
    int64_t positions = 0;
    int64_t sequence_of = 0;
    int64_t sequences = 0;
  };
  int64_t reserve(int64_t bytes);
  RowSet reserve_rows();
  template <class T>
  T* host(int64_t place) const {
    return reinterpret_cast<T*>(pinned_.data() + place);
  }
  template <class T>
  const T* device(int64_t place) const {
    return reinterpret_cast<const T*>(buffer_.data() + place);
  }
  ops::cuda::Rows rows(const RowSet& set, int64_t most) const;
  void fill_rows(const Batch& batch);
  void fill_logit_rows(const Batch& batch);
  void fill_table_rows(const Batch& batch);

  int64_t max_rows_;
  int64_t max_sequences_;
  const std::optional<EngramHash>& hash_;
  std::vector<int64_t> table_sizes_;  // rows of each table that there are

  int64_t bytes_ = 0;
  RowSet encoder_, decoder_;
  int64_t ids_ = 0;
  int64_t kept_ = 0;
  int64_t logit_rows_ = 0;
  int64_t logit_counts_ = 0;
  int64_t engram_rows_ = 0;
  int64_t engram_stride_ = 0;
  PinnedBuffer pinned_;
  DeviceBuffer buffer_;

  int64_t rows_ = 0;
  int64_t kept_rows_ = 0;
  std::vector<int32_t> positions_;
  std::vector<int32_t> kept_positions_;
};

}  // namespace gannet
