#include "ops/index_scores/sm90.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "ops/cuda/launch.cuh"
#include "ops/index_scores/sm90_kernels.h"

namespace gannet::ops::cuda {
namespace {

constexpr int64_t kTileRows = 8;
// From this many rows on, neighbouring rows are likely to be of one sequence and worth a tile.
constexpr int64_t kRowsForTiles = 16;
constexpr int64_t kAlignment = 256;

constexpr int64_t divided_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}
// Blocks that share a row's, or a tile's, keys.
int64_t stretches(int64_t rows) {
  return std::max<int64_t>(1, kMultiprocessors / std::max<int64_t>(1, rows));
}
int64_t most_stretches(int64_t most) {
  return most < kRowsForTiles ? stretches(most) : std::max(stretches(most), stretches(divided_up(most, kTileRows)));
}

// Hands out parts of the scratch memory; with a null base it only counts.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t n) {
    T* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + size_);
    size_ += divided_up(n * static_cast<int64_t>(sizeof(T)), kAlignment) * kAlignment;
    return part;
  }
  int64_t size() const { return size_; }

 private:
  std::byte* base_;
  int64_t size_ = 0;
};

StretchLists take_lists(Carver& carver, int64_t most, int64_t k) {
  const int64_t lists = most * most_stretches(most);
  const int capacity = list_capacity(k);
  return {.codes = carver.take<uint32_t>(lists * capacity),
          .entries = carver.take<uint32_t>(lists * capacity),
          .counts = carver.take<uint32_t>(lists),
          .bounds = carver.take<uint32_t>(lists),
          .capacity = capacity};
}

void check(const IndexSelectParams& p) {
  GANNET_CHECK(p.heads > 0 && p.heads <= 64 && p.heads % 4 == 0);
  GANNET_CHECK(p.keys.record_bytes == 68);
  GANNET_CHECK(p.k > 0 && p.k <= 512 && p.k <= p.selected_stride);
  if (!p.make_candidates && !p.use_candidates) return;
  GANNET_CHECK(std::has_single_bit(static_cast<uint64_t>(p.block_size)) && p.block_size <= 32);
  GANNET_CHECK(p.max_blocks > 0 && p.max_blocks <= 2048);
}

void score_rows(cudaStream_t stream, const SelectArguments& a, int row_stretches) {
  if (a.p.heads <= 8) return launch_index_rows<8>(stream, a, row_stretches);
  if (a.p.heads <= 32) return launch_index_rows<32>(stream, a, row_stretches);
  launch_index_rows<64>(stream, a, row_stretches);
}
void score_tiles(cudaStream_t stream, const SelectArguments& a, int tile_stretches) {
  const bool small = a.tile_rows == 4;
  if (a.p.heads <= 8) {
    return small ? launch_index_tiles<8, 4>(stream, a, tile_stretches)
                 : launch_index_tiles<8, 8>(stream, a, tile_stretches);
  }
  if (a.p.heads <= 32) {
    return small ? launch_index_tiles<32, 4>(stream, a, tile_stretches)
                 : launch_index_tiles<32, 8>(stream, a, tile_stretches);
  }
  launch_index_tiles<64, 4>(stream, a, tile_stretches);
}

}  // namespace

int64_t index_select_scratch(int64_t most, int64_t k, int64_t max_blocks) {
  int64_t size = 0;
  for (int64_t rows = 1; rows <= most; ++rows) {
    if (most_stretches(rows) == 1) continue;
    Carver carver(nullptr);
    carver.take<int>(rows);
    carver.take<uint32_t>(rows * kDenseEntries);
    take_lists(carver, rows, k);
    if (max_blocks > 0) take_lists(carver, rows, max_blocks);
    size = std::max(size, carver.size());
  }
  return size;
}

void index_select_with_scores(cudaStream_t stream, const IndexSelectParams& p, float* scores, int64_t stride) {
  if (p.rows.most == 0) return;
  check(p);
  SelectArguments a;
  a.p = p;
  a.scores = scores;
  a.scores_stride = stride;
  a.weight_scale = 1.0F / (std::sqrt(128.0F) * std::sqrt(static_cast<float>(p.heads)));
  if (std::has_single_bit(static_cast<uint64_t>(p.keys.block_records))) {
    a.block_shift = std::countr_zero(static_cast<uint64_t>(p.keys.block_records));
  }
  if (p.rows.most >= kRowsForTiles && !p.use_candidates) a.tile_rows = p.heads > 32 || p.make_candidates ? 4 : 8;
  while (a.block_rows < 4 && p.rows.most > kMultiprocessors * a.block_rows) a.block_rows *= 2;

  a.stretches = static_cast<int>(most_stretches(p.rows.most));
  if (a.stretches > 1) {
    Carver carver(p.scratch);
    a.active = carver.take<int>(p.rows.most);
    a.dense = carver.take<uint32_t>(p.rows.most * kDenseEntries);
    a.best = take_lists(carver, p.rows.most, p.k);
    if (p.make_candidates) a.blocks = take_lists(carver, p.rows.most, p.max_blocks);
  }
  score_rows(stream, a, static_cast<int>(stretches(p.rows.most)));
  if (a.tile_rows > 0) score_tiles(stream, a, static_cast<int>(stretches(divided_up(p.rows.most, a.tile_rows))));
  if (a.stretches > 1) launch_index_merge(stream, a);
}

void index_select(cudaStream_t stream, const IndexSelectParams& params) {
  index_select_with_scores(stream, params, nullptr, 0);
}

}  // namespace gannet::ops::cuda
