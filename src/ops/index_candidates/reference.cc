#include <algorithm>
#include <limits>

#include "ops/index_candidates/op.h"
#include "ops/math.h"
#include "ops/top_k/op.h"

namespace gannet::ops {
namespace {

void select_blocks(const IndexCandidatesParams& p, int64_t r) {
  const int64_t visible = p.visible[r];
  const int64_t blocks = (visible + p.block_size - 1) / p.block_size;
  float* best = scratch<struct BlockScoreTag>(blocks);
  const float* scores = p.scores + r * p.score_stride;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t end = std::min((b + 1) * p.block_size, visible);
    best[b] = *std::max_element(scores + b * p.block_size, scores + end);
  }
  if (blocks > 0) best[blocks - 1] = std::numeric_limits<float>::infinity();

  int32_t* chosen = scratch<struct BlockTag, int32_t>(std::min(blocks, p.max_blocks));
  const int64_t count = top_k_row(best, blocks, p.max_blocks, chosen);
  int32_t* entries = p.entries + r * p.entry_stride;
  int32_t written = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = std::min<int64_t>((chosen[i] + 1) * p.block_size, visible);
    for (int64_t j = chosen[i] * p.block_size; j < end; ++j) entries[written++] = static_cast<int32_t>(j);
  }
  p.counts[r] = written;
}

}  // namespace

void index_candidates_reference(const IndexCandidatesParams& p, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) select_blocks(p, r);
}

void index_candidates(const Device& device, const IndexCandidatesParams& p) {
  device.pool->parallel_for(p.rows, 1, [&](int64_t begin, int64_t end) { index_candidates_reference(p, begin, end); });
}

}  // namespace gannet::ops
