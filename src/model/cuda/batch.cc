#include "model/cuda/batch.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/cuda/check.h"

namespace gannet {

using ops::cuda::Rows;
using ops::cuda::Sequence;

CudaBatch::CudaBatch(const Config& config, int64_t max_rows, int64_t max_sequences,
                     const std::optional<EngramHash>& hash, std::vector<int64_t> table_rows)
    : max_rows_(max_rows),
      max_sequences_(max_sequences),
      hash_(hash),
      table_sizes_(std::move(table_rows)),
      engram_stride_(hash ? max_rows * hash->columns() : 0) {
  encoder_ = reserve_rows();
  decoder_ = reserve_rows();
  ids_ = reserve(max_rows * 4);
  kept_ = reserve(max_rows * 4);
  logit_rows_ = reserve(max_rows * 4);
  logit_counts_ = reserve((max_rows / kHeadRows + 1) * 4);
  // Last: the largest part, of which only what is used is copied.
  engram_rows_ = reserve(static_cast<int64_t>(config.engram_layer_ids.size()) * engram_stride_ * 8);
  pinned_ = PinnedBuffer(bytes_);
  buffer_ = DeviceBuffer(bytes_);
  std::fill_n(pinned_.data(), bytes_, std::byte{0});
  GANNET_CUDA_CHECK(cudaMemset(buffer_.data(), 0, static_cast<size_t>(bytes_)));
}

int64_t CudaBatch::reserve(int64_t bytes) {
  constexpr int64_t kAlignment = 256;
  return std::exchange(bytes_, bytes_ + (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

CudaBatch::RowSet CudaBatch::reserve_rows() {
  return {.count = reserve(4),
          .sequence_count = reserve(4),
          .positions = reserve(max_rows_ * 4),
          .sequence_of = reserve(max_rows_ * 4),
          .sequences = reserve(max_sequences_ * static_cast<int64_t>(sizeof(Sequence)))};
}

Rows CudaBatch::rows(const RowSet& set, int64_t most) const {
  return {.count = device<int32_t>(set.count),
          .most = most,
          .positions = device<int32_t>(set.positions),
          .sequence_of = device<int32_t>(set.sequence_of),
          .sequences = device<Sequence>(set.sequences),
          .sequence_count = device<int32_t>(set.sequence_count),
          .most_sequences = std::min(most, max_sequences_)};
}

Rows CudaBatch::encoder_rows(int64_t most) const {
  return rows(encoder_, most);
}

Rows CudaBatch::decoder_rows(int64_t most) const {
  return rows(decoder_, most);
}

void CudaBatch::fill(cudaStream_t stream, const Batch& batch) {
  GANNET_CHECK(batch.rows() <= max_rows_);
  GANNET_CHECK(std::ssize(batch.sequences) <= max_sequences_);
  fill_rows(batch);
  std::copy(batch.ids.begin(), batch.ids.end(), host<int32_t>(ids_));
  fill_logit_rows(batch);
  fill_table_rows(batch);
  GANNET_CUDA_CHECK(cudaMemcpyAsync(buffer_.data(), pinned_.data(), static_cast<size_t>(engram_rows_),
                                    cudaMemcpyHostToDevice, stream));
  for (size_t e = 0; hash_ && e < table_sizes_.size(); ++e) {
    const int64_t place = engram_rows_ + static_cast<int64_t>(e) * engram_stride_ * 8;
    const auto bytes = static_cast<size_t>(rows_ * hash_->columns() * 8);
    GANNET_CUDA_CHECK(
        cudaMemcpyAsync(buffer_.data() + place, pinned_.data() + place, bytes, cudaMemcpyHostToDevice, stream));
  }
}

// The rows of both halves: all of them, and those at or behind their sequence's decoder_from().
void CudaBatch::fill_rows(const Batch& batch) {
  positions_.clear();
  kept_positions_.clear();
  int32_t index = 0;
  for (const SequenceRows& sequence : batch.sequences) {
    const SequenceState& state = *sequence.state;
    const int64_t start = state.length();
    const int64_t dropped = std::clamp<int64_t>(state.decoder_from() - start, 0, sequence.rows);
    GANNET_CHECK(sequence.first_row == std::ssize(positions_));
    Sequence in{.slot = static_cast<int32_t>(state.slot()),
                .first_row = static_cast<int32_t>(sequence.first_row),
                .rows = static_cast<int32_t>(sequence.rows),
                .start = static_cast<int32_t>(start),
                .window_from = static_cast<int32_t>(state.encoder_from()),
                .cached = static_cast<int32_t>(state.cached())};
    host<Sequence>(encoder_.sequences)[index] = in;
    in.first_row = static_cast<int32_t>(kept_positions_.size());
    in.rows -= static_cast<int32_t>(dropped);
    in.start += static_cast<int32_t>(dropped);
    in.window_from = static_cast<int32_t>(state.decoder_from());
    host<Sequence>(decoder_.sequences)[index] = in;
    for (int64_t i = 0; i < sequence.rows; ++i) {
      if (i >= dropped) {
        host<int32_t>(kept_)[kept_positions_.size()] = static_cast<int32_t>(positions_.size());
        host<int32_t>(decoder_.sequence_of)[kept_positions_.size()] = index;
        kept_positions_.push_back(static_cast<int32_t>(start + i));
      }
      host<int32_t>(encoder_.sequence_of)[positions_.size()] = index;
      positions_.push_back(static_cast<int32_t>(start + i));
    }
    ++index;
  }
  std::copy(positions_.begin(), positions_.end(), host<int32_t>(encoder_.positions));
  std::copy(kept_positions_.begin(), kept_positions_.end(), host<int32_t>(decoder_.positions));
  rows_ = std::ssize(positions_);
  kept_rows_ = std::ssize(kept_positions_);
  *host<int32_t>(encoder_.count) = static_cast<int32_t>(rows_);
  *host<int32_t>(decoder_.count) = static_cast<int32_t>(kept_rows_);
  *host<int32_t>(encoder_.sequence_count) = index;
  *host<int32_t>(decoder_.sequence_count) = index;
}

void CudaBatch::fill_logit_rows(const Batch& batch) {
  const int32_t* kept = host<int32_t>(kept_);
  int64_t n = 0;
  for (const int32_t row : batch.logit_rows) {
    const int32_t* found = std::lower_bound(kept, kept + kept_rows_, row);
    GANNET_CHECK(found < kept + kept_rows_ && *found == row);
    host<int32_t>(logit_rows_)[n++] = static_cast<int32_t>(found - kept);
  }
  for (int64_t first = 0; first < n; first += kHeadRows) {
    host<int32_t>(logit_counts_)[first / kHeadRows] = static_cast<int32_t>(std::min(kHeadRows, n - first));
  }
}

void CudaBatch::fill_table_rows(const Batch& batch) {
  if (!hash_) return;
  const int64_t columns = hash_->columns();
  for (const SequenceRows& sequence : batch.sequences) {
    std::vector<int32_t>& history = sequence.state->history();
    for (int64_t r = sequence.first_row; r < sequence.first_row + sequence.rows; ++r) {
      const int32_t current = hash_->compressed(batch.ids[r]);
      for (size_t e = 0; e < table_sizes_.size(); ++e) {
        const auto engram = static_cast<int64_t>(e);
        int64_t* rows = host<int64_t>(engram_rows_) + engram * engram_stride_ + r * columns;
        hash_->rows(engram, current, history, rows);
        // Only synthetic tables have fewer rows than the hash knows.
        for (int64_t c = 0; c < columns; ++c) rows[c] %= table_sizes_[e];
      }
      hash_->advance(current, history);
    }
  }
}

}  // namespace gannet
